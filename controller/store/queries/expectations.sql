-- name: require
INSERT INTO scan_expectations (scan_id, kind, source_sha256, key, entries, required_by)
VALUES (:scan_id, :kind, :source_sha256, :key, :entries, :required_by);

-- name: of_scan
SELECT kind, source_sha256, key, entries, required_by FROM scan_expectations WHERE scan_id = :scan_id;

-- name: meet
INSERT INTO set_expectations (set_digest, source_sha256, kind, key, required_by, scan_id, at)
SELECT :set_digest, source_sha256, kind, key, required_by, scan_id, :at FROM scan_expectations WHERE scan_id = :scan_id
ON CONFLICT (set_digest, source_sha256) DO UPDATE
SET kind = excluded.kind, key = excluded.key, required_by = excluded.required_by, scan_id = excluded.scan_id,
    at = excluded.at;

-- name: of_set
SELECT kind, source_sha256, key, required_by, scan_id, at FROM set_expectations
WHERE set_digest = :set_digest ORDER BY at DESC, source_sha256 LIMIT :limit;

-- name: last_list
SELECT entries FROM scan_expectations WHERE source_sha256 = :source_sha256 AND required_by = :required_by
ORDER BY rowid DESC LIMIT 1;
