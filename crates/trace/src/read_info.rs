//! Reading the description of a recording.

use crate::info::{Probe, TraceInfo};
use duckdb::Connection;

/// The last row of `trace_info`, or `None` if there is no row yet.
pub(crate) fn last(connection: &Connection) -> duckdb::Result<Option<TraceInfo>> {
    let mut statement = connection
        .prepare("SELECT * EXCLUDE (probes) FROM trace_info ORDER BY ts_ns DESC LIMIT 1")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut info = TraceInfo {
        ts_ns: row.get("ts_ns")?,
        schema_version: row.get("schema_version")?,
        trace_id: row.get("trace_id")?,
        host: row.get("host")?,
        kernel: row.get("kernel")?,
        cpu_model: row.get("cpu_model")?,
        cores_online: row.get("cores_online")?,
        cores_affinity: row.get("cores_affinity")?,
        affinity_cpus: row.get("affinity_cpus")?,
        cgroup_quota_cores: row.get("cgroup_quota_cores")?,
        cores_usable: row.get("cores_usable")?,
        smt_active: row.get("smt_active")?,
        memory_bytes: row.get("memory_bytes")?,
        gpus: row.get("gpus")?,
        driver_version: row.get("driver_version")?,
        cuda_libraries: row.get("cuda_libraries")?,
        command: row.get("command")?,
        target_kind: row.get("target_kind")?,
        target_pid: row.get("target_pid")?,
        start_utc_us: row.get("start_utc_us")?,
        duration_ns: row.get("duration_ns")?,
        ended: row.get("ended")?,
        end_reason: row.get("end_reason")?,
        exit_status: row.get("exit_status")?,
        recorder_version: row.get("recorder_version")?,
        recorder_cpu_ns: row.get("recorder_cpu_ns")?,
        probe_pair_cost_ns: row.get("probe_pair_cost_ns")?,
        probes: Vec::new(),
    };
    info.probes = probes(connection)?;
    Ok(Some(info))
}

fn probes(connection: &Connection) -> duckdb::Result<Vec<Probe>> {
    connection
        .prepare(
            "WITH last AS (SELECT probes FROM trace_info ORDER BY ts_ns DESC LIMIT 1),
                  each AS (SELECT unnest(probes) AS probe FROM last)
             SELECT probe.name, probe.attached, probe.reason FROM each",
        )?
        .query_map([], |row| {
            Ok(Probe {
                name: row.get(0)?,
                attached: row.get(1)?,
                reason: row.get(2)?,
            })
        })?
        .collect()
}
