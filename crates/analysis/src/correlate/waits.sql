-- The longest calls of these functions by one thread that the window touches, cut to it.
WITH functions AS (
    SELECT unnest(string_split($calls, ',')) AS call,
           unnest(string_split($directions, ',')) AS direction
),
cut AS (
    SELECT greatest(ts_ns, $start_ns) AS from_ns,
           least(ts_ns + dur_ns, $end_ns) AS to_ns,
           whole_calls.call
    FROM whole_calls SEMI JOIN functions
      ON whole_calls.call = functions.call
     AND coalesce(whole_calls.direction, '') = functions.direction
    WHERE tid = $tid AND ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
)
SELECT from_ns, to_ns, call, count(*) OVER () AS waits
FROM cut
ORDER BY to_ns - from_ns DESC, from_ns
LIMIT $limit
