-- The functions that a process has called up to the end of the window.
SELECT DISTINCT layer, call
FROM cuda_calls
WHERE pid = $pid AND ts_ns < $end_ns
ORDER BY layer, call
