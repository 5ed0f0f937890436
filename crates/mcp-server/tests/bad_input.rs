//! What does not fit is refused with a message that helps, and nothing is created or changed.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod common;

use common::{Client, ERAS, JOB, run};
use ingero_testkit::trace::draw;
use serde_json::json;
use std::fs;
use std::path::Path;

/// Names and contents of everything in a folder.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.display().to_string(), Vec::new()));
            found.extend(contents(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Every way to open `path` ends with `status` and a message that holds `says`.
fn refused(path: &Path, status: i32, says: &str) {
    let path = path.to_str().unwrap();
    for command in [
        &["--db", path][..],
        &["--db", path, "explain"],
        &["--db", path, "call", "top_offcpu"],
    ] {
        let output = run(command);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{command:?}: {stderr}");
        assert!(stderr.contains(says), "{command:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{command:?}");
    }
}

#[test]
fn what_is_no_trace_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let empty = file("empty.duckdb", b"");
    let random = file("random.duckdb", &[0x5a; 4096]);
    let forged = file(
        "forged.duckdb",
        &[&[1u8; 8][..], b"DUCK", &[7u8; 8192]].concat(),
    );
    let nothing = folder.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    let other = folder.path().join("other.duckdb");
    ingero_trace::duckdb::Connection::open(&other)
        .and_then(|connection| connection.execute_batch("CREATE TABLE t (x INTEGER)"))
        .unwrap();
    let before = contents(folder.path());

    refused(&folder.path().join("missing.duckdb"), 66, "does not exist");
    refused(&empty, 65, "is empty");
    refused(&random, 65, "no DuckDB database");
    refused(&forged, 65, "DuckDB cannot open");
    refused(&nothing, 65, "folder without a trace");
    refused(&other, 65, "is a database but no trace");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn events_that_cannot_be_read_are_not_called_missing() {
    let drawn = draw(JOB);
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("t.duckdb");
    fs::copy(drawn.path(), &catalog).unwrap();
    refused(&catalog, 65, "is missing");
    // Instead of a folder without permissions, which root may read all the same.
    fs::write(folder.path().join("t.events"), b"").unwrap();
    refused(&catalog, 66, "cannot read");
}

#[test]
fn asking_changes_nothing() {
    let drawn = draw(JOB);
    let folder = drawn.path().parent().unwrap().to_owned();
    let before = contents(&folder);
    for command in [
        &["explain"][..],
        &["call", "list_processes"],
        &["call", "top_offcpu"],
    ] {
        let path = drawn.path();
        let output = run(&[&["--db", path.to_str().unwrap()], command].concat());
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(contents(&folder), before);
}

#[test]
fn wrong_usage_ends_with_status_2() {
    let drawn = draw(JOB);
    let db = drawn.path();
    let db = db.to_str().unwrap();
    for (command, says) in [
        (&[][..], "--db trace.duckdb"),
        (&["explain"], "--db trace.duckdb"),
        (&["--db", db, "call", "no_such_tool"], "list_processes"),
        (&["--db", db, "call", "top_offcpu", "{limit: 5}"], "no JSON"),
        (&["--db", db, "frobnicate"], "frobnicate"),
    ] {
        let output = run(command);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(stderr.contains(says), "{command:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{command:?}");
    }
}

#[test]
fn a_tool_that_refuses_ends_with_status_1_and_says_why() {
    let drawn = draw(JOB);
    let db = drawn.path();
    let output = run(&[
        "--db",
        db.to_str().unwrap(),
        "call",
        "top_offcpu",
        r#"{"pid": 7}"#,
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("pid=7") && stderr.contains("100, 200"),
        "{stderr}"
    );
}

#[test]
fn arguments_that_do_not_fit_are_named_with_what_would() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        for (arguments, says) in [
            (
                json!({"start_ms": 99_999}),
                &["start_ms=99999", "from 0 to 1251", "e.g. start_ms=0"][..],
            ),
            (
                json!({"start_ms": 500, "end_ms": 400}),
                &["start_ms=500", "end_ms must be greater", "e.g."],
            ),
            (json!({"start_ms": -1}), &["start_ms=-1", "from 0 to 1251"]),
            (
                json!({"pid": 7}),
                &["pid=7", "100, 200, 300, 400", "e.g. pid=100"],
            ),
            (json!({"pid": 0}), &["pid=0", "from 1 to"]),
            (json!({"limit": 0}), &["limit=0", "from 1 to 200"]),
            (json!({"limit": 5.5}), &["limit=5.5", "whole number"]),
            (
                json!({"limit": "many"}),
                &["limit=\"many\"", "no number", "top_offcpu"],
            ),
            (json!({"by": "core"}), &["core", "process", "thread"]),
            (json!({"windw": 5}), &["windw", "start_ms", "end_ms"]),
            (json!({"cursor": "abc"}), &["cursor=\"abc\"", "next_cursor"]),
            (
                json!({"cursor": "500.1250000000"}),
                &["next_cursor", "same tool"],
            ),
        ] {
            let why = client.refusal("top_offcpu", arguments.clone());
            for part in says {
                assert!(why.contains(part), "{arguments}: {why}");
            }
        }
    }
}

#[test]
fn what_would_fit_is_said_however_long_the_argument_is() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    let long = "x".repeat(100_000);
    for (arguments, says) in [
        (json!({"by": long}), "`process` or `thread`"),
        (json!({"pid": long}), "is no number"),
        (json!({long: 5}), "`start_ms`, `end_ms`"),
    ] {
        let why = client.refusal("top_offcpu", arguments);
        assert!(why.contains("xxx") && why.len() < 1_000, "{why}");
        for part in [says, "Arguments that work for top_offcpu: {\"pid\""] {
            assert!(why.contains(part), "{why}");
        }
    }
}

#[test]
fn a_window_to_look_at_is_chosen_in_one_way_only() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        for (arguments, says) in [
            (json!({"nth": 2}), &["nth=2", "worst=\"wait\""][..]),
            (
                json!({"start_ms": 0, "end_ms": 100, "nth": 2}),
                &["nth=2", "worst=\"gap\""],
            ),
            (
                json!({"worst": "gap", "nth": 500}),
                &["nth=500 is more than there are", "there are 47"],
            ),
            (
                json!({"worst": "wait", "start_ms": 0, "end_ms": 20}),
                &["worst=wait was not found", "thread 100", "worst=gap"],
            ),
            (
                json!({"worst": "gap", "nth": 0}),
                &["nth=0", "from 1 to 1000"],
            ),
            (json!({"worst": "longest"}), &["longest", "wait", "gap"]),
            (
                json!({"worst": "gap", "pid": 200}),
                &["pid=200 does not feed"],
            ),
            (json!({"limit": 5}), &["limit", "start_ms"]),
        ] {
            let why = client.refusal("correlate_window", arguments.clone());
            for part in says {
                assert!(why.contains(part), "{arguments}: {why}");
            }
        }
    }
    let without_cuda = draw("process 100 python\nthread 100 100: R50");
    let mut client = Client::start(&without_cuda.path(), ERAS[0]);
    let why = client.refusal("correlate_window", json!({}));
    assert!(why.contains("give start_ms and end_ms"), "{why}");
}

