//! From calls to rows, whole or in pieces.

use super::calls::CALLS;
use crate::wire::{self, CudaEvent, CudaOpenCall};
use ingero_trace::rows::{CudaCall, Text};
use std::collections::HashMap;

/// What was written of a call that is still in flight.
#[derive(Debug, Clone, Copy)]
struct Written {
    entry_ns: u64,
    until_ns: u64,
    nested: u32,
}

/// Calls in flight of which pieces were written, by thread.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls(HashMap<u32, Written>);

impl OpenCalls {
    /// The row of a call that ended: all of it, or what is left after the pieces written before.
    /// `None` if the call is not in the table.
    pub(crate) fn finished(&mut self, event: &CudaEvent, start_ns: u64) -> Option<CudaCall> {
        let written = self
            .0
            .remove(&(event.tid as u32))
            .filter(|written| written.entry_ns == event.entry_ns);
        let unfinished = u32::from(event.flags) & wire::CUDA_UNFINISHED != 0;
        Some(CudaCall {
            status: (!unfinished).then_some(event.status),
            open: unfinished,
            ..piece(event, written, event.end_ns, start_ns)?
        })
    }

    /// The row of a call that is in flight at `until_ns`: what is not written yet. `None` if that is nothing.
    pub(crate) fn open(
        &mut self,
        tid: u32,
        call: &CudaOpenCall,
        until_ns: u64,
        start_ns: u64,
    ) -> Option<CudaCall> {
        let known = self.0.get(&tid).copied();
        let written = known.filter(|written| written.entry_ns == call.entry_ns);
        if until_ns <= written.map_or(call.entry_ns, |written| written.until_ns) {
            return None;
        }
        let event = CudaEvent {
            entry_ns: call.entry_ns,
            end_ns: until_ns,
            bytes: call.bytes,
            stream: call.stream,
            pid: call.pid,
            tid: tid as i32,
            direction: call.direction,
            status: 0,
            call: u16::try_from(call.call).ok()?,
            flags: wire::CUDA_UNFINISHED as u16,
            nested: call.nested,
        };
        let row = CudaCall {
            open: true,
            ..piece(&event, written, until_ns, start_ns)?
        };
        self.0.insert(
            tid,
            Written {
                entry_ns: call.entry_ns,
                until_ns,
                nested: call.nested,
            },
        );
        Some(row)
    }
}

