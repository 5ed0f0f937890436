-- The processes of the job, oldest first.
SELECT pid FROM process_events GROUP BY pid ORDER BY min(ts_ns), pid
