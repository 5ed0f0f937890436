//! Calls of the driver, made directly and by the runtime, recorded from the stand-ins.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod support;

use ingero_testkit::{cudart, live_lock, needs_root_and_bpf};
use ingero_trace::rows::CudaCall;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use support::cuda::{calls, lost, python, recorded};
use support::{Guard, Recording, expect_status};

/// Has the runtime call the driver.
fn with_driver(command: &mut Command) -> &mut Command {
    command
        .env("CUDART", cudart::stand_in())
        .env("CUDART_DRIVER", cudart::driver_stand_in())
}

/// What the programs begin with.
const PRELUDE: &str = "
import ctypes, os
from ctypes import byref, c_int, c_size_t as size, c_ubyte, c_uint, c_ulonglong, c_ushort, c_void_p as pointer
runtime = ctypes.CDLL(os.environ['CUDART'])
driver = ctypes.CDLL(os.environ['CUDART_DRIVER'])
class Dim3(ctypes.Structure):
    _fields_ = [('x', c_uint), ('y', c_uint), ('z', c_uint)]
class Config(ctypes.Structure):
    _fields_ = [('grid', Dim3), ('block', Dim3), ('shared_bytes', size), ('stream', pointer)]
class DriverConfig(ctypes.Structure):
    _fields_ = [('grid', Dim3), ('block', Dim3), ('shared_bytes', c_uint), ('stream', pointer)]
DEVICE = pointer(0x0D0000000000)
MEGABYTE = 1 << 20
one = Dim3(1, 1, 1)
out, pinned, event = pointer(), pointer(), pointer()
buffer = ctypes.create_string_buffer(MEGABYTE)
def launch(stream=0):
    assert runtime.cudaLaunchKernel(None, one, one, None, size(0), pointer(stream)) == 0
";

/// A call, and its bytes, direction, stream and status.
type Case = (
    &'static str,
    Option<i64>,
    Option<&'static str>,
    Option<i64>,
    i32,
);

const fn plain(call: &'static str) -> Case {
    (call, None, None, None, 0)
}

const fn sized(call: &'static str, bytes: i64) -> Case {
    (call, Some(bytes), None, None, 0)
}

const fn on_stream(call: &'static str, stream: i64) -> Case {
    (call, None, None, Some(stream), 0)
}

