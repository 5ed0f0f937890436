//! Device addresses, which are only numbers, and pinned host memory, which is real.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than this is not there.
const DEVICE_BYTES: usize = 80 << 30;
const PAGE_BYTES: usize = 4096;

/// Far below where the kernel maps memory for processes.
static NEXT_DEVICE_ADDRESS: AtomicUsize = AtomicUsize::new(0x0d00_0000_0000);
/// Start and length of every pinned range.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn pinned() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device address for `bytes`, or `None` if the device is too small.
pub(crate) fn device_address(bytes: usize) -> Option<usize> {
    if bytes > DEVICE_BYTES {
        return None;
    }
    let reserved = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
    Some(NEXT_DEVICE_ADDRESS.fetch_add(reserved, Ordering::Relaxed))
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok()
}

/// Pinned host memory, or `None` if there is too little.
pub(crate) fn allocate_pinned(bytes: usize) -> Option<*mut c_void> {
    let layout = layout(bytes)?;
    // SAFETY: the layout is at least one byte long.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    pinned().insert(start as usize, layout.size());
    Some(start.cast())
}

/// Frees what [`allocate_pinned`] returned. Whether it was that.
pub(crate) fn free_pinned(start: *mut c_void) -> bool {
    let Some(bytes) = pinned().remove(&(start as usize)) else {
        return false;
    };
    if let Some(layout) = layout(bytes) {
        // SAFETY: the range was in the list, so it came from `alloc_zeroed` with this layout, and
        // nobody else can free it after it was taken out.
        unsafe { dealloc(start.cast(), layout) };
    }
    true
}

/// Whether an address lies in pinned memory.
pub(crate) fn is_pinned(address: *const c_void) -> bool {
    let address = address as usize;
    let pinned = pinned();
    let before = pinned.range(..=address).next_back();
    before.is_some_and(|(start, bytes)| address - start < *bytes)
}
