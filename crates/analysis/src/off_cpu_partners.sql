-- Who ended the sleeps of the given processes or threads, and who took the CPU from them:
-- the partner that accounts for the most time, with its part of that time.
WITH keys AS (
    SELECT unnest(string_split($keys, ','))::INTEGER AS key
),
waits AS (
    SELECT CASE WHEN $by_thread THEN tid ELSE pid END AS key,
           waker_tid, waker_pid, waker_context, taker_tid,
           CASE WHEN waker_context IS NOT NULL THEN
               greatest(least(ts_ns + blocked_ns, $end_ns) - greatest(ts_ns, $start_ns), 0)
           END AS slept_ns,
           CASE WHEN NOT idle_before THEN
               greatest(least(ts_ns + blocked_ns + wake_ns + runq_ns, $end_ns)
                        - greatest(ts_ns + blocked_ns + wake_ns, $start_ns), 0)
           END AS queued_ns
    FROM whole_waits
    WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
      AND key IN (SELECT key FROM keys)
),
sums AS (
    SELECT key, 'waker' AS kind, waker_tid AS tid, waker_pid AS pid,
           CASE WHEN waker_context <> 'task' THEN waker_context END AS context,
           sum(slept_ns) AS ns
    FROM waits WHERE slept_ns > 0 GROUP BY ALL
    UNION ALL
    SELECT key, 'taker', taker_tid, NULL, NULL, sum(queued_ns)
    FROM waits WHERE queued_ns > 0 AND taker_tid IS NOT NULL GROUP BY ALL
),
ranked AS (
    SELECT *, ns / sum(ns) OVER (PARTITION BY key, kind) AS share,
           row_number() OVER (PARTITION BY key, kind ORDER BY ns DESC, tid, context) AS rank
    FROM sums
)
SELECT key, kind, tid, pid, context, share FROM ranked WHERE rank = 1
