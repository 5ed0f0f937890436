//! What the end-to-end tests share: the built programs, called as a person calls them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

pub mod clients;
pub mod others;
pub mod scenarios;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A built program of the workspace: `ingero-mcp` or `ingero-capture`.
///
/// # Panics
/// If it is not built: `cargo test --release` in the workspace builds it, `-p ingero-tests` does not.
pub fn program(name: &str) -> PathBuf {
    release_folder(name)
}

pub use ingero_testkit::repository;

/// Runs a program of the workspace with an empty standard input and waits for its end.
///
/// # Panics
/// If it cannot be started.
pub fn run<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Output {
    Command::new(program(name))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What a program wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a program wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file in the folder of the built programs.
fn release_folder(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    // Programs lie in target/release, test programs in target/release/deps.
    let path = this
        .ancestors()
        .skip(1)
        .map(|folder| folder.join(name))
        .take(2)
        .find(|path| path.is_file());
    path.unwrap_or_else(|| {
        panic!("{name} is not built: run `scripts/with-duckdb cargo build --release` first")
    })
}
