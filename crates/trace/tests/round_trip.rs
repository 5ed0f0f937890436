//! What is written comes back: from the growing folder, the catalog, a merged and a packed trace.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_trace::duckdb::Connection;
use ingero_trace::rows::{CpuTime, CudaCall, OffCpu};
use ingero_trace::{
    OpenError, Probe, SCHEMA_VERSION, Trace, TraceInfo, TraceWriter, WriteError, pack,
};
use std::fs;
use std::path::{Path, PathBuf};

fn info(duration_ns: i64) -> TraceInfo {
    TraceInfo {
        ts_ns: duration_ns,
        schema_version: SCHEMA_VERSION,
        trace_id: "t1".to_owned(),
        host: "h".to_owned(),
        kernel: "6.18".to_owned(),
        cpu_model: "cpu".to_owned(),
        cores_online: 4,
        cores_affinity: Some(2),
        affinity_cpus: Some("0-1".to_owned()),
        cgroup_quota_cores: None,
        cores_usable: 2,
        smt_active: Some(false),
        memory_bytes: 1 << 34,
        gpus: String::new(),
        driver_version: None,
        cuda_libraries: String::new(),
        command: "python train.py".to_owned(),
        target_kind: "command".to_owned(),
        target_pid: 7,
        start_utc_us: 1_700_000_000_000_000,
        duration_ns,
        ended: false,
        end_reason: None,
        exit_status: None,
        recorder_version: "0.1.0".to_owned(),
        recorder_cpu_ns: 5,
        probe_pair_cost_ns: Some(1_800),
        probes: vec![
            Probe {
                name: "sched_switch".to_owned(),
                attached: true,
                reason: None,
            },
            Probe {
                name: "libcudart.so:cudaMalloc".to_owned(),
                attached: false,
                reason: Some("no such symbol".to_owned()),
            },
        ],
    }
}

fn cpu_time(ts_ns: i64, run_ns: i64) -> CpuTime {
    CpuTime {
        ts_ns,
        pid: 7,
        name: "python".into(),
        run_ns,
        switches: 1,
    }
}

fn off_cpu(ts_ns: i64) -> OffCpu {
    OffCpu {
        ts_ns,
        pid: 7,
        tid: 8,
        cpu: 1,
        ran_ns: 10,
        blocked_ns: 20,
        wake_ns: 3,
        runq_ns: 4,
        idle_before: true,
        state: "sleeping".into(),
        waker_tid: Some(9),
        waker_pid: None,
        waker_context: Some("task".into()),
        taker_tid: Some(0),
        clipped: false,
        open: false,
        continued: false,
    }
}

fn sum(trace: &Trace) -> (i64, i64) {
    trace
        .query(|connection| {
            connection.query_row(
                "SELECT count(*), sum(run_ns)::BIGINT FROM cpu_time",
                [],
                |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.unwrap_or(0))),
            )
        })
        .unwrap()
}

/// Waits until the storing thread has stored what `flush` handed over.
fn stored(trace: &Trace, duration_ns: i64) {
    while trace.info().unwrap().duration_ns < duration_ns {
        std::thread::yield_now();
    }
}

struct Recorded {
    _folder: tempfile::TempDir,
    catalog: PathBuf,
}

