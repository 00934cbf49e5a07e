-- name: insert
INSERT INTO outbox (topic, subject, dedupe_id, job_id, payload, created_at)
VALUES (:topic, :subject, :dedupe_id, :job_id, :payload, :created_at);

-- name: waiting
SELECT id, topic, subject, dedupe_id, job_id, payload, created_at FROM outbox ORDER BY id LIMIT :limit;

-- name: remove
DELETE FROM outbox WHERE id = :id;

-- name: count
SELECT count(*) AS waiting FROM outbox;

-- name: drop_job
DELETE FROM outbox WHERE topic = 'job' AND job_id = :job_id;
