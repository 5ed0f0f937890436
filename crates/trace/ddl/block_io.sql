-- One row is one block request of the target tree.
CREATE TABLE block_io (
    ts_ns     BIGINT  NOT NULL, -- when it was submitted, ns since the trace's start
    dur_ns    BIGINT  NOT NULL, -- from submission to completion
    pid       INTEGER NOT NULL, -- process that submitted it
    device    VARCHAR NOT NULL, -- major:minor
    bytes     BIGINT  NOT NULL, -- size
    direction VARCHAR NOT NULL  -- read, write, discard or flush
);
