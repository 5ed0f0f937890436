//! CUDA calls of the stand-in runtime, recorded by the recorder. The workloads are short Python programs on
//! `tests/workloads/ingero_workload.py`.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod support;

use ingero_testkit::{cudart, live_lock, needs_root_and_bpf};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::cuda::{calls, lost, python, recorded};
use support::{Guard, Recording, eventually, expect_status};

/// Reasons of the probes of libraries.
fn limits(recording: &Recording) -> Vec<String> {
    let info = recording.info();
    let probes = info
        .probes
        .iter()
        .filter(|probe| probe.name.starts_with("libcudart"));
    probes.filter_map(|probe| probe.reason.clone()).collect()
}

/// A copy of the stand-in under another name.
fn copy(folder: &Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::copy(cudart::stand_in(), &path).unwrap();
    path
}

const KNOWN_CALLS: &str = "
from ingero_workload import *
address = malloc(12345)
launch(50, 0x77)
sync(0x77)
buffer = ctypes.create_string_buffer(1 << 20)
h2d(ctypes.addressof(buffer), 1 << 20)
d2h4()
assert CUDART.cudaMemcpyAsync(DEVICE, DEVICE, 333, 9, 0x55) == 21
CUDART.cudaFreeHost(hostalloc(4096))
malloc(1 << 60)
CUDART.cudaMemcpy(DEVICE, DEVICE, 777, 3)
class Config(ctypes.Structure):
    _fields_ = [('grid', Dim3), ('block', Dim3), ('shared_bytes', ctypes.c_size_t), ('stream', ctypes.c_void_p)]
CUDART.cudaLaunchKernelExC(ctypes.byref(Config(Dim3(5, 1, 1), Dim3(1, 1, 1), 0, 0x99)), None, None)
devsync()
free(address)
";

#[test]
fn known_calls_are_recorded_with_their_arguments_and_status() {
    if !needs_root_and_bpf("known_calls_are_recorded_with_their_arguments_and_status") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let mut command = recorded(&recording, &[], KNOWN_CALLS, &[]);
    expect_status(command.env("CUDART", cudart::stand_in()), 0);

    let calls = calls(&recording);
    let seen: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.call.as_ref(),
                call.bytes,
                call.direction.as_deref(),
                call.stream,
                call.status,
            )
        })
        .collect();
    let expected = [
        ("cudaMalloc", Some(12345), None, None, Some(0)),
        ("cudaLaunchKernel", None, None, Some(0x77), Some(0)),
        ("cudaStreamSynchronize", None, None, Some(0x77), Some(0)),
        (
            "cudaMemcpyAsync",
            Some(1 << 20),
            Some("h2d"),
            Some(0),
            Some(0),
        ),
        ("cudaMemcpyAsync", Some(4), Some("d2h"), Some(0), Some(0)),
        ("cudaStreamSynchronize", None, None, Some(0), Some(0)),
        ("cudaMemcpyAsync", Some(333), None, Some(0x55), Some(21)),
        ("cudaHostAlloc", Some(4096), None, None, Some(0)),
        ("cudaFreeHost", None, None, None, Some(0)),
        ("cudaMalloc", Some(1 << 60), None, None, Some(2)),
        ("cudaMemcpy", Some(777), Some("d2d"), None, Some(0)),
        ("cudaLaunchKernelExC", None, None, Some(0x99), Some(0)),
        ("cudaDeviceSynchronize", None, None, None, Some(0)),
        ("cudaFree", None, None, None, Some(0)),
    ];
    // A call may have been in flight when rows were written: then it comes in pieces.
    let whole: Vec<_> = seen
        .iter()
        .zip(&calls)
        .filter(|(_, call)| !call.open)
        .map(|(seen, _)| *seen)
        .collect();
    assert_eq!(whole, expected);
    assert!(
        calls
            .iter()
            .all(|call| call.layer == "runtime" && call.pid == call.tid)
    );
    let first: i64 = calls
        .iter()
        .filter(|call| call.call == "cudaMalloc")
        .map(|call| call.dur_ns)
        .sum();
    assert!(
        first >= 300_000_000,
        "the first call creates the context: {first} ns"
    );
    assert_eq!(lost(&recording), 0);
    assert_eq!(limits(&recording), Vec::<String>::new());
    assert_eq!(
        recording.info().cuda_libraries,
        cudart::stand_in().canonicalize().unwrap().to_string_lossy()
    );
    let pair_cost_ns = recording.info().probe_pair_cost_ns.unwrap();
    assert!(
        (100..100_000).contains(&pair_cost_ns),
        "a pair of probes costs {pair_cost_ns} ns"
    );
}

