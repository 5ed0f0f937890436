//! Who was off the CPU, and why.

use crate::names::Names;
use crate::{AnalysisError, Page, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection, named_params};

/// What to sum over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// All threads of a process together.
    Process,
    /// Each thread.
    Thread,
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// All time off the CPU.
    Total,
    /// Time waiting for a CPU that others used.
    WaitingForCpu,
    /// Time asleep.
    Sleeping,
    /// Time in uninterruptible sleep.
    Disk,
    /// The longest wait.
    Longest,
    /// The number of waits.
    Waits,
}

impl RankBy {
    fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::WaitingForCpu => "waiting_for_cpu",
            Self::Sleeping => "sleeping",
            Self::Disk => "disk",
            Self::Longest => "longest",
            Self::Waits => "waits",
        }
    }
}

/// Another thread that had to do with the waits, and its part of their time.
#[derive(Debug, Clone, PartialEq)]
pub struct Partner {
    /// The thread; `None` in interrupt context.
    pub tid: Option<i32>,
    /// Its process, if known.
    pub pid: Option<i32>,
    /// Its name; the kind of interrupt for a wake-up from one.
    pub name: String,
    /// Its part of the time, 0 to 1.
    pub share: f64,
}

/// Waits of one process or thread, cut to the window.
#[derive(Debug, Clone, PartialEq)]
pub struct OffCpuRow {
    /// The process.
    pub pid: i32,
    /// The thread, when asked by thread.
    pub tid: Option<i32>,
    /// Name of the thread or process.
    pub name: String,
    /// Waits that the window touches.
    pub waits: i64,
    /// Their time together.
    pub total_ns: i64,
    /// 99 of 100 waits were not longer.
    pub p99_ns: i64,
    /// The longest wait.
    pub longest_ns: i64,
    /// When it began.
    pub longest_at_ns: i64,
    /// Time queued for a CPU while others ran.
    pub runq_ns: i64,
    /// From the wake-up to running on a CPU that was free.
    pub wakeup_ns: i64,
    /// Time asleep, waiting for somebody.
    pub sleeping_ns: i64,
    /// Time in uninterruptible sleep: disk, page fault.
    pub disk_ns: i64,
    /// Who woke it.
    pub waker: Option<Partner>,
    /// Who took the CPU while it was queued.
    pub taker: Option<Partner>,
}

impl OffCpuRow {
    /// Time in any other state (stopped, parked, unknown).
    pub fn other_ns(&self) -> i64 {
        self.total_ns - self.runq_ns - self.wakeup_ns - self.sleeping_ns - self.disk_ns
    }

    /// Mean length of a wait.
    pub fn mean_ns(&self) -> i64 {
        self.total_ns / self.waits.max(1)
    }
}

/// One page of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OffCpu {
    /// Rows of the page.
    pub rows: Vec<OffCpuRow>,
    /// Rows on all pages.
    pub total_rows: i64,
}

/// Who was off the CPU in the window.
///
/// # Errors
/// If the trace cannot be read.
pub fn off_cpu(
    trace: &Trace,
    window: Window,
    pid: Option<i32>,
    by: By,
    rank_by: RankBy,
    page: Page,
) -> Result<OffCpu, AnalysisError> {
    ask(trace, |c| {
        let mut answer = rows(c, window, pid, by, rank_by, page)?;
        let names = Names::read(c)?;
        for row in &mut answer.rows {
            row.name = names.of(row.tid.unwrap_or(row.pid));
        }
        add_partners(c, window, by, &names, &mut answer.rows)?;
        Ok(answer)
    })
}

