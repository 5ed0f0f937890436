-- The CUDA calls of one process that overlap the window.
SELECT tid, ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, call,
       coalesce(direction, '') AS direction, coalesce(bytes, 0) AS bytes,
       (coalesce(status, 0) <> 0)::INTEGER AS failed, 1 + coalesce(nested, 0)::BIGINT AS probe_pairs
FROM whole_calls
WHERE pid = $pid AND ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
