-- The interrupt context that ended most of a thread's sleep in some time.
SELECT waker_context
FROM whole_waits
WHERE tid = $tid AND ts_ns < $end_ns AND ts_ns + blocked_ns > $start_ns
  AND waker_context IN ('softirq', 'hardirq', 'idle')
GROUP BY waker_context
ORDER BY sum(least(ts_ns + blocked_ns, $end_ns) - greatest(ts_ns, $start_ns)) DESC, waker_context
LIMIT 1
