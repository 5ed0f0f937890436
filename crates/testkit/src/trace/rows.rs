//! From a drawing to the rows of a trace.

use super::info;
use super::text::{Drawing, PAGE_BUCKET_NS, Pages, Process, Ranges, Step, Throttled, Waker};
use ingero_trace::rows::{
    CpuTime, CudaCall, OffCpu, PageAllocs, ProcessEvent, ProcessSample, SystemSample,
};
use ingero_trace::{Probe, TraceWriter};
use std::collections::BTreeMap;
use std::path::Path;

/// Width of the buckets of CPU time.
const BUCKET_NS: i64 = 100_000_000;
/// Time between two samples.
const EVERY_NS: i64 = 100_000_000;

impl Drawing {
    /// Writes the new trace `catalog`.
    pub(super) fn write(&self, catalog: &Path) {
        let mut out = Rows {
            writer: TraceWriter::create(catalog).unwrap_or_else(|error| panic!("{error}")),
            run_ns: BTreeMap::new(),
        };
        let mut end_ns = 0;
        let mut process_end_ns: BTreeMap<i32, i64> = BTreeMap::new();
        for (pid, tid, from_ns, steps) in &self.threads {
            let mut thread = ThreadClock {
                pid: *pid,
                tid: *tid,
                now_ns: *from_ns,
                ran_ns: 0,
            };
            if pid != tid {
                out.event(
                    "thread",
                    *pid,
                    *tid,
                    *pid,
                    &self.processes[pid].name,
                    *from_ns,
                    None,
                );
            }
            for step in steps {
                thread.play(step, &mut out);
            }
            end_ns = end_ns.max(thread.now_ns);
            let end = process_end_ns.entry(*pid).or_default();
            *end = (*end).max(thread.now_ns);
        }
        for (pid, process) in &self.processes {
            let kind = if process.parent == 1 {
                "existing"
            } else {
                "fork"
            };
            let Process {
                name,
                parent,
                from_ns,
                exit,
            } = process;
            out.event(kind, *pid, *pid, *parent, name, *from_ns, None);
            if exit.is_some() {
                let at = process_end_ns.get(pid).copied().unwrap_or(end_ns);
                out.event("exit", *pid, *pid, *parent, name, at, *exit);
            }
        }
        for (pid, ranges) in &self.samples {
            out.samples(*pid, ranges, end_ns);
        }
        for pages in &self.pages {
            out.pages(pages);
        }
        if let Some(counters) = &self.throttled {
            out.throttled(counters, end_ns);
        }
        let Rows { mut writer, run_ns } = out;
        for neighbour in &self.neighbours {
            for ts_ns in (0..end_ns).step_by(BUCKET_NS as usize) {
                writer.push(CpuTime {
                    ts_ns,
                    pid: neighbour.pid,
                    name: neighbour.name.clone().into(),
                    run_ns: (neighbour.cpus * BUCKET_NS as f64) as i64,
                    switches: 1,
                });
            }
        }
        for ((ts_ns, pid), run_ns) in run_ns {
            writer.push(CpuTime {
                ts_ns,
                pid,
                name: self.processes[&pid].name.clone().into(),
                run_ns,
                switches: 1,
            });
        }
        let mut info = info(end_ns);
        info.cores_online = self.online.unwrap_or(info.cores_online);
        info.cores_usable = self.usable.unwrap_or(info.cores_online);
        info.cores_affinity = Some(info.cores_usable);
        info.probe_pair_cost_ns = self.probe_pair_ns.or(info.probe_pair_cost_ns);
        if let Some(quota) = self.quota {
            info.cgroup_quota_cores = Some(quota);
            info.cores_usable = info.cores_usable.min(quota.floor() as i32).max(1);
        }
        if !self.pages.is_empty() {
            info.probes.push(Probe {
                name: "mm_page_alloc".to_owned(),
                attached: true,
                reason: None,
            });
        }
        writer
            .finish(&info)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Where one thread is.
struct ThreadClock {
    pid: i32,
    tid: i32,
    now_ns: i64,
    ran_ns: i64,
}

impl ThreadClock {
    fn play(&mut self, step: &Step, out: &mut Rows) {
        match step {
            Step::Run(ns) => {
                out.run(self.pid, self.now_ns, *ns);
                self.now_ns += ns;
                self.ran_ns += ns;
            }
            Step::Wait {
                state,
                blocked_ns,
                runq_ns,
                waker,
                taker,
            } => {
                let (waker_tid, context) = match waker {
                    Waker::Unknown => (None, None),
                    Waker::Thread(tid) => (Some(*tid), Some("task".into())),
                    Waker::Interrupt(tid) => (Some(*tid), Some("hardirq".into())),
                };
                out.writer.push(OffCpu {
                    ts_ns: self.now_ns,
                    pid: self.pid,
                    tid: self.tid,
                    cpu: 0,
                    ran_ns: self.ran_ns,
                    blocked_ns: *blocked_ns,
                    wake_ns: 0,
                    runq_ns: *runq_ns,
                    idle_before: false,
                    state: (*state).into(),
                    waker_tid,
                    // By convention of the drawings a process's threads start with its digits.
                    waker_pid: waker_tid.map(|tid| tid / 100 * 100),
                    waker_context: context,
                    taker_tid: *taker,
                    clipped: false,
                    open: false,
                    continued: false,
                });
                self.now_ns += blocked_ns + runq_ns;
                self.ran_ns = 0;
            }
            Step::Call {
                name,
                bytes,
                inside,
            } => {
                let ts_ns = self.now_ns;
                for step in inside {
                    self.play(step, out);
                }
                let (call, direction) = match name.as_str() {
                    "sync" => ("cudaStreamSynchronize", None),
                    "devsync" => ("cudaDeviceSynchronize", None),
                    "launch" => ("cudaLaunchKernel", None),
                    "malloc" => ("cudaMalloc", None),
                    "free" => ("cudaFree", None),
                    "h2d" => ("cudaMemcpyAsync", Some("h2d".into())),
                    "d2h" => ("cudaMemcpy", Some("d2h".into())),
                    other => (other, None),
                };
                out.writer.push(CudaCall {
                    ts_ns,
                    dur_ns: self.now_ns - ts_ns,
                    pid: self.pid,
                    tid: self.tid,
                    layer: layer(call).into(),
                    call: call.to_owned().into(),
                    bytes: *bytes,
                    direction,
                    stream: Some(0),
                    status: Some(0),
                    open: false,
                    continued: false,
                    nested: Some(0),
                });
            }
            Step::Repeat(steps, count) => {
                for _ in 0..*count {
                    for step in steps {
                        self.play(step, out);
                    }
                }
            }
        }
    }
}

/// The library that has the function.
fn layer(call: &str) -> &'static str {
    if call.starts_with("nccl") {
        "nccl"
    } else if call.starts_with("cu") && !call.starts_with("cuda") {
        "driver"
    } else {
        "runtime"
    }
}

struct Rows {
    writer: TraceWriter,
    run_ns: BTreeMap<(i64, i32), i64>,
}

impl Rows {
    /// Adds running time to the 100 ms buckets that it touches.
    fn run(&mut self, pid: i32, mut from_ns: i64, ns: i64) {
        let end_ns = from_ns + ns;
        while from_ns < end_ns {
            let bucket = from_ns / BUCKET_NS * BUCKET_NS;
            let part = end_ns.min(bucket + BUCKET_NS) - from_ns;
            *self.run_ns.entry((bucket, pid)).or_default() += part;
            from_ns += part;
        }
    }

