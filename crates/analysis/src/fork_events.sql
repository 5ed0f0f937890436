-- Events in the window, in order.
SELECT ts_ns, kind, pid, tid, parent_pid, name, command_line, exit_status,
       count(*) OVER () AS total_rows
FROM process_events
WHERE ts_ns >= $start_ns AND ts_ns < $end_ns
  AND kind IN (SELECT unnest(string_split($kinds, ',')))
  AND (kind <> 'existing' OR tid = pid)
  AND ($pid IS NULL OR pid = $pid OR parent_pid = $pid)
ORDER BY ts_ns, pid, tid, kind
LIMIT $limit OFFSET $offset
