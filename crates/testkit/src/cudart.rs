//! The stand-ins for CUDA libraries (`crates/testkit/cudart`, `crates/testkit/cuda`) and the workloads
//! that call them.

use std::path::PathBuf;

/// The stand-in `libcudart.so`, for the environment variable `CUDART` of the workloads. Cargo builds it
/// beside the tests of every package that depends on this one.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn stand_in() -> PathBuf {
    beside_the_test("libcudart.so")
}

/// The stand-in `libcuda.so`, which the one for the runtime calls where the environment variable
/// `CUDART_DRIVER` names it.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn driver_stand_in() -> PathBuf {
    beside_the_test("libcuda.so")
}

fn beside_the_test(name: &str) -> PathBuf {
    let test_program = std::env::current_exe().unwrap();
    let library = test_program.with_file_name(name);
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Folder of `ingero_workload.py`, for `PYTHONPATH`.
#[must_use]
pub fn workloads() -> PathBuf {
    crate::repository().join("tests/workloads")
}
