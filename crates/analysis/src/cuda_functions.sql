-- The functions that a process has called up to the end of the window, each with its directions.
SELECT DISTINCT call, coalesce(direction, '') AS direction
FROM cuda_calls
WHERE pid = $pid AND ts_ns < $end_ns
ORDER BY call, direction
