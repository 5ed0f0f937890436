-- Processes of the job that lived in the window, with sums over it. One row per pid; of a pid
-- that was used twice the last life is named and `lives` is 2.
WITH events AS (
    SELECT pid,
           last(parent_pid ORDER BY ts_ns) FILTER (kind IN ('existing', 'fork')) AS parent_pid,
           last(name ORDER BY ts_ns) FILTER (tid = pid) AS name,
           max(ts_ns) FILTER (kind = 'fork') AS forked_ns,
           min(ts_ns) AS seen_ns,
           max(ts_ns) FILTER (kind = 'exit') AS exit_ns,
           count(*) FILTER (kind IN ('existing', 'fork') AND tid = pid) AS lives,
           count(DISTINCT tid) AS threads
    FROM process_events
    WHERE ts_ns < $end_ns
    GROUP BY pid
),
lives AS (
    SELECT * REPLACE (
        -- An exit before the last fork ended an earlier life of the pid.
        CASE WHEN exit_ns >= coalesce(forked_ns, seen_ns) THEN exit_ns END AS exit_ns
    )
    FROM events
),
-- A bucket that the window cuts counts in proportion; the last one ends with the recording.
cpu AS (
    SELECT pid, sum(
        -- On 1000 cores the product does not fit into 64 bits.
        run_ns::HUGEINT * (least(ts_ns + 100000000, $end_ns) - greatest(ts_ns, $start_ns))
               / (least(ts_ns + 100000000, $recorded_ns) - ts_ns)
    )::BIGINT AS run_ns
    FROM cpu_time
    WHERE ts_ns < $end_ns AND ts_ns + 100000000 > $start_ns
    GROUP BY pid
),
cut AS (
    SELECT pid, idle_before,
           greatest(ts_ns, $start_ns) AS from_ns,
           least(ts_ns + blocked_ns + wake_ns + runq_ns, $end_ns) AS to_ns,
           greatest(ts_ns + blocked_ns + wake_ns, $start_ns) AS queued_ns
    FROM off_cpu
    WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
      AND state <> 'dead'
),
off AS (
    SELECT pid,
           sum(to_ns - from_ns)::BIGINT AS off_ns,
           sum(greatest(to_ns - queued_ns, 0)) FILTER (NOT idle_before)::BIGINT AS runq_ns
    FROM cut
    GROUP BY pid
),
calls AS (
    SELECT pid, count(*) FILTER (layer <> 'nccl' AND NOT continued) AS calls
    FROM cuda_calls
    WHERE ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
    GROUP BY pid
),
-- A bucket that the window cuts counts in proportion.
pages AS (
    SELECT pid, round(sum(
        bytes * (least(ts_ns + 10000000, $end_ns) - greatest(ts_ns, $start_ns)) / 1e7
    ))::BIGINT AS bytes
    FROM page_allocs
    WHERE ts_ns < $end_ns AND ts_ns + 10000000 > $start_ns
    GROUP BY pid
),
-- Counters as they were last sampled before the window ended, and before it began.
reads AS (
    SELECT pid,
           arg_min([rchar_bytes, read_bytes], ts_ns) AS first,
           arg_max([rchar_bytes, read_bytes], ts_ns) FILTER (ts_ns <= $start_ns) AS before,
           arg_max([rchar_bytes, read_bytes], ts_ns) AS after
    FROM process_samples
    WHERE ts_ns <= $end_ns
    GROUP BY pid
),
-- A process begins with counters of 0; one that was there before the recording, with its first
-- sample. Of a pid that was used twice the counters may have gone down.
read AS (
    SELECT pid,
           greatest(after[1] - start[1], 0) AS read_bytes,
           greatest(after[2] - start[2], 0) AS storage_read_bytes
    FROM (
        SELECT pid, after, coalesce(
                   before, CASE WHEN forked_ns >= $start_ns THEN [0, 0] ELSE first END) AS start
        FROM reads JOIN lives USING (pid)
    )
)
SELECT pid, parent_pid, coalesce(name, '') AS name, lives, threads,
       forked_ns, exit_ns,
       coalesce(cpu.run_ns, 0) AS cpu_ns,
       coalesce(off.off_ns, 0) AS off_ns,
       coalesce(off.runq_ns, 0) AS runq_ns,
       CASE WHEN $pages_recorded THEN coalesce(pages.bytes, 0) END AS page_bytes,
       read.read_bytes,
       read.storage_read_bytes,
       coalesce(calls.calls, 0) AS cuda_calls
FROM lives
LEFT JOIN cpu USING (pid)
LEFT JOIN off USING (pid)
LEFT JOIN calls USING (pid)
LEFT JOIN pages USING (pid)
LEFT JOIN read USING (pid)
WHERE seen_ns < $end_ns AND (exit_ns IS NULL OR exit_ns >= $start_ns)
  AND ($pid IS NULL OR pid = $pid)
ORDER BY cpu_ns DESC, pid
