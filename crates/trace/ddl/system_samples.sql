-- One row is one sample of the host, 10 a second.
CREATE TABLE system_samples (
    ts_ns               BIGINT NOT NULL, -- when it was read, ns since the trace's start
    runnable            INTEGER NOT NULL, -- runnable threads on the host, running ones included
    cpu_busy_ns         BIGINT NOT NULL, -- time all CPUs were not idle, since boot
    cpu_iowait_ns       BIGINT NOT NULL, -- time CPUs idled with disk I/O outstanding, since boot
    cpu_steal_ns        BIGINT NOT NULL, -- time the hypervisor ran somebody else, since boot
    mem_available_bytes BIGINT NOT NULL, -- memory available without swapping
    swap_used_bytes     BIGINT NOT NULL, -- swap in use
    psi_cpu_some_us     BIGINT,          -- time some task waited for a CPU, since boot; NULL without PSI
    psi_memory_some_us  BIGINT,          -- time some task waited for memory, since boot
    psi_io_some_us      BIGINT,          -- time some task waited for I/O, since boot
    cgroup_periods      BIGINT,          -- enforcement periods of the target's cgroup with a quota; NULL without one
    cgroup_throttled    BIGINT,          -- periods in which it was throttled
    cgroup_throttled_us BIGINT           -- time it was throttled
);
