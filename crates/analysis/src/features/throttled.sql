-- What the counters of the target's cgroup grew by in the window; NULL without a quota.
SELECT max(cgroup_periods) - min(cgroup_periods) AS periods,
       max(cgroup_throttled) - min(cgroup_throttled) AS throttled,
       max(cgroup_throttled_us) - min(cgroup_throttled_us) AS throttled_us
FROM system_samples
WHERE ts_ns >= $start_ns AND ts_ns < $end_ns