/// Every call that is probed, in the order in which the program makes them.
#[rustfmt::skip] // a table
const CASES: &[Case] = &[
    sized("runtime.cudaMalloc(byref(out), size(101))", 101),
    ("runtime.cudaMalloc(byref(out), size(1 << 60))", Some(1 << 60), None, None, 2),
    plain("runtime.cudaFree(out)"),
    ("runtime.cudaMallocAsync(byref(out), size(102), pointer(0x11))", Some(102), None, Some(0x11), 0),
    on_stream("runtime.cudaFreeAsync(out, pointer(0x12))", 0x12),
    sized("runtime.cudaMallocManaged(byref(out), size(103), 1)", 103),
    sized("runtime.cudaHostAlloc(byref(pinned), size(104), 0)", 104),
    plain("runtime.cudaFreeHost(pinned)"),
    sized("runtime.cudaMallocHost(byref(pinned), size(105))", 105),
    sized("runtime.cudaHostRegister(buffer, size(MEGABYTE), 0)", 1 << 20),
    plain("runtime.cudaHostUnregister(buffer)"),
    ("runtime.cudaHostUnregister(buffer)", None, None, None, 1),
    ("runtime.cudaMemcpy(DEVICE, buffer, size(106), 1)", Some(106), Some("h2d"), None, 0),
    ("runtime.cudaMemcpy(buffer, DEVICE, size(107), 4)", Some(107), Some("default"), None, 0),
    ("runtime.cudaMemcpyAsync(buffer, DEVICE, size(108), 2, pointer(0x13))", Some(108), Some("d2h"), Some(0x13), 0),
    ("runtime.cudaMemcpyAsync(DEVICE, DEVICE, size(109), 9, pointer(0x14))", Some(109), None, Some(0x14), 21),
    ("runtime.cudaMemcpy2D(DEVICE, size(64), buffer, size(64), size(50), size(20), 1)", Some(1000), Some("h2d"), None, 0),
    (
        "runtime.cudaMemcpy2DAsync(buffer, size(64), DEVICE, size(64), size(50), size(21), 2, pointer(0x15))",
        Some(1050), Some("d2h"), Some(0x15), 0,
    ),
    (
        "runtime.cudaMemcpy2DAsync(DEVICE, size(64), DEVICE, size(64), size(1 << 33), size(1 << 33), 9, pointer(0x16))",
        Some(i64::MAX), None, Some(0x16), 21,
    ),
    ("runtime.cudaMemcpyPeerAsync(DEVICE, 0, DEVICE, 1, size(110), pointer(0x17))", Some(110), Some("d2d"), Some(0x17), 0),
    sized("runtime.cudaMemset(DEVICE, 0, size(111))", 111),
    ("runtime.cudaMemsetAsync(DEVICE, 0, size(112), pointer(0x18))", Some(112), None, Some(0x18), 0),
    on_stream("runtime.cudaLaunchKernel(None, one, one, None, size(0), pointer(0x19))", 0x19),
    on_stream("runtime.cudaLaunchKernelExC(byref(Config(one, one, 0, 0x1a)), None, None)", 0x1a),
    on_stream("runtime.cudaLaunchCooperativeKernel(None, one, one, None, size(0), pointer(0x1b))", 0x1b),
    on_stream("runtime.cudaGraphLaunch(pointer(5), pointer(0x1c))", 0x1c),
    on_stream("runtime.cudaStreamSynchronize(pointer(0x1d))", 0x1d),
    plain("runtime.cudaDeviceSynchronize()"),
    plain("runtime.cudaEventSynchronize(event)"),
    sized("driver.cuMemAlloc_v2(byref(out), size(201))", 201),
    ("driver.cuMemAlloc_v2(byref(out), size(1 << 60))", Some(1 << 60), None, None, 2),
    plain("driver.cuMemFree_v2(out)"),
    ("driver.cuMemAllocAsync(byref(out), size(202), pointer(0x21))", Some(202), None, Some(0x21), 0),
    on_stream("driver.cuMemFreeAsync(out, pointer(0x22))", 0x22),
    sized("driver.cuMemAllocManaged(byref(out), size(203), 1)", 203),
    sized("driver.cuMemAllocHost_v2(byref(pinned), size(204))", 204),
    plain("driver.cuMemFreeHost(pinned)"),
    sized("driver.cuMemHostAlloc(byref(pinned), size(205), 0)", 205),
    sized("driver.cuMemHostRegister_v2(buffer, size(MEGABYTE), 0)", 1 << 20),
    plain("driver.cuMemHostUnregister(buffer)"),
    sized("driver.cuMemCreate(byref(out), size(206), None, c_ulonglong(0))", 206),
    plain("driver.cuMemMap(DEVICE, size(206), size(0), out, c_ulonglong(0))"),
    plain("driver.cuMemSetAccess(DEVICE, size(206), None, size(0))"),
    plain("driver.cuMemUnmap(DEVICE, size(206))"),
    plain("driver.cuMemRelease(out)"),
    ("driver.cuMemcpy(DEVICE, buffer, size(207))", Some(207), Some("default"), None, 0),
    ("driver.cuMemcpyAsync(DEVICE, buffer, size(208), pointer(0x23))", Some(208), Some("default"), Some(0x23), 0),
    ("driver.cuMemcpyHtoD_v2(DEVICE, buffer, size(209))", Some(209), Some("h2d"), None, 0),
    ("driver.cuMemcpyHtoDAsync_v2(DEVICE, buffer, size(210), pointer(0x24))", Some(210), Some("h2d"), Some(0x24), 0),
    ("driver.cuMemcpyHtoDAsync_v2_ptsz(DEVICE, buffer, size(211), pointer(0x25))", Some(211), Some("h2d"), Some(0x25), 0),
    ("driver.cuMemcpyDtoH_v2(buffer, DEVICE, size(212))", Some(212), Some("d2h"), None, 0),
    ("driver.cuMemcpyDtoHAsync_v2(buffer, DEVICE, size(213), pointer(0x26))", Some(213), Some("d2h"), Some(0x26), 0),
    ("driver.cuMemcpyDtoD_v2(DEVICE, DEVICE, size(214))", Some(214), Some("d2d"), None, 0),
    ("driver.cuMemcpyDtoDAsync_v2(DEVICE, DEVICE, size(215), pointer(0x27))", Some(215), Some("d2d"), Some(0x27), 0),
    sized("driver.cuMemsetD8_v2(DEVICE, c_ubyte(0), size(216))", 216),
    ("driver.cuMemsetD8Async(DEVICE, c_ubyte(0), size(217), pointer(0x28))", Some(217), None, Some(0x28), 0),
    sized("driver.cuMemsetD16_v2(DEVICE, c_ushort(0), size(218))", 2 * 218),
    ("driver.cuMemsetD16Async(DEVICE, c_ushort(0), size(219), pointer(0x29))", Some(2 * 219), None, Some(0x29), 0),
    sized("driver.cuMemsetD32_v2(DEVICE, 0, size(220))", 4 * 220),
    ("driver.cuMemsetD32Async(DEVICE, 0, size(221), pointer(0x2a))", Some(4 * 221), None, Some(0x2a), 0),
    on_stream("driver.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, pointer(0x2b), None, None)", 0x2b),
    on_stream("driver.cuLaunchKernel_ptsz(None, 1, 1, 1, 1, 1, 1, 0, pointer(0x2c), None, None)", 0x2c),
    on_stream("driver.cuLaunchKernelEx(byref(DriverConfig(one, one, 0, 0x2d)), None, None, None)", 0x2d),
    on_stream("driver.cuLaunchCooperativeKernel(None, 1, 1, 1, 1, 1, 1, 0, pointer(0x2e), None)", 0x2e),
    on_stream("driver.cuGraphLaunch(pointer(5), pointer(0x2f))", 0x2f),
    on_stream("driver.cuStreamSynchronize(pointer(0x30))", 0x30),
    plain("driver.cuCtxSynchronize()"),
    plain("driver.cuEventSynchronize(event)"),
    ("driver.cuEventSynchronize(None)", None, None, None, 1),
];

