-- One row is what the recorder lost of one class in one second. In the class switch_in nothing is lost: the
-- kernel did not report when a thread got its CPU, and off_cpu has the earliest time that fits.
CREATE TABLE lost_events (
    ts_ns BIGINT  NOT NULL, -- start of the second, ns since the trace's start
    class VARCHAR NOT NULL, -- off_cpu, switch_in, process, cuda, cpu_time, page_allocs, decode, late
    count BIGINT  NOT NULL  -- events lost
);
