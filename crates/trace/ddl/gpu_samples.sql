-- One row is one NVML sample of one GPU.
CREATE TABLE gpu_samples (
    ts_ns             BIGINT  NOT NULL, -- when it was read, ns since the trace's start
    gpu               INTEGER NOT NULL, -- NVML index
    utilization_pct   INTEGER,          -- share of the last sample period with a kernel running
    memory_used_bytes BIGINT,           -- memory in use
    sm_clock_mhz      INTEGER,          -- clock of the multiprocessors
    throttle_reasons  BIGINT            -- NVML bit mask of clock event reasons
);