#[test]
fn a_cursor_goes_on_with_its_own_list_only() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    let first = client.structured("list_processes", json!({"limit": 1}));
    let cursor = first["next_cursor"].as_str().unwrap();
    // Another limit is another length of the pages of the same list.
    client.structured("list_processes", json!({"limit": 2, "cursor": cursor}));
    let edited = cursor.replacen('1', "2", 1);
    for (tool, arguments) in [
        ("top_offcpu", json!({"limit": 1, "cursor": cursor})),
        ("list_processes", json!({"start_ms": 100, "cursor": cursor})),
        ("list_processes", json!({"cursor": edited})),
    ] {
        let why = client.refusal(tool, arguments.clone());
        assert!(why.contains("same tool"), "{tool} {arguments}: {why}");
    }
}

#[test]
fn only_a_process_that_feeds_a_gpu_is_diagnosed() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    client.structured("explain_bottleneck", json!({"pid": 100}));
    let why = client.refusal("explain_bottleneck", json!({"pid": 200}));
    assert!(
        why.contains("pid=200 does not feed a GPU: 100 does"),
        "{why}"
    );
}

#[test]
fn a_finding_that_is_not_there_is_refused_with_those_that_are() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    let why = client.refusal("explain_bottleneck", json!({"finding": "DISK"}));
    assert!(why.contains("finding=DISK is not found"), "{why}");
}

#[test]
fn numbers_may_be_texts_and_whole_numbers_may_have_a_fraction_of_zero() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let plain = json!({"start_ms": 100, "end_ms": 900, "pid": 100, "limit": 5});
        let odd = json!({"start_ms": "100", "end_ms": 900.0, "pid": 100.0, "limit": "5"});
        let numbers = json!({"worst": "gap", "nth": 2, "start_ms": 100});
        let texts = json!({"worst": "gap", "nth": "2", "start_ms": "100.0"});
        assert_eq!(
            client.structured("correlate_window", numbers),
            client.structured("correlate_window", texts)
        );
        for tool in [
            "list_processes",
            "top_offcpu",
            "cuda_wait_latency",
            "fork_timeline",
            "page_alloc_by_pid",
        ] {
            assert_eq!(
                client.structured(tool, plain.clone()),
                client.structured(tool, odd.clone())
            );
        }
    }
}

#[test]
fn a_moment_without_work_is_not_called_idle() {
    // The thread computes from 95 ms on.
    let drawn = draw(
        "process 100 python
         thread 100 100: malloc(1) (R20 h2d(1,4000000) launch(1) sync(R4 Q2 R4))*3 R900",
    );
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    for (end_ms, verdict) in [(201, "INSUFFICIENT"), (900, "IDLE")] {
        let window = json!({"start_ms": 200, "end_ms": end_ms});
        let answer = client.structured("explain_bottleneck", window);
        assert_eq!(answer["verdict"]["code"], verdict, "{answer}");
    }
}

#[test]
fn a_window_that_reaches_beyond_the_end_ends_with_the_recording() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), ERAS[0]);
    let answer = client.structured("list_processes", json!({"end_ms": 99_999}));
    assert_eq!(answer["window"]["end_ms"], 1251.0);
}

#[test]
fn pack_makes_a_file_that_answers_the_same() {
    let drawn = draw(JOB);
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed.duckdb");
    let (from, to) = (drawn.path(), packed.to_str().unwrap().to_owned());
    let from = from.to_str().unwrap();
    let pack = || run(&["pack", from, "-o", &to]);
    assert!(pack().status.success());
    let again = pack();
    assert_eq!(again.status.code(), Some(1));
    assert!(
        String::from_utf8(again.stderr)
            .unwrap()
            .contains("exists already")
    );
    for tool in [
        "list_processes",
        "top_offcpu",
        "cuda_wait_latency",
        "correlate_window",
        "fork_timeline",
        "page_alloc_by_pid",
    ] {
        assert_eq!(
            common::call(&packed, tool, json!({})),
            common::call(&drawn.path(), tool, json!({})),
            "{tool}"
        );
    }
}
