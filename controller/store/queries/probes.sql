-- name: insert
INSERT INTO probes
    (id, assessment_id, approval_id, set_digest, profile_id, node, location, start_method, state, state_at, timeline)
VALUES
    (:id, :assessment_id, :approval_id, :set_digest, :profile_id, :node, :location, :start_method, :state, :at,
     :timeline);

-- name: gate
SELECT p.assessment_id, p.approval_id, p.set_digest, a.set_digest AS approved_digest, a.purpose, a.revoked_at,
       s.body AS assessment
FROM probes p JOIN approvals a ON a.id = p.approval_id JOIN assessments s ON s.id = p.assessment_id
WHERE p.id = :id;

-- name: get
SELECT p.id, p.assessment_id, p.approval_id, p.set_digest, p.profile_id, p.node, p.location, p.start_method, p.state,
       p.state_at, p.timeline, p.evidence, j.attempt_count, j.max_attempts, j.cancel_requested, j.queued_by,
       j.queued_at, j.finished_at, j.failure, r.name AS profile_name, r.body AS profile, c.id AS candidate_id
FROM probes p JOIN jobs j ON j.id = p.id JOIN profiles r ON r.id = p.profile_id
LEFT JOIN candidates c ON c.probe_id = p.id
WHERE p.id = :id;

-- name: list
SELECT p.id, p.assessment_id, p.approval_id, p.set_digest, p.profile_id, p.node, p.location, p.start_method, p.state,
       p.state_at, p.timeline, NULL AS evidence, j.attempt_count, j.max_attempts, j.cancel_requested, j.queued_by,
       j.queued_at, j.finished_at, j.failure, r.name AS profile_name, r.body AS profile, c.id AS candidate_id
FROM probes p JOIN jobs j ON j.id = p.id JOIN profiles r ON r.id = p.profile_id
LEFT JOIN candidates c ON c.probe_id = p.id
ORDER BY j.queued_at DESC, p.id LIMIT :limit;

-- The candidate is of a completed probe and holds its fingerprint; of several, the newest counts.

-- name: proofs
WITH known AS (
    SELECT c.fingerprint, c.probe_id, c.id,
           row_number() OVER (PARTITION BY c.fingerprint ORDER BY c.created_at DESC, c.id) AS rank
    FROM candidates c WHERE c.fingerprint IN (SELECT value FROM json_each(:fingerprints))
)
SELECT k.fingerprint, k.probe_id, k.id AS candidate_id, coalesce(j.finished_at, p.state_at) AS completed_at,
       coalesce(json_extract(r.body, '$.task'), 'embedding') AS task,
       json_extract(p.evidence, '$.timings.load_ms') AS load_ms,
       json_extract(p.evidence, '$.timings.inference_ms') AS inference_ms,
       json_extract(p.evidence, '$.memory.peak_bytes') AS memory_bytes,
       json_extract(p.evidence, '$.memory.source') AS memory_source
FROM known k JOIN probes p ON p.id = k.probe_id JOIN jobs j ON j.id = p.id JOIN profiles r ON r.id = p.profile_id
WHERE k.rank = 1 AND p.state = 'completed';

-- name: resolve
SELECT id FROM probes WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;

-- name: log
SELECT attempt, ref, body, dropped_bytes, at FROM probe_logs WHERE probe_id = :probe_id AND attempt = :attempt;

-- name: last_log
SELECT attempt, ref, body, dropped_bytes, at FROM probe_logs WHERE probe_id = :probe_id ORDER BY attempt DESC LIMIT 1;
