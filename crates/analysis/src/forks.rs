//! The process tree over time.

use crate::{AnalysisError, Page, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection, named_params};

/// One process from its fork to its exit. A pid that is used again begins another life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Its pid.
    pub pid: i32,
    /// Its parent.
    pub parent_pid: Option<i32>,
    /// Its last name in the window.
    pub name: String,
    /// When it was forked; `None` if it was there before the recording.
    pub forked_ns: Option<i64>,
    /// When it exited; `None` if it lived to the window's end.
    pub exit_ns: Option<i64>,
    /// Its exit code, or 128 + signal.
    pub exit_status: Option<i32>,
    /// How often it executed a program.
    pub execs: i64,
    /// When it last did.
    pub executed_ns: Option<i64>,
    /// Threads that it started, the main one not counted.
    pub threads_started: i64,
}

impl Life {
    /// From fork to exit, if both were seen.
    pub fn lifetime_ns(&self) -> Option<i64> {
        Some(self.exit_ns? - self.forked_ns?)
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub ts_ns: i64,
    /// existing, fork, thread, exec, rename, exit or thread_exit.
    pub kind: String,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its parent.
    pub parent_pid: Option<i32>,
    /// Its name after the event.
    pub name: String,
    /// Its command line, after it was executed.
    pub command_line: Option<String>,
    /// Its exit code, or 128 + signal.
    pub exit_status: Option<i32>,
}

/// Which events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// Forks, execs and exits of processes.
    Lives,
    /// Those, renames, and processes that were there before the recording.
    Processes,
    /// Those, and the starts and ends of threads.
    All,
}

impl Kinds {
    fn names(self) -> &'static str {
        match self {
            Self::Lives => "fork,exec,exit",
            Self::Processes => "existing,fork,exec,rename,exit",
            Self::All => "existing,fork,exec,rename,exit,thread,thread_exit",
        }
    }
}

/// Events by kind. Threads are counted apart from processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes started.
    pub forks: i64,
    /// Programs executed.
    pub execs: i64,
    /// Processes ended.
    pub exits: i64,
    /// Threads started.
    pub threads: i64,
    /// Threads ended.
    pub thread_exits: i64,
}

/// The lives that overlap the window, oldest first. With a pid: its own and its children's.
///
/// # Errors
/// If the trace cannot be read.
pub fn lives(trace: &Trace, window: Window, pid: Option<i32>) -> Result<Vec<Life>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("fork_lives.sql"))?
            .query_map(
                named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns, "pid": pid },
                |row| {
                    Ok(Life {
                        pid: row.get(0)?,
                        parent_pid: row.get(1)?,
                        name: row.get(2)?,
                        forked_ns: row.get(3)?,
                        exit_ns: row.get(4)?,
                        exit_status: row.get(5)?,
                        execs: row.get(6)?,
                        threads_started: row.get(7)?,
                        executed_ns: row.get(8)?,
                    })
                },
            )?
            .collect::<duckdb::Result<_>>()
    })
}

/// The events in the window in order, and how many there are on all pages. With a pid: its own
/// and those of its children.
///
/// # Errors
/// If the trace cannot be read.
pub fn events(
    trace: &Trace,
    window: Window,
    pid: Option<i32>,
    kinds: Kinds,
    page: Page,
) -> Result<(Vec<Event>, i64), AnalysisError> {
    ask(trace, |c| event_rows(c, window, pid, kinds, page))
}

fn event_rows(
    c: &Connection,
    window: Window,
    pid: Option<i32>,
    kinds: Kinds,
    page: Page,
) -> duckdb::Result<(Vec<Event>, i64)> {
    let mut total = 0;
    let events = c
        .prepare(include_str!("fork_events.sql"))?
        .query_map(
            named_params! {
                "start_ns": window.start_ns,
                "end_ns": window.end_ns,
                "pid": pid,
                "kinds": kinds.names(),
                "limit": page.limit,
                "offset": page.offset,
            },
            |row| {
                total = row.get(8)?;
                Ok(Event {
                    ts_ns: row.get(0)?,
                    kind: row.get(1)?,
                    pid: row.get(2)?,
                    tid: row.get(3)?,
                    parent_pid: row.get(4)?,
                    name: row.get(5)?,
                    command_line: row.get(6)?,
                    exit_status: row.get(7)?,
                })
            },
        )?
        .collect::<duckdb::Result<_>>()?;
    Ok((events, total))
}

