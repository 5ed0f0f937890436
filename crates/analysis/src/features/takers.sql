-- While threads of the job were preempted in the window: the part of that time in which the CPU had
-- been taken by a thread that is not of the job. NULL if none was preempted.
WITH job AS (SELECT DISTINCT tid FROM process_events UNION SELECT DISTINCT tid FROM off_cpu)
SELECT sum(runq_ns) FILTER (job.tid IS NULL)::DOUBLE / nullif(sum(runq_ns), 0) AS by_others
FROM off_cpu LEFT JOIN job ON job.tid = off_cpu.taker_tid
WHERE state = 'preempted' AND taker_tid <> 0
  AND ts_ns < $end_ns AND ts_ns + runq_ns > $start_ns
