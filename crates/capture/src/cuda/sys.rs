//! The system calls that aya has no functions for.

use aya_obj::generated::{bpf_insn, perf_event_attr};
use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

const BPF_PROG_LOAD: c_int = 5;
const BPF_LINK_CREATE: c_int = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PERF_EVENT: u32 = 41;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;

/// How programs are attached; it has to be known when they are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// One link for all functions of a library, since kernel 6.6.
    Multi,
    /// A perf event for each function.
    Perf,
}

/// `union bpf_attr` for BPF_PROG_LOAD, as far as it is used.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE with BPF_TRACE_UPROBE_MULTI.
#[repr(C)]
struct MultiLink {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE with BPF_PERF_EVENT.
#[repr(C)]
struct PerfLink {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    bpf_cookie: u64,
}

/// Loads a program for uprobes. The error holds the verifier's last words.
pub(crate) fn load_uprobe(
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
    attachment: Attachment,
) -> io::Result<OwnedFd> {
    let mut prog_name = [0; 16];
    let length = name.len().min(prog_name.len() - 1);
    prog_name[..length].copy_from_slice(&name.as_bytes()[..length]);
    let mut attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name,
        prog_ifindex: 0,
        expected_attach_type: match attachment {
            Attachment::Multi => BPF_TRACE_UPROBE_MULTI,
            Attachment::Perf => 0,
        },
    };
    // SAFETY: the instructions and the license live through the call, and there is no log.
    if let Ok(fd) = unsafe { bpf(BPF_PROG_LOAD, &attr) } {
        return Ok(fd);
    }
    let mut log = vec![0u8; 64 << 10];
    attr.log_level = 1;
    attr.log_size = log.len() as u32;
    attr.log_buf = log.as_mut_ptr() as u64;
    // SAFETY: as above, and the log has the size that is told.
    unsafe { bpf(BPF_PROG_LOAD, &attr) }.map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let text = text.trim_end_matches('\0').trim_end();
        let last = text.lines().rev().take(3).collect::<Vec<_>>();
        io::Error::new(
            error.kind(),
            format!(
                "{error}: {}",
                last.into_iter().rev().collect::<Vec<_>>().join("; ")
            ),
        )
    })
}

/// Attaches a program to many places in a file at once. `pid` 0 is every process.
pub(crate) fn link_multi(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    returns: bool,
    pid: u32,
) -> io::Result<OwnedFd> {
    assert_eq!(offsets.len(), cookies.len());
    let attr = MultiLink {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        ref_ctr_offsets: 0,
        cookies: cookies.as_ptr() as u64,
        cnt: offsets.len() as u32,
        multi_flags: if returns {
            BPF_F_UPROBE_MULTI_RETURN
        } else {
            0
        },
        pid,
        padding: 0,
    };
    // SAFETY: path, offsets and cookies live through the call; the lists are as long as is told.
    unsafe { bpf(BPF_LINK_CREATE, &attr) }
}

/// Attaches a program to a perf event. Both descriptors have to stay open.
pub(crate) fn link_perf(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let attr = PerfLink {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: event.as_raw_fd() as u32,
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        bpf_cookie: cookie,
    };
    // SAFETY: numbers only.
    unsafe { bpf(BPF_LINK_CREATE, &attr) }
}

/// Opens a perf event of all processes on one CPU.
pub(crate) fn perf_event_open(attr: &perf_event_attr, cpu: i32) -> io::Result<OwnedFd> {
    const ALL_PROCESSES: c_int = -1;
    const NO_GROUP: c_int = -1;
    const PERF_FLAG_FD_CLOEXEC: c_long = 8;
    // SAFETY: the attribute lives through the call and tells its size; the rest are numbers.
    unsafe {
        owned(libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            ALL_PROCESSES,
            cpu,
            NO_GROUP,
            PERF_FLAG_FD_CLOEXEC,
        ))
    }
}

/// # Safety
/// Every address in `attr` is valid for what the command does with it.
unsafe fn bpf<T>(command: c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a start of `union bpf_attr` of the size told, and the caller's promise.
    unsafe {
        owned(libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attr),
            size_of::<T>(),
        ))
    }
}

/// # Safety
/// `fd` is negative, or a new descriptor that nobody owns.
unsafe fn owned(fd: c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}
