-- CPU time of every process of the host in the buckets of the window, its share of them where
-- only a part of a bucket is inside, and whether it belongs to the job.
WITH job AS (SELECT DISTINCT pid FROM process_events)
SELECT
    cpu_time.ts_ns AS bucket_ns,
    cpu_time.pid,
    any_value(cpu_time.name) AS name,
    sum(run_ns)::DOUBLE
        * (least(cpu_time.ts_ns + 100000000, $end_ns) - greatest(cpu_time.ts_ns, $start_ns))
        / 1e8 AS run_ns,
    bool_or(job.pid IS NOT NULL) AS in_job
FROM cpu_time LEFT JOIN job USING (pid)
WHERE cpu_time.ts_ns < $end_ns AND cpu_time.ts_ns + 100000000 > $start_ns
GROUP BY cpu_time.ts_ns, cpu_time.pid
