-- Pages that each process allocated in the window. A bucket that the window cuts counts in
-- proportion, so that windows side by side add up.
WITH cut AS (
    SELECT pid,
           greatest(ts_ns, $start_ns) AS from_ns,
           sum(count * part)::DOUBLE AS allocations,
           sum(bytes * part)::DOUBLE AS bytes
    FROM (
        SELECT *, (least(ts_ns + 10000000, $end_ns) - greatest(ts_ns, $start_ns)) / 1e7 AS part
        FROM page_allocs
        WHERE ts_ns < $end_ns AND ts_ns + 10000000 > $start_ns
          AND ($pid IS NULL OR pid = $pid)
    )
    GROUP BY ALL
),
-- The second that begins with each bucket.
seconds AS (
    SELECT *, sum(bytes) OVER (
        PARTITION BY pid ORDER BY from_ns
        RANGE BETWEEN CURRENT ROW AND 999999999 FOLLOWING
    ) AS second_bytes
    FROM cut
)
SELECT pid,
       round(sum(allocations))::BIGINT AS allocations,
       round(sum(bytes))::BIGINT AS bytes,
       round(max(second_bytes))::BIGINT AS peak_bytes,
       min_by(from_ns, (-second_bytes, from_ns)) AS peak_at_ns,
       min(from_ns) AS first_ns,
       max(from_ns) AS last_ns
FROM seconds
GROUP BY pid
ORDER BY bytes DESC, pid
