-- One row is one call into the CUDA runtime, the CUDA driver or NCCL. The runtime calls the driver, and
-- itself: what a thread calls inside of a recorded call is counted there and has no row, so the layers add up.
-- A call still in flight when rows are written is stored in pieces, as in off_cpu.
CREATE TABLE cuda_calls (
    ts_ns     BIGINT  NOT NULL, -- entry of the call, ns since the trace's start
    dur_ns    BIGINT  NOT NULL, -- time in the call, including time off the CPU
    pid       INTEGER NOT NULL, -- process (tgid)
    tid       INTEGER NOT NULL, -- thread
    layer     VARCHAR NOT NULL, -- runtime, driver or nccl
    call      VARCHAR NOT NULL, -- name of the function without suffixes of version and default stream: cuMemcpyHtoDAsync is cuMemcpyHtoDAsync_v2_ptsz too
    bytes     BIGINT,           -- bytes allocated or copied; NULL for calls without a size
    direction VARCHAR,          -- of a copy: h2h, h2d, d2h, d2d, default; NULL for other calls
    stream    BIGINT,           -- stream handle; 0 is the default stream; NULL for calls without one
    status    INTEGER,          -- return value; NULL while open
    open      BOOLEAN NOT NULL, -- the call went on after this piece
    continued BOOLEAN NOT NULL, -- the call began in an earlier piece
    nested    INTEGER           -- probed calls made inside of this piece; NULL in older traces, which may hold them as rows
);
