-- name: insert
INSERT INTO profiles (id, name, body, created_by, created_at) VALUES (:id, :name, :body, :created_by, :at);

-- name: get
SELECT id, name, body, created_by, created_at FROM profiles WHERE id = :id;

-- name: by_name
SELECT id, name, body, created_by, created_at FROM profiles WHERE name = :name;

-- name: list
SELECT id, name, body, created_by, created_at FROM profiles ORDER BY created_at DESC, name LIMIT :limit;

-- name: resolve
SELECT id FROM profiles WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
