//! Tests that cannot run everywhere: they say so where a person sees it, and in CI they fail instead.
//!
//! The test harness hides what a passing test prints through `println!` and `eprintln!`; writing to the
//! standard error stream itself is not captured.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Set by `scripts/with-duckdb`: a file that gathers the skipped tests, shown again at the very end.
const SUMMARY_FILE: &str = "INGERO_SKIPPED_TESTS";

/// Reports that `test` does not run on this machine, and why; the caller then returns.
///
/// # Panics
/// In CI (`CI` is set and not `false`), where everything has to run.
pub fn skip(test: &str, reason: &str) {
    assert!(!in_ci(), "{test} has to run in CI: {reason}");
    let line = format!("skipped: {test}: {reason}\n");
    // One write each, so that lines of tests that run at the same time stay whole.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = std::env::var_os(SUMMARY_FILE) {
        let mut summary = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        summary.write_all(line.as_bytes()).unwrap();
    }
}

/// Whether a test that loads BPF programs can run here: `if !needs_root_and_bpf("name") { return; }`.
/// Where it cannot, the test is reported as skipped.
///
/// # Panics
/// In CI, where such tests have to run.
#[must_use]
pub fn needs_root_and_bpf(test: &str) -> bool {
    match bpf_obstacle() {
        None => true,
        Some(reason) => {
            skip(test, &reason);
            false
        }
    }
}

/// Takes the lock that lets only one live recording run at a time, in all test programs of the
/// workspace: two at once disturb each other's timing. Released when the file is dropped.
#[must_use = "the lock is released when the file is dropped"]
pub fn live_lock() -> File {
    let path = live_lock_path();
    let file = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.lock()
        .unwrap_or_else(|e| panic!("locking {}: {e}", path.display()));
    file
}

/// Beside all programs and test programs of the workspace: the folder above `deps`.
fn live_lock_path() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().skip(1).find(|f| !f.ends_with("deps"));
    folder.unwrap().join("ingero-live.lock")
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// What keeps this process from loading BPF programs, if anything does.
fn bpf_obstacle() -> Option<String> {
    const BTF: &str = "/sys/kernel/btf/vmlinux";
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root (run the tests with sudo -E)".into());
    }
    if !Path::new(BTF).exists() {
        return Some(format!("needs a kernel with type information ({BTF})"));
    }
    create_map().err().map(|e| {
        format!("the kernel or the sandbox refuses BPF: {e} (in a container: run it privileged)")
    })
}

/// Creates and closes the smallest BPF map: what a sandbox without BPF refuses.
fn create_map() -> std::io::Result<()> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    // The start of `union bpf_attr`: map type, key size, value size, entries.
    let attr: [u32; 4] = [BPF_MAP_TYPE_ARRAY, 4, 4, 1];
    // SAFETY: the pointer and the size describe `attr`, which lives through the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned to us and nobody else holds it.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_the_live_lock() {
        let held = live_lock();
        let second = File::open(live_lock_path()).unwrap();
        assert!(second.try_lock().is_err());
        drop(held);
        second.lock().unwrap();
    }
}
