-- The CUDA call that a thread was in at a moment, the outermost one.
SELECT call
FROM whole_calls
WHERE tid = $tid AND ts_ns <= $at_ns AND ts_ns + dur_ns > $at_ns
ORDER BY ts_ns
LIMIT 1
