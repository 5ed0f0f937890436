-- When each burst of workers first woke one of the given threads of the feeder's process. The other
-- lists hold, worker by worker, its burst, its pid, and the time in which its wakes count.
WITH workers AS (
    SELECT unnest(string_split($bursts, ','))::BIGINT AS burst,
           unnest(string_split($pids, ','))::INTEGER AS waker_pid,
           unnest(string_split($from_ns, ','))::BIGINT AS from_ns,
           unnest(string_split($to_ns, ','))::BIGINT AS to_ns
    WHERE $pids <> ''
),
wakes AS (
    SELECT waker_pid, ts_ns + blocked_ns AS woken_ns
    FROM off_cpu
    -- In an interrupt, the waker is whoever was interrupted.
    WHERE pid = $feeder_pid AND NOT open AND waker_context = 'task'
      AND tid IN (SELECT unnest(string_split($consumers, ','))::INTEGER)
)
SELECT burst, min(woken_ns)
FROM wakes JOIN workers USING (waker_pid)
WHERE woken_ns >= from_ns AND woken_ns < to_ns
GROUP BY burst
