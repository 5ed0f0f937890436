//! The protocol over real standard input and output, in both eras.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod common;

use common::{Client, ERAS, Era, JOB, validate};
use ingero_testkit::trace::draw;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

const TOOLS: [&str; 7] = [
    "explain_bottleneck",
    "list_processes",
    "top_offcpu",
    "cuda_wait_latency",
    "correlate_window",
    "fork_timeline",
    "page_alloc_by_pid",
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
            ("correlate_window", json!({})),
            ("correlate_window", json!({"worst": "wait", "nth": 3})),
            ("correlate_window", json!({"start_ms": 15, "end_ms": 200})),
            ("page_alloc_by_pid", json!({})),
            (
                "page_alloc_by_pid",
                json!({"pid": 200, "start_ms": 33.3, "end_ms": 44.4}),
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
        for name in ["correlate", "no_such_tool"] {
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
fn the_prompt_is_listed_with_its_optional_argument() {
    let drawn = draw(JOB);
    for era in ERAS {
        let list = Client::start(&drawn.path(), era).request("prompts/list", json!({}));
        let [prompt] = list["result"]["prompts"].as_array().unwrap().as_slice() else {
            panic!("{list}");
        };
        assert_eq!(prompt["name"], "investigate");
        let [argument] = prompt["arguments"].as_array().unwrap().as_slice() else {
            panic!("{prompt}");
        };
        assert_eq!(argument["name"], "symptom");
        assert_eq!(argument["required"], false);
        for described in [prompt, argument] {
            assert!(described["title"].is_string(), "{described}");
            assert!(described["description"].is_string(), "{described}");
        }
    }
}

#[test]
fn the_prompt_takes_a_symptom() {
    let drawn = draw(JOB);
    let file = ingero_testkit::repository().join("prompts/investigate.md");
    let file = std::fs::read_to_string(file).unwrap();
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        let mut text = |params: Value| {
            let answer = client.request("prompts/get", params);
            let [message] = answer["result"]["messages"].as_array().unwrap().as_slice() else {
                panic!("{answer}");
            };
            assert_eq!(message["role"], "user");
            message["content"]["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(text(json!({"name": "investigate"})), file);
        assert_eq!(text(json!({"name": "investigate", "arguments": {}})), file);
        let filled = text(
            json!({"name": "investigate", "arguments": {"symptom": "utilization is 15%\n# x"}}),
        );
        assert!(filled.starts_with(file.trim_end()), "{filled}");
        assert!(
            filled.ends_with("\n\"utilization is 15% # x\"\n"),
            "{filled}"
        );
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_what_would() {
    let drawn = draw(JOB);
    for era in ERAS {
        let mut client = Client::start(&drawn.path(), era);
        for (params, says) in [
            (json!({"name": "other"}), &["other", "investigate"][..]),
            (
                json!({"name": "investigate", "arguments": {"cause": "x"}}),
                &["cause", "symptom"],
            ),
            (
                json!({"name": "investigate", "arguments": {"symptom": 5}}),
                &["symptom=5", "e.g."],
            ),
            (
                json!({"name": "investigate", "arguments": "slow"}),
                &["prompts/get", "malformed"],
            ),
            (json!({}), &["prompts/get", "malformed"]),
        ] {
            let answer = client.request("prompts/get", params.clone());
            assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            for part in says {
                assert!(message.contains(part), "{params}: {message}");
            }
        }
        client.request("prompts/get", json!({"name": "investigate"}))["result"]["messages"]
            .as_array()
            .unwrap();
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
fn the_manifest_says_what_the_server_says() {
    let path = ingero_testkit::repository().join("mcp-manifest.json");
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let drawn = draw(JOB);
    let mut client = Client::start(&drawn.path(), Era::Stateless);
    let about = client.request("server/discover", json!({}));
    let about = &about["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(manifest["name"], about["name"]);
    assert_eq!(manifest["version"], about["version"]);

    // A manifest has one line for a tool: its title.
    let tools = client.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().iter();
    let tools: Vec<Value> = tools
        .map(|tool| json!({"name": tool["name"], "description": tool["title"]}))
        .collect();
    assert_eq!(manifest["tools"], Value::from(tools));

    let prompts = client.request("prompts/list", json!({}));
    let prompts = prompts["result"]["prompts"].as_array().unwrap();
    let declared = manifest["prompts"].as_array().unwrap();
    assert_eq!(declared.len(), prompts.len());
    for (declared, prompt) in declared.iter().zip(prompts) {
        assert_eq!(declared["name"], prompt["name"]);
        assert_eq!(declared["description"], prompt["description"]);
        let arguments = prompt["arguments"].as_array().unwrap().iter();
        let arguments: Vec<&Value> = arguments.map(|argument| &argument["name"]).collect();
        assert_eq!(declared["arguments"], json!(arguments));
        // Clients that take the manifest's text instead of asking the server fill it in.
        let text = declared["text"].as_str().unwrap();
        for argument in arguments {
            let place = format!("${{arguments.{}}}", argument.as_str().unwrap());
            assert!(text.contains(&place), "{text}");
        }
    }
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
