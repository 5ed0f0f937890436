//! What the tools answer, through the shell.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod common;

use common::{Client, Era, JOB, call, cell, run};
use ingero_testkit::trace::{draw, info};
use ingero_trace::TraceWriter;
use ingero_trace::rows::ProcessEvent;
use serde_json::{Value, json};

#[test]
fn list_processes_shows_roles_and_cores() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "list_processes", json!({}));
    let table = &answer["processes"];
    let roles: Vec<(&Value, &Value)> = (0..4)
        .map(|row| (cell(table, row, "pid"), cell(table, row, "role")))
        .collect();
    assert_eq!(roles[0], (&json!(100), &json!("feeder")));
    assert_eq!(roles[3], (&json!(400), &json!("other")));
    assert_eq!(
        (roles[1].1, roles[2].1),
        (&json!("loader_worker"), &json!("loader_worker"))
    );
    assert_eq!(answer["host"]["cores_usable"], 4);
    assert_eq!(answer["host"]["cores_usable_from"], "affinity mask");
    assert_eq!(cell(table, 0, "pages_mb"), 0.819);
    // 200 comes after 300, which computes a little longer.
    let worker = (0..4).find(|row| cell(table, *row, "pid") == 200).unwrap();
    assert_eq!(cell(table, worker, "read_mb"), 8);
    assert_eq!(cell(table, worker, "storage_read_mb"), 0);
    assert_eq!(cell(table, 3, "read_mb"), &Value::Null);
    assert_eq!(
        (&answer["total_rows"], &answer["truncated"]),
        (&json!(4), &json!(false))
    );
}

#[test]
fn top_offcpu_splits_by_reason() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "top_offcpu", json!({"pid": 100}));
    let table = &answer["waits"];
    assert_eq!(cell(table, 0, "tid"), 100);
    assert_eq!(cell(table, 0, "waits"), 100);
    assert_eq!(cell(table, 0, "sleeping_ms"), 1000);
    assert_eq!(cell(table, 0, "waiting_for_cpu_ms"), 75);
    let woken_by = cell(table, 0, "woken_by").as_str().unwrap();
    assert!(woken_by.ends_with(", 50%"), "{woken_by}");
}

#[test]
fn cuda_wait_latency_shows_calls_and_gaps() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "cuda_wait_latency", json!({}));
    let calls = &answer["calls"];
    assert_eq!(cell(calls, 0, "call"), "cudaStreamSynchronize");
    assert_eq!(cell(calls, 0, "calls"), 50);
    assert_eq!(cell(calls, 0, "total_ms"), 75);
    assert_eq!(cell(calls, 0, "total_on_cpu_ms"), 50);
    assert_eq!(cell(calls, 1, "gb_per_s"), 4);
    assert_eq!(answer["gaps"]["count"], 49);
    assert_eq!(cell(&answer["gaps"]["longest"], 0, "dur_ms"), 22);
}

#[test]
fn page_alloc_by_pid_shows_who_allocated_most_and_when() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "page_alloc_by_pid", json!({}));
    let table = &answer["processes"];
    assert_eq!(
        (cell(table, 0, "pid"), cell(table, 0, "role")),
        (&json!(200), &json!("loader_worker"))
    );
    assert_eq!(cell(table, 0, "allocations"), 2_000);
    assert_eq!(cell(table, 0, "mb"), 12.288);
    assert_eq!(cell(table, 0, "peak_mb_in_1_s"), 12.288);
    assert_eq!(cell(table, 0, "peak_at_ms"), 100);
    assert_eq!(cell(table, 0, "last_ms"), 490);
    assert_eq!(cell(table, 1, "mb"), 0.819);
    assert_eq!(answer["total_mb"], 13.107);
    assert_eq!(answer["total_rows"], 2);
    assert_eq!(answer["caveats"], json!([]));
    let part = json!({"pid": 200, "start_ms": 100, "end_ms": 305});
    let answer = call(&drawn.path(), "page_alloc_by_pid", part);
    // The bucket from 300 to 310 ms counts in half.
    assert_eq!(cell(&answer["processes"], 0, "allocations"), 1_025);
    assert!(answer["caveats"][0].as_str().unwrap().contains("10 ms"));
}

