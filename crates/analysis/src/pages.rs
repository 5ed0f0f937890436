//! Who allocated memory pages.

use crate::forks::lives;
use crate::names::Names;
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, named_params};
use std::collections::HashMap;

/// Pages that one process allocated in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesRow {
    /// The process.
    pub pid: i32,
    /// Its last name.
    pub name: String,
    /// Allocations, of one page or of several in a row.
    pub allocations: i64,
    /// Their size together.
    pub bytes: i64,
    /// How long the process lived in the window; 0 if its life was not recorded.
    pub lived_ns: i64,
    /// The most bytes of any second.
    pub peak_bytes: i64,
    /// When that second began.
    pub peak_at_ns: i64,
    /// When the first bucket with allocations began.
    pub first_ns: i64,
    /// When the last one began.
    pub last_ns: i64,
}

impl PagesRow {
    /// Bytes per second of its life in the window.
    pub fn bytes_per_s(&self) -> Option<f64> {
        (self.lived_ns > 0).then(|| self.bytes as f64 * 1e9 / self.lived_ns as f64)
    }
}

/// The processes that allocated pages in the window, the one with the most bytes first.
///
/// # Errors
/// If the trace cannot be read.
pub fn pages(
    trace: &Trace,
    window: Window,
    pid: Option<i32>,
) -> Result<Vec<PagesRow>, AnalysisError> {
    let mut lived_ns: HashMap<i32, i64> = HashMap::new();
    for life in lives(trace, window, None)? {
        let from_ns = life.forked_ns.unwrap_or(0).max(window.start_ns);
        let to_ns = life.exit_ns.unwrap_or(window.end_ns).min(window.end_ns);
        // A pid that is used again has several lives.
        *lived_ns.entry(life.pid).or_default() += to_ns - from_ns;
    }
    ask(trace, |c| {
        let names = Names::read(c)?;
        c.prepare(include_str!("pages.sql"))?
            .query_map(
                named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns, "pid": pid },
                |row| {
                    let pid = row.get(0)?;
                    Ok(PagesRow {
                        pid,
                        name: names.of(pid),
                        allocations: row.get(1)?,
                        bytes: row.get(2)?,
                        lived_ns: lived_ns.get(&pid).copied().unwrap_or(0),
                        peak_bytes: row.get(3)?,
                        peak_at_ns: row.get(4)?,
                        first_ns: row.get(5)?,
                        last_ns: row.get(6)?,
                    })
                },
            )?
            .collect::<duckdb::Result<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::draw;

    const MS: i64 = 1_000_000;

    // Worker 200 lives from 1 to 3 s; it allocates most in its second second.
    const JOB: &str = "
        process 100 python
        process 200 pt_data_worker parent=100 from=1000 exit=0
        thread 100 100: R4000
        thread 200 200: R2000
        pages 100: @0 1*1 @3900 10*4
        pages 200: @1500 10*1 @2000..2100 100*1 @2990 1*512";

    fn ask_job(start_ms: i64, end_ms: i64, pid: Option<i32>) -> Vec<PagesRow> {
        let window = Window {
            start_ns: start_ms * MS,
            end_ns: end_ms * MS,
        };
        pages(&draw(JOB).open(), window, pid).unwrap()
    }

    #[test]
    fn pages_are_summed_by_process_with_their_rate_and_peak() {
        let rows = ask_job(0, 4_000, None);
        assert_eq!(
            rows,
            [
                PagesRow {
                    pid: 200,
                    name: "pt_data_worker".to_owned(),
                    allocations: 10 + 1_000 + 1,
                    bytes: (10 + 1_000 + 512) * 4096,
                    lived_ns: 2_000 * MS,
                    peak_bytes: (1_000 + 512) * 4096,
                    peak_at_ns: 2_000 * MS,
                    first_ns: 1_500 * MS,
                    last_ns: 2_990 * MS,
                },
                PagesRow {
                    pid: 100,
                    name: "python".to_owned(),
                    allocations: 11,
                    bytes: 41 * 4096,
                    lived_ns: 4_000 * MS,
                    peak_bytes: 40 * 4096,
                    peak_at_ns: 3_900 * MS,
                    first_ns: 0,
                    last_ns: 3_900 * MS,
                },
            ]
        );
        assert_eq!(rows[0].bytes_per_s(), Some(1_522.0 * 4096.0 / 2.0));
    }

    #[test]
    fn windows_side_by_side_add_up() {
        let whole = ask_job(0, 4_000, Some(200));
        assert_eq!(whole.len(), 1);
        let parts = [(0, 2_015), (2_015, 2_995), (2_995, 4_000)];
        let parts = parts.map(|(from, to)| ask_job(from, to, Some(200)).remove(0));
        assert_eq!(
            parts.iter().map(|part| part.bytes).sum::<i64>(),
            whole[0].bytes
        );
        assert_eq!(
            parts.iter().map(|part| part.lived_ns).sum::<i64>(),
            whole[0].lived_ns
        );
        // A bucket that the window cuts begins with the window.
        assert_eq!(
            (parts[1].first_ns, parts[1].last_ns),
            (2_015 * MS, 2_990 * MS)
        );
    }

    #[test]
    fn who_allocated_nothing_has_no_row() {
        assert_eq!(ask_job(3_100, 3_800, None), []);
    }
}
