//! Life of the target's processes: rows, and which are alive.

use crate::target::Existing;
use crate::wire::{self, ExecEvent, ProcessEvent, WireRecord as _};
use crate::{cgroup, decode, procfs, secrets};
use ingero_trace::rows::{ProcessEvent as Row, Text};
use std::collections::{BTreeSet, HashSet};

/// One event of the ring.
#[derive(Debug, Clone)]
pub(crate) enum LifeEvent {
    /// Everything but an exec.
    Plain(ProcessEvent),
    /// An exec, with its command line.
    Exec(Box<ExecEvent>),
}

/// Reads a record of the process ring; `None` if it is none of ours.
pub(crate) fn decode_event(bytes: &[u8]) -> Option<LifeEvent> {
    let event = ProcessEvent::from_bytes(bytes)?;
    match event.kind {
        wire::PROCESS_EXEC => {
            ExecEvent::from_bytes(bytes).map(|exec| LifeEvent::Exec(Box::new(exec)))
        }
        wire::PROCESS_FORK
        | wire::PROCESS_THREAD
        | wire::PROCESS_RENAME
        | wire::PROCESS_EXIT
        | wire::PROCESS_THREAD_EXIT => Some(LifeEvent::Plain(event)),
        _ => None,
    }
}

/// The target's processes that are alive.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    alive: BTreeSet<i32>,
    /// Ended, and still a target in the kernel: their last switches are yet to come.
    ended: Vec<(u64, i32)>,
}

impl Processes {
    /// Notes a process that becomes a target without a fork.
    pub(crate) fn add(&mut self, pid: i32) {
        self.alive.insert(pid);
    }

    /// Those alive, as far as the events told.
    pub(crate) fn alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.alive.iter().copied()
    }

    /// Notes what an event changes.
    pub(crate) fn apply(&mut self, event: &LifeEvent) {
        let LifeEvent::Plain(event) = event else {
            return;
        };
        match event.kind {
            wire::PROCESS_FORK => {
                self.alive.insert(event.pid);
            }
            wire::PROCESS_EXIT => {
                self.alive.remove(&event.pid);
                self.ended.push((event.ts_ns, event.pid));
            }
            _ => {}
        }
    }

    /// The processes that ended before `before_ns`.
    pub(crate) fn take_ended(&mut self, before_ns: u64) -> Vec<i32> {
        let (old, recent) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|(at, _)| *at < before_ns);
        self.ended = recent;
        let old: Vec<(u64, i32)> = old;
        old.into_iter().map(|(_, pid)| pid).collect()
    }
}

/// The rows of a batch of events. An exec renames too: that rename is not told twice.
pub(crate) fn rows(events: &[LifeEvent], start_ns: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(events.len());
    for event in events {
        let row = match event {
            LifeEvent::Plain(event) => plain_row(event, start_ns),
            LifeEvent::Exec(event) => exec_row(event, start_ns),
        };
        if row.kind == "exec" {
            let rename = rows.iter().rposition(|earlier| earlier.pid == row.pid);
            if let Some(rename) =
                rename.filter(|at| rows[*at].kind == "rename" && rows[*at].name == row.name)
            {
                rows.remove(rename);
            }
        }
        rows.push(row);
    }
    rows
}

/// The rows of threads that were there before, without those whose birth is in `events`.
pub(crate) fn existing_rows(
    existing: &[Existing],
    events: &[LifeEvent],
    start_ns: u64,
) -> Vec<Row> {
    let born: HashSet<i32> = events
        .iter()
        .filter_map(|event| match event {
            LifeEvent::Plain(event)
                if matches!(event.kind, wire::PROCESS_FORK | wire::PROCESS_THREAD) =>
            {
                Some(event.tid)
            }
            _ => None,
        })
        .collect();
    existing
        .iter()
        .filter(|thread| !born.contains(&thread.tid))
        .map(|thread| {
            let main = thread.tid == thread.pid;
            Row {
                ts_ns: relative(thread.at_ns, start_ns),
                kind: Text::Borrowed("existing"),
                pid: thread.pid,
                tid: thread.tid,
                parent_pid: Some(if main { thread.parent_pid } else { thread.pid }),
                name: Text::Owned(thread.name.clone()),
                command_line: thread.command_line.clone(),
                exit_status: None,
                cgroup: cgroup::path_of(thread.pid),
            }
        })
        .collect()
}

fn plain_row(event: &ProcessEvent, start_ns: u64) -> Row {
    let (kind, parent_pid, exit_status) = match event.kind {
        wire::PROCESS_FORK => ("fork", event.parent_pid, None),
        wire::PROCESS_THREAD => ("thread", event.pid, None),
        wire::PROCESS_RENAME => ("rename", parent_of(event), None),
        wire::PROCESS_EXIT => (
            "exit",
            event.parent_pid,
            Some(decode::exit_status(event.exit_code)),
        ),
        // `decode_event` lets nothing else through.
        _ => ("thread_exit", event.pid, None),
    };
    Row {
        ts_ns: relative(event.ts_ns, start_ns),
        kind: Text::Borrowed(kind),
        pid: event.pid,
        tid: event.tid,
        parent_pid: Some(parent_pid),
        name: Text::Owned(wire::comm_text(&event.comm)),
        command_line: None,
        exit_status,
        cgroup: None,
    }
}

/// For a thread, the parent is its process.
fn parent_of(event: &ProcessEvent) -> i32 {
    if event.tid == event.pid {
        event.parent_pid
    } else {
        event.pid
    }
}

fn exec_row(event: &ExecEvent, start_ns: u64) -> Row {
    Row {
        ts_ns: relative(event.ts_ns, start_ns),
        kind: Text::Borrowed("exec"),
        pid: event.pid,
        tid: event.tid,
        parent_pid: Some(event.parent_pid),
        name: Text::Owned(wire::comm_text(&event.comm)),
        command_line: command_line(event),
        exit_status: None,
        cgroup: cgroup::path_of(event.pid),
    }
}

fn command_line(event: &ExecEvent) -> Option<String> {
    let whole = event.command_line_bytes as usize;
    let seen = whole.min(event.command_line.len());
    if seen == 0 {
        return None;
    }
    let mut line = secrets::command_line(&procfs::split_arguments(&event.command_line[..seen]));
    if seen < whole {
        line.push('…');
    }
    Some(line)
}

fn relative(at_ns: u64, start_ns: u64) -> i64 {
    at_ns as i64 - start_ns as i64
}
