//! What was lost, by class and second.

use ingero_trace::rows::{LostEvents, Text};
use std::collections::BTreeMap;

const SECOND_NS: u64 = 1_000_000_000;

/// The class of switches to a thread that the kernel did not report: no event is lost, as the programs let
/// the run begin after the last switch that they saw on that CPU.
pub(crate) const SWITCH_IN: &str = "switch_in";

/// Turns totals that only grow into rows for each second.
#[derive(Debug, Default)]
pub(crate) struct LostCounts {
    totals: BTreeMap<&'static str, u64>,
    pending: BTreeMap<(u64, &'static str), u64>,
}

impl LostCounts {
    /// Notes that `total` events of a class were lost up to `since_start_ns`.
    pub(crate) fn update(&mut self, class: &'static str, total: u64, since_start_ns: u64) {
        let earlier = self.totals.insert(class, total).unwrap_or(0);
        let count = total.saturating_sub(earlier);
        if count > 0 {
            *self
                .pending
                .entry((since_start_ns / SECOND_NS, class))
                .or_default() += count;
        }
    }

    /// Takes a total that was reached before recording as nothing lost.
    pub(crate) fn forgive(&mut self, class: &'static str, total: u64) {
        self.totals.insert(class, total);
    }

    /// The rows since the last call.
    pub(crate) fn take(&mut self) -> Vec<LostEvents> {
        std::mem::take(&mut self.pending)
            .into_iter()
            .map(|((second, class), count)| LostEvents {
                ts_ns: (second * SECOND_NS) as i64,
                class: Text::Borrowed(class),
                count: count as i64,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_once_and_by_second() {
        let mut lost = LostCounts::default();
        lost.forgive("off_cpu", 5);
        lost.update("off_cpu", 5, 100);
        assert!(lost.take().is_empty());
        lost.update("off_cpu", 7, 200);
        lost.update("off_cpu", 8, SECOND_NS + 1);
        lost.update("cuda", 1, SECOND_NS + 1);
        let rows: Vec<_> = lost
            .take()
            .into_iter()
            .map(|row| (row.ts_ns, row.class, row.count))
            .collect();
        assert_eq!(
            rows,
            [
                (0, Text::Borrowed("off_cpu"), 2),
                (1_000_000_000, Text::Borrowed("cuda"), 1),
                (1_000_000_000, Text::Borrowed("off_cpu"), 1),
            ]
        );
        assert!(lost.take().is_empty());
    }
}
