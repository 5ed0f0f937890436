//! The protocol over real standard input and output, in both eras.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod common;

use common::{Client, ERAS, Era, JOB, validate};
use ingero_testkit::trace::draw;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

const TOOLS: [&str; 5] = [
    "explain_bottleneck",
    "list_processes",
    "top_offcpu",
    "cuda_wait_latency",
    "fork_timeline",
];

#[test]
fn both_eras_list_the_same_tools_in_the_same_order() {
    let drawn = draw(JOB);
    let lists: Vec<Value> = ERAS
        .into_iter()
        .map(|era| Client::start(&drawn.path(), era).request("tools/list", json!({})))
        .map(|answer| answer["result"]["tools"].clone())
        .collect();
    assert_eq!(lists[0], lists[1]);
    let names: Vec<&str> = lists[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, TOOLS);
}

#[test]
fn every_answer_fits_its_schema() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let list = client.request("tools/list", json!({}));
        let schemas: BTreeMap<&str, &Value> = list["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| (tool["name"].as_str().unwrap(), &tool["outputSchema"]))
            .collect();
        for (tool, arguments) in [
            ("explain_bottleneck", json!({})),
            ("explain_bottleneck", json!({"start_ms": 1200})),
            ("list_processes", json!({})),
            (
                "list_processes",
                json!({"pid": 300, "start_ms": 33.3, "end_ms": 44.4}),
            ),
            ("top_offcpu", json!({})),
            (
                "top_offcpu",
                json!({"by": "thread", "rank_by": "disk", "limit": 1}),
            ),
            ("top_offcpu", json!({"pid": 400})),
            ("cuda_wait_latency", json!({})),
            ("cuda_wait_latency", json!({"pid": 200})),
            ("fork_timeline", json!({})),
            (
                "fork_timeline",
                json!({"show": "events", "include_threads": true}),
            ),
        ] {
            let answer = client.structured(tool, arguments.clone());
            let errors = validate::errors(schemas[tool], &answer);
            assert!(errors.is_empty(), "{tool} {arguments}: {errors:?}");
        }
    }
}

#[test]
fn an_unknown_tool_is_a_protocol_error_that_lists_the_known_ones() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        for name in ["page_alloc_by_pid", "correlate_window", "no_such_tool"] {
            let answer = client.request("tools/call", json!({"name": name, "arguments": {}}));
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            for tool in TOOLS {
                assert!(message.contains(tool), "{message}");
            }
        }
        // The server still works.
        client.structured("list_processes", json!({}));
    }
}

#[test]
fn malformed_requests_are_refused_and_do_no_harm() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let answer = client.request("tools/call", json!({"arguments": {}}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let answer = client.request("tools/call", json!({"name": 5}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let answer = client.request("no/such/method", json!({}));
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        client.structured("list_processes", json!({}));
    }
}

#[test]
fn the_prompt_takes_a_symptom() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let list = client.request("prompts/list", json!({}));
        assert_eq!(list["result"]["prompts"][0]["name"], "investigate");
        let text = |answer: &Value| {
            let text = answer["result"]["messages"][0]["content"]["text"].as_str();
            text.unwrap_or_else(|| panic!("{answer}")).to_owned()
        };
        let plain = client.request("prompts/get", json!({"name": "investigate"}));
        assert!(text(&plain).contains("explain_bottleneck"));
        let filled = client.request(
            "prompts/get",
            json!({"name": "investigate", "arguments": {"symptom": "utilization is 15%"}}),
        );
        assert!(text(&filled).contains("utilization is 15%"));
        for bad in [
            json!({"name": "other"}),
            json!({"name": "investigate", "arguments": {"cause": "x"}}),
        ] {
            assert_eq!(client.request("prompts/get", bad)["error"]["code"], -32602);
        }
    }
}

#[test]
fn a_client_that_only_looks_ends_the_server_quietly() {
    let drawn = draw(JOB);
    assert_eq!(
        Client::start_silent(&drawn.path(), Era::Handshake).close(),
        (String::new(), 0)
    );
    for era in ERAS {
        assert_eq!(
            Client::start(&drawn.path(), era).close(),
            (String::new(), 0)
        );
    }
}

#[test]
fn a_cancelled_request_leaves_the_server_working() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let id = client.ask("tools/call", json!({"name": "top_offcpu", "arguments": {}}));
        client.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": id, "reason": "test"}
        }));
        let after = client.ask(
            "tools/call",
            json!({"name": "list_processes", "arguments": {}}),
        );
        // The cancelled request may have been answered before the cancellation arrived.
        let answer = loop {
            let answer = client.read();
            if answer["id"] == after {
                break answer;
            }
            assert_eq!(answer["id"], id);
        };
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
}

#[test]
fn questions_asked_at_once_are_all_answered() {
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), Era::Stateless);
    let mut open: Vec<u64> = TOOLS
        .into_iter()
        .map(|tool| client.ask("tools/call", json!({"name": tool, "arguments": {}})))
        .collect();
    while !open.is_empty() {
        let answer = client.read();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        open.retain(|id| answer["id"] != *id);
    }
}

#[test]
fn the_manifest_names_what_the_server_offers() {
    let path = ingero_testkit::repository().join("mcp-manifest.json");
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), Era::Stateless);
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let tools = client.request("tools/list", json!({}));
    assert_eq!(names(&manifest["tools"]), names(&tools["result"]["tools"]));
    let prompts = client.request("prompts/list", json!({}));
    assert_eq!(
        names(&manifest["prompts"]),
        names(&prompts["result"]["prompts"])
    );
    let arguments = names(&prompts["result"]["prompts"][0]["arguments"]);
    assert_eq!(manifest["prompts"][0]["arguments"], json!(arguments));
}

#[test]
fn the_time_to_the_first_answer_is_reported() {
    // A number for people: a limit would make the test depend on the machine's load.
    let drawn = draw(JOB);
    for era in ERAS {
        let started = Instant::now();
        let client = Client::start(&drawn.path(), era);
        eprintln!("{era:?}: first answer after {:?}", started.elapsed());
        drop(client);
    }
}
