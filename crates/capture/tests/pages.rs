//! Records page allocations of known number. The recorded command is this test program itself.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // tests, and the commands they record

mod support;

use ingero_testkit::{live_lock, needs_root_and_bpf};
use std::ffi::CStr;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use support::{Recording, WORKLOAD, expect_status};

const PAGE_BYTES: usize = 4096;
const MIB: usize = 1 << 20;

/// What this program does when it is the recorded command; nothing otherwise.
#[test]
fn workload() {
    match std::env::var(WORKLOAD).as_deref() {
        Ok("touch") => touch_then_fork(),
        Ok("huge") => drop(Memory::new(64 * MIB, libc::MADV_HUGEPAGE).touched()),
        Ok("storm") => storm(),
        Ok(other) => panic!("no workload {other}"),
        Err(_) => {}
    }
}

/// Anonymous memory that nobody has touched.
struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize, advice: libc::c_int) -> Self {
        // SAFETY: new memory at an address that the kernel chooses; the advice is about that memory.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::madvise(start, bytes, advice), 0);
            Self {
                start: start.cast(),
                bytes,
            }
        }
    }

    /// Writes into every page.
    fn touched(self) -> Self {
        for offset in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: inside the memory, which nobody else uses.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
        self
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory is this value's own, and the value is gone.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// A moment that the recording can tell: this thread takes a name.
fn mark(name: &CStr) {
    // SAFETY: the name is a string that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Touches 64 MiB, and lets a child write into the same pages.
fn touch_then_fork() {
    let memory = Memory::new(64 * MIB, libc::MADV_NOHUGEPAGE);
    mark(c"touching");
    let memory = memory.touched();
    mark(c"touched");
    // SAFETY: the child only writes into memory and ends; it takes no lock that another thread may hold.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            std::mem::forget(memory.touched());
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    mark(c"reaped");
}

/// Three threads and a child touch new memory all the time, for several of the recorder's flushes. Prints how
/// many pages the process and its child touched.
fn storm() {
    const LENGTH: Duration = Duration::from_secs(4);
    let (mut of_child, mut to_parent) = std::io::pipe().unwrap();
    let touched = AtomicI64::new(0);
    let end = Instant::now() + LENGTH;
    let work = || {
        while Instant::now() < end {
            drop(Memory::new(4 * MIB, libc::MADV_NOHUGEPAGE).touched());
            touched.fetch_add((4 * MIB / PAGE_BYTES) as i64, Ordering::Relaxed);
        }
    };
    // SAFETY: the child takes no lock that another thread may hold: it maps memory, writes and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        work();
        let written = to_parent.write_all(&touched.into_inner().to_le_bytes());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(written.is_err().into()) };
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let mut count = [0; 8];
    of_child.read_exact(&mut count).unwrap();
    // SAFETY: waits for the child that was forked above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let (own, of_child) = (touched.into_inner(), i64::from_le_bytes(count));
    println!("touched {own} {of_child}");
}

/// More than the pages asked for: page tables and what the runtime needs, at most 3%.
fn assert_about(what: &str, pages: i64, wanted: i64) {
    assert!(
        pages >= wanted && pages * 100 <= wanted * 103,
        "{what}: {pages} pages, {wanted} wanted"
    );
}

fn assert_rows_are_sound(recording: &Recording) {
    assert_eq!(
        recording.number(
            "SELECT count(*) FROM page_allocs WHERE ts_ns < 0 OR ts_ns % 10000000 <> 0 \
             OR count <= 0 OR bytes <> (count << page_order) * 4096"
        ),
        0
    );
    // Sums of several CPUs are one row.
    assert_eq!(
        recording
            .number("SELECT count(*) - count(DISTINCT (ts_ns, pid, page_order)) FROM page_allocs"),
        0
    );
    assert_eq!(
        recording.number("SELECT count(*) FROM lost_events WHERE class = 'page_allocs'"),
        0
    );
}

#[test]
fn pages_belong_to_the_process_and_the_time_that_touched_them() {
    if !needs_root_and_bpf("pages_belong_to_the_process_and_the_time_that_touched_them") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.workload(&[], "touch"), 0);
    assert_rows_are_sound(&recording);
    let root = recording.info().target_pid;
    let at = |name: &str| {
        recording.number(&format!(
            "SELECT ts_ns FROM process_events WHERE kind = 'rename' AND name = '{name}'"
        ))
    };
    let pages = |pid: i32, from: i64, to: i64| {
        recording.number(&format!(
            "SELECT coalesce(sum(count << page_order), 0)::BIGINT FROM page_allocs \
             WHERE pid = {pid} AND ts_ns + 10000000 > {from} AND ts_ns <= {to}"
        ))
    };
    let wanted = (64 * MIB / PAGE_BYTES) as i64;
    let (touching, touched, reaped) = (at("touching"), at("touched"), at("reaped"));
    assert_about("the parent", pages(root, touching, touched), wanted);

    let child = recording.number(&format!(
        "SELECT pid FROM process_events WHERE kind = 'fork' AND parent_pid = {root}"
    )) as i32;
    assert_about("the child's copies", pages(child, touched, reaped), wanted);
    // The bucket in which the parent ended touching is no longer its own.
    let meanwhile = pages(root, touched + 10_000_000, reaped);
    assert!(
        meanwhile * 20 < wanted,
        "{meanwhile} pages of the parent while the child copied"
    );
}

#[test]
fn a_huge_page_counts_as_the_pages_it_holds() {
    const TEST: &str = "a_huge_page_counts_as_the_pages_it_holds";
    if !needs_root_and_bpf(TEST) {
        return;
    }
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if huge.is_ok_and(|setting| setting.contains("[never]")) {
        ingero_testkit::skip::skip(TEST, "transparent huge pages are off");
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.workload(&[], "huge"), 0);
    assert_rows_are_sound(&recording);
    let sum = |what: &str| {
        recording.number(&format!(
            "SELECT coalesce(sum({what}), 0)::BIGINT FROM page_allocs WHERE pid = {}",
            recording.info().target_pid
        ))
    };
    assert!(sum("bytes") >= 64 << 20, "{} bytes", sum("bytes"));
    // Memory may be too fragmented for some.
    assert!(sum("count") < 16384, "{} allocations", sum("count"));
}

#[test]
fn a_storm_of_allocations_is_counted_without_loss() {
    if !needs_root_and_bpf("a_storm_of_allocations_is_counted_without_loss") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let output = expect_status(&mut recording.workload(&[], "storm"), 0);
    assert_rows_are_sound(&recording);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (own, of_child) = stdout
        .lines()
        .find_map(|line| line.split_once("touched ")?.1.split_once(' '))
        .unwrap_or_else(|| panic!("{stdout}"));
    let root = recording.info().target_pid;
    for (what, pids, touched) in [
        ("three threads", format!("pid = {root}"), own),
        (
            "their child",
            format!(
                "pid IN (SELECT pid FROM process_events WHERE parent_pid = {root} AND pid <> {root})"
            ),
            of_child,
        ),
    ] {
        let pages = recording.number(&format!(
            "SELECT sum(count << page_order)::BIGINT FROM page_allocs WHERE {pids}"
        ));
        assert_about(what, pages, touched.parse().unwrap());
    }
    let last = recording.number("SELECT max(ts_ns) FROM page_allocs");
    assert!(
        last + 500_000_000 > recording.info().duration_ns,
        "the last bucket is at {last} ns"
    );
}
