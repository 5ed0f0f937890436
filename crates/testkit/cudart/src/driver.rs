//! The driver's functions: of another library, or of this one.

use ingero_testkit_device::driver::{self, LaunchConfig};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Names the driver's library.
const VARIABLE: &str = "CUDART_DRIVER";

macro_rules! functions {
    ($($symbol:ident, $own:ident: fn($($argument:ty),* $(,)?);)*) => {
        /// Functions of the driver.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $(pub(crate) $own: extern "C" fn($($argument),*) -> c_int),*
        }

        impl Driver {
            const OWN: Self = Self { $($own: driver::$own),* };

            /// The functions in a library, for good.
            fn load(path: &str) -> Self {
                let library = open(path);
                Self {
                    $(
                        // SAFETY: the library is the stand-in, whose function of this name jumps to the
                        // one that the field of the same name holds otherwise.
                        $own: unsafe {
                            std::mem::transmute::<*mut c_void, extern "C" fn($($argument),*) -> c_int>(
                                find(library, stringify!($symbol), path),
                            )
                        }
                    ),*
                }
            }
        }
    };
}

functions! {
    cuMemAlloc_v2, alloc: fn(*mut usize, usize);
    cuMemFree_v2, free: fn(usize);
    cuMemAllocAsync, alloc_async: fn(*mut usize, usize, *mut c_void);
    cuMemFreeAsync, free_async: fn(usize, *mut c_void);
    cuMemHostAlloc, host_alloc: fn(*mut usize, usize, c_uint);
    cuMemFreeHost, host_free: fn(*mut c_void);
    cuMemHostRegister_v2, host_register: fn(*mut c_void, usize, c_uint);
    cuMemHostUnregister, host_unregister: fn(*mut c_void);
    cuMemcpy, copy: fn(usize, usize, usize);
    cuMemcpyAsync, copy_async: fn(usize, usize, usize, *mut c_void);
    cuMemcpyHtoD_v2, copy_to_device: fn(usize, usize, usize);
    cuMemcpyHtoDAsync_v2, copy_to_device_async: fn(usize, usize, usize, *mut c_void);
    cuMemcpyDtoH_v2, copy_to_host: fn(usize, usize, usize);
    cuMemcpyDtoHAsync_v2, copy_to_host_async: fn(usize, usize, usize, *mut c_void);
    cuMemcpyDtoD_v2, copy_on_device: fn(usize, usize, usize);
    cuMemcpyDtoDAsync_v2, copy_on_device_async: fn(usize, usize, usize, *mut c_void);
    cuMemsetD8Async, set_8: fn(usize, u8, usize, *mut c_void);
    cuLaunchKernel, launch: fn(
        *const c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void,
    );
    cuLaunchKernelEx, launch_ex: fn(
        *const LaunchConfig, *const c_void, *mut *mut c_void, *mut *mut c_void,
    );
    cuGraphLaunch, graph_launch: fn(usize, *mut c_void);
    cuStreamSynchronize, stream_synchronize: fn(*mut c_void);
    cuCtxSynchronize, synchronize: fn();
    cuEventCreate, event_create: fn(*mut usize, c_uint);
    cuEventRecord, event_record: fn(*mut u64, *mut c_void);
    cuEventSynchronize, event_synchronize: fn(*const u64);
}

/// The driver, loaded at the first use as by the real runtime.
///
/// # Panics
/// If the library that the environment names cannot be loaded, or is not the stand-in.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(path) => Driver::load(&path),
        Err(_) => Driver::OWN,
    })
}

fn open(path: &str) -> *mut c_void {
    let name = c_text(path);
    // SAFETY: the name is text ended by a zero, and loading the library runs no code of ours.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{VARIABLE} is {path}: cannot load it");
    library
}

fn find(library: *mut c_void, symbol: &str, path: &str) -> *mut c_void {
    let name = c_text(symbol);
    // SAFETY: the library is open and the name is text ended by a zero.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(
        !address.is_null(),
        "{VARIABLE} is {path}: it has no {symbol}"
    );
    address
}

fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| panic!("{text:?} holds a zero"))
}