/// How many events of each kind lie in the window.
///
/// # Errors
/// If the trace cannot be read.
pub fn counts(trace: &Trace, window: Window, pid: Option<i32>) -> Result<Counts, AnalysisError> {
    ask(trace, |c| {
        c.query_row(
            include_str!("fork_counts.sql"),
            named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns, "pid": pid },
            |row| {
                Ok(Counts {
                    forks: row.get(0)?,
                    execs: row.get(1)?,
                    exits: row.get(2)?,
                    threads: row.get(3)?,
                    thread_exits: row.get(4)?,
                })
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::draw;

    // 100 +----------------------------------------
    // 200     +------x          400      +-----
    // 300      +-----x
    const JOB: &str = "
        process 100 python
        process 200 pt_data_worker parent=100 from=100 exit=0
        process 300 pt_data_worker parent=100 from=110 exit=137
        process 400 pt_data_worker parent=100 from=500
        thread 100 100: R700
        thread 100 101: @50 R10
        thread 200 200: R100
        thread 300 300: R100
        thread 400 400: R100";

    fn whole() -> Window {
        Window {
            start_ns: 0,
            end_ns: 700_000_000,
        }
    }

    #[test]
    fn lives_show_the_tree_from_fork_to_exit() {
        let lives = lives(&draw(JOB).open(), whole(), None).unwrap();
        let pids: Vec<i32> = lives.iter().map(|life| life.pid).collect();
        assert_eq!(pids, [100, 200, 300, 400]);
        assert_eq!((lives[0].forked_ns, lives[0].exit_ns), (None, None));
        assert_eq!(lives[0].threads_started, 1);
        assert_eq!(lives[2].parent_pid, Some(100));
        assert_eq!(lives[2].lifetime_ns(), Some(100_000_000));
        assert_eq!(lives[2].exit_status, Some(137));
        assert_eq!(lives[3].lifetime_ns(), None);
    }

    #[test]
    fn a_window_shows_who_lived_in_it() {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let window = Window {
            start_ns: 300_000_000,
            end_ns: 400_000_000,
        };
        assert_eq!(lives(&trace, window, None).unwrap().len(), 1);
        assert_eq!(counts(&trace, window, None).unwrap(), Counts::default());
    }

    #[test]
    fn threads_are_no_forks() {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let counts = counts(&trace, whole(), None).unwrap();
        assert_eq!((counts.forks, counts.threads, counts.exits), (3, 1, 2));
        let (without, total) =
            events(&trace, whole(), None, Kinds::Processes, Page::first(50)).unwrap();
        assert_eq!((without.len(), total), (6, 6));
        assert!(without.iter().all(|event| event.kind != "thread"));
        let (with, _) = events(&trace, whole(), None, Kinds::All, Page::first(50)).unwrap();
        assert_eq!(with.len(), 7);
        assert!(with.is_sorted_by_key(|event| event.ts_ns));
        let (lives, _) = events(&trace, whole(), None, Kinds::Lives, Page::first(50)).unwrap();
        assert_eq!(lives.len(), 5);
        assert!(lives.iter().all(|event| event.kind != "existing"));
    }

    #[test]
    fn events_come_in_pages_and_by_process() {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let page = Page {
            limit: 2,
            offset: 1,
        };
        let (rows, total) = events(&trace, whole(), Some(300), Kinds::Processes, page).unwrap();
        assert_eq!((rows.len(), total), (1, 2));
        let (rows, total) = events(&trace, whole(), Some(100), Kinds::Processes, page).unwrap();
        assert_eq!((rows.len(), total), (2, 6));
        assert_eq!((rows[0].kind.as_str(), rows[0].pid), ("fork", 200));
    }
}
