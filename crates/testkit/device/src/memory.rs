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
const DEVICE_ADDRESSES: std::ops::Range<usize> = 0x0d00_0000_0000..0x2000_0000_0000;
static NEXT_DEVICE_ADDRESS: AtomicUsize = AtomicUsize::new(DEVICE_ADDRESSES.start);
/// A range of pinned memory.
struct Pinned {
    bytes: usize,
    /// Allocated here, not by the caller.
    ours: bool,
}

/// Pinned ranges by their start.
static PINNED: Mutex<BTreeMap<usize, Pinned>> = Mutex::new(BTreeMap::new());

fn pinned() -> MutexGuard<'static, BTreeMap<usize, Pinned>> {
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
    let bytes = layout.size();
    pinned().insert(start as usize, Pinned { bytes, ours: true });
    Some(start.cast())
}

/// Frees what [`allocate_pinned`] returned. Whether it was that.
pub(crate) fn free_pinned(start: *mut c_void) -> bool {
    let Some(range) = take(start, true) else {
        return false;
    };
    if let Some(layout) = layout(range.bytes) {
        // SAFETY: the range was in the list as ours, so it came from `alloc_zeroed` with this layout, and
        // nobody else can free it after it was taken out.
        unsafe { dealloc(start.cast(), layout) };
    }
    true
}

/// Pins memory of the caller.
pub(crate) fn register(start: *mut c_void, bytes: usize) {
    pinned().insert(start as usize, Pinned { bytes, ours: false });
}

/// Takes back [`register`]. Whether there was one.
pub(crate) fn unregister(start: *mut c_void) -> bool {
    take(start, false).is_some()
}

/// Takes a range out of the list.
fn take(start: *mut c_void, ours: bool) -> Option<Pinned> {
    let mut pinned = pinned();
    let start = start as usize;
    pinned.get(&start).filter(|range| range.ours == ours)?;
    pinned.remove(&start)
}

/// Whether an address is one of the device.
pub(crate) fn is_device(address: usize) -> bool {
    DEVICE_ADDRESSES.contains(&address)
}

/// Whether an address lies in pinned memory.
pub(crate) fn is_pinned(address: usize) -> bool {
    let pinned = pinned();
    let before = pinned.range(..=address).next_back();
    before.is_some_and(|(start, range)| address - start < range.bytes)
}
