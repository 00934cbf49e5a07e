-- name: insert
INSERT INTO quarantines (id, sha256, set_digest, path, reason, quarantined_by, quarantined_at)
VALUES (:id, :sha256, :set_digest, :path, :reason, :quarantined_by, :at);

-- name: by_sha256
SELECT id, sha256, set_digest, path, reason, quarantined_by, quarantined_at FROM quarantines WHERE sha256 = :sha256;

-- name: digests
SELECT sha256 FROM quarantines;

-- name: mark
INSERT OR IGNORE INTO quarantined_members (set_digest, sha256) VALUES (:set_digest, :sha256);

-- name: of_set
SELECT q.id, q.sha256, q.set_digest, q.path, q.reason, q.quarantined_by, q.quarantined_at
FROM quarantined_members m JOIN quarantines q ON q.sha256 = m.sha256
WHERE m.set_digest = :set_digest ORDER BY q.quarantined_at, q.sha256;

-- name: newest_of_set
SELECT max(q.quarantined_at) AS at FROM quarantined_members m JOIN quarantines q ON q.sha256 = m.sha256
WHERE m.set_digest = :set_digest;

-- name: manifests
SELECT digest, manifest FROM artifact_sets WHERE digest > :after ORDER BY digest LIMIT :limit;
