//! What the tests of several crates share. Never part of the product.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

pub mod cudart;
pub mod skip;
pub mod trace;

pub use skip::{live_lock, needs_root_and_bpf};

use std::path::PathBuf;

/// The checkout whose tests run. Asked of cargo at run time: checkouts that share a target folder
/// share compiled tests, into which one of their paths would have been compiled.
///
/// # Panics
/// If cargo did not start this program.
#[must_use]
pub fn repository() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    PathBuf::from(package)
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").exists())
        .expect("the workspace has a Cargo.lock")
        .to_owned()
}
