//! Generations of loader workers.

use crate::arguments::{Asked, ms, share};
use crate::session::Session;
use crate::tool::ToolError;
use ingero_analysis::Window;
use ingero_analysis::generations::{Generation, generations};
use schemars::JsonSchema;
use serde::Serialize;

const NS_PER_S: i64 = 1_000_000_000;

/// A generation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GenerationShown {
    /// of the recording, 1 is the first
    number: usize,
    /// the process that they work for
    feeder_pid: i32,
    /// how many
    workers: usize,
    /// when the first was forked
    start_ms: f64,
    /// from the first fork to the last
    forking_ms: f64,
    /// from the first fork until one of them first woke a thread that takes batches
    handover_after_ms: Option<f64>,
    /// from the first fork until the feeder next gave the GPU work after that (or after the last
    /// fork, if that was not seen), the first batch included
    start_cost_ms: Option<f64>,
    /// from the first fork to the end of the last; null if one lived on
    lifetime_ms: Option<f64>,
    /// how it ended
    end: String,
}

impl GenerationShown {
    pub(super) fn new(number: usize, generation: &Generation) -> Self {
        let workers = generation.workers.len();
        let end = match (generation.exited, generation.failed) {
            (0, _) => "alive".to_owned(),
            (exited, 0) if exited == workers => "all exited".to_owned(),
            (exited, 0) => format!("{exited} of {workers} exited"),
            (exited, failed) => format!("{exited} of {workers} exited, {failed} of them failed"),
        };
        Self {
            number,
            feeder_pid: generation.feeder_pid,
            workers,
            start_ms: ms(generation.first_fork_ns),
            forking_ms: ms(generation.last_fork_ns - generation.first_fork_ns),
            handover_after_ms: generation.handover_after_ns().map(ms),
            start_cost_ms: generation.start_cost_ns().map(ms),
            lifetime_ms: generation.lifetime_ns().map(ms),
            end,
        }
    }
}

/// The generations that lived in the window, each with its number in the recording.
pub(super) fn generations_in(
    session: &Session,
    asked: &Asked,
) -> Result<Vec<(usize, Generation)>, ToolError> {
    let roles = session.roles(&asked.info)?;
    let all = generations(&session.trace, &roles)?;
    Ok((1..)
        .zip(all)
        .filter(|(_, generation)| {
            let ended_ns = generation.ended_ns.unwrap_or(i64::MAX);
            generation.first_fork_ns < asked.window.end_ns && ended_ns >= asked.window.start_ns
        })
        .filter(|(_, generation)| {
            asked
                .pid
                .is_none_or(|pid| pid == generation.feeder_pid || generation.workers.contains(&pid))
        })
        .collect())
}

/// "12 generations of 4 workers, each 1.8 s; start cost 210 ms median, 31% of the time", and what
/// of that cost is forking.
pub(super) fn in_words(generations: &[&Generation], window: Window) -> String {
    let sizes = || {
        generations
            .iter()
            .map(|generation| generation.workers.len())
    };
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let mut words = match generations.len() {
        1 => "1 generation of ".to_owned(),
        count => format!("{count} generations of "),
    };
    words += &match (least, most) {
        (1, 1) => "1 worker".to_owned(),
        (least, most) if least == most => format!("{most} workers"),
        (least, most) => format!("{least} to {most} workers"),
    };
    if let Some(lifetime) = median(generations.iter().filter_map(|of| of.lifetime_ns())) {
        words += &match lifetime {
            short if short < NS_PER_S => format!(", each {:.0} ms", ms(short)),
            long => format!(", each {:.1} s", ms(long) / 1e3),
        };
    }
    if let Some(cost) = median(generations.iter().filter_map(|of| of.start_cost_ns())) {
        let forking = generations
            .iter()
            .map(|of| of.last_fork_ns - of.first_fork_ns);
        words += &format!(
            "; start cost {:.0} ms median, {:.0}% of the time: {:.0} ms forking, then preparing the \
             first batch, which workers that are kept have to do too",
            ms(cost),
            share(starting_ns(generations, window), window.dur_ns()) * 100.0,
            ms(median(forking).unwrap_or(0)),
        );
    }
    words
}

fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Time in the window in which at least one generation was being started.
fn starting_ns(generations: &[&Generation], window: Window) -> i64 {
    let mut until_ns = window.start_ns;
    let mut total_ns = 0;
    // By start: what two of them share counts once.
    for generation in generations {
        let Some(end_ns) = generation.next_submit_ns else {
            continue;
        };
        let from_ns = generation.first_fork_ns.max(until_ns);
        let end_ns = end_ns.min(window.end_ns);
        total_ns += (end_ns - from_ns).max(0);
        until_ns = until_ns.max(end_ns);
    }
    total_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn generation(start_ms: i64, cost_ms: i64, workers: i32) -> Generation {
        Generation {
            feeder_pid: 100,
            workers: (200..200 + workers).collect(),
            first_fork_ns: start_ms * MS,
            last_fork_ns: (start_ms + 5) * MS,
            first_handover_ns: Some((start_ms + cost_ms - 10) * MS),
            next_submit_ns: Some((start_ms + cost_ms) * MS),
            ended_ns: Some((start_ms + 800) * MS),
            exited: workers as usize,
            failed: 0,
        }
    }

    #[test]
    fn generations_are_told_in_a_line() {
        let window = Window {
            start_ns: 0,
            end_ns: 2_000 * MS,
        };
        let (first, second) = (generation(0, 300, 4), generation(1_000, 200, 4));
        assert_eq!(
            in_words(&[&first, &second], window),
            "2 generations of 4 workers, each 800 ms; start cost 300 ms median, 25% of the time: 5 ms \
             forking, then preparing the first batch, which workers that are kept have to do too"
        );
        // Of two that are started at the same time, the time counts once.
        let beside = Generation {
            ended_ns: None,
            next_submit_ns: Some(400 * MS),
            ..generation(100, 300, 1)
        };
        let words = in_words(&[&first, &beside], window);
        assert!(
            words.starts_with("2 generations of 1 to 4 workers, each 800 ms; "),
            "{words}"
        );
        assert!(words.contains(" median, 20% of the time"), "{words}");
        let unseen = Generation {
            next_submit_ns: None,
            ended_ns: None,
            ..generation(0, 300, 1)
        };
        assert_eq!(in_words(&[&unseen], window), "1 generation of 1 worker");
    }

    #[test]
    fn the_end_of_a_generation_is_named() {
        let of = |exited, failed| {
            let generation = Generation {
                exited,
                failed,
                ..generation(0, 300, 4)
            };
            GenerationShown::new(1, &generation).end
        };
        assert_eq!(of(0, 0), "alive");
        assert_eq!(of(4, 0), "all exited");
        assert_eq!(of(3, 0), "3 of 4 exited");
        assert_eq!(of(4, 2), "4 of 4 exited, 2 of them failed");
    }
}
