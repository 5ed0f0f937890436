-- One row is one CUDA call: the pieces of a call that was stored in several are joined.
CREATE OR REPLACE TEMP VIEW whole_calls AS
WITH numbered AS (
    SELECT *, count(*) FILTER (NOT continued)
                  OVER (PARTITION BY tid, layer, call ORDER BY ts_ns) AS nth
    FROM cuda_calls
    WHERE open OR continued
)
SELECT ts_ns, dur_ns, pid, tid, layer, call, bytes, direction, stream, status, open, nested
FROM cuda_calls
WHERE NOT open AND NOT continued
UNION ALL
SELECT min(ts_ns), sum(dur_ns)::BIGINT, pid, tid, layer, call,
       first(bytes ORDER BY ts_ns), first(direction ORDER BY ts_ns),
       first(stream ORDER BY ts_ns), last(status ORDER BY ts_ns), last(open ORDER BY ts_ns),
       sum(nested)::INTEGER
FROM numbered
GROUP BY pid, tid, layer, call, nth;
