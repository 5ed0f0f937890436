-- One row is the pages that one process allocated in one 10 ms bucket.
CREATE TABLE page_allocs (
    ts_ns      BIGINT   NOT NULL, -- start of the bucket, ns since the trace's start; a multiple of 10 ms
    pid        INTEGER  NOT NULL, -- process (tgid)
    page_order SMALLINT NOT NULL, -- log2 of the pages per allocation
    count      BIGINT   NOT NULL, -- allocations
    bytes      BIGINT   NOT NULL  -- their size together
);
