-- The last name of every thread of the job, and of every other process seen on a CPU.
WITH job AS (
    SELECT tid, last(pid ORDER BY ts_ns) AS pid, last(name ORDER BY ts_ns) AS name
    FROM process_events
    GROUP BY tid
)
SELECT tid, pid, name FROM job
UNION ALL
SELECT pid, pid, last(name ORDER BY ts_ns)
FROM cpu_time ANTI JOIN job ON cpu_time.pid = job.tid
GROUP BY pid
