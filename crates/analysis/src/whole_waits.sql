-- One row is one wait: the pieces of a wait that was stored in several are joined.
-- Pieces follow each other without a gap, so their sums are those of the wait.
CREATE OR REPLACE TEMP VIEW whole_waits AS
WITH numbered AS (
    SELECT *, count(*) FILTER (NOT continued) OVER (PARTITION BY tid ORDER BY ts_ns) AS wait
    FROM off_cpu
    WHERE (open OR continued) AND state <> 'dead'
)
SELECT ts_ns, pid, tid, ran_ns, blocked_ns, wake_ns, runq_ns, idle_before, state,
       waker_tid, waker_pid, waker_context, taker_tid, clipped, open
FROM off_cpu
WHERE NOT open AND NOT continued AND state <> 'dead'
UNION ALL
SELECT min(ts_ns), pid, tid, first(ran_ns ORDER BY ts_ns),
       sum(blocked_ns)::BIGINT, sum(wake_ns)::BIGINT, sum(runq_ns)::BIGINT,
       last(idle_before ORDER BY ts_ns), first(state ORDER BY ts_ns),
       last(waker_tid ORDER BY ts_ns), last(waker_pid ORDER BY ts_ns),
       last(waker_context ORDER BY ts_ns), first(taker_tid ORDER BY ts_ns),
       bool_or(clipped), last(open ORDER BY ts_ns)
FROM numbered
GROUP BY pid, tid, wait;
