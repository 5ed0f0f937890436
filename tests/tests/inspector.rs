//! The server through the command line of the MCP Inspector, in both protocol eras.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_testkit::skip::skip;
use ingero_testkit::trace::draw;
use ingero_tests::clients::client;
use ingero_tests::{program, repository, stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const JOB: &str = "
    host online=4 usable=4
    process 100 python
    thread 100 100: (S20<200 R1 h2d(0.1,65536) launch(0.01) sync(5))*50
    process 200 pt_data_worker parent=100 from=0
    thread 200 200: (R20 S6<100)*50";

const ERAS: [&str; 2] = ["legacy", "modern"];

/// Its exit status where a tool refused.
const TOOL_REFUSED: i32 = 5;

/// The Inspector, asking about one trace.
struct Inspector {
    trace: PathBuf,
    /// It keeps settings in the home folder: not in that of the person who runs the tests.
    home: TempDir,
}

impl Inspector {
    fn new(trace: &Path) -> Result<Self, String> {
        client("mcp-inspector")?;
        Ok(Self {
            trace: trace.to_owned(),
            home: tempfile::tempdir().unwrap(),
        })
    }

    fn run(&self, era: &str, arguments: &[&str]) -> Output {
        client("mcp-inspector")
            .unwrap()
            .arg("--cli")
            .arg(program("ingero-mcp"))
            .arg("--db")
            .arg(&self.trace)
            .args(["--format", "json", "--quiet", "--protocol-era", era])
            .arg("--method")
            .args(arguments)
            .env("HOME", self.home.path())
            .output()
            .unwrap()
    }

    /// The result of a request that must succeed.
    fn ask(&self, era: &str, arguments: &[&str]) -> Value {
        let output = self.run(era, arguments);
        let said = stderr(&output);
        assert!(output.status.success(), "{era} {arguments:?}: {said}");
        let mut answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["result"].take()
    }
}

/// The names in a list, in order.
fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

/// JavaScript has one kind of number, and writes 0.0 as 0.
fn as_javascript(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(values) => values.into_iter().map(as_javascript).collect(),
        Value::Object(object) => object
            .into_iter()
            .map(|(key, value)| (key, as_javascript(value)))
            .collect(),
        other => other,
    }
}

#[test]
fn the_inspector_sees_and_calls_every_tool_and_the_prompt() {
    let test = "the_inspector_sees_and_calls_every_tool_and_the_prompt";
    let trace = draw(JOB);
    let inspector = match Inspector::new(&trace.path()) {
        Ok(inspector) => inspector,
        Err(reason) => return skip(test, &reason),
    };
    let manifest = std::fs::read(repository().join("mcp-manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();

    for era in ERAS {
        // --strict makes a schema that clients may not understand an error.
        let list = inspector.ask(era, &["tools/list", "--strict"]);
        let tools = names(&list["tools"]);
        assert_eq!(tools, names(&manifest["tools"]), "{era}");
        for tool in tools {
            let answer = inspector.ask(era, &["tools/call", "--tool-name", tool]);
            let text = answer["content"][0]["text"].as_str().unwrap();
            let text = as_javascript(serde_json::from_str(text).unwrap());
            let structured = as_javascript(answer["structuredContent"].clone());
            assert_eq!(text, structured, "{era} {tool}");
            assert!(text["summary"].is_string(), "{era} {tool}: {text}");
        }

        let list = inspector.ask(era, &["prompts/list"]);
        assert_eq!(names(&list["prompts"]), ["investigate"], "{era}");
        let prompt = ["prompts/get", "--prompt-name", "investigate"];
        let symptom = ["--prompt-args", "symptom=it is \"slow\""];
        let text = |arguments: &[&str]| {
            let answer = inspector.ask(era, arguments);
            let text = answer["messages"][0]["content"]["text"].as_str();
            text.unwrap().to_owned()
        };
        let plain = text(&prompt);
        assert!(plain.contains("explain_bottleneck"), "{era}: {plain}");
        let filled = text(&[&prompt[..], &symptom].concat());
        assert!(filled.starts_with(plain.trim_end()), "{era}: {filled}");
        assert_eq!(filled.lines().last(), Some(r#""it is \"slow\"""#), "{era}");
    }
}

#[test]
fn the_inspector_reports_what_the_server_refuses() {
    let test = "the_inspector_reports_what_the_server_refuses";
    let trace = draw(JOB);
    let inspector = match Inspector::new(&trace.path()) {
        Ok(inspector) => inspector,
        Err(reason) => return skip(test, &reason),
    };
    for era in ERAS {
        let call = ["tools/call", "--tool-name", "list_processes"];
        let refused = inspector.run(era, &[&call[..], &["--tool-arg", "limit=-1"]].concat());
        assert_eq!(refused.status.code(), Some(TOOL_REFUSED), "{era}");
        assert!(stdout(&refused).contains("from 1 to 200"), "{refused:?}");

        let prompt = ["prompts/get", "--prompt-name", "investigate"];
        let refused = inspector.run(era, &[&prompt[..], &["--prompt-args", "cause=x"]].concat());
        assert!(!refused.status.success(), "{era}");
        assert!(
            stderr(&refused).contains("takes only symptom"),
            "{refused:?}"
        );
    }
}
