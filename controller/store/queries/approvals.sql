-- name: insert
INSERT INTO approvals (id, set_digest, purpose, approved_by, reason, approved_at)
VALUES (:id, :set_digest, :purpose, :approved_by, :reason, :at);

-- name: revoke
UPDATE approvals SET revoked_by = :revoked_by, revoked_at = :at, revoke_reason = :reason
WHERE id = :id AND revoked_at IS NULL;

-- name: get
SELECT id, set_digest, purpose, approved_by, reason, approved_at, revoked_by, revoked_at, revoke_reason
FROM approvals WHERE id = :id;

-- name: valid
SELECT id, set_digest, purpose, approved_by, reason, approved_at, revoked_by, revoked_at, revoke_reason
FROM approvals WHERE set_digest = :set_digest AND purpose = :purpose AND revoked_at IS NULL;

-- name: valid_of_set
SELECT id, purpose FROM approvals WHERE set_digest = :set_digest AND revoked_at IS NULL ORDER BY id;

-- name: list
SELECT id, set_digest, purpose, approved_by, reason, approved_at, revoked_by, revoked_at, revoke_reason
FROM approvals ORDER BY approved_at DESC, id LIMIT :limit;

-- name: resolve
SELECT id FROM approvals WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
