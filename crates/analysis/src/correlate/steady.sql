-- Where the steady part of a job begins and ends in the window. It begins where the feeder ended its
-- last warm-up step; NULL if it made few steps. A step ends with the first wait for the GPU after a
-- launch. It ends with the last CUDA call of a process that has exited; NULL if it has not.
WITH functions AS (
    SELECT unnest(string_split($calls, ',')) AS call,
           unnest(string_split($directions, ',')) AS direction,
           unnest(string_split($launches, ','))::BOOLEAN AS launches
    WHERE $calls <> ''
),
calls AS (
    SELECT ts_ns + dur_ns AS end_ns, launches,
           lag(launches) OVER (ORDER BY ts_ns) AS after_launch
    FROM whole_calls JOIN functions
      ON whole_calls.call = functions.call
     AND coalesce(whole_calls.direction, '') = functions.direction
    WHERE tid = $tid AND ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
),
steps AS (
    SELECT end_ns, row_number() OVER (ORDER BY end_ns) AS number
    FROM calls
    WHERE after_launch AND NOT launches
)
SELECT (
    SELECT CASE WHEN count(*) >= $least_steps THEN max(end_ns) FILTER (number = $warm_up_steps) END
    FROM steps
), (
    SELECT max(ts_ns + dur_ns)
    FROM cuda_calls
    WHERE pid = $pid AND ts_ns < $end_ns
      AND EXISTS (FROM process_events WHERE pid = $pid AND kind = 'exit' AND ts_ns <= $end_ns)
)
