-- name: insert
INSERT INTO profiles (id, name, version, body, created_by, created_at)
VALUES (:id, :name, :version, :body, :created_by, :at);

-- name: get
SELECT id, name, version, body, created_by, created_at FROM profiles WHERE id = :id;

-- name: by_name
SELECT id, name, version, body, created_by, created_at FROM profiles WHERE name = :name ORDER BY version DESC LIMIT 1;

-- name: by_version
SELECT id, name, version, body, created_by, created_at FROM profiles WHERE name = :name AND version = :version;

-- name: list
SELECT id, name, version, body, created_by, created_at FROM profiles
ORDER BY created_at DESC, name, version DESC LIMIT :limit;

-- name: resolve
SELECT id FROM profiles WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
