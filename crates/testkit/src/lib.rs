//! What the tests of several crates share. Never part of the product.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

pub mod cudart;
pub mod skip;
pub mod trace;

pub use skip::{live_lock, needs_root_and_bpf};