/// The part of a call from where it was written up to `until_ns`, without a status.
fn piece(
    event: &CudaEvent,
    written: Option<Written>,
    until_ns: u64,
    start_ns: u64,
) -> Option<CudaCall> {
    let call = CALLS.get(usize::from(event.call))?;
    let from_ns = written.map_or(event.entry_ns, |written| written.until_ns);
    let nested_before = written.map_or(0, |written| written.nested);
    Some(CudaCall {
        ts_ns: from_ns as i64 - start_ns as i64,
        // A call may end in the moment in which its piece is written.
        dur_ns: until_ns.saturating_sub(from_ns) as i64,
        pid: event.pid,
        tid: event.tid,
        layer: Text::Borrowed(call.layer.name()),
        call: Text::Borrowed(call.name),
        bytes: call.bytes_of(event.bytes),
        direction: call.direction_of(event.direction).map(Text::Borrowed),
        // A handle is a pattern of bits, not a number.
        stream: call.has_stream().then_some(event.stream as i64),
        status: None,
        open: false,
        continued: written.is_some(),
        nested: i32::try_from(event.nested.saturating_sub(nested_before)).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 1_000;

    fn number(name: &str) -> u16 {
        CALLS.iter().position(|call| call.name == name).unwrap() as u16
    }

    fn event(name: &str, entry_ns: u64, end_ns: u64) -> CudaEvent {
        CudaEvent {
            entry_ns,
            end_ns,
            bytes: 4096,
            stream: 7,
            pid: 10,
            tid: 11,
            direction: 1,
            status: 2,
            call: number(name),
            flags: 0,
            nested: 3,
        }
    }

    fn open_call(event: &CudaEvent) -> (u32, CudaOpenCall) {
        (
            event.tid as u32,
            CudaOpenCall {
                entry_ns: event.entry_ns,
                bytes: event.bytes,
                stream: event.stream,
                frame: 0,
                pid: event.pid,
                direction: event.direction,
                call: event.call.into(),
                nested: 0,
            },
        )
    }

    #[test]
    fn only_the_columns_that_a_call_has_are_filled() {
        let mut calls = OpenCalls::default();
        let copy = calls
            .finished(&event("cudaMemcpyAsync", 1_500, 1_900), START)
            .unwrap();
        assert_eq!((copy.ts_ns, copy.dur_ns), (500, 400));
        assert_eq!(
            (copy.bytes, copy.direction.as_deref(), copy.stream),
            (Some(4096), Some("h2d"), Some(7))
        );
        assert_eq!(
            (copy.status, copy.open, copy.continued),
            (Some(2), false, false)
        );
        let free = calls
            .finished(&event("cudaFree", 1_500, 1_900), START)
            .unwrap();
        assert_eq!(
            (free.bytes, free.direction, free.stream),
            (None, None, None)
        );
        let huge = CudaEvent {
            bytes: u64::MAX,
            direction: 9,
            ..event("cudaMemcpy", 1_500, 1_900)
        };
        let huge = calls.finished(&huge, START).unwrap();
        assert_eq!((huge.bytes, huge.direction), (Some(i64::MAX), None));
        assert_eq!(
            calls.finished(
                &CudaEvent {
                    call: 126,
                    ..event("cudaFree", 1, 2)
                },
                START
            ),
            None
        );
    }

    #[test]
    fn a_call_that_ends_with_its_thread_stays_open() {
        let mut calls = OpenCalls::default();
        let sync = CudaEvent {
            flags: wire::CUDA_UNFINISHED as u16,
            ..event("cudaStreamSynchronize", 1_500, 1_900)
        };
        let row = calls.finished(&sync, START).unwrap();
        assert_eq!((row.dur_ns, row.status, row.open), (400, None, true));
    }

    #[test]
    fn what_was_written_of_an_earlier_call_is_not_taken_off_a_later_one() {
        let mut calls = OpenCalls::default();
        let (tid, first) = open_call(&event("cudaFree", 1_500, 0));
        assert!(calls.open(tid, &first, 1_600, START).is_some());
        // The first never returned; the same thread calls again.
        let row = calls
            .finished(&event("cudaFree", 2_000, 2_100), START)
            .unwrap();
        assert_eq!((row.ts_ns, row.dur_ns, row.continued), (1_000, 100, false));
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_call(
            mut flushes in proptest::collection::vec(1_000u64..9_000, 0..8),
            entry_ns in 1_000u64..5_000,
            length_ns in 1u64..4_000,
        ) {
            flushes.sort_unstable();
            let whole = event("cudaStreamSynchronize", entry_ns, entry_ns + length_ns);
            let (tid, call) = open_call(&whole);
            let mut calls = OpenCalls::default();
            let in_flight = flushes.into_iter().take_while(|at_ns| *at_ns <= whole.end_ns);
            let mut rows: Vec<_> = in_flight
                .zip(0..)
                .filter_map(|(at_ns, flush)| {
                    let nested = whole.nested.min(flush);
                    calls.open(tid, &CudaOpenCall { nested, ..call }, at_ns, START)
                })
                .collect();
            prop_assert!(rows.iter().all(|row| row.open && row.status.is_none()));
            rows.push(calls.finished(&whole, START).unwrap());
            let mut expected_ts_ns = (entry_ns - START) as i64;
            for (index, row) in rows.iter().enumerate() {
                prop_assert_eq!(row.ts_ns, expected_ts_ns);
                prop_assert_eq!(row.continued, index > 0);
                expected_ts_ns += row.dur_ns;
            }
            prop_assert_eq!(expected_ts_ns, (whole.end_ns - START) as i64);
            prop_assert_eq!(rows.last().map(|row| row.open), Some(false));
            prop_assert_eq!(rows.iter().map(|row| row.nested.unwrap()).sum::<i32>(), 3);
        }
    }
}
