-- name: insert
INSERT INTO assessments
    (id, set_digest, profile_id, node, environment_id, fingerprint, verdict, body, created_by, created_at)
VALUES
    (:id, :set_digest, :profile_id, :node, :environment_id, :fingerprint, :verdict, :body, :created_by, :at);

-- name: get
SELECT id, body FROM assessments WHERE id = :id;

-- name: newest
SELECT id FROM assessments ORDER BY created_at DESC, id LIMIT :limit;

-- name: bodies
SELECT body FROM assessments WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY created_at DESC, id;

-- name: resolve
SELECT id FROM assessments WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
