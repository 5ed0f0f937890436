-- CUDA calls by thread and function.
SELECT pid, tid, call, sum(dur_ns)::BIGINT AS call_ns, count(*) FILTER (NOT continued) AS calls,
       min(ts_ns) AS first_ns
FROM cuda_calls
GROUP BY pid, tid, call
ORDER BY pid, tid, call
