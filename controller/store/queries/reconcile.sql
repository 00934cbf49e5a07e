-- name: waiting_jobs
SELECT DISTINCT job_id FROM outbox WHERE job_id IS NOT NULL LIMIT :limit;

-- name: probe_counts
SELECT state, count(*) AS probes FROM probes GROUP BY state;
