//! CUDA calls of the genuine runtime, from the `nvidia-cuda-runtime` wheel. Without a GPU its functions
//! fail, but they are called as everywhere.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod support;

use ingero_testkit::{live_lock, needs_root_and_bpf, skip::skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Recording, expect_status};

const PACKAGE: &str = "nvidia-cuda-runtime-cu12==12.9.79";

/// The library, downloaded once for all runs. `Err` says why it cannot be had.
fn library() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvidia-cuda-runtime");
    let library = folder.join("nvidia/cuda_runtime/lib/libcudart.so.12");
    if !library.exists() {
        let wheel = tempfile::tempdir().unwrap();
        let path = wheel.path().to_str().unwrap();
        run(Command::new("python3").args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            path,
            PACKAGE,
        ]))?;
        let file = std::fs::read_dir(wheel.path())
            .unwrap()
            .next()
            .ok_or("pip downloaded nothing")?;
        // Complete or not there: a test that is stopped leaves no half of it.
        let unpacked = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        run(Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(file.unwrap().path())
            .arg(unpacked.path()))?;
        std::fs::rename(unpacked.keep(), &folder).map_err(|error| error.to_string())?;
    }
    if library.exists() {
        Ok(library)
    } else {
        Err(format!("{} is not in the wheel", library.display()))
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .last()
            .unwrap_or_default()
    ))
}

/// Name, bytes, direction, stream and status of a call.
type Seen = (
    String,
    Option<i64>,
    Option<String>,
    Option<i64>,
    Option<i32>,
);

/// Calls each function and prints what it returned.
const PROGRAM: &str = "
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
size = ctypes.c_size_t
class Dim3(ctypes.Structure):
    _fields_ = [('x', ctypes.c_uint), ('y', ctypes.c_uint), ('z', ctypes.c_uint)]
device, pinned = ctypes.c_void_p(), ctypes.c_void_p()
buffer = ctypes.create_string_buffer(1 << 16)
def call(name, *arguments):
    print(name, getattr(library, name)(*arguments))
call('cudaMalloc', ctypes.byref(device), size(123456))
call('cudaHostAlloc', ctypes.byref(pinned), size(8192), 0)
call('cudaMemcpy', device, buffer, size(1111), 1)
call('cudaMemcpy', buffer, device, size(2222), 2)
call('cudaMemcpyAsync', device, buffer, size(3333), 1, None)
call('cudaMemcpyAsync_ptsz', device, buffer, size(4444), 1, None)
call('cudaMemset', device, 0, size(5555))
call('cudaLaunchKernel', None, Dim3(1, 2, 3), Dim3(4, 5, 6), None, size(0), ctypes.c_void_p(0x1234))
call('cudaStreamSynchronize', None)
call('cudaDeviceSynchronize')
call('cudaFreeHost', pinned)
call('cudaFree', device)
";

#[test]
fn known_calls_of_the_genuine_runtime_are_all_recorded() {
    let test = "known_calls_of_the_genuine_runtime_are_all_recorded";
    if !needs_root_and_bpf(test) {
        return;
    }
    let library = match library() {
        Ok(library) => library,
        Err(reason) => {
            return skip(
                test,
                &format!("the wheel {PACKAGE} cannot be had: {reason}"),
            );
        }
    };
    let _lock = live_lock();
    let recording = Recording::new();
    let mut command = recording.command(["--", "python3", "-c", PROGRAM]);
    // Named in the environment, so that it is probed before the first call.
    let output = expect_status(
        command
            .arg(&library)
            .env("LD_LIBRARY_PATH", library.parent().unwrap()),
        0,
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let returned: Vec<(&str, i32)> = printed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| name.starts_with("cuda"))
        .map(|(name, status)| (name, status.parse().unwrap()))
        .collect();
    let expected = [
        ("cudaMalloc", Some(123_456), None, None),
        ("cudaHostAlloc", Some(8192), None, None),
        ("cudaMemcpy", Some(1111), Some("h2d"), None),
        ("cudaMemcpy", Some(2222), Some("d2h"), None),
        ("cudaMemcpyAsync", Some(3333), Some("h2d"), Some(0)),
        ("cudaMemcpyAsync", Some(4444), Some("h2d"), Some(0)),
        ("cudaMemset", Some(5555), None, None),
        ("cudaLaunchKernel", None, None, Some(0x1234)),
        ("cudaStreamSynchronize", None, None, Some(0)),
        ("cudaDeviceSynchronize", None, None, None),
        ("cudaFreeHost", None, None, None),
        ("cudaFree", None, None, None),
    ];
    assert_eq!(returned.len(), expected.len(), "{printed}");
    let expected: Vec<_> = expected
        .iter()
        .zip(&returned)
        .map(|((call, bytes, direction, stream), (_, status))| {
            (
                call.to_string(),
                *bytes,
                direction.map(str::to_owned),
                *stream,
                Some(*status),
            )
        })
        .collect();
    let sql = "SELECT call, bytes, direction, stream, status FROM cuda_calls WHERE NOT open ORDER BY ts_ns";
    let seen: Vec<Seen> = recording.query(sql, |row| {
        Ok((
            row.get(0)?,
            row.get(1)?,
            row.get(2)?,
            row.get(3)?,
            row.get(4)?,
        ))
    });
    assert_eq!(seen, expected);
    let info = recording.info();
    let probes: Vec<_> = info
        .probes
        .iter()
        .filter(|probe| probe.name.starts_with("libcudart"))
        .collect();
    assert!(probes.len() > 20, "{probes:?}");
    assert!(
        probes
            .iter()
            .all(|probe| probe.attached && probe.reason.is_none()),
        "{probes:?}"
    );
}
