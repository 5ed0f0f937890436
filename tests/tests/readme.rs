//! What the README tells people to write into the settings of their assistant.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_tests::{program, repository, stderr};
use serde_json::Value;
use std::process::{Command, Stdio};

/// The section about assistants, with paths that exist.
fn section() -> String {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Connect an assistant\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let trace = repository().join("fixtures/pytorch-dataloader/workers4.duckdb");
    section
        .replace("/abs/ingero-mcp", program("ingero-mcp").to_str().unwrap())
        .replace("/abs/trace.duckdb", trace.to_str().unwrap())
}

/// Starts a command as an assistant does that closes its input at once.
fn starts(command: &str, arguments: &[&str]) {
    let output = Command::new(command)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn the_settings_of_assistants_start_the_server() {
    let section = section();
    let settings: Vec<Value> = section
        .split("```json\n")
        .skip(1)
        .map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap())
        .collect();
    assert_eq!(settings.len(), 2, "{settings:?}");
    for (settings, servers) in settings.iter().zip(["mcpServers", "servers"]) {
        let server = &settings[servers]["ingero"];
        let arguments = server["args"].as_array().unwrap().iter();
        let arguments: Vec<&str> = arguments.map(|a| a.as_str().unwrap()).collect();
        starts(server["command"].as_str().unwrap(), &arguments);
    }
}

#[test]
fn the_command_for_claude_code_starts_the_server() {
    let section = section();
    let command = section
        .lines()
        .find_map(|line| line.strip_prefix("claude mcp add ingero -- "));
    let words: Vec<&str> = command.unwrap().split(' ').collect();
    starts(words[0], &words[1..]);
}
