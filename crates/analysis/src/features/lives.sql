-- When each process of the job began and ended; one still alive ends never.
SELECT pid,
       min(ts_ns) AS born_ns,
       coalesce(min(ts_ns) FILTER (kind = 'exit'), 9223372036854775807) AS ended_ns
FROM process_events
GROUP BY pid
