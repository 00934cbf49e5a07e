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

-- name: number_set
INSERT INTO numbered_sets (set_digest) VALUES (:set_digest);

-- name: index_members
WITH RECURSIVE places (at) AS (SELECT 1 UNION ALL SELECT at + 32 FROM places WHERE at + 32 <= length(:digests))
INSERT INTO set_members (sha256, number)
SELECT substr(:digests, at, 32), n.number FROM places, numbered_sets n WHERE n.set_digest = :set_digest;

-- name: mark_sets
INSERT OR IGNORE INTO quarantined_members (set_digest, sha256)
SELECT n.set_digest, :sha256 FROM set_members m JOIN numbered_sets n ON n.number = m.number WHERE m.sha256 = :key;

-- name: sets_with
SELECT n.set_digest FROM set_members m JOIN numbered_sets n ON n.number = m.number
WHERE m.sha256 = :key ORDER BY n.set_digest IS NOT :first, m.number LIMIT :limit;