/// The layer and the name that a case is stored under.
fn layer_and_name(code: &str) -> (&str, &str) {
    let (layer, call) = code.split_once('.').unwrap();
    (layer, stored_name(call.split_once('(').unwrap().0))
}

/// A symbol without the suffixes of default stream and version.
fn stored_name(symbol: &str) -> &str {
    let without = |name, suffix| str::strip_suffix(name, suffix).unwrap_or(name);
    without(without(without(symbol, "_ptsz"), "_ptds"), "_v2")
}

#[test]
fn every_probed_call_is_recorded_with_its_arguments_and_status() {
    if !needs_root_and_bpf("every_probed_call_is_recorded_with_its_arguments_and_status") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let lines: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    let program = format!(
        "{PRELUDE}driver.cuEventCreate(byref(event), 0)\n{}\n",
        lines.join("\n")
    );
    expect_status(
        with_driver(&mut recorded(&recording, &[], &program, &[])),
        0,
    );

    let whole = calls(&recording).into_iter().filter(|call| !call.open);
    let seen: Vec<_> = whole
        .map(|call| {
            let CudaCall {
                layer,
                call,
                bytes,
                direction,
                stream,
                status,
                nested,
                ..
            } = call;
            let in_runtime = layer == "runtime" && nested != Some(0);
            (
                layer.into_owned(),
                call.into_owned(),
                bytes,
                direction.map(String::from),
                stream,
                status,
                in_runtime,
            )
        })
        .collect();
    let expected: Vec<_> = CASES
        .iter()
        .map(|(code, bytes, direction, stream, status)| {
            let (layer, call) = layer_and_name(code);
            // The runtime refuses a kind of copy by itself.
            let in_runtime = layer == "runtime" && *status != 21;
            let direction = direction.map(str::to_owned);
            (
                layer.to_owned(),
                call.to_owned(),
                *bytes,
                direction,
                *stream,
                Some(*status),
                in_runtime,
            )
        })
        .collect();
    for (seen, expected) in seen.iter().zip(&expected) {
        assert_eq!(seen, expected);
    }
    assert_eq!(seen.len(), expected.len());
    assert_eq!(lost(&recording), 0);

    let info = recording.info();
    let probed: BTreeSet<&str> = info
        .probes
        .iter()
        .filter_map(|probe| Some(stored_name(probe.name.split_once(':')?.1)))
        .collect();
    let called: BTreeSet<&str> = CASES.iter().map(|case| layer_and_name(case.0).1).collect();
    assert_eq!(probed, called, "every probe has a case");
    for library in [cudart::stand_in(), cudart::driver_stand_in()] {
        let path = library.canonicalize().unwrap();
        assert!(info.cuda_libraries.contains(&*path.to_string_lossy()));
    }
}

