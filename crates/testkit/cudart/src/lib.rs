//! A stand-in for `libcudart.so`: the real function names and calling conventions over a simple
//! device, so that real probes and real scheduler events can be tested without a GPU.
//!
//! The device is one virtual stream: every stream handle means the same one. A launch costs 4 us of
//! CPU and queues as many microseconds as the grid is wide; synchronizing spins until the queue is
//! empty, as the real runtime does by default. No data is moved and device pointers are only numbers.
//!
//! Every function starts with `push %rbp` as in the real library, because what a probe costs depends
//! on the first instruction.
#![allow(non_snake_case)] // the names are those of the real library

mod device;
pub mod exports;
mod memory;
