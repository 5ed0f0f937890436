-- For each moment, when the process next began a call of these functions.
WITH moments AS (
    SELECT DISTINCT unnest(string_split($moments, ','))::BIGINT AS at_ns
    WHERE $moments <> ''
),
functions AS (
    SELECT unnest(string_split($calls, ',')) AS call,
           unnest(string_split($directions, ',')) AS direction
),
submits AS (
    SELECT cuda_calls.ts_ns
    FROM cuda_calls SEMI JOIN functions
      ON cuda_calls.call = functions.call
     AND coalesce(cuda_calls.direction, '') = functions.direction
    WHERE pid = $pid AND NOT continued
)
SELECT at_ns, ts_ns
FROM moments ASOF JOIN submits ON submits.ts_ns >= moments.at_ns
