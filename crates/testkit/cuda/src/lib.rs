//! A stand-in for the driver's library, `libcuda.so`: the real function names and calling conventions
//! over the simple device of `ingero-testkit-device`.
#![allow(non_snake_case)] // the names are those of the real library

use ingero_testkit_device::{driver, export};

export! {
    cuMemAlloc_v2 => driver::alloc,
    cuMemFree_v2 => driver::free,
    cuMemAllocAsync => driver::alloc_async,
    cuMemFreeAsync => driver::free_async,
    cuMemAllocManaged => driver::alloc,
    cuMemAllocHost_v2 => driver::host_alloc,
    cuMemHostAlloc => driver::host_alloc,
    cuMemFreeHost => driver::host_free,
    cuMemHostRegister_v2 => driver::host_register,
    cuMemHostUnregister => driver::host_unregister,
    cuMemCreate => driver::create,
    cuMemMap => driver::change_mapping,
    cuMemSetAccess => driver::change_mapping,
    cuMemUnmap => driver::change_mapping,
    cuMemRelease => driver::change_mapping,
    cuMemcpy => driver::copy,
    cuMemcpyAsync => driver::copy_async,
    cuMemcpyHtoD_v2 => driver::copy_to_device,
    cuMemcpyHtoDAsync_v2 => driver::copy_to_device_async,
    cuMemcpyDtoH_v2 => driver::copy_to_host,
    cuMemcpyDtoHAsync_v2 => driver::copy_to_host_async,
    cuMemcpyDtoD_v2 => driver::copy_on_device,
    cuMemcpyDtoDAsync_v2 => driver::copy_on_device_async,
    cuMemsetD8_v2 => driver::set_8,
    cuMemsetD8Async => driver::set_8,
    cuMemsetD16_v2 => driver::set_16,
    cuMemsetD16Async => driver::set_16,
    cuMemsetD32_v2 => driver::set_32,
    cuMemsetD32Async => driver::set_32,
    cuLaunchKernel => driver::launch,
    cuLaunchKernelEx => driver::launch_ex,
    cuLaunchCooperativeKernel => driver::launch,
    cuGraphLaunch => driver::graph_launch,
    cuEventCreate => driver::event_create,
    cuEventRecord => driver::event_record,
    cuEventSynchronize => driver::event_synchronize,
    cuStreamSynchronize => driver::stream_synchronize,
    cuCtxSynchronize => driver::synchronize,
    // Functions that jump to another exported one, as the real libraries have them.
    cuMemcpyHtoDAsync_v2_ptsz => cuMemcpyHtoDAsync_v2,
    cuLaunchKernel_ptsz => cuLaunchKernel,
}
