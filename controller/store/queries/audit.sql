-- name: insert
INSERT INTO audit (at, entity, id, what, actor, detail) VALUES (:at, :entity, :id, :what, :actor, :detail);

-- name: last_sequence
SELECT coalesce(max(sequence), 0) AS sequence FROM audit;

-- name: list
SELECT sequence, at, entity, id, what, actor, detail FROM audit ORDER BY sequence DESC LIMIT :limit;

-- name: list_of
SELECT sequence, at, entity, id, what, actor, detail FROM audit WHERE id = :id ORDER BY sequence DESC LIMIT :limit;

-- name: resolve
SELECT DISTINCT id FROM audit WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;