fn rows(
    c: &Connection,
    window: Window,
    pid: Option<i32>,
    by: By,
    rank_by: RankBy,
    page: Page,
) -> duckdb::Result<OffCpu> {
    let mut total_rows = 0;
    let rows = c
        .prepare(include_str!("off_cpu.sql"))?
        .query_map(
            named_params! {
                "start_ns": window.start_ns,
                "end_ns": window.end_ns,
                "pid": pid,
                "by_thread": by == By::Thread,
                "rank_by": rank_by.name(),
                "limit": page.limit,
                "offset": page.offset,
            },
            |row| {
                total_rows = row.get(11)?;
                Ok(OffCpuRow {
                    pid: row.get(0)?,
                    tid: row.get(1)?,
                    name: String::new(),
                    waits: row.get(2)?,
                    total_ns: row.get(3)?,
                    p99_ns: row.get(4)?,
                    longest_ns: row.get(5)?,
                    longest_at_ns: row.get(6)?,
                    runq_ns: row.get(7)?,
                    wakeup_ns: row.get(8)?,
                    sleeping_ns: row.get(9)?,
                    disk_ns: row.get(10)?,
                    waker: None,
                    taker: None,
                })
            },
        )?
        .collect::<duckdb::Result<_>>()?;
    Ok(OffCpu { rows, total_rows })
}

