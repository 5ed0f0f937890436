-- Waits that the window touches, cut to it, by process or by thread.
WITH parts AS (
    SELECT pid,
           CASE WHEN $by_thread THEN tid END AS thread,
           state, idle_before,
           greatest(ts_ns, $start_ns) AS from_ns,
           least(ts_ns + blocked_ns + wake_ns + runq_ns, $end_ns) AS to_ns,
           -- Where the wait ended to be blocked, and where it began to be queued.
           least(greatest(ts_ns + blocked_ns, $start_ns), $end_ns) AS woken_ns,
           least(greatest(ts_ns + blocked_ns + wake_ns, $start_ns), $end_ns) AS queued_ns
    FROM whole_waits
    WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
      AND ($pid IS NULL OR pid = $pid)
),
summed AS (
    SELECT pid, thread,
           count(*) AS waits,
           sum(to_ns - from_ns)::BIGINT AS total_ns,
           quantile_disc(to_ns - from_ns, 0.99) AS p99_ns,
           max(to_ns - from_ns) AS longest_ns,
           arg_max(from_ns, to_ns - from_ns) AS longest_at_ns,
           sum(CASE WHEN idle_before THEN 0 ELSE to_ns - queued_ns END)::BIGINT AS runq_ns,
           sum(CASE WHEN idle_before THEN to_ns ELSE queued_ns END - woken_ns)::BIGINT AS wakeup_ns,
           sum(CASE state WHEN 'sleeping' THEN woken_ns - from_ns ELSE 0 END)::BIGINT AS sleeping_ns,
           sum(CASE state WHEN 'disk' THEN woken_ns - from_ns ELSE 0 END)::BIGINT AS disk_ns
    FROM parts
    GROUP BY pid, thread
)
SELECT pid, thread, waits, total_ns, p99_ns, longest_ns, longest_at_ns,
       runq_ns, wakeup_ns, sleeping_ns, disk_ns,
       count(*) OVER () AS total_rows
FROM summed
ORDER BY CASE $rank_by
             WHEN 'waiting_for_cpu' THEN runq_ns
             WHEN 'sleeping' THEN sleeping_ns
             WHEN 'disk' THEN disk_ns
             WHEN 'longest' THEN longest_ns
             WHEN 'waits' THEN waits
             ELSE total_ns
         END DESC, pid, thread
LIMIT $limit OFFSET $offset
