-- name: insert
INSERT INTO artifact_sets (digest, manifest, evidence, file_count, size_bytes, created_at)
VALUES (:digest, :manifest, :evidence, :file_count, :size_bytes, :at);

-- name: update_evidence
UPDATE artifact_sets SET evidence = :evidence WHERE digest = :digest;

-- name: get
SELECT digest, manifest, evidence, file_count, size_bytes, created_at FROM artifact_sets WHERE digest = :digest;

-- name: exists
SELECT 1 FROM artifact_sets WHERE digest = :digest;

-- name: manifest
SELECT manifest FROM artifact_sets WHERE digest = :digest;

-- name: evidence
SELECT evidence FROM artifact_sets WHERE digest = :digest;

-- name: list
SELECT digest, file_count, size_bytes, created_at FROM artifact_sets ORDER BY created_at DESC, digest LIMIT :limit;

-- name: resolve
SELECT digest AS id FROM artifact_sets WHERE digest BETWEEN :low AND :high ORDER BY digest LIMIT :limit;

-- name: place
INSERT INTO set_locations (node, path, set_digest, scan_id, scanned_at)
VALUES (:node, :path, :set_digest, :scan_id, :at)
ON CONFLICT (node, path) DO UPDATE
SET set_digest = excluded.set_digest, scan_id = excluded.scan_id, scanned_at = excluded.scanned_at,
    state = 'present', file = NULL, problem = NULL, found_at = NULL, found_by = NULL;

-- name: at_place
SELECT set_digest, node, path, scanned_at, state, file, problem, found_at, found_by
FROM set_locations WHERE node = :node AND path = :path;

-- name: lose
DELETE FROM set_locations WHERE node = :node AND path = :path;

-- name: corrupt
UPDATE set_locations SET state = 'corrupt', file = :file, problem = :problem, found_at = :at, found_by = :found_by
WHERE node = :node AND path = :path;

-- name: locations
SELECT node, path, scanned_at, state, file, problem, found_at, found_by
FROM set_locations WHERE set_digest = :digest ORDER BY node, path LIMIT :limit;

-- name: place_on
SELECT node, path, scanned_at, state, file, problem, found_at, found_by
FROM set_locations WHERE set_digest = :digest AND node = :node ORDER BY state = 'corrupt', path LIMIT 1;
