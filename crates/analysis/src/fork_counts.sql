-- How many events of each kind lie in the window.
SELECT count(*) FILTER (kind = 'fork'), count(*) FILTER (kind = 'exec'),
       count(*) FILTER (kind = 'exit'), count(*) FILTER (kind = 'thread'),
       count(*) FILTER (kind = 'thread_exit')
FROM process_events
WHERE ts_ns >= $start_ns AND ts_ns < $end_ns
  AND ($pid IS NULL OR pid = $pid OR parent_pid = $pid)
