-- name: mark
INSERT INTO stream_marks (stream, max_sequence) VALUES (:stream, :sequence)
ON CONFLICT (stream) DO UPDATE SET max_sequence = max(max_sequence, excluded.max_sequence);

-- name: marks
SELECT stream, max_sequence FROM stream_marks;
