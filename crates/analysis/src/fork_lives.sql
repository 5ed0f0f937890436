-- The lives of processes that overlap the window, oldest first: each begins with a fork, or was
-- there when recording began, and ends with an exit or with the next life of the same pid.
WITH starts AS (
    SELECT pid, ts_ns AS start_ns, kind = 'fork' AS forked, parent_pid,
           lead(ts_ns) OVER (PARTITION BY pid ORDER BY ts_ns) AS next_ns
    FROM process_events
    WHERE kind IN ('existing', 'fork') AND tid = pid AND ts_ns < $end_ns
),
lives AS (
    SELECT starts.pid, start_ns, forked, starts.parent_pid,
           last(name ORDER BY ts_ns) FILTER (tid = events.pid) AS name,
           max(ts_ns) FILTER (kind = 'exit') AS exit_ns,
           last(exit_status ORDER BY ts_ns) FILTER (kind = 'exit') AS exit_status,
           count(*) FILTER (kind = 'exec') AS execs,
           count(*) FILTER (kind = 'thread') AS threads_started,
           max(ts_ns) FILTER (kind = 'exec') AS executed_ns
    FROM starts JOIN process_events AS events
      ON events.pid = starts.pid AND events.ts_ns >= start_ns
     AND (next_ns IS NULL OR events.ts_ns < next_ns) AND events.ts_ns < $end_ns
    GROUP BY ALL
)
SELECT pid, parent_pid, coalesce(name, '') AS name, CASE WHEN forked THEN start_ns END,
       exit_ns, exit_status, execs, threads_started, executed_ns
FROM lives
WHERE (exit_ns IS NULL OR exit_ns >= $start_ns)
  AND ($pid IS NULL OR pid = $pid OR parent_pid = $pid)
ORDER BY start_ns, pid
