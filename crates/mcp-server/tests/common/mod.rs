//! A client that speaks raw lines with the real program.
#![allow(dead_code)] // each test file uses a part of it

pub(crate) mod validate;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// A job with a feeder, two loader workers (one of them with a neutral name) and a short-lived
/// helper. 1250 ms.
pub(crate) const JOB: &str = "
    host online=8 usable=4
    process 100 python
    process 200 pt_data_worker parent=100 from=10
    process 300 python parent=100 from=15
    process 400 ldconfig parent=100 from=20 exit=1
    thread 100 100: malloc(1) (S20<200+1 R1 h2d(1,4000000) launch(0.5) sync(R0.5 Q0.5 R0.5))*25 \
                    (S20<300+1 R1 h2d(1,4000000) launch(0.5) sync(R0.5 Q0.5 R0.5))*25
    thread 200 200: (R20 S4<100)*50
    thread 300 300: (R20 D4)*10 (R20 S4<100)*40
    thread 400 400: R5
    pages 100: @0..100 20*1
    pages 200: @100 1000*2 @300..500 50*1
    samples 200 rchar=0..8000000";

/// The protocol versions with and without a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Stateless,
}

pub(crate) const ERAS: [Era; 2] = [Era::Handshake, Era::Stateless];

pub(crate) const LATEST: &str = "2026-07-28";

/// The program with a recording.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ingero-mcp"))
}

/// What a command of the program prints.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// The structured answer of `call`.
pub(crate) fn call(db: &Path, tool: &str, arguments: Value) -> Value {
    let output = run(&[
        "--db",
        db.to_str().unwrap(),
        "call",
        tool,
        &arguments.to_string(),
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    era: Era,
    next_id: u64,
}

impl Client {
    /// Starts the server and opens the conversation.
    pub(crate) fn start(db: &Path, era: Era) -> Self {
        let mut client = Self::start_silent(db, era);
        match era {
            Era::Handshake => {
                let answer = client.request(
                    "initialize",
                    json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": {"name": "test", "version": "1"}
                    }),
                );
                assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
                client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            }
            Era::Stateless => {
                let answer = client.request("server/discover", json!({}));
                let versions = answer["result"]["supportedVersions"].as_array().unwrap();
                assert!(versions.contains(&json!(LATEST)), "{answer}");
            }
        }
        client
    }

    /// Starts the server and says nothing yet.
    pub(crate) fn start_silent(db: &Path, era: Era) -> Self {
        let mut child = program()
            .arg("--db")
            .arg(db)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            era,
            next_id: 1,
        }
    }

    /// Sends one line.
    pub(crate) fn send(&mut self, message: &Value) {
        self.send_raw(&message.to_string());
    }

    /// Sends one line as it is.
    pub(crate) fn send_raw(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        if self.era == Era::Stateless {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": LATEST,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {}
            });
        }
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next line that the server writes. Every line must be a message of the protocol.
    pub(crate) fn read(&mut self) -> Value {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).unwrap();
        assert!(length > 0, "the server closed its output");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Sends a request and returns its answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.read();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool and returns the result, which may be an error of the tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Calls a tool that must answer.
    pub(crate) fn structured(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        let structured = result["structuredContent"].clone();
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            text, structured,
            "the text and the structured content differ"
        );
        structured
    }

    /// Calls a tool that must refuse, and returns why.
    pub(crate) fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes standard input and returns what else the server wrote, and its exit status.
    pub(crate) fn close(mut self) -> (String, i32) {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut rest).unwrap();
        (rest, self.child.wait().unwrap().code().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// The cell of a row in `{columns, rows}`.
pub(crate) fn cell<'a>(table: &'a Value, row: usize, column: &str) -> &'a Value {
    let columns = table["columns"].as_array().unwrap();
    let index = columns.iter().position(|name| name == column);
    let index = index.unwrap_or_else(|| panic!("no column {column} in {table}"));
    &table["rows"][row][index]
}
