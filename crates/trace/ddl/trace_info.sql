-- The recording itself. Written again with every flush; the last row wins.
CREATE TABLE trace_info (
    ts_ns                BIGINT   NOT NULL, -- when this row was written, ns since the trace's start
    schema_version       INTEGER  NOT NULL, -- version of these tables
    trace_id             VARCHAR  NOT NULL, -- random identity of the recording
    host                 VARCHAR  NOT NULL, -- host name
    kernel               VARCHAR  NOT NULL, -- kernel release
    cpu_model            VARCHAR  NOT NULL, -- model name of the first CPU
    cores_online         INTEGER  NOT NULL, -- CPUs online on the host
    cores_affinity       INTEGER,           -- CPUs in the affinity mask of the target; NULL if it could not be read
    affinity_cpus        VARCHAR,           -- that mask as a CPU list, e.g. 0-3,8
    cgroup_quota_cores   DOUBLE,            -- smallest CPU quota of the target's cgroup and its ancestors, in cores; NULL without a quota
    cores_usable         INTEGER  NOT NULL, -- smallest of online, affinity and floor(quota), at least 1
    smt_active           BOOLEAN,           -- whether online CPUs are SMT siblings; NULL if unknown
    memory_bytes         BIGINT   NOT NULL, -- memory of the host
    gpus                 VARCHAR  NOT NULL, -- names of the GPUs, comma separated; empty if none was seen
    driver_version       VARCHAR,           -- NVIDIA kernel driver; NULL if none is loaded
    cuda_libraries       VARCHAR  NOT NULL, -- paths of the probed CUDA libraries, comma separated
    command              VARCHAR  NOT NULL, -- command line of the target, secrets masked
    target_kind          VARCHAR  NOT NULL, -- command or pid
    target_pid           INTEGER  NOT NULL, -- root process of the target tree
    start_utc_us         BIGINT   NOT NULL, -- UTC time of ts_ns 0, in microseconds since 1970
    duration_ns          BIGINT   NOT NULL, -- length of the recording so far: every table is complete up to here
    ended                BOOLEAN  NOT NULL, -- false while recording, and for ever if the recorder was killed
    end_reason           VARCHAR,           -- why the recording ended: target exited, duration, interrupted
    exit_status          INTEGER,           -- exit status of a recorded command; 128 + signal if it was killed
    recorder_version     VARCHAR  NOT NULL, -- version of ingero-capture
    recorder_cpu_ns      BIGINT   NOT NULL, -- CPU time of the recorder itself so far
    probe_pair_cost_ns   BIGINT,            -- calibrated cost of one entry and return probe pair; NULL if not measured
    probes               STRUCT(name VARCHAR, attached BOOLEAN, reason VARCHAR)[] NOT NULL -- each probe; reason says why it is missing, or a limit it has
);
