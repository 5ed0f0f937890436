-- CUDA calls by thread, function and direction.
SELECT pid, tid, call, direction, sum(dur_ns)::BIGINT AS call_ns, count(*) FILTER (NOT continued) AS calls,
       min(ts_ns) AS first_ns
FROM cuda_calls
GROUP BY pid, tid, call, direction
ORDER BY pid, tid, call, direction
