//! From a live recording to the answers, by the two programs as a person calls them.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_testkit::{cudart, live_lock, needs_root_and_bpf};
use ingero_tests::{program, repository, run, stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOOLS: [&str; 7] = [
    "list_processes",
    "top_offcpu",
    "cuda_wait_latency",
    "correlate_window",
    "fork_timeline",
    "page_alloc_by_pid",
    "explain_bottleneck",
];

/// Starts recording a job with a loader worker into `trace`.
fn start_recording(trace: &Path, seconds: &str) -> Child {
    Command::new(program("ingero-capture"))
        .args(["record", "-o"])
        .arg(trace)
        .args(["--", "python3"])
        .arg(repository().join("tests/workloads/scenarios.py"))
        .args(["G2", "--seconds", seconds, "--cudart"])
        .arg(cudart::stand_in())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn call(trace: &Path, tool: &str) -> Value {
    let trace = trace.to_str().unwrap();
    let output = run("ingero-mcp", ["--db", trace, "call", tool]);
    assert!(output.status.success(), "{tool}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Length of the recording as far as it can be read, in milliseconds; `None` while it cannot be opened.
fn readable_ms(trace: &Path) -> Option<f64> {
    let trace = trace.to_str().unwrap();
    let output = run("ingero-mcp", ["--db", trace, "call", "list_processes"]);
    let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
    answer["window"]["end_ms"].as_f64()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asserts that every tool answers, and that it was the job that was recorded.
fn assert_answers(trace: &Path) {
    for tool in TOOLS {
        call(trace, tool);
    }
    let processes = call(trace, "list_processes").to_string();
    assert!(processes.contains("pt_data_worker"), "{processes}");
    let calls = call(trace, "cuda_wait_latency").to_string();
    assert!(calls.contains("cudaLaunchKernel"), "{calls}");
    let pages = call(trace, "page_alloc_by_pid");
    assert!(pages["total_mb"].as_f64() > Some(1.0), "{pages}");
    // The job waits for its one worker, which computes.
    let moment = call(trace, "correlate_window");
    let chain = moment["chain"].to_string();
    assert!(chain.contains("loader_worker"), "{moment}");
}

#[test]
fn every_tool_answers_from_a_recording_while_and_after_it_grows() {
    if !needs_root_and_bpf("every_tool_answers_from_a_recording_while_and_after_it_grows") {
        return;
    }
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.duckdb");
    let mut recorder = start_recording(&trace, "8");
    wait_until("three seconds are readable", || {
        readable_ms(&trace).is_some_and(|ms| ms > 3000.0)
    });
    assert!(recorder.try_wait().unwrap().is_none(), "it ended too early");
    assert_answers(&trace);
    let output = recorder.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert_answers(&trace);

    // The last line that the recorder prints is the command that asks for the diagnosis.
    let command = said.lines().last().unwrap().trim();
    let arguments = command.strip_prefix("ingero-mcp ").expect(command);
    let output = run("ingero-mcp", arguments.split(' '));
    assert!(output.status.success(), "{command}: {}", stderr(&output));
    assert!(!stdout(&output).is_empty());
}

#[test]
fn a_recording_survives_the_kill_of_its_recorder() {
    if !needs_root_and_bpf("a_recording_survives_the_kill_of_its_recorder") {
        return;
    }
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.duckdb");
    let mut recorder = start_recording(&trace, "6");
    wait_until("three seconds are readable", || {
        readable_ms(&trace).is_some_and(|ms| ms > 3000.0)
    });
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(readable_ms(&trace).unwrap() > 3000.0);
    assert_answers(&trace);
}

/// A segment cut short, as a full disk or a bad copy leaves it: the rest answers, with a caveat.
#[test]
fn a_segment_cut_short_is_set_aside_and_named() {
    let drawn = ingero_testkit::trace::draw(
        "process 100 python
         thread 100 100: (S20<timer R1 launch(0.01) sync(5))*50",
    );
    let folder = drawn.path().with_file_name("trace.events/off_cpu");
    let segment = largest_file(&folder);
    let length = segment.metadata().unwrap().len();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    file.set_len(length / 2).unwrap();

    let answer = call(&drawn.path(), "list_processes");
    assert!(answer.to_string().contains("python"), "{answer}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    let caveats = answer["caveats"].to_string();
    assert!(caveats.contains(name), "{caveats}");
}

fn largest_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path());
    files.max_by_key(|f| f.metadata().unwrap().len()).unwrap()
}
