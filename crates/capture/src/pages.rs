//! Memory pages that the target's processes allocate, in buckets of 10 ms.
//!
//! The kernel counts allocations by process, bucket, size and CPU. A bucket is taken out of its map only when
//! nothing adds to it any more: it has closed, and whatever was running when it did has ended. An entry that is
//! removed earlier takes allocations with it that nobody misses.

use crate::kernel::{Kernel, KernelError};
use crate::samples;
use crate::wire::{self, PageAllocKey};
use ingero_trace::rows::PageAllocs;
use std::collections::BTreeMap;

/// Length of a bucket.
const BUCKET_NS: u64 = wire::PAGE_BUCKET_NS as u64;

/// More than any bucket: all of them are closed.
pub(crate) const EVERY_BUCKET: u64 = u64::MAX;

/// Number of the bucket that is open at this time after the trace's start: those before it are closed.
pub(crate) fn bucket(since_start_ns: i64) -> u64 {
    since_start_ns.max(0) as u64 / BUCKET_NS
}

/// Takes the buckets before `closed` out of the kernel's map, as rows. To be called when no program that began
/// before `closed` runs any more.
pub(crate) fn take(kernel: &mut Kernel, closed: u64) -> Result<Vec<PageAllocs>, KernelError> {
    let keys = closed_keys(kernel.page_alloc_keys(), closed);
    let mut counts = Vec::with_capacity(keys.len());
    for key in keys {
        counts.push((key, kernel.take_page_allocs(&key)?));
    }
    Ok(rows(&counts, samples::page_bytes()))
}

fn closed_keys(mut keys: Vec<PageAllocKey>, closed: u64) -> Vec<PageAllocKey> {
    keys.retain(|key| u64::from(key.bucket) < closed);
    keys
}

/// One row for a process, bucket and size, whichever CPUs it ran on; in the order of time.
fn rows(counts: &[(PageAllocKey, u64)], page_bytes: i64) -> Vec<PageAllocs> {
    let mut sums: BTreeMap<(u32, i32, u16), u64> = BTreeMap::new();
    for (key, count) in counts {
        *sums
            .entry((key.bucket, key.pid, key.page_order))
            .or_default() += count;
    }
    sums.into_iter()
        .map(|((bucket, pid, order), count)| PageAllocs {
            ts_ns: (u64::from(bucket) * BUCKET_NS) as i64,
            pid,
            page_order: order as i16,
            count: count as i64,
            bytes: ((count as i64) << order) * page_bytes,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use ingero_testkit::{live_lock, needs_root_and_bpf};

    fn key(bucket: u32, pid: i32, page_order: u16, cpu: u16) -> PageAllocKey {
        PageAllocKey {
            pid,
            bucket,
            page_order,
            cpu,
        }
    }

    #[test]
    fn a_bucket_that_is_open_stays() {
        // |0   10 ms   |20 ms
        //       ^ now: only the first has closed
        assert_eq!(bucket(10_000_000), 1);
        assert_eq!(bucket(19_999_999), 1);
        assert_eq!(bucket(-5), 0);
        let keys = vec![key(0, 7, 0, 0), key(1, 7, 0, 0), key(2, 7, 0, 0)];
        let closed = |closed| closed_keys(keys.clone(), closed);
        assert_eq!(closed(bucket(9_999_999)), []);
        assert_eq!(closed(bucket(19_999_999)), [key(0, 7, 0, 0)]);
        assert_eq!(closed(EVERY_BUCKET), keys);
    }

    #[test]
    fn cpus_are_summed_and_processes_and_sizes_are_not() {
        let counts = [
            (key(3, 7, 0, 1), 5),
            (key(2, 8, 0, 0), 1),
            (key(3, 7, 9, 0), 2),
            (key(3, 7, 0, 0), 6),
        ];
        let rows: Vec<_> = rows(&counts, 4096)
            .into_iter()
            .map(|row| (row.ts_ns, row.pid, row.page_order, row.count, row.bytes))
            .collect();
        assert_eq!(
            rows,
            [
                (20_000_000, 8, 0, 1, 4096),
                (30_000_000, 7, 0, 11, 11 * 4096),
                (30_000_000, 7, 9, 2, 2 * 512 * 4096),
            ]
        );
    }

    #[test]
    fn the_largest_counts_fit() {
        let rows = rows(&[(key(u32::MAX, i32::MAX, 10, 0), 1 << 32)], 65536);
        assert_eq!(rows[0].bytes, 1 << 58);
        assert_eq!(rows[0].ts_ns, i64::from(u32::MAX) * 10_000_000);
    }

    #[test]
    fn what_a_full_map_cannot_hold_is_counted_as_lost() {
        if !needs_root_and_bpf("what_a_full_map_cannot_hold_is_counted_as_lost") {
            return;
        }
        let _lock = live_lock();
        let mut kernel = Kernel::load().unwrap();
        let entries = kernel.fill_page_allocs();
        let own_pid = std::process::id() as i32;
        kernel.start(clock::monotonic_ns()).unwrap();
        kernel.add_target(own_pid, 0).unwrap();
        // The C library keeps freed memory at hand, but never more than 32 MiB in one piece.
        let pages = 64 << 20 >> 12;
        drop(std::hint::black_box(vec![1u8; pages * 4096]));
        kernel.stop().unwrap();
        let lost = kernel.lost(wire::LOST_PAGE_ALLOCS).unwrap();
        assert!(lost >= pages as u64, "{lost} of {pages}");
        // What was there before is as it was.
        let rows = take(&mut kernel, EVERY_BUCKET).unwrap();
        assert_eq!(rows.len(), entries);
        assert!(rows.iter().all(|row| row.count == 1));
        assert_eq!(take(&mut kernel, EVERY_BUCKET).unwrap(), []);
    }
}
