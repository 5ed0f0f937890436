-- The waits of every thread of the job that overlap the window, as numbers.
-- waker: 0 unknown, 1 a thread, 2 an interrupt. blocked: 0 sleeping, 1 disk, 2 unknown, 3 ended.
-- Before it was created, a thread is taken to wait for its creator, which is the waker of its
-- first interval; after its end it waits for ever.
-- The way out of an idle CPU is latency and part of being blocked; waiting for a CPU while CPUs
-- idle for over 1 ms is not latency (a quota, a mask) and stays.
SELECT
    tid,
    pid,
    CASE WHEN state = 'unknown' AND NOT clipped THEN 0 ELSE ts_ns END AS start_ns,
    ts_ns + blocked_ns + wake_ns
        + CASE WHEN idle_before AND state <> 'preempted' AND runq_ns <= 1000000 THEN runq_ns ELSE 0 END
        AS woken_ns,
    ts_ns + blocked_ns + wake_ns + runq_ns AS end_ns,
    CASE state WHEN 'disk' THEN 1 WHEN 'unknown' THEN 2 ELSE 0 END AS blocked,
    CASE waker_context
        WHEN 'task' THEN 1 WHEN 'softirq' THEN 2 WHEN 'hardirq' THEN 2 WHEN 'idle' THEN 2 ELSE 0
    END AS waker,
    coalesce(waker_tid, 0) AS waker_tid,
    coalesce(waker_pid, 0) AS waker_pid
FROM whole_waits
WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
UNION ALL
SELECT tid, pid, ts_ns, $end_ns, $end_ns, 3, 0, 0, 0
FROM off_cpu
WHERE state = 'dead' AND ts_ns < $end_ns
