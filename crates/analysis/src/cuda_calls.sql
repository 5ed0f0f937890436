-- Calls that the window touches, cut to it, by function and direction of copy.
WITH cut AS (
    SELECT layer, call, direction, pid, bytes, status,
           greatest(ts_ns, $start_ns) AS from_ns,
           least(ts_ns + dur_ns, $end_ns) - greatest(ts_ns, $start_ns) AS cut_ns,
           -- A rate is taken from whole copies only.
           direction IS NOT NULL AND bytes > 0
               AND ts_ns >= $start_ns AND ts_ns + dur_ns <= $end_ns AND NOT open AS rated
    FROM whole_calls
    WHERE ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
      AND ($pid IS NULL OR pid = $pid)
)
SELECT layer, call, direction,
       count(*) AS calls,
       count(DISTINCT pid) AS processes,
       quantile_disc(cut_ns, 0.5) AS p50_ns,
       quantile_disc(cut_ns, 0.95) AS p95_ns,
       quantile_disc(cut_ns, 0.99) AS p99_ns,
       max(cut_ns) AS max_ns,
       arg_max(from_ns, cut_ns) AS max_at_ns,
       sum(cut_ns)::BIGINT AS total_ns,
       -- A call that failed moved nothing, and may have been given any number.
       (sum(bytes) FILTER (coalesce(status, 0) = 0))::BIGINT AS bytes,
       -- Bytes per nanosecond are GB per second.
       sum(bytes) FILTER (rated) / nullif(sum(cut_ns) FILTER (rated), 0) AS gb_per_s,
       count(*) FILTER (status <> 0) AS failed
FROM cut
GROUP BY layer, call, direction
ORDER BY total_ns DESC, layer, call, direction
