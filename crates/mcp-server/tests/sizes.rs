//! What the server costs an assistant: answers and lists stay short.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod common;

use common::{Client, Era};
use serde_json::{Value, json};
use std::path::PathBuf;

/// 1,600 tokens of sentences (3.8 bytes each, measured) to 2,500 tokens of numbers (2.4 bytes each).
const LONGEST_ANSWER_BYTES: usize = 6_000;
/// All of `tools/list`: 8,300 tokens (4.3 bytes each, measured), most of them schemas of answers.
const LONGEST_LIST_BYTES: usize = 40_000;
/// What every client shows a model of it, names, descriptions and arguments: 2,000 tokens.
const LONGEST_OFFER_BYTES: usize = 9_500;
/// About 1,500 tokens.
const LONGEST_PROMPT_BYTES: usize = 6_000;

/// The recordings that come with the repository.
fn recordings() -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    entries(ingero_testkit::repository().join("fixtures"))
        .filter(|path| path.is_dir())
        .flat_map(entries)
        .filter(|path| path.extension().is_some_and(|e| e == "duckdb"))
        .collect()
}

#[test]
fn default_answers_about_real_recordings_are_short() {
    let recordings = recordings();
    assert!(recordings.len() >= 3, "{recordings:?}");
    for trace in recordings {
        let mut client = Client::start(&trace, Era::Stateless);
        let list = client.request("tools/list", json!({}));
        for tool in list["result"]["tools"].as_array().unwrap() {
            let tool = tool["name"].as_str().unwrap();
            let answer = client.call(tool, json!({}));
            let text = answer["content"][0]["text"].as_str().unwrap();
            let name = trace.file_stem().unwrap().display();
            assert!(
                text.len() <= LONGEST_ANSWER_BYTES,
                "{name} {tool}: {}",
                text.len()
            );
        }
    }
}

#[test]
fn the_list_of_tools_is_short() {
    let trace = ingero_testkit::repository().join("fixtures/pytorch-dataloader/workers4.duckdb");
    let mut client = Client::start(&trace, Era::Stateless);
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    let length = list["result"]["tools"].to_string().len();
    assert!(length <= LONGEST_LIST_BYTES, "{length}");
    let offers = tools.iter().map(|tool| {
        let shown = json!([tool["name"], tool["description"], tool["inputSchema"]]);
        shown.to_string().len()
    });
    let length: usize = offers.sum();
    assert!(length <= LONGEST_OFFER_BYTES, "{length}");
}

#[test]
fn the_prompt_is_short() {
    let trace = ingero_testkit::repository().join("fixtures/pytorch-dataloader/workers4.duckdb");
    let mut client = Client::start(&trace, Era::Stateless);
    let prompt = client.request("prompts/get", json!({"name": "investigate"}));
    let text: &Value = &prompt["result"]["messages"][0]["content"]["text"];
    let length = text.as_str().unwrap().len();
    assert!(length <= LONGEST_PROMPT_BYTES, "{length}");
}
