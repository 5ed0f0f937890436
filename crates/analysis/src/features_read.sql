-- Bytes that each process of the job read in the window, as far as samples tell.
SELECT pid,
       max(rchar_bytes) - min(rchar_bytes) AS rchar_bytes,
       max(read_bytes) - min(read_bytes) AS read_bytes
FROM process_samples
WHERE ts_ns >= $start_ns AND ts_ns < $end_ns
GROUP BY pid
