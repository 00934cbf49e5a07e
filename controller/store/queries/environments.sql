-- The version counts the environments in the order of their first sight; none is ever changed or deleted.

-- name: get
SELECT e.id, e.body, e.created_at, (SELECT count(*) FROM environments o WHERE o.rowid <= e.rowid) AS version
FROM environments e WHERE e.id = :id;

-- name: list
SELECT e.id, e.body, e.created_at, (SELECT count(*) FROM environments o WHERE o.rowid <= e.rowid) AS version
FROM environments e ORDER BY e.rowid DESC LIMIT :limit;

-- name: of_node
SELECT environment_id AS id FROM nodes WHERE name = :name;

-- name: nodes
SELECT name, environment_id FROM nodes
WHERE environment_id IN (SELECT value FROM json_each(:ids)) ORDER BY name LIMIT :limit;

-- name: resolve
SELECT id FROM environments WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
