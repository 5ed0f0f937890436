//! One line on the terminal while recording.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// What the line tells.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    /// Size on the disk.
    pub(crate) bytes: u64,
    /// CPU time of the recorder as a share of one CPU.
    pub(crate) recorder_cpu: f64,
    /// The most memory that the recorder had.
    pub(crate) recorder_bytes: u64,
}

/// The line on stderr. Without a terminal nothing is written until the end.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    shown: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            shown: Instant::now(),
        }
    }

    /// Shows the figures, about once a second.
    pub(crate) fn update(&mut self, figures: impl FnOnce() -> Figures) {
        if self.terminal && self.shown.elapsed() >= Duration::from_secs(1) {
            self.shown = Instant::now();
            // A terminal that has gone away is no reason to stop recording.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(&figures()));
        }
    }

    /// Ends the line.
    pub(crate) fn finish(&self, figures: &Figures) {
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{start}{}", line(figures));
    }
}

fn line(figures: &Figures) -> String {
    format!(
        "ingero: {:.1} s, {} events, {} lost, {:.1} MB on disk, recorder {:.1}% of a CPU and {:.0} MB",
        figures.seconds,
        figures.events,
        figures.lost,
        figures.bytes as f64 / 1e6,
        100.0 * figures.recorder_cpu,
        figures.recorder_bytes as f64 / 1e6,
    )
}
