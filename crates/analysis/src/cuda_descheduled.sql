-- Time that threads were off the CPU inside of calls. A thread cannot leave a call while it is
-- off the CPU, so each wait belongs to the last call that began before it, if to any.
WITH calls AS NOT MATERIALIZED (
    SELECT tid, layer, call, direction, ts_ns, ts_ns + dur_ns AS end_ns
    FROM whole_calls
    WHERE ts_ns < $end_ns AND ts_ns + dur_ns > $start_ns
      AND ($pid IS NULL OR pid = $pid)
),
callers AS (
    SELECT DISTINCT tid, layer FROM calls
),
waits AS (
    SELECT tid, layer, ts_ns, ts_ns + blocked_ns + wake_ns + runq_ns AS end_ns
    FROM off_cpu JOIN callers USING (tid)
    WHERE ts_ns < $end_ns AND ts_ns + blocked_ns + wake_ns + runq_ns > $start_ns
      AND state <> 'dead'
)
SELECT calls.layer, calls.call, calls.direction,
       sum(greatest(least(waits.end_ns, calls.end_ns, $end_ns)
                    - greatest(waits.ts_ns, $start_ns), 0))::BIGINT AS off_ns
FROM waits ASOF JOIN calls
  ON waits.tid = calls.tid AND waits.layer = calls.layer AND waits.ts_ns >= calls.ts_ns
GROUP BY ALL
