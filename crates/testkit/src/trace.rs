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
//! interrupt context), `S5<200+2` and then queued for 2 ms; `D5` waited for the disk; `Q5` was
//! preempted; `(...)*50` repeats. Calls contain what happened in them: `sync(5)` is short for
//! `sync(R5)`, `h2d(1,4096)` is a copy of 4096 bytes. `samples 100 rchar=0..1000 minflt=0..50`
//! draws 10 samples a second that grow evenly.

use ingero_trace::rows::{CpuTime, CudaCall, OffCpu, ProcessEvent, ProcessSample};
use ingero_trace::{Probe, SCHEMA_VERSION, Trace, TraceInfo, TraceWriter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

type Mistake = String;

#[derive(Debug, Clone)]
enum Step {
    Run(i64),
    Wait {
        state: &'static str,
        blocked_ns: i64,
        runq_ns: i64,
        waker: Waker,
    },
    Call {
        name: String,
        bytes: Option<i64>,
        inside: Vec<Step>,
    },
    Repeat(Vec<Step>, u32),
}

#[derive(Debug, Clone, Copy)]
enum Waker {
    Unknown,
    Thread(i32),
    Interrupt,
}

/// The counters of a process by name, each with its value at the start and at the end.
type Ranges = BTreeMap<String, (i64, i64)>;

#[derive(Debug, Default)]
struct Drawing {
    online: Option<i32>,
    usable: Option<i32>,
    processes: BTreeMap<i32, Process>,
    threads: Vec<(i32, i32, i64, Vec<Step>)>,
    samples: Vec<(i32, Ranges)>,
}

#[derive(Debug)]
struct Process {
    name: String,
    parent: i32,
    from_ns: i64,
    exit: Option<i32>,
}

fn millis(text: &str) -> Result<i64, Mistake> {
    let ms: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no number of milliseconds"))?;
    Ok((ms * 1e6).round() as i64)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Mistake> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

impl Drawing {
    fn line(&mut self, line: &str) -> Result<(), Mistake> {
        let (word, rest) = line.split_once(' ').ok_or("too short")?;
        match word {
            "host" => self.host(rest),
            "process" => self.process(rest),
            "thread" => self.thread(rest),
            "samples" => self.sampled(rest),
            other => Err(format!("unknown word {other:?}")),
        }
    }

    fn host(&mut self, rest: &str) -> Result<(), Mistake> {
        for fact in rest.split_whitespace() {
            match fact.split_once('=').ok_or("a fact is name=value")? {
                ("online", value) => self.online = Some(number(value)?),
                ("usable", value) => self.usable = Some(number(value)?),
                (other, _) => return Err(format!("unknown fact {other:?}")),
            }
        }
        Ok(())
    }

    fn process(&mut self, rest: &str) -> Result<(), Mistake> {
        let mut words = rest.split_whitespace();
        let pid = number(words.next().ok_or("no pid")?)?;
        let mut process = Process {
            name: words.next().ok_or("no name")?.to_owned(),
            parent: 1,
            from_ns: 0,
            exit: None,
        };
        for fact in words {
            match fact.split_once('=').ok_or("a fact is name=value")? {
                ("parent", value) => process.parent = number(value)?,
                ("from", value) => process.from_ns = millis(value)?,
                ("exit", value) => process.exit = Some(number(value)?),
                (other, _) => return Err(format!("unknown fact {other:?}")),
            }
        }
        self.processes.insert(pid, process);
        Ok(())
    }

    fn thread(&mut self, rest: &str) -> Result<(), Mistake> {
        let (ids, sequence) = rest.split_once(':').ok_or("no ':'")?;
        let mut ids = ids.split_whitespace();
        let pid = number(ids.next().ok_or("no pid")?)?;
        let tid = number(ids.next().ok_or("no tid")?)?;
        let mut sequence = sequence.trim();
        let mut from_ns = self.processes.get(&pid).ok_or("no such process")?.from_ns;
        if let Some(after) = sequence.strip_prefix('@') {
            let (at, after) = after.split_once(' ').ok_or("nothing after '@'")?;
            from_ns = millis(at)?;
            sequence = after;
        }
        let (steps, left) = parse_steps(sequence)?;
        if !left.is_empty() {
            return Err(format!("cannot read {left:?}"));
        }
        self.threads.push((pid, tid, from_ns, steps));
        Ok(())
    }

    fn sampled(&mut self, rest: &str) -> Result<(), Mistake> {
        let mut words = rest.split_whitespace();
        let pid = number(words.next().ok_or("no pid")?)?;
        let mut ranges = BTreeMap::new();
        for fact in words {
            let (name, range) = fact.split_once('=').ok_or("a range is name=a..b")?;
            let (from, to) = range.split_once("..").ok_or("a range is name=a..b")?;
            ranges.insert(name.to_owned(), (number(from)?, number(to)?));
        }
        self.samples.push((pid, ranges));
        Ok(())
    }

    fn write(&self, catalog: &Path) {
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
        let Rows { mut writer, run_ns } = out;
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
        writer
            .finish(&info)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

fn parse_steps(mut text: &str) -> Result<(Vec<Step>, &str), Mistake> {
    let mut steps = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() || text.starts_with(')') {
            return Ok((steps, text));
        }
        let (step, rest) = parse_step(text)?;
        steps.push(step);
        text = rest;
    }
}

fn parse_step(text: &str) -> Result<(Step, &str), Mistake> {
    if let Some(inside) = text.strip_prefix('(') {
        let (steps, rest) = parse_steps(inside)?;
        let rest = rest.strip_prefix(")*").ok_or("a group ends in )*COUNT")?;
        let (count, rest) = split_word(rest);
        return Ok((Step::Repeat(steps, number(count)?), rest));
    }
    let end = text
        .find(|c: char| c == '(' || c == ')' || c.is_whitespace())
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if let Some(inside) = rest.strip_prefix('(') {
        return parse_call(word, inside);
    }
    let kind = word.get(..1).unwrap_or_default();
    let amount = &word[kind.len()..];
    let step = match kind {
        "R" => Step::Run(millis(amount)?),
        "Q" => Step::Wait {
            state: "preempted",
            blocked_ns: 0,
            runq_ns: millis(amount)?,
            waker: Waker::Unknown,
        },
        "S" | "D" => {
            let (amount, runq_ns) = match amount.split_once('+') {
                Some((amount, runq)) => (amount, millis(runq)?),
                None => (amount, 0),
            };
            let (amount, waker) = match amount.split_once('<') {
                Some((amount, "timer")) => (amount, Waker::Interrupt),
                Some((amount, tid)) => (amount, Waker::Thread(number(tid)?)),
                None => (amount, Waker::Unknown),
            };
            Step::Wait {
                state: if kind == "S" { "sleeping" } else { "disk" },
                blocked_ns: millis(amount)?,
                runq_ns,
                waker,
            }
        }
        _ => return Err(format!("cannot read {word:?}")),
    };
    Ok((step, rest))
}

fn parse_call<'a>(name: &str, inside: &'a str) -> Result<(Step, &'a str), Mistake> {
    let end = inside.find([',', ')']).ok_or("a call ends in )")?;
    let plain = inside[..end].trim().parse::<f64>().is_ok();
    let (steps, mut rest) = if plain {
        let run = millis(inside[..end].trim())?;
        (vec![Step::Run(run)], &inside[end..])
    } else {
        parse_steps(inside)?
    };
    let mut bytes = None;
    if let Some(after) = rest.strip_prefix(',') {
        let end = after.find(')').ok_or("a call ends in )")?;
        bytes = Some(number(after[..end].trim())?);
        rest = &after[end..];
    }
    let rest = rest.strip_prefix(')').ok_or("a call ends in )")?;
    let call = Step::Call {
        name: name.to_owned(),
        bytes,
        inside: steps,
    };
    Ok((call, rest))
}

fn split_word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| c == ')' || c.is_whitespace())
        .unwrap_or(text.len());
    text.split_at(end)
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
            } => {
                let (waker_tid, context) = match waker {
                    Waker::Unknown => (None, None),
                    Waker::Thread(tid) => (Some(*tid), Some("task".into())),
                    Waker::Interrupt => (Some(0), Some("hardirq".into())),
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
                    taker_tid: None,
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
                    "d2h" => ("cudaMemcpyAsync", Some("d2h".into())),
                    other => (other, None),
                };
                out.writer.push(CudaCall {
                    ts_ns,
                    dur_ns: self.now_ns - ts_ns,
                    pid: self.pid,
                    tid: self.tid,
                    layer: "runtime".into(),
                    call: call.to_owned().into(),
                    bytes: *bytes,
                    direction,
                    stream: Some(0),
                    status: Some(0),
                    open: false,
                    continued: false,
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

struct Rows {
    writer: TraceWriter,
    run_ns: BTreeMap<(i64, i32), i64>,
}

impl Rows {
    /// Adds running time to the 100 ms buckets that it touches.
    fn run(&mut self, pid: i32, mut from_ns: i64, ns: i64) {
        const BUCKET_NS: i64 = 100_000_000;
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

    fn samples(&mut self, pid: i32, ranges: &Ranges, end_ns: i64) {
        const EVERY_NS: i64 = 100_000_000;
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
