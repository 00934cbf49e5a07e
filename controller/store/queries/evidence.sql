-- name: probe
SELECT state, timeline FROM probes WHERE id = :id;

-- name: move
UPDATE probes SET state = :state, state_at = :at, timeline = :timeline WHERE id = :id;

-- name: store
UPDATE probes SET evidence = :evidence WHERE id = :id;

-- name: log
INSERT INTO probe_logs (probe_id, attempt, ref, body, dropped_bytes, at)
VALUES (:probe_id, :attempt, :ref, :body, :dropped_bytes, :at)
ON CONFLICT (probe_id, attempt) DO NOTHING;
