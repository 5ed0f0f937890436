//! What calls cost by themselves: calls that also wait for the GPU are longer, and what is longer
//! than their own cost is waiting.

use super::timeline::Call;
use crate::call_kind::CallKind;

/// What freeing memory takes at most when no call shows it with the GPU idle.
const FREE_NS: i64 = 200_000;
/// The slowest rate at which copying to the device counts as copying: pageable memory moves at
/// 3 to 12 GB/s. What a copy takes beyond that is waiting for the GPU.
const SLOWEST_COPY_BYTES_PER_NS: f64 = 3.0;
/// No link moves this much: such a call has only queued its copy.
const QUEUED_BYTES_PER_NS: f64 = 100.0;
/// A copy smaller than this tells more about its fixed cost than about a rate.
const LARGE_COPY_BYTES: i64 = 1 << 20;
/// Fewer copies than this tell no rate.
const ENOUGH_COPIES: usize = 3;
/// Copies vary by this much around the median rate.
const SLACK: f64 = 1.3;
/// What a copy takes whatever its size.
const COPY_OVERHEAD_NS: f64 = 50_000.0;

/// The own costs of the calls of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Costs {
    /// Freeing memory while the GPU has nothing to do.
    free_ns: i64,
    /// Copying to the device from memory that the call waits for.
    copy_bytes_per_ns: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            free_ns: FREE_NS,
            copy_bytes_per_ns: SLOWEST_COPY_BYTES_PER_NS,
        }
    }
}

impl Costs {
    /// Measures them in the calls of one thread, in order.
    pub(crate) fn of(calls: &[Call]) -> Self {
        let mut idle = false;
        let mut frees = Vec::new();
        let (mut idle_rates, mut rates) = (Vec::new(), Vec::new());
        for call in calls {
            let dur_ns = (call.end_ns - call.start_ns).max(1);
            if call.kind == CallKind::Free && idle {
                frees.push(dur_ns);
            }
            if is_blocking_copy(call) && call.bytes >= LARGE_COPY_BYTES {
                let rate = call.bytes as f64 / dur_ns as f64;
                rates.push(rate);
                if idle {
                    idle_rates.push(rate);
                }
            }
            if call.kind.drains() {
                idle = true;
            } else if call.kind.enqueues() {
                idle = false;
            }
        }
        let free_ns = median(&mut frees).unwrap_or(FREE_NS);
        // A copy that began with the GPU idle waited for nothing; else the fast ones waited least.
        let rate = if idle_rates.len() >= ENOUGH_COPIES {
            median(&mut idle_rates)
        } else if rates.len() >= ENOUGH_COPIES {
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() * 9 / 10).copied()
        } else {
            None
        };
        Self {
            free_ns,
            copy_bytes_per_ns: rate.unwrap_or(0.0).max(SLOWEST_COPY_BYTES_PER_NS),
        }
    }

    /// The part of `on_cpu_ns` in a call that freed memory that freeing itself took.
    pub(crate) fn freeing_ns(&self, on_cpu_ns: i64) -> i64 {
        on_cpu_ns.min((self.free_ns as f64 * SLACK) as i64)
    }

    /// The part of `on_cpu_ns` in a copy to the device that copying took.
    pub(crate) fn copying_ns(&self, bytes: i64, on_cpu_ns: i64) -> i64 {
        let copy_ns = SLACK * bytes as f64 / self.copy_bytes_per_ns + COPY_OVERHEAD_NS;
        on_cpu_ns.min(copy_ns as i64)
    }
}

/// Whether a call copied to the device and waited until the bytes had left the host's memory.
pub(crate) fn is_blocking_copy(call: &Call) -> bool {
    let dur_ns = (call.end_ns - call.start_ns).max(1) as f64;
    call.kind == CallKind::CopyToDevice && call.bytes as f64 / dur_ns <= QUEUED_BYTES_PER_NS
}

fn median<T: PartialOrd + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(kinds: &[(CallKind, i64, i64)]) -> Vec<Call> {
        let mut now = 0;
        kinds
            .iter()
            .map(|&(kind, dur_ns, bytes)| {
                now += dur_ns + 1_000;
                Call {
                    start_ns: now - dur_ns,
                    end_ns: now,
                    kind,
                    bytes,
                    failed: false,
                    probe_pairs: 1,
                }
            })
            .collect()
    }

    #[test]
    fn a_free_that_waits_for_kernels_costs_what_one_without_kernels_does() {
        let costs = Costs::of(&calls(&[
            (CallKind::Launch, 5_000, 0),
            (CallKind::Free, 4_000_000, 0),
            (CallKind::Free, 120_000, 0),
            (CallKind::Free, 110_000, 0),
        ]));
        assert_eq!(costs.freeing_ns(4_000_000), 156_000);
        assert_eq!(costs.freeing_ns(110_000), 110_000);
        // Nothing shows the cost: waiting is the likelier reason for a long call.
        let waits = Costs::of(&calls(&[
            (CallKind::Launch, 5_000, 0),
            (CallKind::Free, 4_000_000, 0),
        ]));
        assert_eq!(waits.freeing_ns(4_000_000), 260_000);
    }

    #[test]
    fn copies_take_what_their_bytes_take() {
        const MIB: i64 = 1 << 20;
        let mut kinds = vec![(CallKind::Sync, 1_000, 0)];
        for _ in 0..3 {
            // 64 MiB at 6 GB/s with the GPU idle, then the same behind 30 ms of kernels.
            kinds.push((CallKind::CopyToDevice, 11_185_000, 64 * MIB));
            kinds.push((CallKind::Launch, 5_000, 0));
            kinds.push((CallKind::CopyToDevice, 41_185_000, 64 * MIB));
            kinds.push((CallKind::Sync, 1_000, 0));
        }
        let costs = Costs::of(&calls(&kinds));
        let copying = costs.copying_ns(64 * MIB, 41_185_000);
        assert!((11_185_000..15_000_000).contains(&copying), "{copying}");
        // From pinned memory a copy is only queued, and tells no rate.
        let queued = Costs::of(&calls(&[(CallKind::CopyToDevice, 10_000, 64 * MIB); 5]));
        assert_eq!(queued, Costs::default());
    }
}
