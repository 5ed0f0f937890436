//! Shows that probes fire, that calls inside of calls are known, and what a pair of probes costs: the
//! recorder probes functions of its own.

use super::CudaError;
use super::attach::Place;
use crate::wire::CUDA_SELF_TEST;
use std::time::{Duration, Instant};

/// Calls in one measurement, and measurements of either kind.
pub(crate) const CALLS: u32 = 200;
pub(crate) const ROUNDS: u32 = 15;

/// Returns its argument, and begins as a CUDA function does: with `push %rbp`.
#[unsafe(naked)]
extern "C" fn probed(_bytes: u64) -> i32 {
    core::arch::naked_asm!("push rbp", "mov rbp, rsp", "mov rax, rdi", "pop rbp", "ret")
}

/// The same, after calling [`probed`] that often.
#[unsafe(naked)]
extern "C" fn probed_around(_calls: u64) -> i32 {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "call {inner}",
        "pop rbp",
        "ret",
        inner = sym call_probed_times,
    )
}

extern "C" fn call_probed_times(calls: u64) -> i32 {
    for number in 0..calls {
        std::hint::black_box(probed(std::hint::black_box(number)));
    }
    calls as i32
}

/// Calls the probed function. Returns the time of all calls together.
pub(crate) fn call_probed() -> Duration {
    let start = Instant::now();
    call_probed_times(CALLS.into());
    start.elapsed()
}

/// The same inside of another probed function.
pub(crate) fn call_probed_nested() {
    std::hint::black_box(probed_around(CALLS.into()));
}

/// Where those functions lie in `/proc/self/exe`.
pub(crate) fn places() -> Result<[Place; 2], CudaError> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(CudaError::SelfMaps)?;
    let place = |function: extern "C" fn(u64) -> i32| {
        let address = function as *const () as u64;
        let file_offset = maps.lines().find_map(|line| offset_in(line, address));
        Ok::<_, CudaError>(Place {
            file_offset: file_offset.ok_or(CudaError::Missing("function", "self-test"))?,
            call: CUDA_SELF_TEST,
        })
    };
    Ok([place(probed)?, place(probed_around)?])
}

/// The place in the file that is mapped at `address`, if this line of `maps` covers it.
fn offset_in(line: &str, address: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).ok());
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    (start?..end?)
        .contains(&address)
        .then(|| address - start.unwrap_or(address) + offset)
}

/// What a pair costs: the difference of the medians, for each call.
pub(crate) fn pair_cost_ns(mut without: Vec<Duration>, mut with: Vec<Duration>) -> u64 {
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let difference = median(&mut with).saturating_sub(median(&mut without));
    difference.as_nanos() as u64 / u64::from(CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probed_functions_begin_like_cuda_functions_and_return_their_argument() {
        assert_eq!((probed(21), probed_around(21)), (21, 21));
        let program = std::fs::read("/proc/self/exe").unwrap();
        for place in places().unwrap() {
            assert_eq!(program[place.file_offset as usize], 0x55, "push %rbp");
        }
    }

    #[test]
    fn the_cost_is_the_difference_of_medians() {
        let times = |microseconds: [u64; 3]| microseconds.map(Duration::from_micros).to_vec();
        assert_eq!(
            pair_cost_ns(times([1, 900, 2]), times([402, 500, 401])),
            2_000
        );
        assert_eq!(pair_cost_ns(times([5, 5, 5]), times([1, 1, 1])), 0);
    }
}
