-- The last name of every thread beside the main ones.
SELECT pid, tid, last(name ORDER BY ts_ns) AS name
FROM process_events
WHERE tid <> pid
GROUP BY pid, tid
ORDER BY pid, tid