const LAUNCHES: &str = "
for step in range(100):
    for _ in range(20):
        launch(0x77)
    for _ in range(5):
        driver.cuLaunchKernelEx(byref(DriverConfig(one, one, 0, 0x88)), None, None, None)
    runtime.cudaMemcpyAsync(buffer, DEVICE, size(4), 2, None)
    runtime.cudaStreamSynchronize(None)
";

#[test]
fn what_the_runtime_calls_in_the_driver_counts_once() {
    if !needs_root_and_bpf("what_the_runtime_calls_in_the_driver_counts_once") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = format!("{PRELUDE}{LAUNCHES}");
    expect_status(
        with_driver(&mut recorded(&recording, &[], &program, &[])),
        0,
    );
    let counted = recording.query(
        "SELECT layer, call, count(*) FILTER (NOT continued), sum(nested)::BIGINT
         FROM cuda_calls GROUP BY ALL ORDER BY ALL",
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    );
    let expected: [(&str, &str, i64, i64); 4] = [
        ("driver", "cuLaunchKernelEx", 500, 0),
        ("runtime", "cudaLaunchKernel", 2000, 2000),
        ("runtime", "cudaMemcpyAsync", 100, 100),
        ("runtime", "cudaStreamSynchronize", 100, 100),
    ];
    let expected = expected
        .map(|(layer, call, count, nested)| (layer.to_owned(), call.to_owned(), count, nested));
    assert_eq!(counted, expected);
    let overlapping = "SELECT count(*) FROM (
        SELECT ts_ns, max(ts_ns + dur_ns) OVER (
            PARTITION BY tid ORDER BY ts_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS free_ns FROM cuda_calls) WHERE ts_ns < free_ns";
    assert_eq!(recording.number(overlapping), 0, "no time counts twice");
    assert_eq!(lost(&recording), 0);
}

