//! The exported functions, with the calling conventions of the real ones.

use crate::{device, memory};
use std::ffi::{c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const MEMORY_ALLOCATION: c_int = 2;
const INVALID_MEMCPY_DIRECTION: c_int = 21;

const HOST_TO_HOST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;

const MALLOC_NS: u64 = 180_000;
const FREE_NS: u64 = 120_000;

/// A grid or block; passed by value it takes two registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// The start of `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Debug)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: *mut c_void,
}

/// Exports each function under its name, with a first instruction `push %rbp`: the compiler's own
/// functions start with anything. The jump leaves registers and stack as the caller made them.
macro_rules! export {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        mod inner {
            use super::*;
            $(pub(super) extern "C" fn $name($($argument: $type),*) -> c_int {
                device::ensure_context();
                $body
            })*
        }
        $(
            /// As in the CUDA runtime.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub extern "C" fn $name($($argument: $type),*) -> c_int {
                core::arch::naked_asm!(
                    "push rbp",
                    "mov rbp, rsp",
                    "pop rbp",
                    "jmp {inner}",
                    inner = sym inner::$name,
                )
            }
        )*
    };
}

export! {
    fn cudaMalloc(result: *mut usize, bytes: usize) {
        device::burn(MALLOC_NS);
        put(result, memory::device_address(bytes))
    }

    fn cudaFree(_pointer: *mut c_void) {
        device::drain();
        device::burn(FREE_NS);
        SUCCESS
    }

    fn cudaHostAlloc(result: *mut usize, bytes: usize, _flags: c_uint) {
        put(result, memory::allocate_pinned(bytes).map(|start| start as usize))
    }

    fn cudaFreeHost(pointer: *mut c_void) {
        if pointer.is_null() || memory::free_pinned(pointer) { SUCCESS } else { INVALID_VALUE }
    }

    fn cudaMemcpy(target: *mut c_void, source: *const c_void, bytes: usize, kind: c_int) {
        let status = copy(target, source, bytes, kind);
        device::drain();
        status
    }

    fn cudaMemcpyAsync(
        target: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: c_int,
        _stream: *mut c_void
    ) {
        copy(target, source, bytes, kind)
    }

    fn cudaMemsetAsync(_target: *mut c_void, _value: c_int, bytes: usize, _stream: *mut c_void) {
        device::copy_direct(bytes);
        SUCCESS
    }

    fn cudaLaunchKernel(
        _function: *const c_void,
        grid: Dim3,
        _block: Dim3,
        _arguments: *mut *mut c_void,
        _shared_bytes: usize,
        _stream: *mut c_void
    ) {
        device::launch(grid.x);
        SUCCESS
    }

    fn cudaLaunchKernelExC(
        config: *const LaunchConfig,
        _function: *const c_void,
        _arguments: *mut *mut c_void
    ) {
        // SAFETY: the caller passes null or a valid configuration, as to the real function.
        let Some(config) = (unsafe { config.as_ref() }) else {
            return INVALID_VALUE;
        };
        device::launch(config.grid.x);
        SUCCESS
    }

    fn cudaStreamSynchronize(_stream: *mut c_void) {
        device::drain();
        SUCCESS
    }

    fn cudaDeviceSynchronize() {
        device::drain();
        SUCCESS
    }

    fn cudaEventCreate(result: *mut usize) {
        put(result, Some(Box::into_raw(Box::new(0_u64)) as usize))
    }

    fn cudaEventRecord(event: *mut u64, _stream: *mut c_void) {
        // SAFETY: the caller passes null or what cudaEventCreate gave, as to the real function.
        let Some(event) = (unsafe { event.as_mut() }) else {
            return INVALID_VALUE;
        };
        *event = device::queued_until_ns();
        SUCCESS
    }

    fn cudaEventSynchronize(event: *const u64) {
        // SAFETY: as in cudaEventRecord.
        let Some(end_ns) = (unsafe { event.as_ref() }) else {
            return INVALID_VALUE;
        };
        device::wait_until(*end_ns);
        SUCCESS
    }
}

/// Hands an address to the caller, or tells that there is none.
fn put(result: *mut usize, address: Option<usize>) -> c_int {
    // SAFETY: the caller passes null or a place for a pointer, as to the real functions.
    let Some(result) = (unsafe { result.as_mut() }) else {
        return INVALID_VALUE;
    };
    let Some(address) = address else {
        return MEMORY_ALLOCATION;
    };
    *result = address;
    SUCCESS
}

/// Spends the time of a copy. The host's side of it is the target or the source, by `kind`.
fn copy(target: *const c_void, source: *const c_void, bytes: usize, kind: c_int) -> c_int {
    let host = match kind {
        HOST_TO_HOST => target,
        HOST_TO_DEVICE => source,
        DEVICE_TO_HOST => target,
        DEVICE_TO_DEVICE => {
            device::copy_direct(bytes);
            return SUCCESS;
        }
        _ => return INVALID_MEMCPY_DIRECTION,
    };
    if memory::is_pinned(host) {
        device::copy_direct(bytes);
    } else {
        device::copy_pageable(bytes);
    }
    SUCCESS
}
