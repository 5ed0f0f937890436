//! The exported functions, with the calling conventions of the real ones.

use crate::driver::driver;
use ingero_testkit_device::driver::{INVALID_VALUE, LaunchConfig as DriverLaunchConfig};
use ingero_testkit_device::export;
use std::ffi::{c_int, c_uint, c_void};

const INVALID_MEMCPY_DIRECTION: c_int = 21;

const HOST_TO_HOST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const DEFAULT: c_int = 4;

/// A grid or block; passed by value it takes two registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// The start of `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Debug)]
struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: *mut c_void,
}

/// Defines each function and exports it under its name.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        mod inner {
            use super::*;
            $(pub(super) extern "C" fn $name($($argument: $type),*) -> c_int $body)*
        }
        export! { $($name => inner::$name,)* }
    };
}

functions! {
    fn cudaMalloc(result: *mut usize, bytes: usize) {
        (driver().alloc)(result, bytes)
    }

    fn cudaFree(pointer: usize) {
        (driver().free)(pointer)
    }

    fn cudaMallocAsync(result: *mut usize, bytes: usize, stream: *mut c_void) {
        (driver().alloc_async)(result, bytes, stream)
    }

    fn cudaFreeAsync(pointer: usize, stream: *mut c_void) {
        (driver().free_async)(pointer, stream)
    }

    fn cudaMallocManaged(result: *mut usize, bytes: usize, _flags: c_uint) {
        (driver().alloc)(result, bytes)
    }

    fn cudaHostAlloc(result: *mut usize, bytes: usize, flags: c_uint) {
        (driver().host_alloc)(result, bytes, flags)
    }

    fn cudaMallocHost(result: *mut usize, bytes: usize) {
        (driver().host_alloc)(result, bytes, 0)
    }

    fn cudaFreeHost(pointer: *mut c_void) {
        (driver().host_free)(pointer)
    }

    fn cudaHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) {
        (driver().host_register)(pointer, bytes, flags)
    }

    fn cudaHostUnregister(pointer: *mut c_void) {
        (driver().host_unregister)(pointer)
    }

    fn cudaMemcpy(target: usize, source: usize, bytes: usize, kind: c_int) {
        copy(target, source, bytes, kind)
    }

    fn cudaMemcpyAsync(target: usize, source: usize, bytes: usize, kind: c_int, stream: *mut c_void) {
        copy_async(target, source, bytes, kind, stream)
    }

    fn cudaMemcpy2D(
        target: usize,
        _target_pitch: usize,
        source: usize,
        _source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
    ) {
        copy(target, source, width.saturating_mul(height), kind)
    }

    fn cudaMemcpy2DAsync(
        target: usize,
        _target_pitch: usize,
        source: usize,
        _source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
        stream: *mut c_void,
    ) {
        copy_async(target, source, width.saturating_mul(height), kind, stream)
    }

    fn cudaMemcpyPeerAsync(
        target: usize,
        _target_device: c_int,
        source: usize,
        _source_device: c_int,
        bytes: usize,
        stream: *mut c_void,
    ) {
        (driver().copy_on_device_async)(target, source, bytes, stream)
    }

    fn cudaMemset(target: usize, value: c_int, bytes: usize) {
        (driver().set_8)(target, value as u8, bytes, std::ptr::null_mut())
    }

    fn cudaMemsetAsync(target: usize, value: c_int, bytes: usize, stream: *mut c_void) {
        (driver().set_8)(target, value as u8, bytes, stream)
    }

    fn cudaLaunchKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared_bytes: usize,
        stream: *mut c_void,
    ) {
        launch(function, grid, block, arguments, shared_bytes, stream)
    }

    fn cudaLaunchCooperativeKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared_bytes: usize,
        stream: *mut c_void,
    ) {
        launch(function, grid, block, arguments, shared_bytes, stream)
    }

    fn cudaLaunchKernelExC(
        config: *const LaunchConfig,
        function: *const c_void,
        arguments: *mut *mut c_void,
    ) {
        // SAFETY: the caller passes null or a valid configuration, as to the real function.
        let Some(config) = (unsafe { config.as_ref() }) else {
            return INVALID_VALUE;
        };
        let config = DriverLaunchConfig {
            grid: [config.grid.x, config.grid.y, config.grid.z],
            block: [config.block.x, config.block.y, config.block.z],
            shared_bytes: config.shared_bytes as c_uint,
            stream: config.stream,
        };
        (driver().launch_ex)(&config, function, arguments, std::ptr::null_mut())
    }

    fn cudaGraphLaunch(graph: usize, stream: *mut c_void) {
        (driver().graph_launch)(graph, stream)
    }

    fn cudaStreamSynchronize(stream: *mut c_void) {
        (driver().stream_synchronize)(stream)
    }

    fn cudaDeviceSynchronize() {
        (driver().synchronize)()
    }

    fn cudaEventCreate(result: *mut usize) {
        (driver().event_create)(result, 0)
    }

    fn cudaEventRecord(event: *mut u64, stream: *mut c_void) {
        (driver().event_record)(event, stream)
    }

    fn cudaEventSynchronize(event: *const u64) {
        (driver().event_synchronize)(event)
    }
}

fn copy(target: usize, source: usize, bytes: usize, kind: c_int) -> c_int {
    let copy = match kind {
        HOST_TO_HOST | DEFAULT => driver().copy,
        HOST_TO_DEVICE => driver().copy_to_device,
        DEVICE_TO_HOST => driver().copy_to_host,
        DEVICE_TO_DEVICE => driver().copy_on_device,
        _ => return INVALID_MEMCPY_DIRECTION,
    };
    copy(target, source, bytes)
}

fn copy_async(
    target: usize,
    source: usize,
    bytes: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    let copy = match kind {
        HOST_TO_HOST | DEFAULT => driver().copy_async,
        HOST_TO_DEVICE => driver().copy_to_device_async,
        DEVICE_TO_HOST => driver().copy_to_host_async,
        DEVICE_TO_DEVICE => driver().copy_on_device_async,
        _ => return INVALID_MEMCPY_DIRECTION,
    };
    copy(target, source, bytes, stream)
}

fn launch(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    (driver().launch)(
        function,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared_bytes as c_uint,
        stream,
        arguments,
        std::ptr::null_mut(),
    )
}
