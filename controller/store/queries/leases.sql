-- name: insert
INSERT INTO leases (id, job_id, node, boot_id, attempt, token_sha256, state, delivery, claimed_at, expires_at)
VALUES (:id, :job_id, :node, :boot_id, :attempt, :token_sha256, 'active', :delivery, :at, :expires_at);

-- name: by_id
SELECT * FROM leases WHERE id = :id;

-- name: newest
SELECT * FROM leases WHERE job_id = :job_id ORDER BY attempt DESC LIMIT 1;

-- name: overdue
SELECT * FROM leases WHERE state = 'active' AND expires_at <= :at ORDER BY expires_at LIMIT :limit;

-- name: renew
UPDATE leases SET expires_at = :expires_at WHERE id = :id AND state = 'active';

-- name: redeliver
UPDATE leases SET delivery = :delivery WHERE id = :id AND state = 'active';

-- name: advance
UPDATE leases SET last_sequence = :sequence WHERE id = :id AND state = 'active' AND last_sequence < :sequence;

-- name: end
UPDATE leases SET state = :state, ended_at = :at WHERE id = :id AND state = 'active';

-- name: extend_all
UPDATE leases SET expires_at = max(expires_at, :expires_at) WHERE state = 'active';
