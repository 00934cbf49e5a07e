-- name: insert
INSERT INTO jobs (id, request_id, type, node, lane, state, payload, max_attempts, queued_by, queued_at, deadline_at)
VALUES (:id, :request_id, :type, :node, :lane, 'queued', :payload, :max_attempts, :queued_by, :queued_at, :deadline_at);

-- name: by_id
SELECT * FROM jobs WHERE id = :id;

-- name: by_request
SELECT * FROM jobs WHERE request_id = :request_id;

-- name: open
SELECT * FROM jobs WHERE state IN ('queued', 'leased') ORDER BY queued_at, id LIMIT :limit;

-- name: count_open
SELECT count(*) AS open_jobs FROM jobs WHERE state IN ('queued', 'leased');

-- name: past_deadline
SELECT * FROM jobs WHERE state IN ('queued', 'leased') AND deadline_at <= :at ORDER BY deadline_at LIMIT :limit;

-- A job that ended while its message may still lie in the stream: the sequence is taken off once the message is gone.
-- name: unsettled
SELECT * FROM jobs
WHERE stream_sequence IS NOT NULL AND state NOT IN ('queued', 'leased') AND (finished_at, id) > (:after_at, :after_id)
ORDER BY finished_at, id LIMIT :limit;

-- name: lease
UPDATE jobs SET state = :state, attempt_count = :attempt WHERE id = :id AND state IN ('queued', 'leased');

-- name: finish
UPDATE jobs SET state = :state, finished_at = :at, failure = :failure
WHERE id = :id AND state IN ('queued', 'leased');

-- name: request_cancel
UPDATE jobs SET cancel_requested = 1 WHERE id = :id AND state IN ('queued', 'leased');

-- name: record_sequence
UPDATE jobs SET stream_sequence = :sequence WHERE id = :id;

-- name: settle
UPDATE jobs SET stream_sequence = NULL WHERE id = :id AND state NOT IN ('queued', 'leased');
