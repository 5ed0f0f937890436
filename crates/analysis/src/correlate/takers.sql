-- The thread that took the CPU when a thread lost it, for most of the time that it was ready to run.
SELECT taker_tid
FROM whole_waits
WHERE tid = $tid AND ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
  AND taker_tid > 0 AND NOT idle_before
GROUP BY taker_tid
ORDER BY sum(greatest(least(ts_ns + blocked_ns + wake_ns + runq_ns, $end_ns)
                      - greatest(ts_ns + blocked_ns + wake_ns, $start_ns), 0)) DESC, taker_tid
LIMIT 1
