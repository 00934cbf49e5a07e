-- name: node
SELECT name, boot_id, boot_at, last_seen_at, environment_id, inventory FROM nodes WHERE name = :node;

-- name: all
SELECT name, boot_id, last_seen_at, inventory FROM nodes ORDER BY name LIMIT :limit;

-- name: last_seen
SELECT name, last_seen_at FROM nodes ORDER BY name LIMIT :limit;

-- name: is_dead
SELECT 1 AS dead FROM dead_boots WHERE node = :node AND boot_id = :boot_id;

-- name: elsewhere
SELECT name FROM nodes WHERE boot_id = :boot_id AND name <> :node LIMIT 1;

-- name: bury
INSERT INTO dead_boots (node, boot_id, at) VALUES (:node, :boot_id, :at) ON CONFLICT (node, boot_id) DO NOTHING;

-- name: environment
INSERT INTO environments (id, body, created_at) VALUES (:id, :body, :at) ON CONFLICT (id) DO NOTHING;

-- name: admit
INSERT INTO nodes (name, boot_id, boot_at, last_seen_at, environment_id, inventory, created_at)
VALUES (:node, :boot_id, :at, :at, :environment_id, :inventory, :at)
ON CONFLICT (name) DO UPDATE SET
    boot_id = excluded.boot_id,
    boot_at = excluded.boot_at,
    last_seen_at = excluded.last_seen_at,
    environment_id = excluded.environment_id,
    inventory = excluded.inventory;

-- name: seen
UPDATE nodes SET last_seen_at = :at, environment_id = :environment_id, inventory = :inventory
WHERE name = :node AND boot_id = :boot_id;
