//! The server through the official Python client, in both protocol eras.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_testkit::skip::skip;
use ingero_testkit::trace::draw;
use ingero_tests::{program, repository, stderr};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that `.ci/run` installs.
const SDK: &str = "2.3.0";

const JOB: &str = "
    host online=4 usable=4
    process 100 python
    thread 100 100: (S20<200 R1 h2d(0.1,65536) launch(0.01) sync(5))*50
    process 200 pt_data_worker parent=100 from=0
    thread 200 200: (R20 S6<100)*50";

/// The Python that has the client, or why there is none.
fn python_with_sdk() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))
        .ok_or("neither HOME nor XDG_CACHE_HOME is set")?;
    let environment = cache.join(format!("ingero/python-mcp-{SDK}"));
    let python = environment.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    let environment = environment.display();
    Err(format!(
        "needs the Python client: python3 -m venv {environment} && {environment}/bin/pip install mcp=={SDK}"
    ))
}

/// What the client got in one mode: the protocol version and the answers.
fn ask(python: &Path, mode: &str, trace: &Path) -> (String, Value) {
    let output = Command::new(python)
        .arg(repository().join("tests/tests/python_sdk.py"))
        .arg(mode)
        .arg(program("ingero-mcp"))
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{mode}: {}", stderr(&output));
    let mut said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let protocol = said["protocol"].as_str().unwrap().to_owned();
    (protocol, said["answers"].take())
}

#[test]
fn the_python_client_gets_the_same_answers_in_both_eras() {
    let test = "the_python_client_gets_the_same_answers_in_both_eras";
    let python = match python_with_sdk() {
        Ok(python) => python,
        Err(reason) => return skip(test, &reason),
    };
    let trace = draw(JOB);
    let (protocol, answers) = ask(&python, "auto", &trace.path());
    assert_eq!(protocol, "2026-07-28");
    let (protocol, with_handshake) = ask(&python, "legacy", &trace.path());
    assert_eq!(protocol, "2025-11-25");
    assert_eq!(answers, with_handshake);
    assert!(
        answers
            .as_object()
            .unwrap()
            .contains_key("explain_bottleneck")
    );
}
