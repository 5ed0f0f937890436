//! The stand-in CUDA runtime of `crates/testkit/cudart` and the workloads that call it.

use std::path::PathBuf;

/// The stand-in `libcudart.so`, for the environment variable `CUDART` of the workloads. Cargo builds it
/// beside the tests of every package that depends on this one.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn stand_in() -> PathBuf {
    let test_program = std::env::current_exe().unwrap();
    let library = test_program.with_file_name("libcudart.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Folder of `ingero_workload.py`, for `PYTHONPATH`.
#[must_use]
pub fn workloads() -> PathBuf {
    crate::repository().join("tests/workloads")
}
