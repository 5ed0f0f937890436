//! What the end-to-end tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking
