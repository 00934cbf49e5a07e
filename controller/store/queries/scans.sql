-- name: insert
INSERT INTO scans (id, path) VALUES (:id, :path);

-- name: set_digest
UPDATE scans SET set_digest = :set_digest WHERE id = :id;

-- name: get
SELECT s.id, s.path, s.set_digest, j.node, j.state, j.queued_at, j.attempt_count, j.finished_at, j.failure,
    e.source_sha256
FROM scans s JOIN jobs j ON j.id = s.id LEFT JOIN scan_expectations e ON e.scan_id = s.id WHERE s.id = :id;

-- name: resolve
SELECT id FROM scans WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
