//! The bundle that Claude Desktop installs: its manifest is valid, and it starts with nothing around it.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_testkit::skip::skip;
use ingero_tests::clients::client;
use ingero_tests::{program, repository, stderr};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Has the manifest checked by the tool of its format.
fn validate(manifest: &Path) -> Result<Output, String> {
    Ok(client("mcpb")?
        .arg("validate")
        .arg(manifest)
        .output()
        .unwrap())
}

#[test]
fn the_manifest_is_valid() {
    let manifest = repository().join("mcp-manifest.json");
    let valid = match validate(&manifest) {
        Ok(valid) => valid,
        Err(reason) => return skip("the_manifest_is_valid", &reason),
    };
    assert!(valid.status.success(), "{valid:?}");

    let folder = tempfile::tempdir().unwrap();
    let with_unknown_key = folder.path().join("manifest.json");
    let mut manifest = read(&manifest);
    manifest["tools"][0]["title"] = "no key of the format".into();
    std::fs::write(&with_unknown_key, manifest.to_string()).unwrap();
    let invalid = validate(&with_unknown_key).unwrap();
    assert!(!invalid.status.success(), "{invalid:?}");
}

fn pack(bundle: &Path) {
    let output = Command::new(repository().join("scripts/pack-mcpb"))
        .arg(program("ingero-mcp"))
        .arg(bundle)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// The server of an unpacked bundle, started as its manifest says.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(folder: &Path, trace: &Path) -> Self {
        let manifest = read(&folder.join("manifest.json"));
        let config = &manifest["server"]["mcp_config"];
        let fill = |text: &Value| {
            let text = text.as_str().unwrap();
            let text = text.replace("${__dirname}", folder.to_str().unwrap());
            text.replace("${user_config.trace_db}", trace.to_str().unwrap())
        };
        assert!(manifest["user_config"]["trace_db"]["required"] == true);
        let mut child = Command::new(fill(&config["command"]))
            .args(config["args"].as_array().unwrap().iter().map(fill))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}
        });
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Unpacks with the tool of the format, as a client would, into a folder of its own.
fn unpack(bundle: &Path, folder: PathBuf) -> PathBuf {
    let output = client("mcpb")
        .unwrap()
        .arg("unpack")
        .arg(bundle)
        .arg(&folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    folder
}

#[test]
fn the_bundle_starts_from_an_empty_folder_without_an_environment() {
    if let Err(reason) = client("mcpb") {
        return skip(
            "the_bundle_starts_from_an_empty_folder_without_an_environment",
            &reason,
        );
    }
    let work = tempfile::tempdir().unwrap();
    let bundle = work.path().join("ingero.mcpb");
    pack(&bundle);
    let folder = unpack(&bundle, work.path().join("installed"));

    let trace = repository().join("fixtures/pytorch-dataloader/workers4.duckdb");
    let mut server = Server::start(&folder, &trace);
    let names = |list: &Value| -> Vec<Value> {
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].clone()).collect()
    };
    let listed = names(&server.ask("tools/list", json!({})));
    assert_eq!(
        listed,
        names(&read(&repository().join("mcp-manifest.json")))
    );
    let answer = server.ask(
        "tools/call",
        json!({"name": "explain_bottleneck", "arguments": {}}),
    );
    let verdict = &answer["structuredContent"]["verdict"]["code"];
    assert_eq!(verdict, "LOADER_CPU_BOUND", "{answer}");
}

#[test]
fn packing_again_gives_the_same_bundle() {
    if let Err(reason) = client("mcpb") {
        return skip("packing_again_gives_the_same_bundle", &reason);
    }
    let work = tempfile::tempdir().unwrap();
    let bundles = ["one.mcpb", "two.mcpb"].map(|name| work.path().join(name));
    bundles.iter().for_each(|bundle| pack(bundle));
    let [one, two] = bundles.map(|bundle| std::fs::read(bundle).unwrap());
    assert!(one == two, "{} and {} bytes", one.len(), two.len());
}
