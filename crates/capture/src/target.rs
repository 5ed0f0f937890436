//! A target that runs already: its tree is found in `/proc` while the kernel follows its forks.

use crate::clock;
use crate::kernel::{Kernel, KernelError};
use crate::{procfs, secrets};
use std::collections::BTreeSet;

/// A thread that was there when recording began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    /// Parent of the process.
    pub(crate) parent_pid: i32,
    pub(crate) name: String,
    /// Of a main thread, unless it could not be read.
    pub(crate) command_line: Option<String>,
    /// When it was noted, on the monotonic clock.
    pub(crate) at_ns: u64,
}

/// Makes `root` and all its descendants targets. The kernel follows forks already, so whoever is
/// not found here is born from somebody who was.
pub(crate) fn add_tree(kernel: &mut Kernel, root: i32) -> Result<Vec<Existing>, KernelError> {
    let mut tree = BTreeSet::new();
    let mut older = Vec::new();
    add_process(kernel, root, &mut older)?;
    tree.insert(root);
    loop {
        let before = tree.len();
        let parents: Vec<(i32, i32)> = procfs::processes()
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::stat(pid)?.parent_pid)))
            .collect();
        // Children may be listed before their parents.
        loop {
            let found: Vec<i32> = parents
                .iter()
                .filter(|(pid, parent)| tree.contains(parent) && !tree.contains(pid))
                .map(|(pid, _)| *pid)
                .collect();
            if found.is_empty() {
                break;
            }
            for pid in found {
                add_process(kernel, pid, &mut older)?;
                tree.insert(pid);
            }
        }
        if tree.len() == before {
            break;
        }
    }
    let mut existing = Vec::new();
    for pid in older {
        add_threads(kernel, pid, &mut existing)?;
    }
    Ok(existing)
}

/// A process that the kernel has made a target already was born after the start: its fork tells it.
fn add_process(kernel: &mut Kernel, pid: i32, older: &mut Vec<i32>) -> Result<(), KernelError> {
    if kernel.add_target(pid, clock::monotonic_ns())? {
        older.push(pid);
    }
    Ok(())
}

fn add_threads(
    kernel: &mut Kernel,
    pid: i32,
    existing: &mut Vec<Existing>,
) -> Result<(), KernelError> {
    let Some(process) = procfs::stat(pid) else {
        return Ok(()); // ended meanwhile; the kernel reported it
    };
    let mut known = BTreeSet::new();
    loop {
        let new: Vec<i32> = procfs::threads(pid)
            .into_iter()
            .filter(|tid| known.insert(*tid))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for tid in new {
            let at_ns = clock::monotonic_ns();
            kernel.add_thread(pid, tid, at_ns)?;
            let name = procfs::thread_stat(pid, tid)
                .map_or_else(|| process.comm.clone(), |stat| stat.comm);
            let command_line = (tid == pid).then(|| procfs::arguments(pid)).flatten();
            existing.push(Existing {
                pid,
                tid,
                parent_pid: process.parent_pid,
                name,
                command_line: command_line.map(|arguments| secrets::command_line(&arguments)),
                at_ns,
            });
        }
    }
}
