//! What must hold before anything is started or created.

use crate::capabilities::Capabilities;
use crate::procfs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Why this machine, this user or these arguments cannot record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreflightError {
    #[error("recording needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo")]
    Privileges,
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux): recording needs a kernel built \
         with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    #[error(
        "this is the root of a user namespace (a rootless container), who may not load kernel programs: run \
         the recorder on the host with sudo"
    )]
    UserNamespace,
    #[error(
        "this is a PID namespace of a container, where process numbers differ from those the kernel \
         reports: run the recorder on the host, or in a container started with --pid=host"
    )]
    PidNamespace,
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("process {0} has ended already")]
    Ended(i32),
    #[error("{tid} is a thread of process {pid}: use --pid {pid}")]
    Thread { tid: i32, pid: i32 },
    #[error("process {0} is a kernel thread: give the process of the job")]
    KernelThread(i32),
    #[error("process {0} is this recorder: give the process of the job")]
    Itself(i32),
    #[error("cannot write {}: the name of a trace ends in .duckdb", .0.display())]
    OutputName(PathBuf),
    #[error("{} is there already: choose another name, or remove it first", .0.display())]
    OutputExists(PathBuf),
    #[error("cannot write into {}: {source}", folder.display())]
    OutputFolder {
        folder: PathBuf,
        source: std::io::Error,
    },
}

/// The inode numbers of the first namespaces, the same in every kernel.
pub(crate) const INITIAL_PID_NAMESPACE: u32 = 4026531836;
pub(crate) const INITIAL_USER_NAMESPACE: u32 = 4026531837;

/// The kernel's type information.
pub(crate) const TYPE_INFORMATION: &str = "/sys/kernel/btf/vmlinux";

/// Whether this process is in the namespace of this kind with this inode number.
pub(crate) fn is_namespace(kind: &str, inode: u32) -> bool {
    std::fs::read_link(format!("/proc/self/ns/{kind}"))
        .is_ok_and(|link| link == Path::new(&format!("{kind}:[{inode}]")))
}

/// Whether this process may load the kernel programs, and the kernel can take them.
pub(crate) fn check_machine() -> Result<(), PreflightError> {
    if !Capabilities::effective().may_load_programs() {
        return Err(PreflightError::Privileges);
    }
    if !is_namespace("user", INITIAL_USER_NAMESPACE) {
        return Err(PreflightError::UserNamespace);
    }
    if !is_namespace("pid", INITIAL_PID_NAMESPACE) {
        return Err(PreflightError::PidNamespace);
    }
    if !Path::new(TYPE_INFORMATION).exists() {
        return Err(PreflightError::NoBtf);
    }
    Ok(())
}

/// Whether `pid` is a process that can be recorded.
pub(crate) fn check_pid(pid: i32) -> Result<(), PreflightError> {
    let status =
        procfs::read_lossy(format!("/proc/{pid}/status")).ok_or(PreflightError::NoProcess(pid))?;
    let process: i32 = procfs::field(&status, "Tgid")
        .and_then(|tgid| tgid.parse().ok())
        .ok_or(PreflightError::NoProcess(pid))?;
    if process != pid {
        return Err(PreflightError::Thread {
            tid: pid,
            pid: process,
        });
    }
    if procfs::stat(pid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X')) {
        return Err(PreflightError::Ended(pid));
    }
    if pid == std::process::id() as i32 {
        return Err(PreflightError::Itself(pid));
    }
    // Only kernel threads have no memory of their own.
    if procfs::field(&status, "VmSize").is_none() {
        return Err(PreflightError::KernelThread(pid));
    }
    Ok(())
}

/// Whether the trace can be created, so that nothing is started in vain. The writer checks again.
pub(crate) fn check_output(output: &Path) -> Result<(), PreflightError> {
    if output
        .extension()
        .is_none_or(|extension| extension != "duckdb")
        || output.as_os_str().as_bytes().ends_with(b"/")
    {
        return Err(PreflightError::OutputName(output.to_owned()));
    }
    for path in [output.to_owned(), output.with_extension("events")] {
        if path.symlink_metadata().is_ok() {
            return Err(PreflightError::OutputExists(path));
        }
    }
    let folder = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let cannot = |source| PreflightError::OutputFolder {
        folder: folder.to_owned(),
        source,
    };
    if !folder.metadata().map_err(cannot)?.is_dir() {
        return Err(cannot(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(())
}