fn add_partners(
    c: &Connection,
    window: Window,
    by: By,
    names: &Names,
    answer: &mut [OffCpuRow],
) -> duckdb::Result<()> {
    if answer.is_empty() {
        return Ok(());
    }
    let key = |row: &OffCpuRow| row.tid.unwrap_or(row.pid);
    let keys: Vec<String> = answer.iter().map(|row| key(row).to_string()).collect();
    let mut statement = c.prepare(include_str!("off_cpu_partners.sql"))?;
    let mut found = statement.query(named_params! {
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "by_thread": by == By::Thread,
        "keys": keys.join(","),
    })?;
    while let Some(row) = found.next()? {
        let of: i32 = row.get(0)?;
        let kind: String = row.get(1)?;
        let tid: Option<i32> = row.get(2)?;
        let pid: Option<i32> = row.get(3)?;
        let context: Option<String> = row.get(4)?;
        let partner = match context {
            Some(context) => Partner {
                tid: None,
                pid: None,
                name: context,
                share: row.get(5)?,
            },
            None => Partner {
                tid,
                pid: pid.or_else(|| tid.and_then(|tid| names.pid_of(tid))),
                name: tid.map(|tid| names.of(tid)).unwrap_or_default(),
                share: row.get(5)?,
            },
        };
        for waiting in answer.iter_mut().filter(|waiting| key(waiting) == of) {
            match kind.as_str() {
                "waker" => waiting.waker = Some(partner.clone()),
                _ => waiting.taker = Some(partner.clone()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::{draw, info};
    use ingero_trace::TraceWriter;
    use ingero_trace::rows::OffCpu as Piece;

    const JOB: &str = "
        process 100 python
        process 200 pt_data_worker parent=100
        thread 100 100: (S20<200+5 R5)*9 S100<timer
        thread 100 101: D30 R10 Q4
        thread 200 200: (R20 S10<100)*11";

    fn ask_job(by: By, rank_by: RankBy, window: (i64, i64)) -> Vec<OffCpuRow> {
        let window = Window {
            start_ns: window.0,
            end_ns: window.1,
        };
        off_cpu(
            &draw(JOB).open(),
            window,
            None,
            by,
            rank_by,
            Page::first(10),
        )
        .unwrap()
        .rows
    }

    #[test]
    fn time_off_the_cpu_is_split_by_reason() {
        let rows = ask_job(By::Process, RankBy::Total, (0, 370_000_000));
        assert_eq!(rows.len(), 2);
        let python = &rows[0];
        assert_eq!(
            (python.pid, python.tid, python.name.as_str()),
            (100, None, "python")
        );
        assert_eq!(python.waits, 12);
        assert_eq!(python.total_ns, 359_000_000);
        assert_eq!(python.sleeping_ns, 280_000_000);
        assert_eq!(python.runq_ns, 49_000_000);
        assert_eq!(python.disk_ns, 30_000_000);
        assert_eq!((python.wakeup_ns, python.other_ns()), (0, 0));
        assert_eq!(
            (python.longest_ns, python.longest_at_ns),
            (100_000_000, 270_000_000)
        );
        let waker = python.waker.as_ref().unwrap();
        assert_eq!(
            (waker.tid, waker.name.as_str()),
            (Some(200), "pt_data_worker")
        );
        assert!((waker.share - 180.0 / 280.0).abs() < 1e-9);
    }

    #[test]
    fn by_thread_each_has_its_own_row_and_ranking_chooses_the_first() {
        let rows = ask_job(By::Thread, RankBy::Disk, (0, 370_000_000));
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].tid, rows[0].disk_ns), (Some(101), 30_000_000));
        let rows = ask_job(By::Thread, RankBy::Waits, (0, 370_000_000));
        assert_eq!((rows[0].tid, rows[0].waits), (Some(200), 11));
    }

    #[test]
    fn waits_are_cut_to_the_window() {
        // 10 ms of the sleep and 2 of the 5 ms in the queue lie in the window.
        let rows = ask_job(By::Thread, RankBy::Total, (10_000_000, 22_000_000));
        let main = rows.iter().find(|row| row.tid == Some(100)).unwrap();
        assert_eq!(
            (main.waits, main.sleeping_ns, main.runq_ns),
            (1, 10_000_000, 2_000_000)
        );
        assert_eq!(
            (main.longest_ns, main.longest_at_ns),
            (12_000_000, 10_000_000)
        );
    }

    #[test]
    fn the_pieces_of_a_wait_are_one_wait() {
        //  0        2        4    5      6 s
        //  |--open--|--open--|----|queue-|
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        for (at, blocked, runq, open, continued) in [
            (0, 2, 0, true, false),
            (2, 2, 0, true, true),
            (4, 1, 1, false, true),
        ] {
            let second = 1_000_000_000;
            writer.push(Piece {
                ts_ns: at * second,
                pid: 100,
                tid: 100,
                cpu: 0,
                ran_ns: 0,
                blocked_ns: blocked * second,
                wake_ns: 0,
                runq_ns: runq * second,
                idle_before: false,
                state: "sleeping".into(),
                waker_tid: (!open).then_some(7),
                waker_pid: (!open).then_some(7),
                waker_context: (!open).then_some("task".into()),
                taker_tid: None,
                clipped: false,
                open,
                continued,
            });
        }
        writer.finish(&info(6_000_000_000)).unwrap();
        let trace = Trace::open(&path).unwrap();
        let ask = |start_ns, end_ns| {
            let window = Window { start_ns, end_ns };
            off_cpu(
                &trace,
                window,
                None,
                By::Thread,
                RankBy::Total,
                Page::first(5),
            )
            .unwrap()
            .rows
        };
        let whole = &ask(0, 6_000_000_000)[0];
        assert_eq!((whole.waits, whole.longest_ns), (1, 6_000_000_000));
        assert_eq!(
            (whole.sleeping_ns, whole.runq_ns),
            (5_000_000_000, 1_000_000_000)
        );
        assert_eq!(whole.waker.as_ref().unwrap().tid, Some(7));
        let part = &ask(3_000_000_000, 5_500_000_000)[0];
        assert_eq!((part.waits, part.longest_ns), (1, 2_500_000_000));
        assert_eq!(
            (part.sleeping_ns, part.runq_ns),
            (2_000_000_000, 500_000_000)
        );
    }

    #[test]
    fn pages_follow_each_other() {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let window = Window {
            start_ns: 0,
            end_ns: 370_000_000,
        };
        let ask = |page| off_cpu(&trace, window, None, By::Thread, RankBy::Total, page).unwrap();
        let all = ask(Page::first(10));
        let second = ask(Page {
            limit: 1,
            offset: 1,
        });
        assert_eq!(second.rows[..], all.rows[1..2]);
        assert_eq!((all.total_rows, second.total_rows), (3, 3));
    }
}
