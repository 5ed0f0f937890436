-- CPU time of every process of the host in the window, and whether it belongs to the job. A bucket
-- that the window cuts counts in proportion; the last one ends with the recording.
WITH job AS (SELECT DISTINCT pid FROM process_events)
SELECT cpu_time.pid,
       last(cpu_time.name ORDER BY cpu_time.ts_ns) AS name,
       round(sum(
           run_ns::DOUBLE * (least(ts_ns + 100000000, $end_ns) - greatest(ts_ns, $start_ns))
               / (least(ts_ns + 100000000, $recorded_ns) - ts_ns)
       ))::BIGINT AS run_ns,
       bool_or(job.pid IS NOT NULL) AS in_job
FROM cpu_time LEFT JOIN job USING (pid)
WHERE ts_ns < $end_ns AND ts_ns + 100000000 > $start_ns
GROUP BY cpu_time.pid
ORDER BY run_ns DESC, cpu_time.pid
