//! A stand-in for `libcudart.so`: the real function names and calling conventions over the simple
//! device of `ingero-testkit-device`.
//!
//! The real runtime calls the driver's library. This one does so too where `CUDART_DRIVER` names the
//! stand-in for it; otherwise it contains the device, so that workloads need one library only.
#![allow(non_snake_case)] // the names are those of the real library

mod driver;
pub mod exports;
