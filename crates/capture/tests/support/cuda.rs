//! Recording the stand-ins for CUDA libraries, and reading their calls.

use super::Recording;
use ingero_testkit::cudart;
use ingero_trace::rows::CudaCall;
use std::path::Path;
use std::process::Command;

/// Runs a Python program on the stand-in under `command`, which ends with `--`, or by itself.
pub(crate) fn python(mut command: Command, program: &str, arguments: &[&Path]) -> Command {
    command
        .env("PYTHONPATH", cudart::workloads())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-c", program]).args(arguments);
    command
}

pub(crate) fn recorded(
    recording: &Recording,
    options: &[&str],
    program: &str,
    arguments: &[&Path],
) -> Command {
    let mut command = recording.command(options);
    command.args(["--", "python3"]);
    python(command, program, arguments)
}

/// All calls in the order of their start.
pub(crate) fn calls(recording: &Recording) -> Vec<CudaCall> {
    let sql = "SELECT ts_ns, dur_ns, pid, tid, layer, call, bytes, direction, stream, status, open, continued, nested
        FROM cuda_calls ORDER BY ts_ns";
    recording.query(sql, |row| {
        Ok(CudaCall {
            ts_ns: row.get(0)?,
            dur_ns: row.get(1)?,
            pid: row.get(2)?,
            tid: row.get(3)?,
            layer: row.get::<_, String>(4)?.into(),
            call: row.get::<_, String>(5)?.into(),
            bytes: row.get(6)?,
            direction: row.get::<_, Option<String>>(7)?.map(Into::into),
            stream: row.get(8)?,
            status: row.get(9)?,
            open: row.get(10)?,
            continued: row.get(11)?,
            nested: row.get(12)?,
        })
    })
}

pub(crate) fn lost(recording: &Recording) -> i64 {
    recording.number("SELECT coalesce(sum(count), 0)::BIGINT FROM lost_events WHERE class = 'cuda'")
}
