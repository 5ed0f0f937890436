-- One row is the CPU time of one process of the host in one 100 ms bucket.
-- Several rows may describe the same bucket: sum them.
CREATE TABLE cpu_time (
    ts_ns    BIGINT  NOT NULL, -- start of the bucket, ns since the trace's start; a multiple of 100 ms
    pid      INTEGER NOT NULL, -- process (tgid); never the idle task
    name     VARCHAR NOT NULL, -- its name (comm) when last seen on a CPU
    run_ns   BIGINT  NOT NULL, -- time on any CPU in the bucket
    switches BIGINT  NOT NULL  -- times it was switched out in the bucket
);
