-- One row is what the recorder lost of one class in one second.
CREATE TABLE lost_events (
    ts_ns BIGINT  NOT NULL, -- start of the second, ns since the trace's start
    class VARCHAR NOT NULL, -- off_cpu, process, cuda, cpu_time, page_allocs, decode, late
    count BIGINT  NOT NULL  -- events lost
);
