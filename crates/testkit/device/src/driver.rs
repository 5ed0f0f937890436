//! What the driver's functions do, with their arguments and status codes.

use crate::{memory, timeline};
use std::ffi::{c_int, c_uint, c_void};

/// What a function returns when it has done what it was asked.
pub const SUCCESS: c_int = 0;
/// An argument that cannot be.
pub const INVALID_VALUE: c_int = 1;
/// There is not so much memory.
pub const OUT_OF_MEMORY: c_int = 2;

const MALLOC_NS: u64 = 180_000;
const FREE_NS: u64 = 120_000;
/// Of an operation that only changes tables.
const BOOKKEEPING_NS: u64 = 1_000;

/// The start of `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub struct LaunchConfig {
    /// Width, height and depth.
    pub grid: [c_uint; 3],
    /// Width, height and depth.
    pub block: [c_uint; 3],
    /// Of dynamic shared memory.
    pub shared_bytes: c_uint,
    /// A handle.
    pub stream: *mut c_void,
}

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            // Called as the real functions are, from C and without a compiler that could tell.
            #[allow(clippy::not_unsafe_ptr_arg_deref)]
            pub extern "C" fn $name($($argument: $type),*) -> c_int {
                timeline::ensure_context();
                $body
            }
        )*
    };
}

