-- The processes of the job, the last life of a pid that was used twice.
SELECT pid,
       last(parent_pid ORDER BY ts_ns) FILTER (kind IN ('existing', 'fork')) AS parent_pid,
       last(name ORDER BY ts_ns) AS name,
       last(command_line ORDER BY ts_ns) FILTER (command_line IS NOT NULL) AS command_line,
       count(*) FILTER (kind = 'exec') > 0 AS executed,
       last(ts_ns ORDER BY ts_ns) FILTER (kind = 'exit') AS ended_ns
FROM process_events
WHERE tid = pid
GROUP BY pid
ORDER BY pid
