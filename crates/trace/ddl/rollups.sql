-- One row is a sum where single events were not kept: imported or long recordings.
CREATE TABLE rollups (
    ts_ns     BIGINT  NOT NULL, -- start of the bucket, ns since the trace's start
    bucket_ns BIGINT  NOT NULL, -- its length
    source    VARCHAR NOT NULL, -- kind of event summed
    pid       INTEGER NOT NULL, -- process, or thread where the source knew no process
    count     BIGINT  NOT NULL, -- events
    sum_ns    BIGINT  NOT NULL, -- their durations together
    min_ns    BIGINT,           -- shortest
    max_ns    BIGINT            -- longest
);