/// A finished recording of three flushes.
fn recorded() -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("a[1] b,'c.duckdb");
    let mut writer = TraceWriter::create(&catalog).unwrap();
    for flush in 1..=3 {
        writer.push(cpu_time(flush * 100, flush));
        writer.push(off_cpu(flush));
        writer.flush(&info(flush)).unwrap();
    }
    let stats = writer.finish(&info(4)).unwrap();
    assert_eq!(stats.rows, 6);
    assert!(stats.bytes > 0);
    Recorded {
        _folder: folder,
        catalog,
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_trace_can_be_read_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("t.duckdb");
    let mut writer = TraceWriter::create(&catalog).unwrap();
    assert!(matches!(Trace::open(&catalog), Err(OpenError::Nothing(_))));
    writer.push(cpu_time(0, 5));
    writer.flush(&info(1)).unwrap();
    let trace = loop {
        match Trace::open(&catalog) {
            Ok(trace) => break trace,
            Err(OpenError::Nothing(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(sum(&trace), (1, 5));
    writer.push(cpu_time(100, 6));
    writer.flush(&info(2)).unwrap();
    stored(&trace, 2);
    assert_eq!(sum(&trace), (2, 11));
    writer.finish(&info(3)).unwrap();
    assert_eq!(sum(&trace), (2, 11));
    assert_eq!(trace.info().unwrap(), info(3));
}

#[test]
fn everything_comes_back_after_merging_and_packing() {
    let Recorded { _folder, catalog } = recorded();
    let events = catalog.with_extension("events");
    assert_eq!(
        files(&events.join("cpu_time")),
        ["00000000-00000003.parquet"]
    );
    let packed = catalog.with_file_name("packed.duckdb");
    assert!(pack(&catalog, &packed).unwrap().is_empty());
    for path in [&catalog, &events, &packed] {
        let trace = Trace::open(path).unwrap();
        assert_eq!(sum(&trace), (3, 6), "{}", path.display());
        assert_eq!(trace.info().unwrap(), info(4));
        assert!(trace.caveats().is_empty());
    }
    assert_eq!(
        files(catalog.parent().unwrap()).len(),
        3,
        "reading and packing leave nothing else behind"
    );
}

#[test]
fn the_catalog_serves_a_person_in_its_folder() {
    let Recorded { _folder, catalog } = recorded();
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(&format!(
            "SET file_search_path = '{}'; ATTACH '{}' AS t (READ_ONLY);",
            catalog.parent().unwrap().display(),
            catalog.display().to_string().replace('\'', "''")
        ))
        .unwrap();
    let rows: i64 = connection
        .query_row("SELECT count(*) FROM t.off_cpu", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 3);
}

#[test]
fn a_damaged_segment_is_set_aside_and_named() {
    let Recorded { _folder, catalog } = recorded();
    let table = catalog.with_extension("events").join("cpu_time");
    let whole = fs::read(table.join("00000000-00000003.parquet")).unwrap();
    fs::write(table.join("00000004.parquet"), &whole[..whole.len() - 20]).unwrap();
    // Whole at both ends, spoilt in the middle.
    let mut spoilt = whole.clone();
    let middle = whole.len() - 40;
    for byte in &mut spoilt[8..middle] {
        *byte = 0xff;
    }
    fs::write(table.join("00000005.parquet"), &spoilt).unwrap();
    let trace = Trace::open(&catalog).unwrap();
    assert_eq!(sum(&trace), (3, 6));
    let caveats = trace.caveats();
    assert_eq!(caveats.len(), 2, "{caveats:?}");
    assert!(
        caveats[0].contains("cpu_time/00000004.parquet"),
        "{caveats:?}"
    );
}

#[test]
fn a_table_whose_only_segment_is_damaged_is_empty() {
    let Recorded { _folder, catalog } = recorded();
    let table = catalog.with_extension("events").join("cpu_time");
    fs::write(table.join("00000000-00000003.parquet"), "PAR1").unwrap();
    let trace = Trace::open(&catalog).unwrap();
    assert_eq!(sum(&trace), (0, 0));
    assert_eq!(trace.caveats().len(), 1);
}

/// Rewrites the only full segment of a table with other columns.
fn rewrite(catalog: &Path, table: &str, columns: &str) {
    let segment = catalog
        .with_extension("events")
        .join(table)
        .join("00000000-00000003.parquet");
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.parquet");
    let replaced = folder.path().join("replaced.parquet");
    fs::copy(&segment, &plain).unwrap();
    Connection::open_in_memory()
        .and_then(|connection| {
            connection.execute_batch(&format!(
                "COPY (SELECT {columns} FROM '{}') TO '{}' (FORMAT parquet);",
                plain.display(),
                replaced.display()
            ))
        })
        .unwrap();
    fs::copy(replaced, segment).unwrap();
}

/// Reads as a reader does that needs every value.
fn runs(trace: &Trace) -> Vec<i64> {
    trace
        .query(|connection| {
            connection
                .prepare("SELECT ts_ns + run_ns + 1 FROM cpu_time")?
                .query_map([], |row| row.get(0))?
                .collect()
        })
        .unwrap()
}

#[test]
fn rows_that_cannot_be_are_set_aside_where_they_disturb() {
    for (columns, why) in [
        ("NULL::BIGINT AS run_ns", "must have a value has none"),
        ("9223372036854775807 AS run_ns", "out of range"),
        ("'much' AS run_ns", "it cannot be read"),
        ("'inf'::DOUBLE AS run_ns", "it cannot be read"),
    ] {
        let Recorded { _folder, catalog } = recorded();
        rewrite(&catalog, "cpu_time", &format!("* REPLACE ({columns})"));
        let trace = Trace::open(&catalog).unwrap();
        assert!(runs(&trace).is_empty(), "{columns}");
        let caveats = trace.caveats();
        assert!(
            caveats.len() == 1 && caveats[0].contains(why),
            "{columns}: {caveats:?}"
        );
    }
}

#[test]
fn a_column_that_came_later_is_unknown_in_an_older_trace() {
    let Recorded { _folder, catalog } = recorded();
    rewrite(&catalog, "off_cpu", "* EXCLUDE (waker_tid)");
    let unknown = |path: &Path| -> i64 {
        let sql = "SELECT count(*) FROM off_cpu WHERE waker_tid IS NULL";
        let trace = Trace::open(path).unwrap();
        trace
            .query(|connection| connection.query_row(sql, [], |row| row.get(0)))
            .unwrap()
    };
    assert_eq!(unknown(&catalog), 3);
    let packed = catalog.with_file_name("packed.duckdb");
    pack(&catalog, &packed).unwrap();
    Connection::open(&packed)
        .and_then(|packed| packed.execute_batch("ALTER TABLE off_cpu DROP COLUMN waker_tid"))
        .unwrap();
    assert_eq!(unknown(&packed), 3);
    // Where another segment is damaged, this one is not taken for it.
    rewrite(&catalog, "cpu_time", "* REPLACE ('much' AS run_ns)");
    let trace = Trace::open(&catalog).unwrap();
    assert!(runs(&trace).is_empty());
    assert_eq!(trace.caveats().len(), 1, "{:?}", trace.caveats());
    assert_eq!(unknown(&catalog), 3);
    // A column that must be there is another matter.
    rewrite(&catalog, "off_cpu", "* EXCLUDE (tid)");
    let trace = Trace::open(&catalog).unwrap();
    assert_eq!(
        trace
            .query(
                |c| c.query_row("SELECT count(*) FROM off_cpu", [], |row| row
                    .get::<_, i64>(0))
            )
            .unwrap(),
        0
    );
}

#[test]
fn what_is_no_file_is_set_aside_and_not_waited_for() {
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    let Recorded { _folder, catalog } = recorded();
    let table = catalog.with_extension("events").join("cpu_time");
    pipe(&table.join("00000004.parquet"));
    fs::create_dir(table.join("00000005.parquet")).unwrap();
    std::os::unix::fs::symlink("/nowhere", table.join("00000006.parquet")).unwrap();
    let trace = Trace::open(&catalog).unwrap();
    assert_eq!(sum(&trace), (3, 6));
    assert_eq!(trace.caveats().len(), 3, "{:?}", trace.caveats());
    let path = catalog.with_file_name("pipe.duckdb");
    pipe(&path);
    assert!(matches!(
        Trace::open(&path),
        Err(OpenError::NotADatabase(_))
    ));
}

#[test]
fn a_table_without_segments_is_named() {
    let Recorded { _folder, catalog } = recorded();
    let trace = Trace::open(&catalog).unwrap();
    assert_eq!(sum(&trace), (3, 6));
    assert!(trace.caveats().is_empty());
    let table = catalog.with_extension("events").join("cpu_time");
    fs::remove_file(table.join("00000000-00000003.parquet")).unwrap();
    assert_eq!(sum(&trace), (0, 0));
    let caveats = trace.caveats();
    assert!(
        caveats.len() == 1 && caveats[0].contains("cpu_time were removed"),
        "{caveats:?}"
    );
}

#[test]
fn an_interrupt_blames_no_segment() {
    let Recorded { _folder, catalog } = recorded();
    let trace = Trace::open(&catalog).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                trace.interrupt();
            }
        });
        for round in 0..200 {
            // Fails for a reason of its own or is interrupted, also while segments are checked.
            let failed = trace.query(|connection| {
                connection.query_row("SELECT error('no') FROM cpu_time", [], |_| Ok(()))
            });
            assert!(failed.is_err(), "{round}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(trace.caveats().is_empty(), "{:?}", trace.caveats());
    assert_eq!(sum(&trace), (3, 6));
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    for (column, value) in [("duration_ns", "-5"), ("schema_version", "0")] {
        let Recorded { _folder, catalog } = recorded();
        let packed = catalog.with_file_name("packed.duckdb");
        pack(&catalog, &packed).unwrap();
        Connection::open(&packed)
            .and_then(|c| c.execute_batch(&format!("UPDATE trace_info SET {column} = {value}")))
            .unwrap();
        let error = Trace::open(&packed).unwrap_err();
        assert!(
            matches!(&error, OpenError::NotATrace { why, .. } if why.contains(value)),
            "{error}"
        );
    }
}

#[test]
fn wrong_paths_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.duckdb");
    assert!(matches!(Trace::open(&path), Err(OpenError::Missing(_))));
    fs::write(&path, "").unwrap();
    assert!(matches!(Trace::open(&path), Err(OpenError::Empty(_))));
    fs::write(&path, [7; 5000]).unwrap();
    assert!(matches!(
        Trace::open(&path),
        Err(OpenError::NotADatabase(_))
    ));
    let mut random = vec![7; 5000];
    random[8..12].copy_from_slice(b"DUCK");
    fs::write(&path, random).unwrap();
    assert!(matches!(
        Trace::open(&path),
        Err(OpenError::Database { .. })
    ));
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        Trace::open(folder.path()),
        Err(OpenError::EmptyFolder(_))
    ));
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (i INTEGER);").unwrap();
    drop(other);
    assert!(matches!(
        Trace::open(&path),
        Err(OpenError::NotATrace { .. })
    ));
    assert_eq!(
        files(folder.path()),
        ["x.duckdb"],
        "opening creates nothing"
    );
}