functions! {
    /// cuMemAlloc_v2
    fn alloc(result: *mut usize, bytes: usize) {
        timeline::burn(MALLOC_NS);
        put(result, memory::device_address(bytes))
    }

    /// cuMemFree_v2
    fn free(_pointer: usize) {
        timeline::drain();
        timeline::burn(FREE_NS);
        SUCCESS
    }

    /// cuMemAllocAsync
    fn alloc_async(result: *mut usize, bytes: usize, _stream: *mut c_void) {
        timeline::burn(BOOKKEEPING_NS);
        put(result, memory::device_address(bytes))
    }

    /// cuMemFreeAsync
    fn free_async(_pointer: usize, _stream: *mut c_void) {
        timeline::burn(BOOKKEEPING_NS);
        SUCCESS
    }

    /// cuMemHostAlloc and cuMemAllocHost_v2, which passes no flags
    fn host_alloc(result: *mut usize, bytes: usize, _flags: c_uint) {
        put(result, memory::allocate_pinned(bytes).map(|start| start as usize))
    }

    /// cuMemFreeHost
    fn host_free(pointer: *mut c_void) {
        if pointer.is_null() || memory::free_pinned(pointer) { SUCCESS } else { INVALID_VALUE }
    }

    /// cuMemHostRegister_v2
    fn host_register(pointer: *mut c_void, bytes: usize, _flags: c_uint) {
        if pointer.is_null() || bytes == 0 {
            return INVALID_VALUE;
        }
        memory::register(pointer, bytes);
        SUCCESS
    }

    /// cuMemHostUnregister
    fn host_unregister(pointer: *mut c_void) {
        if memory::unregister(pointer) { SUCCESS } else { INVALID_VALUE }
    }

    /// cuMemCreate
    fn create(handle: *mut usize, bytes: usize, _properties: *const c_void, _flags: u64) {
        timeline::burn(MALLOC_NS);
        put(handle, memory::device_address(bytes))
    }

    /// cuMemMap, cuMemSetAccess, cuMemUnmap and cuMemRelease
    fn change_mapping() {
        timeline::burn(BOOKKEEPING_NS);
        SUCCESS
    }

    /// cuMemcpy
    fn copy(target: usize, source: usize, bytes: usize) {
        start_copy(host_of(target, source), bytes);
        timeline::drain();
        SUCCESS
    }

    /// cuMemcpyAsync
    fn copy_async(target: usize, source: usize, bytes: usize, _stream: *mut c_void) {
        start_copy(host_of(target, source), bytes);
        SUCCESS
    }

    /// cuMemcpyHtoD_v2
    fn copy_to_device(_target: usize, source: usize, bytes: usize) {
        start_copy(source, bytes);
        timeline::drain();
        SUCCESS
    }

    /// cuMemcpyHtoDAsync_v2
    fn copy_to_device_async(_target: usize, source: usize, bytes: usize, _stream: *mut c_void) {
        start_copy(source, bytes);
        SUCCESS
    }

    /// cuMemcpyDtoH_v2
    fn copy_to_host(target: usize, _source: usize, bytes: usize) {
        start_copy(target, bytes);
        timeline::drain();
        SUCCESS
    }

    /// cuMemcpyDtoHAsync_v2
    fn copy_to_host_async(target: usize, _source: usize, bytes: usize, _stream: *mut c_void) {
        start_copy(target, bytes);
        SUCCESS
    }

    /// cuMemcpyDtoD_v2
    fn copy_on_device(_target: usize, source: usize, bytes: usize) {
        start_copy(source, bytes);
        timeline::drain();
        SUCCESS
    }

    /// cuMemcpyDtoDAsync_v2
    fn copy_on_device_async(_target: usize, source: usize, bytes: usize, _stream: *mut c_void) {
        start_copy(source, bytes);
        SUCCESS
    }

    /// cuMemsetD8Async and cuMemsetD8_v2, which passes no stream and returns at once as well
    fn set_8(_target: usize, _value: u8, count: usize, _stream: *mut c_void) {
        timeline::copy_direct(count);
        SUCCESS
    }

    /// cuMemsetD16Async and cuMemsetD16_v2
    fn set_16(_target: usize, _value: u16, count: usize, _stream: *mut c_void) {
        timeline::copy_direct(count.saturating_mul(2));
        SUCCESS
    }

    /// cuMemsetD32Async and cuMemsetD32_v2
    fn set_32(_target: usize, _value: u32, count: usize, _stream: *mut c_void) {
        timeline::copy_direct(count.saturating_mul(4));
        SUCCESS
    }

    /// cuLaunchKernel and cuLaunchCooperativeKernel
    fn launch(
        _function: *const c_void,
        grid_x: c_uint,
        _grid_y: c_uint,
        _grid_z: c_uint,
        _block_x: c_uint,
        _block_y: c_uint,
        _block_z: c_uint,
        _shared_bytes: c_uint,
        _stream: *mut c_void,
        _parameters: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        timeline::launch(grid_x);
        SUCCESS
    }

    /// cuLaunchKernelEx
    fn launch_ex(
        config: *const LaunchConfig,
        _function: *const c_void,
        _parameters: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        // SAFETY: the caller passes null or a valid configuration, as to the real function.
        let Some(config) = (unsafe { config.as_ref() }) else {
            return INVALID_VALUE;
        };
        timeline::launch(config.grid[0]);
        SUCCESS
    }

    /// cuGraphLaunch: the handle is the length of the graph in microseconds.
    fn graph_launch(graph: usize, _stream: *mut c_void) {
        let Ok(graph_us) = c_uint::try_from(graph) else {
            return INVALID_VALUE;
        };
        timeline::launch(graph_us);
        SUCCESS
    }

    /// cuStreamSynchronize
    fn stream_synchronize(_stream: *mut c_void) {
        timeline::drain();
        SUCCESS
    }

    /// cuCtxSynchronize
    fn synchronize() {
        timeline::drain();
        SUCCESS
    }

    /// cuEventCreate
    fn event_create(result: *mut usize, _flags: c_uint) {
        put(result, Some(Box::into_raw(Box::new(0_u64)) as usize))
    }

    /// cuEventRecord
    fn event_record(event: *mut u64, _stream: *mut c_void) {
        // SAFETY: the caller passes null or what cuEventCreate gave, as to the real function.
        let Some(event) = (unsafe { event.as_mut() }) else {
            return INVALID_VALUE;
        };
        *event = timeline::queued_until_ns();
        SUCCESS
    }

    /// cuEventSynchronize
    fn event_synchronize(event: *const u64) {
        // SAFETY: as in `event_record`.
        let Some(end_ns) = (unsafe { event.as_ref() }) else {
            return INVALID_VALUE;
        };
        timeline::wait_until(*end_ns);
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
        return OUT_OF_MEMORY;
    };
    *result = address;
    SUCCESS
}

/// The side of a copy that is not on the device, if there is one.
fn host_of(target: usize, source: usize) -> usize {
    if memory::is_device(source) {
        target
    } else {
        source
    }
}

/// Spends the time of a copy whose host's side is there: from and to pageable memory the thread copies.
fn start_copy(host: usize, bytes: usize) {
    if memory::is_device(host) || memory::is_pinned(host) {
        timeline::copy_direct(bytes);
    } else {
        timeline::copy_pageable(bytes);
    }
}