#[test]
fn no_call_is_missing_at_a_high_rate() {
    if !needs_root_and_bpf("no_call_is_missing_at_a_high_rate") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = "
from ingero_workload import *
for step in range(300):
    for _ in range(500):
        launch(1)
    sync()
";
    expect_status(
        recorded(&recording, &[], program, &[]).env("CUDART", cudart::stand_in()),
        0,
    );
    let count = |call: &str| {
        recording.number(&format!(
            "SELECT count(*) FROM cuda_calls WHERE call = '{call}' AND NOT continued"
        ))
    };
    assert_eq!(lost(&recording), 0);
    assert_eq!(count("cudaLaunchKernel"), 150_000);
    assert_eq!(count("cudaStreamSynchronize"), 300);
}

#[test]
fn a_library_that_a_child_loads_later_is_probed() {
    if !needs_root_and_bpf("a_library_that_a_child_loads_later_is_probed") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let library = copy(recording.folder(), "libcudart-d0da41ae.so.11.0");
    // Nothing in the environment names the library. The first call sleeps, long after the probes are set.
    let program = "
import os, sys, time
child = os.fork()
if child == 0:
    time.sleep(0.5)
    os.environ['CUDART'] = sys.argv[1]
    from ingero_workload import *
    devsync()
    for size in range(1, 6):
        malloc(size * 1000)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
";
    expect_status(&mut recorded(&recording, &[], program, &[&library]), 0);
    let sizes: Vec<_> = calls(&recording)
        .into_iter()
        .filter(|call| call.call == "cudaMalloc" && !call.open)
        .map(|call| call.bytes)
        .collect();
    assert_eq!(sizes, [1000, 2000, 3000, 4000, 5000].map(Some));
    let target = i64::from(recording.info().target_pid);
    assert_eq!(
        recording.number(&format!(
            "SELECT count(*) FROM cuda_calls WHERE pid = {target}"
        )),
        0
    );
    let limits = limits(&recording);
    assert!(
        !limits.is_empty()
            && limits
                .iter()
                .all(|reason| reason.contains("ms after it was mapped")),
        "{limits:?}"
    );
}

#[test]
fn two_copies_at_once_are_both_recorded_and_a_second_name_counts_once() {
    if !needs_root_and_bpf("two_copies_at_once_are_both_recorded_and_a_second_name_counts_once") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let first = copy(recording.folder(), "libcudart.so.11.0");
    let second = copy(recording.folder(), "libcudart.so.12");
    let link = recording.folder().join("libcudart-linked.so.12");
    std::fs::hard_link(&second, &link).unwrap();
    let program = "
import ctypes, sys
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
for library in libraries:
    library.cudaDeviceSynchronize()
for number, library in enumerate(libraries):
    for size in range(1, 101):
        library.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1000 * number + size))
";
    expect_status(
        &mut recorded(&recording, &[], program, &[&first, &second, &link]),
        0,
    );
    let calls = calls(&recording);
    let mut sizes: Vec<i64> = calls
        .iter()
        .filter(|call| call.call == "cudaMalloc" && !call.open)
        .filter_map(|call| call.bytes)
        .collect();
    sizes.sort_unstable();
    let expected: Vec<i64> = (0..3)
        .flat_map(|number| (1..=100).map(move |size| 1000 * number + size))
        .collect();
    assert_eq!(sizes, expected);
    assert_eq!(recording.info().cuda_libraries.split(", ").count(), 2);
}

