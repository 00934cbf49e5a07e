-- name: insert
INSERT INTO artifact_sets (digest, manifest, evidence, file_count, size_bytes, created_at)
VALUES (:digest, :manifest, :evidence, :file_count, :size_bytes, :at);

-- name: update_evidence
UPDATE artifact_sets SET evidence = :evidence WHERE digest = :digest;

-- name: get
SELECT digest, manifest, evidence, file_count, size_bytes, created_at FROM artifact_sets WHERE digest = :digest;

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
SET set_digest = excluded.set_digest, scan_id = excluded.scan_id, scanned_at = excluded.scanned_at;

-- name: at_place
SELECT set_digest FROM set_locations WHERE node = :node AND path = :path;

-- name: lose
DELETE FROM set_locations WHERE node = :node AND path = :path;

-- name: locations
SELECT node, path, scanned_at FROM set_locations WHERE set_digest = :digest ORDER BY node, path LIMIT :limit;

-- name: location_on
SELECT path FROM set_locations WHERE set_digest = :digest AND node = :node ORDER BY path LIMIT 1;