#[test]
fn a_catalog_without_its_events_says_so() {
    let Recorded { _folder, catalog } = recorded();
    fs::remove_dir_all(catalog.with_extension("events")).unwrap();
    assert!(matches!(
        Trace::open(&catalog),
        Err(OpenError::NoEvents { .. })
    ));
}

#[test]
fn nothing_is_overwritten() {
    let Recorded { _folder, catalog } = recorded();
    assert!(matches!(
        TraceWriter::create(&catalog),
        Err(WriteError::Exists(_))
    ));
    assert!(pack(&catalog, &catalog).is_err());
    let missing = catalog.with_file_name("no/folder.duckdb");
    assert!(matches!(
        TraceWriter::create(&missing),
        Err(WriteError::Folder { .. })
    ));
    assert!(TraceWriter::create(&catalog.with_file_name("x.db")).is_err());
    assert_eq!(sum(&Trace::open(&catalog).unwrap()), (3, 6));
}

#[test]
fn a_packed_trace_with_views_for_tables_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.duckdb");
    let hostile = Connection::open(&path).unwrap();
    for (table, ddl) in ingero_trace::tables() {
        if table == "off_cpu" {
            hostile
                .execute_batch("CREATE VIEW off_cpu AS SELECT 1 AS ts_ns;")
                .unwrap();
        } else {
            hostile.execute_batch(ddl).unwrap();
        }
    }
    drop(hostile);
    let error = Trace::open(&path).unwrap_err();
    assert!(error.to_string().contains("no table off_cpu"), "{error}");
}