#[test]
fn a_hung_call_shows_as_open_and_stopping_is_quick() {
    if !needs_root_and_bpf("a_hung_call_shows_as_open_and_stopping_is_quick") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = "
from ingero_workload import *
launch(3600 * 1000 * 1000)
sync()
";
    let mut command = recorded(&recording, &[], program, &[]);
    command
        .env("CUDART", cudart::stand_in())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut recorder = Guard(command.spawn().unwrap());
    eventually("the recording goes on for some flushes", || {
        recording.lasts(Duration::from_secs(5))
    });
    let target = recording.info().target_pid;
    let stopped = Instant::now();
    // SAFETY: takes numbers; the child is ours and was not waited for.
    unsafe { libc::kill(recorder.0.id() as i32, libc::SIGTERM) };
    recorder.0.wait().unwrap();
    let stopping = stopped.elapsed();
    // SAFETY: as above; the command is hung for an hour, so its number is still its own.
    unsafe { libc::kill(target, libc::SIGKILL) };
    // One perf event for each of the probes would take 0.1 s to detach: 2 s and more.
    assert!(
        stopping < Duration::from_secs(2),
        "stopping took {stopping:?}"
    );

    let calls = calls(&recording);
    let pieces: Vec<_> = calls
        .iter()
        .filter(|call| call.call == "cudaStreamSynchronize")
        .collect();
    assert!(pieces.len() >= 2, "{pieces:?}");
    assert!(
        pieces
            .iter()
            .all(|piece| piece.open && piece.status.is_none())
    );
    assert_eq!(pieces.iter().filter(|piece| !piece.continued).count(), 1);
    for pair in pieces.windows(2) {
        assert_eq!(
            pair[0].ts_ns + pair[0].dur_ns,
            pair[1].ts_ns,
            "pieces join without a gap"
        );
    }
    let last = pieces.last().unwrap();
    let missing_ns = recording.info().duration_ns - (last.ts_ns + last.dur_ns);
    assert!(
        missing_ns < 1_000_000_000,
        "the last piece reaches the end but for {missing_ns} ns"
    );
}

#[test]
fn a_call_in_which_its_process_is_killed_ends_with_it() {
    if !needs_root_and_bpf("a_call_in_which_its_process_is_killed_ends_with_it") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = "
import os, signal, sys, time
child = os.fork()
if child == 0:
    from ingero_workload import *
    launch(3600 * 1000 * 1000)
    sync()
time.sleep(1)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
time.sleep(3)
";
    expect_status(
        recorded(&recording, &[], program, &[]).env("CUDART", cudart::stand_in()),
        0,
    );
    let calls = calls(&recording);
    let sync: Vec<_> = calls
        .iter()
        .filter(|call| call.call == "cudaStreamSynchronize")
        .collect();
    assert!(
        !sync.is_empty()
            && sync
                .iter()
                .all(|piece| piece.open && piece.status.is_none()),
        "{sync:?}"
    );
    let end_ns = sync
        .iter()
        .map(|piece| piece.ts_ns + piece.dur_ns)
        .max()
        .unwrap();
    let exit_ns = recording
        .number("SELECT max(ts_ns) FROM process_events WHERE kind = 'exit' AND exit_status = 137");
    assert!(
        (end_ns - exit_ns).abs() < 10_000_000,
        "the call ends at {end_ns} ns, its process at {exit_ns} ns"
    );
}

#[test]
fn a_running_process_is_probed_and_what_was_missed_is_told() {
    if !needs_root_and_bpf("a_running_process_is_probed_and_what_was_missed_is_told") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = "
from ingero_workload import *
devsync()
print('ready', flush=True)
while True:
    malloc(4242)
    time.sleep(0.01)
";
    let mut job = python(Command::new("python3"), program, &[]);
    let mut job = Guard(
        job.env("CUDART", cudart::stand_in())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut ready = [0; 6];
    std::io::Read::read_exact(job.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = job.0.id().to_string();
    expect_status(
        &mut recording.command(["--pid", &pid, "--duration", "1"]),
        0,
    );
    assert!(
        calls(&recording)
            .iter()
            .filter(|call| call.bytes == Some(4242))
            .count()
            > 20
    );
    let limits = limits(&recording);
    assert!(
        !limits.is_empty() && limits.iter().all(|reason| reason.contains("in use before")),
        "{limits:?}"
    );
}
