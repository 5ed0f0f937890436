//! Small traces drawn by hand.
//!
//! ```text
//! host online=4 usable=4
//! process 100 python
//! thread 100 100: (S20<200 R1 h2d(0.1,65536) launch(0.01) sync(5))*50
//! process 200 pt_data_worker parent=100 from=0 exit=0
//! thread 200 200: (R20 S6<100)*50
//! ```
//!
//! A thread is a sequence of what it did, in milliseconds, from `@MS` on (default 0):
//! `R5` ran; `S5<200` slept and was woken by thread 200 (`S5` by nobody known, `S5<timer` from
//! interrupt context, `S5<200/timer` while thread 200 ran), `S5<200+2` and then queued for 2 ms;
//! `D5` waited for the disk; `Q5` was preempted (`Q5<300` by thread 300); `(...)*50` repeats. Calls
//! contain what happened in them: `sync(5)` is short for `sync(R5)`, `h2d(1,4096)` is a copy of
//! 4096 bytes. `samples 100 rchar=0..1000 minflt=0..50` draws 10 samples a second that grow evenly.
//! `pages 100: @10 3*1 @20..50 7*4` draws page allocations: 3 of one page in the 10 ms from 10 on,
//! and 7 of four pages in each 10 ms from 20 to 50.
//!
//! `host` also takes `quota=0.5` and `probe_pair_ns=0`; `neighbour 900 cc1plus cpus=1.5` draws a busy
//! process outside the job, `throttled periods=20 throttled=15 ms=900` what the counters of the
//! job's cgroup grow by.

mod rows;
mod text;

use ingero_trace::{Probe, SCHEMA_VERSION, Trace, TraceInfo};
use std::path::{Path, PathBuf};
use text::Drawing;

/// A drawn trace in a folder of its own.
#[derive(Debug)]
pub struct Drawn {
    folder: tempfile::TempDir,
}

impl Drawn {
    /// Its catalog.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("trace.duckdb")
    }

    /// Opens it.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(&self) -> Trace {
        Trace::open(&self.path()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Writes the trace that `text` describes.
///
/// # Panics
/// If the text has a mistake; the message names the line.
pub fn draw(text: &str) -> Drawn {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    draw_into(text, &folder.path().join("trace.duckdb"));
    Drawn { folder }
}

/// As [`draw`], into the new trace `catalog`.
///
/// # Panics
/// As [`draw`], or if the trace cannot be written.
pub fn draw_into(text: &str, catalog: &Path) {
    let mut drawing = Drawing::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            drawing
                .line(line)
                .unwrap_or_else(|why| panic!("line {}: {why}: {line}", number + 1));
        }
    }
    drawing.write(catalog);
}

/// The facts about a host that tests need, all others plausible.
pub fn info(duration_ns: i64) -> TraceInfo {
    TraceInfo {
        ts_ns: duration_ns,
        schema_version: SCHEMA_VERSION,
        trace_id: "drawn".to_owned(),
        host: "drawn".to_owned(),
        kernel: "6.18.0".to_owned(),
        cpu_model: "drawn CPU".to_owned(),
        cores_online: 4,
        cores_affinity: Some(4),
        affinity_cpus: Some("0-3".to_owned()),
        cgroup_quota_cores: None,
        cores_usable: 4,
        smt_active: Some(false),
        memory_bytes: 16 << 30,
        gpus: "drawn GPU".to_owned(),
        driver_version: Some("580.1".to_owned()),
        cuda_libraries: "/usr/lib/libcudart.so.13".to_owned(),
        command: "python train.py".to_owned(),
        target_kind: "command".to_owned(),
        target_pid: 100,
        start_utc_us: 1_800_000_000_000_000,
        duration_ns,
        ended: true,
        end_reason: Some("target exited".to_owned()),
        exit_status: Some(0),
        recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
        recorder_cpu_ns: 0,
        probe_pair_cost_ns: Some(2_000),
        probes: ["sched_switch", "libcudart.so.13:cudaLaunchKernel"]
            .map(|name| Probe {
                name: name.to_owned(),
                attached: true,
                reason: None,
            })
            .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_becomes_the_rows_it_shows() {
        let drawn = draw(
            "process 100 python
             thread 100 100: (S20<200+1 R1 h2d(0.5,4096) sync(R1 S2 R1))*3",
        );
        let trace = drawn.open();
        let (waits, blocked_ns, runq_ns): (i64, i64, i64) = trace
            .query(|c| {
                c.query_row(
                    "SELECT count(*), sum(blocked_ns)::BIGINT, sum(runq_ns)::BIGINT FROM off_cpu",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
            })
            .unwrap();
        assert_eq!((waits, blocked_ns, runq_ns), (6, 66_000_000, 3_000_000));
        let sync: (i64, i64) = trace
            .query(|c| {
                c.query_row(
                    "SELECT min(ts_ns), min(dur_ns) FROM cuda_calls WHERE call = 'cudaStreamSynchronize'",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
            })
            .unwrap();
        assert_eq!(sync, (22_500_000, 4_000_000));
        assert_eq!(trace.info().unwrap().duration_ns, 79_500_000);
    }

    #[test]
    #[should_panic(expected = "line 2: cannot read \"X5\"")]
    fn a_mistake_names_its_line() {
        draw("process 1 p\nthread 1 1: X5");
    }
}
