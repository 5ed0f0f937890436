-- Threads of the job that lived through all of the window.
SELECT tid, last(pid ORDER BY ts_ns) AS pid
FROM process_events
WHERE kind IN ('existing', 'fork', 'thread', 'exit', 'thread_exit') AND ts_ns < $end_ns
GROUP BY tid
HAVING last(kind ORDER BY ts_ns) NOT IN ('exit', 'thread_exit') AND max(ts_ns) <= $start_ns
