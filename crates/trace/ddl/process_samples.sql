-- One row is one sample of one target process from /proc, 10 a second.
CREATE TABLE process_samples (
    ts_ns       BIGINT  NOT NULL, -- when it was read, ns since the trace's start
    pid         INTEGER NOT NULL, -- process (tgid)
    rchar_bytes BIGINT  NOT NULL, -- bytes returned by read-like calls, since its start (page cache included)
    read_bytes  BIGINT  NOT NULL, -- bytes fetched from storage, since its start
    minflt      BIGINT  NOT NULL, -- page faults without storage, since its start
    majflt      BIGINT  NOT NULL, -- page faults that read storage, since its start
    threads     INTEGER NOT NULL, -- threads
    rss_bytes   BIGINT  NOT NULL  -- resident memory
);