    #[allow(clippy::too_many_arguments)] // the columns of the table
    fn event(
        &mut self,
        kind: &'static str,
        pid: i32,
        tid: i32,
        parent: i32,
        name: &str,
        ts_ns: i64,
        exit_status: Option<i32>,
    ) {
        self.writer.push(ProcessEvent {
            ts_ns,
            kind: kind.into(),
            pid,
            tid,
            parent_pid: Some(parent),
            name: name.to_owned().into(),
            command_line: None,
            exit_status,
            cgroup: None,
        });
    }

    fn pages(&mut self, pages: &Pages) {
        const PAGE_BYTES: i64 = 4096;
        let mut ts_ns = pages.from_ns;
        while ts_ns < pages.to_ns {
            self.writer.push(PageAllocs {
                ts_ns,
                pid: pages.pid,
                page_order: pages.order,
                count: pages.count,
                bytes: (pages.count << pages.order) * PAGE_BYTES,
            });
            ts_ns += PAGE_BUCKET_NS;
        }
    }

    fn samples(&mut self, pid: i32, ranges: &Ranges, end_ns: i64) {
        let count = (end_ns / EVERY_NS).max(1);
        for index in 0..=count {
            let grown = |name: &str| {
                let (from, to) = ranges.get(name).copied().unwrap_or_default();
                from + (to - from) * index / count
            };
            self.writer.push(ProcessSample {
                ts_ns: index * EVERY_NS,
                pid,
                rchar_bytes: grown("rchar"),
                read_bytes: grown("read"),
                minflt: grown("minflt"),
                majflt: grown("majflt"),
                threads: 1,
                rss_bytes: 1 << 30,
            });
        }
    }

    fn throttled(&mut self, counters: &Throttled, end_ns: i64) {
        let count = (end_ns / EVERY_NS).max(1);
        for index in 0..=count {
            let grown = |total: i64| Some(total * index / count);
            self.writer.push(SystemSample {
                ts_ns: index * EVERY_NS,
                runnable: 1,
                cpu_busy_ns: 0,
                cpu_iowait_ns: 0,
                cpu_steal_ns: 0,
                mem_available_bytes: 1 << 30,
                swap_used_bytes: 0,
                psi_cpu_some_us: None,
                psi_memory_some_us: None,
                psi_io_some_us: None,
                cgroup_periods: grown(counters.periods),
                cgroup_throttled: grown(counters.throttled),
                cgroup_throttled_us: grown(1_000 * counters.throttled_ms),
            });
        }
    }
}
