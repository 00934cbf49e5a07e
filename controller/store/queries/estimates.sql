-- name: insert
INSERT INTO estimate_errors
    (probe_id, set_digest, profile_id, node, adapter, estimated_bytes, measured_bytes, source, at)
VALUES
    (:probe_id, :set_digest, :profile_id, :node, :adapter, :estimated_bytes, :measured_bytes, :source, :at);

-- name: of_set_and_profile
SELECT probe_id, set_digest, profile_id, node, estimated_bytes, measured_bytes, source, at FROM estimate_errors
WHERE set_digest = :set_digest AND profile_id = :profile_id ORDER BY node = :node DESC, at DESC, probe_id LIMIT :limit;

-- name: of_adapter
SELECT probe_id, set_digest, profile_id, node, estimated_bytes, measured_bytes, source, at FROM estimate_errors
WHERE adapter = :adapter AND node = :node AND NOT (set_digest = :set_digest AND profile_id = :profile_id)
  AND source IN (SELECT value FROM json_each(:sources))
ORDER BY at DESC, probe_id LIMIT :limit;