#[test]
fn pages_that_were_not_recorded_are_no_zero() {
    let drawn = draw("process 100 python\nthread 100 100: R50");
    let answer = call(&drawn.path(), "page_alloc_by_pid", json!({}));
    assert!(answer.get("total_mb").is_none(), "{answer}");
    for tool in ["page_alloc_by_pid", "list_processes"] {
        let answer = call(&drawn.path(), tool, json!({}));
        let caveats = answer["caveats"].to_string();
        assert!(
            caveats.contains("page allocations were not recorded"),
            "{tool} {caveats}"
        );
    }
    let processes = call(&drawn.path(), "list_processes", json!({}));
    assert_eq!(cell(&processes["processes"], 0, "pages_mb"), &Value::Null);
}

#[test]
fn fork_timeline_shows_lives_generations_and_events() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "fork_timeline", json!({}));
    let generations = &answer["generations"];
    assert_eq!(cell(generations, 0, "workers"), 2);
    assert_eq!(cell(generations, 0, "start_ms"), 10);
    assert_eq!(cell(generations, 0, "forking_ms"), 5);
    assert_eq!(cell(generations, 0, "handover_after_ms"), 11);
    assert_eq!(cell(generations, 0, "start_cost_ms"), 13);
    assert_eq!(cell(generations, 0, "end"), "alive");
    let of_worker = call(&drawn.path(), "fork_timeline", json!({"pid": 400}));
    assert_eq!(of_worker["generations_total"], 0);
    assert_eq!(answer["counts"]["forks"], 3);
    assert_eq!(cell(&answer["processes"], 3, "exit_status"), 1);
    assert_eq!(cell(&answer["processes"], 3, "lifetime_ms"), 5);
    assert!(answer.get("events").is_none());
    let answer = call(&drawn.path(), "fork_timeline", json!({"show": "events"}));
    assert_eq!(cell(&answer["events"], 4, "kind"), "exit");
    assert!(answer.get("processes").is_none());
}

#[test]
fn correlate_window_follows_the_wait_in_a_gap() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "correlate_window", json!({}));
    // The first 25 gaps end with 200 handing over, the others with 300; all are 22 ms long.
    let chosen = answer["chosen"].as_str().unwrap();
    assert!(
        chosen.starts_with("the longest of 47 gaps in which process 100 handed the GPU nothing, from 76 (after the first steps"),
        "{chosen}"
    );
    assert!(chosen.contains("after cudaStreamSynchronize, before cudaMemcpyAsync; "));
    assert_eq!(answer["window"], json!({"start_ms": 76.0, "end_ms": 98.0}));
    assert_eq!(answer["feeder"]["tid"], 100);
    let chain = &answer["chain"];
    assert_eq!(
        (cell(chain, 0, "ms"), cell(chain, 0, "sleeping_ms")),
        (&json!(21), &json!(20))
    );
    assert_eq!(cell(chain, 0, "woken_by"), "thread 200");
    assert_eq!(
        (cell(chain, 1, "tid"), cell(chain, 1, "ms")),
        (&json!(200), &json!(20))
    );
    assert_eq!(cell(chain, 1, "role"), "loader_worker");
    assert_eq!(answer["processes_total"], 3);
    assert_eq!(cell(&answer["processes"], 0, "pid"), 100);
    assert_eq!(answer["events_total"], 0);
    assert_eq!(answer["cpus"]["usable"], 4);
    assert_shares_are_one(&answer["budget"]);
}

