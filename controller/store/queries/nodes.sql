-- name: get
SELECT name, enabled, lab_eligible, boot_id, boot_at, last_seen_at, environment_id, inventory, created_at
FROM nodes WHERE name = :name;

-- name: list
SELECT name, enabled, lab_eligible, boot_id, boot_at, last_seen_at, environment_id, inventory, created_at
FROM nodes ORDER BY name LIMIT :limit;

-- name: set_flags
UPDATE nodes SET enabled = :enabled, lab_eligible = :lab_eligible WHERE name = :name;
