-- status and production are never written: their defaults are the only values that the schema accepts (spec G2).

-- name: insert
INSERT INTO candidates (id, probe_id, set_digest, profile_id, node, environment_id, fingerprint, created_at)
VALUES (:id, :probe_id, :set_digest, :profile_id, :node, :environment_id, :fingerprint, :at);

-- name: get
SELECT c.id, c.probe_id, c.set_digest, c.profile_id, c.node, c.environment_id, c.fingerprint, c.created_at,
       r.name AS profile_name, s.body AS assessment, a.id AS approval_id, a.revoked_at
FROM candidates c JOIN profiles r ON r.id = c.profile_id JOIN probes p ON p.id = c.probe_id
JOIN assessments s ON s.id = p.assessment_id JOIN approvals a ON a.id = p.approval_id
WHERE c.id = :id;

-- name: list
SELECT c.id, c.probe_id, c.set_digest, c.profile_id, c.node, c.environment_id, c.fingerprint, c.created_at,
       r.name AS profile_name, s.body AS assessment, a.id AS approval_id, a.revoked_at
FROM candidates c JOIN profiles r ON r.id = c.profile_id JOIN probes p ON p.id = c.probe_id
JOIN assessments s ON s.id = p.assessment_id JOIN approvals a ON a.id = p.approval_id
ORDER BY c.created_at DESC, c.id LIMIT :limit;

-- name: resolve
SELECT id FROM candidates WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
