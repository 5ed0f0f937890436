//! The tools, in the order in which they are announced.

mod correlate_window;
mod cuda_wait_latency;
mod explain_bottleneck;
mod fork_timeline;
mod list_processes;
mod page_alloc_by_pid;
mod top_offcpu;

use crate::tool::Tool;

pub(crate) use explain_bottleneck::diagnose;

/// The diagnosis first: it is the place to start, and it works without arguments.
pub(crate) const TOOLS: &[Tool] = &[
    explain_bottleneck::TOOL,
    list_processes::TOOL,
    top_offcpu::TOOL,
    cuda_wait_latency::TOOL,
    correlate_window::TOOL,
    fork_timeline::TOOL,
    page_alloc_by_pid::TOOL,
];

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools.
pub(crate) fn names() -> Vec<&'static str> {
    TOOLS.iter().map(|tool| tool.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn announcements_keep_to_what_clients_accept() {
        for tool in TOOLS {
            let announced = serde_json::to_value(tool.announce()).unwrap();
            assert!(tool.description.len() < 1_024, "{}", tool.name);
            for schema in ["inputSchema", "outputSchema"] {
                let text = announced[schema].to_string();
                assert_eq!(announced[schema]["type"], "object", "{}", tool.name);
                for unwanted in [
                    "$ref",
                    "$defs",
                    "\"null\"",
                    "oneOf",
                    "anyOf",
                    "\"format\":\"",
                ] {
                    assert!(
                        !text.contains(unwanted),
                        "{unwanted} in {} {schema}",
                        tool.name
                    );
                }
            }
            assert_eq!(announced["inputSchema"]["additionalProperties"], false);
            assert_eq!(
                announced["inputSchema"].get("required"),
                None,
                "{}",
                tool.name
            );
            let hints = &announced["annotations"];
            for (hint, value) in [
                ("readOnlyHint", true),
                ("destructiveHint", false),
                ("idempotentHint", true),
                ("openWorldHint", false),
            ] {
                assert_eq!(hints[hint], value, "{hint} of {}", tool.name);
            }
        }
    }

    #[test]
    fn examples_in_messages_are_valid_arguments() {
        for tool in TOOLS {
            let example: Value = serde_json::from_str(tool.example).unwrap();
            let schema = Value::Object((*(tool.input)()).clone());
            for name in example.as_object().unwrap().keys() {
                assert!(
                    schema["properties"].get(name).is_some(),
                    "{} {name}",
                    tool.name
                );
            }
        }
    }
}
