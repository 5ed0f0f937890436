-- Gaps between the calls of one process that hand work to the GPU or wait for it. Threads of the
-- process may call at the same time: a gap begins when the last of them has returned.
WITH functions AS (
    SELECT unnest(string_split($calls, ',')) AS call,
           unnest(string_split($directions, ',')) AS direction,
           unnest(string_split($drains, ','))::BOOLEAN AS drains
),
calls AS (
    SELECT ts_ns, ts_ns + dur_ns AS end_ns, whole_calls.call, drains
    FROM whole_calls JOIN functions
      ON whole_calls.call = functions.call
     AND coalesce(whole_calls.direction, '') = functions.direction
    WHERE pid = $pid AND ts_ns < $end_ns
    UNION ALL
    -- What nothing follows lasts until the window or the process ends.
    SELECT least($end_ns, coalesce(
               (SELECT max(ts_ns) FROM process_events WHERE pid = $pid AND kind = 'exit'),
               $end_ns)), NULL, NULL, NULL
),
ordered AS (
    SELECT ts_ns, call,
           max(end_ns) OVER earlier AS free_ns,
           lag(call) OVER (ORDER BY ts_ns) AS after_call,
           lag(drains) OVER (ORDER BY ts_ns) AS gpu_idle
    FROM calls
    WINDOW earlier AS (ORDER BY ts_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
gaps AS (
    SELECT greatest(free_ns, $start_ns) AS from_ns,
           ts_ns - greatest(free_ns, $start_ns) AS gap_ns,
           after_call, call AS before_call, gpu_idle
    FROM ordered
    WHERE free_ns IS NOT NULL AND ts_ns > greatest(free_ns, $start_ns)
),
summed AS (
    SELECT count(*) AS gaps,
           coalesce(sum(gap_ns), 0)::BIGINT AS total_ns,
           coalesce(sum(gap_ns) FILTER (gpu_idle), 0)::BIGINT AS idle_ns,
           -- Of two that are as long, the first.
           max_by(gaps, (gap_ns, -from_ns), $limit) AS longest
    FROM gaps
),
listed AS (
    SELECT gaps, total_ns, idle_ns, unnest(coalesce(longest, [NULL])) AS gap FROM summed
)
SELECT gaps, total_ns, idle_ns,
       gap.from_ns, gap.gap_ns, gap.after_call, gap.before_call, gap.gpu_idle
FROM listed
ORDER BY gap.gap_ns DESC, gap.from_ns