#[test]
fn correlate_window_shows_a_window_and_the_worst_wait_in_it() {
    let drawn = draw(JOB);
    let window = json!({"start_ms": 9, "end_ms": 40});
    let answer = call(&drawn.path(), "correlate_window", window);
    assert_eq!(answer["chosen"], "the window that was asked for");
    assert_eq!(cell(&answer["events"], 0, "kind"), "fork");
    assert_eq!(answer["events_total"], 4);
    assert_shares_are_one(&answer["budget"]);
    let worst = json!({"start_ms": 500, "end_ms": 1000, "worst": "wait", "nth": 2});
    let answer = call(&drawn.path(), "correlate_window", worst);
    let chosen = answer["chosen"].as_str().unwrap();
    assert!(
        chosen.starts_with("number 2 by length of 21 CUDA calls"),
        "{chosen}"
    );
    assert!(chosen.ends_with("cudaStreamSynchronize"), "{chosen}");
    assert_eq!(cell(&answer["budget"], 0, "part"), "gpu_wait");
    // Numbers that other tools name are accepted unchanged.
    let gaps = call(&drawn.path(), "cuda_wait_latency", json!({}));
    let longest = &gaps["gaps"]["longest"];
    let start = cell(longest, 0, "start_ms").as_f64().unwrap();
    let end = start + cell(longest, 0, "dur_ms").as_f64().unwrap();
    let again = json!({"start_ms": start, "end_ms": end});
    call(&drawn.path(), "correlate_window", again);
}

#[test]
fn correlate_window_works_without_a_feeder() {
    let drawn = draw("process 100 python\nthread 100 100: R50 S50<timer R100");
    let window = json!({"start_ms": 20, "end_ms": 120});
    let answer = call(&drawn.path(), "correlate_window", window);
    assert!(answer.get("budget").is_none(), "{answer}");
    assert_eq!(cell(&answer["processes"], 0, "cpu_ms"), 50);
    assert_eq!(cell(&answer["processes"], 0, "sleeping_ms"), 50);
}

/// Asserts that a budget divides its window without remainder.
fn assert_shares_are_one(budget: &Value) {
    let rows = budget["rows"].as_array().unwrap().len();
    let shares = (0..rows).map(|row| cell(budget, row, "share").as_f64().unwrap());
    let sum: f64 = shares.sum();
    // Each is rounded to a tenth of a percent.
    assert!((sum - 1.0).abs() < 5e-3, "{budget}");
}

#[test]
fn explain_bottleneck_and_explain_say_the_same() {
    let drawn = draw(JOB);
    let answer = call(&drawn.path(), "explain_bottleneck", json!({}));
    let code = answer["verdict"]["code"].as_str().unwrap();
    let shares: f64 = answer["budget"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["share"].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-3, "{answer}");
    let page = run(&["--db", drawn.path().to_str().unwrap(), "explain"]);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.starts_with(code), "{page}");
}

#[test]
fn one_finding_is_shown_whole_and_the_others_are_named() {
    let drawn = draw(
        "host online=4
         process 100 python
         process 200 pt_data_worker parent=100
         thread 100 100: (S20<200 R0.1 h2d(10,64000000) launch(0.01) d2h(2))*50
         thread 200 200: (R32 S0.1<100)*50",
    );
    let answer = call(&drawn.path(), "explain_bottleneck", json!({}));
    let whole = |answer: &Value| -> Vec<(String, bool)> {
        let findings = answer["findings"].as_array().unwrap().iter();
        findings
            .map(|f| {
                (
                    f["code"].as_str().unwrap().to_owned(),
                    f["ruled_out"] != json!([]),
                )
            })
            .collect()
    };
    let found = |loader, copies| {
        vec![
            ("LOADER_CPU_BOUND".to_owned(), loader),
            ("H2D_PAGEABLE".to_owned(), copies),
        ]
    };
    assert_eq!(whole(&answer), found(true, false));
    assert!(answer["next"][0].as_str().unwrap().contains("H2D_PAGEABLE"));
    let other = json!({"finding": "h2d_pageable"});
    let answer = call(&drawn.path(), "explain_bottleneck", other);
    assert_eq!(whole(&answer), found(false, true));
}

