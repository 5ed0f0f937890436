-- CUDA calls of each process that the window touches, and the time in them, cut to it.
SELECT pid, count(*) AS calls,
       sum(least(ts_ns + dur_ns, $end_ns) - greatest(ts_ns, $start_ns))::BIGINT AS call_ns
FROM whole_calls
WHERE ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
GROUP BY pid
