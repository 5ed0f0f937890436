//! What waiting for the GPU costs because the host then has work to do before the GPU gets more.
//!
//! After a wait of `g` seconds the GPU has nothing to do. If the host then works `h` seconds before
//! it gives the GPU more, that work could have been done while the GPU was busy: the smaller of the
//! two was lost by waiting. Work of the host after it has given the GPU something can be
//! hidden only if it does so before that, so it belongs to the most that could be gained.

use super::timeline::Call;
use crate::call_kind::CallKind;

/// The part of an idle time that has to fit into the wait before it for the wait to be to blame:
/// where the host does much more than the GPU did, or waits itself, running ahead wins little.
const FITS: f64 = 0.5;

/// What could have been hidden behind the GPU's work.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Hideable {
    /// Waits for the GPU after which it idled until it was given work.
    pub(crate) waits: u64,
    /// Host work in those idle times of which most would have fitted into the wait before.
    pub(crate) own_s: f64,
    /// What of it would have.
    pub(crate) at_least_s: f64,
    /// The same with all of the host's work until the next wait.
    pub(crate) at_most_s: f64,
}

/// Follows the feeder's calls from wait to wait.
#[derive(Debug, Default)]
pub(crate) struct Readback {
    total: Hideable,
    /// Waited for the GPU since it was last given work.
    waited_s: f64,
    /// After a wait, before new work for the GPU.
    idle: Option<Idle>,
    /// The last wait if it is to blame, and the host's work since then.
    round: (f64, f64),
}

/// A time in which the GPU has nothing to do.
#[derive(Debug, Clone, Copy, Default)]
struct Idle {
    /// The wait before it.
    waited_s: f64,
    /// The host's own work in it.
    own_s: f64,
    /// All of it.
    length_s: f64,
}

impl Readback {
    /// One piece of the feeder's time: its own work in it, what else the host is to blame for in
    /// it, its wait for the GPU, and the call.
    pub(crate) fn piece(&mut self, own_s: f64, host_s: f64, gpu_wait_s: f64, call: Option<&Call>) {
        self.waited_s += gpu_wait_s;
        self.round.1 += own_s;
        if let Some(idle) = &mut self.idle {
            idle.own_s += own_s;
            idle.length_s += host_s;
        }
        let Some(call) = call else { return };
        if call.kind.drains() {
            if self.idle.is_none() {
                self.end_round();
                self.idle = Some(Idle {
                    waited_s: self.waited_s,
                    ..Idle::default()
                });
            }
        } else if gives_work(call.kind) {
            self.end_idle();
            self.waited_s = 0.0;
        }
    }

    /// The sums, at the end of the time.
    pub(crate) fn finish(mut self) -> Hideable {
        self.end_idle();
        self.end_round();
        self.total
    }

    fn end_idle(&mut self) {
        let Some(idle) = self.idle.take() else { return };
        self.total.waits += 1;
        let fits_s = idle.own_s.min(idle.waited_s);
        if fits_s > 0.0 && fits_s >= FITS * idle.length_s {
            self.total.own_s += idle.own_s;
            self.total.at_least_s += fits_s;
            self.round = (idle.waited_s, idle.own_s);
        }
    }

    fn end_round(&mut self) {
        let (waited_s, worked_s) = std::mem::take(&mut self.round);
        self.total.at_most_s += worked_s.min(waited_s);
    }
}

/// Reading a value back is no work that keeps a GPU busy.
fn gives_work(kind: CallKind) -> bool {
    kind.enqueues() && !matches!(kind, CallKind::CopyToHost | CallKind::CopyToHostAsync)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind) -> Call {
        Call {
            start_ns: 0,
            end_ns: 1,
            kind,
            bytes: 4,
            failed: false,
            probe_pairs: 1,
        }
    }

    /// Rounds of a launch, a wait of `waited_s`, and then `own_s` of the host's work and `else_s`
    /// of its waits.
    fn rounds(count: u32, waited_s: f64, own_s: f64, else_s: f64) -> Hideable {
        let mut readback = Readback::default();
        for _ in 0..count {
            readback.piece(0.0, 0.0, 0.0, Some(&call(CallKind::Launch)));
            readback.piece(0.0, 0.0, waited_s, Some(&call(CallKind::CopyToHostAsync)));
            readback.piece(0.0, 0.0, 0.0, Some(&call(CallKind::Sync)));
            readback.piece(own_s, own_s + else_s, 0.0, None);
        }
        readback.finish()
    }

    #[test]
    fn work_that_fits_into_the_wait_before_is_lost_by_waiting() {
        let fits = rounds(10, 0.004, 0.003, 0.0);
        assert!((fits.at_least_s - 0.030).abs() < 1e-9, "{fits:?}");
        assert!((fits.own_s - 0.030).abs() < 1e-9, "{fits:?}");
        assert_eq!(fits.waits, 10);
    }

    #[test]
    fn long_work_and_waits_of_the_host_are_no_fault_of_the_wait() {
        for hideable in [
            rounds(10, 0.003, 0.025, 0.0),
            rounds(10, 0.004, 0.003, 0.02),
        ] {
            assert_eq!(
                (hideable.waits, hideable.own_s, hideable.at_least_s),
                (10, 0.0, 0.0)
            );
        }
    }

    #[test]
    fn work_after_a_launch_could_be_hidden_only_if_it_moves() {
        let mut readback = Readback::default();
        for _ in 0..3 {
            readback.piece(0.0, 0.0, 0.0, Some(&call(CallKind::Launch)));
            readback.piece(0.004, 0.004, 0.0, None);
            readback.piece(0.0, 0.0, 0.01, Some(&call(CallKind::Sync)));
            readback.piece(0.001, 0.001, 0.0, None);
        }
        let hideable = readback.finish();
        assert!((hideable.at_least_s - 0.003).abs() < 1e-9, "{hideable:?}");
        // Two rounds of 5 ms and the last millisecond.
        assert!((hideable.at_most_s - 0.011).abs() < 1e-9, "{hideable:?}");
    }
}
