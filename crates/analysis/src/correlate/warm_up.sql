-- When a thread ended its last warm-up step; no row has one if it made few steps. A step ends with
-- the first wait for the GPU after a launch.
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
SELECT CASE WHEN count(*) >= $least_steps THEN max(end_ns) FILTER (number = $warm_up_steps) END
FROM steps