/// Each statement is refused on an opened trace and succeeds in a DuckDB that is not locked.
#[test]
fn an_opened_trace_reaches_nothing_else() {
    let Recorded { _folder, catalog } = recorded();
    let secret = catalog.with_file_name("secret.csv");
    fs::write(&secret, "a,b\n1,2\n").unwrap();
    let outside = catalog.with_file_name("outside.parquet");
    let other = catalog.with_file_name("other.duckdb");
    let statements = [
        format!("SELECT * FROM read_csv('{}')", secret.display()),
        format!("SELECT * FROM read_text('{}')", secret.display()),
        format!("COPY (SELECT 1) TO '{}'", outside.display()),
        format!("ATTACH '{}' AS other", other.display()),
        "SET threads = 1".to_owned(),
        "SET memory_limit = '2GB'".to_owned(),
    ];
    let packed = catalog.with_file_name("packed.duckdb");
    pack(&catalog, &packed).unwrap();
    for path in [&catalog, &packed] {
        let trace = Trace::open(path).unwrap();
        for statement in &statements {
            let refused = trace.query(|connection| connection.execute_batch(statement));
            assert!(refused.is_err(), "{statement}");
        }
        assert!(!outside.exists() && !other.exists());
    }
    let unlocked = Connection::open_in_memory().unwrap();
    for statement in &statements {
        unlocked
            .execute_batch(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// A launch-bound job makes over 100,000 calls a second: more rows than can be sorted in the memory
/// that the recorder allows itself.
#[test]
fn millions_of_rows_are_stored_in_bounded_memory() {
    const FLUSHES: i64 = 6;
    const ROWS: i64 = 450_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.duckdb");
    let mut writer = TraceWriter::create(&path).unwrap();
    for flush in 0..FLUSHES {
        for row in 0..ROWS {
            writer.push(CudaCall {
                ts_ns: (flush * ROWS + row) * 5_000,
                dur_ns: 4_000,
                pid: 7,
                tid: 7,
                layer: "runtime".into(),
                call: "cudaLaunchKernel".into(),
                bytes: None,
                direction: None,
                stream: Some(row),
                status: Some(0),
                nested: Some(1),
                open: false,
                continued: false,
            });
        }
        writer.flush(&info(flush)).unwrap();
    }
    writer.finish(&info(FLUSHES * ROWS * 5_000)).unwrap();
    let count: i64 = Trace::open(&path)
        .unwrap()
        .query(|c| c.query_row("SELECT count(*) FROM cuda_calls", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(count, FLUSHES * ROWS);
}
