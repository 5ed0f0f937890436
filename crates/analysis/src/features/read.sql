-- Bytes that each process of the job read in the window, as far as samples tell: from the first
-- sample in it to the last.
SELECT pid, max(rchar_bytes) - min(rchar_bytes) AS rchar_bytes
FROM process_samples
WHERE ts_ns >= $start_ns AND ts_ns < $end_ns
GROUP BY pid
