//! What the rest of the machine does while a job is recorded.

use std::fs;
use std::time::Instant;

/// Ticks of `/proc/stat` and `/proc/PID/stat` a second; Linux shows them in this unit whatever its own.
const TICKS_PER_S: f64 = 100.0;

/// CPU time of the processes that this one has not started, since a moment.
#[derive(Debug)]
pub struct Others {
    since: Instant,
    ticks: f64,
}

impl Others {
    /// Starts measuring.
    ///
    /// # Panics
    /// If `/proc` cannot be read.
    pub fn watch() -> Others {
        Others {
            since: Instant::now(),
            ticks: others_ticks(),
        }
    }

    /// CPUs that the others used on average since the start. The children of this process have to have
    /// ended: those that still run count as others.
    ///
    /// # Panics
    /// If `/proc` cannot be read.
    pub fn cpus(&self) -> f64 {
        let ticks = others_ticks() - self.ticks;
        // The two files are not read at the same moment.
        ticks.max(0.0) / TICKS_PER_S / self.since.elapsed().as_secs_f64()
    }
}

fn others_ticks() -> f64 {
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    let all = fs::read_to_string("/proc/stat").unwrap();
    all_ticks(&all) - own_ticks(&own)
}

/// Busy time of all CPUs: of the columns user, nice, system, idle, iowait, irq, softirq and steal, all
/// that are not waiting.
fn all_ticks(stat: &str) -> f64 {
    let columns = numbers(stat.lines().next().unwrap());
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = columns[..8] else {
        unreachable!("a slice of 8")
    };
    user + nice + system + irq + softirq + steal
}

/// User and system time of a process and of its children that it has waited for.
fn own_ticks(stat: &str) -> f64 {
    // The name before the last bracket may hold anything.
    let after_name = stat.rsplit_once(')').unwrap().1;
    // The state is the first, the page faults end with the tenth.
    numbers(after_name)[10..14].iter().sum()
}

/// The numbers of a line, without the word that it begins with.
fn numbers(line: &str) -> Vec<f64> {
    let words = line.split_whitespace().skip(1);
    words.map(|word| word.parse().unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_taken_from_the_right_places() {
        let all = "cpu  1 20 300 4000 50000 600000 7000000 80000000 0 0\ncpu0 9 9\n";
        assert_eq!(all_ticks(all), 87_600_321.0);
        let own = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 1 20 300 4000 20 0 1";
        assert_eq!(own_ticks(own), 4321.0);
    }

    #[test]
    fn own_time_is_counted() {
        let own = || own_ticks(&fs::read_to_string("/proc/self/stat").unwrap());
        let (before, start) = (own(), Instant::now());
        while own() == before {
            assert!(start.elapsed().as_secs() < 10, "{before} ticks, still");
        }
    }
}
