-- Who ended the sleeps of the given processes or threads, and who took the CPU from them:
-- the partner that accounts for the most time, with its part of that time.
WITH pairs AS (
    SELECT CASE WHEN $by_thread THEN tid ELSE pid END AS key,
           waker_tid, waker_pid, waker_context, taker_tid,
           sum(greatest(least(ts_ns + blocked_ns, $end_ns) - greatest(ts_ns, $start_ns), 0))
               AS blocked_ns,
           sum(CASE WHEN idle_before THEN 0 ELSE
                   greatest(least(ts_ns + blocked_ns + wake_ns + runq_ns, $end_ns)
                            - greatest(ts_ns + blocked_ns + wake_ns, $start_ns), 0)
               END) AS queued_ns
    FROM whole_waits
    WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
      AND key IN (SELECT unnest(string_split($keys, ','))::INTEGER)
    GROUP BY ALL
),
sums AS (
    SELECT key, 'waker' AS kind, waker_tid AS tid, waker_pid AS pid,
           CASE WHEN waker_context <> 'task' THEN waker_context END AS context,
           sum(blocked_ns) AS ns
    FROM pairs
    WHERE waker_context IS NOT NULL AND blocked_ns > 0
    GROUP BY ALL
    UNION ALL
    SELECT key, 'taker', taker_tid, NULL, NULL, sum(queued_ns)
    FROM pairs
    WHERE taker_tid IS NOT NULL AND queued_ns > 0
    GROUP BY ALL
),
ranked AS (
    SELECT *, ns / sum(ns) OVER (PARTITION BY key, kind) AS share,
           row_number() OVER (PARTITION BY key, kind ORDER BY ns DESC, tid, context) AS rank
    FROM sums
)
SELECT key, kind, tid, pid, context, share FROM ranked WHERE rank = 1