#[test]
fn a_driver_that_the_runtime_does_not_call_is_recorded_alone() {
    let test = "a_driver_that_the_runtime_does_not_call_is_recorded_alone";
    if !needs_root_and_bpf(test) {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    // As a process does that only asks what there is: loaded, and not called.
    let program = "
import ctypes, os, subprocess, sys
if len(sys.argv) > 1:
    sys.exit(0 if ctypes.CDLL(sys.argv[1]) else 1)
driver = os.environ['LIBCUDA']
subprocess.run([sys.executable, '-c', f'import ctypes; ctypes.CDLL({driver!r})'], check=True)
library = ctypes.CDLL(driver)
for _ in range(10):
    library.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, None, None)
library.cuCtxSynchronize()
";
    let mut command = recorded(&recording, &[], program, &[]);
    expect_status(command.env("LIBCUDA", cudart::driver_stand_in()), 0);
    let info = recording.info();
    let of_library = |probe: &&ingero_trace::Probe| probe.name.contains(':');
    assert!(info.probes.iter().filter(of_library).all(|probe| {
        probe.attached && probe.reason.is_none() && probe.name.starts_with("libcuda.so:cu")
    }));
    let calls = calls(&recording);
    let whole: Vec<_> = calls.iter().filter(|call| !call.open).collect();
    assert_eq!(whole.len(), 11);
    assert!(whole.iter().all(|call| {
        call.layer == "driver" && call.pid == info.target_pid && call.nested == Some(0)
    }));
}

#[test]
fn probes_set_inside_of_a_call_take_nothing_for_nested_that_is_not() {
    let test = "probes_set_inside_of_a_call_take_nothing_for_nested_that_is_not";
    if !needs_root_and_bpf(test) {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    // It is nearly always in the wait.
    let program = format!(
        "{PRELUDE}
runtime.cudaDeviceSynchronize()
print('ready', flush=True)
while True:
    runtime.cudaLaunchKernel(None, Dim3(100_000, 1, 1), one, None, size(0), None)
    driver.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    runtime.cudaDeviceSynchronize()
"
    );
    let mut job = python(Command::new("python3"), &program, &[]);
    let job = with_driver(&mut job).stdout(Stdio::piped()).spawn();
    let mut job = Guard(job.unwrap());
    let mut ready = [0; 6];
    std::io::Read::read_exact(job.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = job.0.id().to_string();
    expect_status(
        &mut recording.command(["--pid", &pid, "--duration", "2"]),
        0,
    );
    let count = |call: &str| {
        recording.number(&format!(
            "SELECT count(*) FROM cuda_calls WHERE call = '{call}' AND NOT continued"
        ))
    };
    let [runtime, driver, waits] = [
        "cudaLaunchKernel",
        "cuLaunchKernel",
        "cudaDeviceSynchronize",
    ]
    .map(count);
    assert!(
        runtime > 5 && (runtime - driver).abs() <= 1 && (runtime - waits).abs() <= 1,
        "{runtime} launches by the runtime, {driver} by the driver, {waits} waits"
    );
    assert_eq!(count("cuCtxSynchronize"), 0);
    assert_eq!(lost(&recording), 0);
}

#[test]
fn a_nested_call_in_which_its_process_is_killed_ends_with_the_outer_one() {
    let test = "a_nested_call_in_which_its_process_is_killed_ends_with_the_outer_one";
    if !needs_root_and_bpf(test) {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let program = format!(
        "{PRELUDE}
import signal, time
child = os.fork()
if child == 0:
    runtime.cudaLaunchKernel(None, Dim3(3600 * 1000 * 1000, 1, 1), one, None, size(0), None)
    runtime.cudaStreamSynchronize(None)
time.sleep(1)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
for _ in range(10):
    launch()
"
    );
    expect_status(
        with_driver(&mut recorded(&recording, &[], &program, &[])),
        0,
    );
    let calls = calls(&recording);
    assert!(calls.iter().all(|call| call.layer == "runtime"));
    let sync: Vec<_> = calls
        .iter()
        .filter(|call| call.call == "cudaStreamSynchronize")
        .collect();
    assert!(!sync.is_empty());
    assert!(
        sync.iter()
            .all(|piece| piece.open && piece.status.is_none())
    );
    assert_eq!(
        sync.iter().map(|piece| piece.nested.unwrap()).sum::<i32>(),
        1
    );
    let own = calls
        .iter()
        .filter(|call| call.pid != sync[0].pid && !call.open);
    assert_eq!(own.count(), 10);
    assert_eq!(lost(&recording), 0);
}
