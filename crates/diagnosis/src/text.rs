//! Numbers as a person reads them. Only here do numbers become text.

use crate::features::Neighbour;

/// `0.456` as `46%`; small shares keep a digit.
pub(crate) fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0995 {
        format!("{:.1}%", share * 100.0)
    } else {
        format!("{:.0}%", share * 100.0)
    }
}

/// Seconds with a fitting unit.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds >= 10.0 {
        format!("{seconds:.0} s")
    } else if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 0.01 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds >= 0.001 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.0} us", seconds * 1e6)
    }
}

/// Bytes with a fitting unit.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} bytes");
    }
    let mut value = bytes / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

impl Neighbour {
    /// `cc1plus (process 12 and 3 more, 4.5 s of CPU time)`.
    pub(crate) fn in_words(&self) -> String {
        let others = match self.processes {
            0 | 1 => String::new(),
            processes => format!(" and {} more", processes - 1),
        };
        format!(
            "{} (process {}{others}, {} of CPU time)",
            self.name,
            self.pid,
            duration(self.run_s)
        )
    }
}

/// `1 worker`, `3 workers`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_a_person_needs() {
        assert_eq!(
            [percent(0.0), percent(0.0512), percent(0.456)],
            ["0%", "5.1%", "46%"]
        );
        assert_eq!(
            [
                duration(12.3),
                duration(1.26),
                duration(0.0456),
                duration(0.0012),
                duration(4.2e-5)
            ],
            ["12 s", "1.3 s", "46 ms", "1.2 ms", "42 us"]
        );
        assert_eq!(
            [bytes(12.0), bytes(4096.0), bytes(3e9)],
            ["12 bytes", "4.0 KiB", "2.8 GiB"]
        );
        assert_eq!(
            [count(1, "worker"), count(3, "worker")],
            ["1 worker", "3 workers"]
        );
    }
}