#[test]
fn pages_cover_a_list_without_holes() {
    let drawn = draw(JOB);
    for (tool, list) in [
        ("list_processes", "processes"),
        ("fork_timeline", "processes"),
    ] {
        let whole = call(&drawn.path(), tool, json!({}));
        let mut rows = Vec::new();
        let mut arguments = json!({"limit": 3});
        loop {
            let page = call(&drawn.path(), tool, arguments.clone());
            rows.extend(page[list]["rows"].as_array().unwrap().clone());
            assert_eq!(page["total_rows"], 4);
            match page.get("next_cursor") {
                Some(cursor) => {
                    assert_eq!(page["truncated"], true);
                    arguments["cursor"] = cursor.clone();
                }
                None => break,
            }
        }
        assert_eq!(Value::from(rows), whole[list]["rows"]);
    }
}

#[test]
fn the_same_question_gets_the_same_answer_from_shell_and_server() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), Era::Stateless);
    for tool in [
        "list_processes",
        "top_offcpu",
        "cuda_wait_latency",
        "correlate_window",
        "fork_timeline",
        "page_alloc_by_pid",
    ] {
        let served = client.structured(tool, json!({}));
        assert_eq!(served, call(&drawn.path(), tool, json!({})), "{tool}");
        assert_eq!(served, client.structured(tool, json!({})), "{tool}");
    }
}

#[test]
fn text_from_the_trace_is_cleaned_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.duckdb");
    let mut writer = TraceWriter::create(&path).unwrap();
    let nasty = format!("evil\u{202e}\u{1b}[2J\u{200b}{}", "x".repeat(5_000));
    writer.push(ProcessEvent {
        ts_ns: 0,
        kind: "exec".into(),
        pid: 100,
        tid: 100,
        parent_pid: Some(1),
        name: nasty.clone().into(),
        command_line: Some(nasty),
        exit_status: None,
        cgroup: None,
    });
    writer.finish(&info(1_000_000_000)).unwrap();
    for (tool, arguments) in [
        ("list_processes", json!({})),
        ("fork_timeline", json!({"show": "events"})),
    ] {
        let text = call(&path, tool, arguments).to_string();
        assert!(text.contains("evil[2Jxxx"), "{text}");
        assert!(!text.contains(['\u{202e}', '\u{1b}', '\u{200b}']), "{text}");
        assert!(text.len() < 3_000, "{}", text.len());
    }
}

#[test]
fn a_growing_recording_can_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.duckdb");
    let mut writer = TraceWriter::create(&path).unwrap();
    let mut info = info(1_000_000_000);
    info.ended = false;
    let fork = |pid: i32| ProcessEvent {
        ts_ns: i64::from(pid) * 1_000_000,
        kind: "fork".into(),
        pid,
        tid: pid,
        parent_pid: Some(1),
        name: "python".into(),
        command_line: None,
        exit_status: None,
        cgroup: None,
    };
    writer.push(fork(100));
    writer.flush(&info).unwrap();
    // The flush is stored by a thread of the writer: poll for it.
    let mut client = loop {
        let described = run(&["--db", path.to_str().unwrap(), "call", "fork_timeline"]);
        if described.status.success() {
            break Client::start(&path, Era::Stateless);
        }
        std::thread::yield_now();
    };
    let first = client.structured("fork_timeline", json!({}));
    assert_eq!(first["total_rows"], 1);
    assert!(
        first["caveats"].to_string().contains("still running"),
        "{first}"
    );
    writer.push(fork(200));
    info.duration_ns = 2_000_000_000;
    info.ts_ns = info.duration_ns;
    info.ended = true;
    writer.finish(&info).unwrap();
    let second = client.structured("fork_timeline", json!({}));
    assert_eq!(second["total_rows"], 2);
    assert_eq!(second["window"]["end_ms"], 2000.0);
    assert_eq!(second["caveats"], json!([]));
}
