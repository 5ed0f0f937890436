//! Runs the recorder and reads what it wrote.
#![allow(dead_code)] // each test program uses a part

pub(crate) mod cuda;

use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Row};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says which workload the test program is to be, when it runs itself as the recorded command.
pub(crate) const WORKLOAD: &str = "INGERO_TEST_WORKLOAD";

/// A folder for one trace.
pub(crate) struct Recording {
    folder: TempDir,
}

impl Recording {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("t.duckdb")
    }

    /// `ingero-capture record -o ... ARGUMENTS`.
    pub(crate) fn command<T: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = T>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-capture"));
        command
            .arg("record")
            .arg("-o")
            .arg(self.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Records this test program as `workload`.
    pub(crate) fn workload(&self, options: &[&str], workload: &str) -> Command {
        let mut command = self.command(options);
        command.arg("--").arg(std::env::current_exe().unwrap());
        command
            .args(["--exact", "workload", "--nocapture"])
            .env(WORKLOAD, workload);
        command
    }

    /// The rows of a query on the trace.
    pub(crate) fn query<T>(
        &self,
        sql: &str,
        read: impl Fn(&Row<'_>) -> duckdb::Result<T>,
    ) -> Vec<T> {
        let trace = Trace::open(&self.path()).unwrap();
        trace
            .query(|connection| connection.prepare(sql)?.query_map([], &read)?.collect())
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The one number that a query gives.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.query(sql, |row| row.get(0)).remove(0)
    }

    pub(crate) fn info(&self) -> ingero_trace::TraceInfo {
        Trace::open(&self.path()).unwrap().info().unwrap()
    }

    /// Whether a trace can be opened and tells at least so much.
    pub(crate) fn lasts(&self, duration: Duration) -> bool {
        self.path().exists()
            && Trace::open(&self.path()).is_ok_and(|trace| {
                trace
                    .info()
                    .is_ok_and(|info| info.duration_ns >= duration.as_nanos() as i64)
            })
    }

    /// Nothing was created.
    pub(crate) fn is_empty(&self) -> bool {
        std::fs::read_dir(self.folder()).unwrap().next().is_none()
    }
}

/// Copies a file by a process of its own: while this one had it open for writing, a test beside could
/// fork, and whoever holds a program open for writing keeps everybody from running it.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp {from:?} {to:?}: {status}");
}

/// A copy of the recorder in a folder that is opened to everybody: the build may lie in one that is closed.
pub(crate) fn program_for_everybody(folder: &Path) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_ingero-capture"));
    let program = folder.join("ingero-capture");
    copy(built, &program);
    let library = built.with_file_name("libduckdb.so");
    if library.exists() {
        copy(&library, &folder.join("libduckdb.so"));
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The output of a program, which must end with `status`.
pub(crate) fn expect_status(command: &mut Command, status: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{command:?}: {output:?}"
    );
    output
}

/// A child that does not outlive its test.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
