//! The prompt that several clients offer as a command.

use rmcp::model::{GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};

/// Its name.
pub(crate) const NAME: &str = "investigate";
/// What it is for.
pub(crate) const DESCRIPTION: &str = "Find out why the recorded GPU job is slow on the host side";
/// Its optional argument.
const ARGUMENT: &str = "symptom";

const TEXT: &str = include_str!("../../../prompts/investigate.md");

/// How it is announced.
pub(crate) fn announce() -> Prompt {
    let symptom = PromptArgument::new(ARGUMENT)
        .with_description("What is wrong, e.g. \"GPU utilization is 15%\"")
        .with_required(false);
    Prompt::new(NAME, Some(DESCRIPTION), Some(vec![symptom])).with_title("Investigate a slow job")
}

/// The prompt, for the symptom that the user named.
pub(crate) fn fill(symptom: Option<&str>) -> GetPromptResult {
    let symptom = symptom.map(str::trim).filter(|symptom| !symptom.is_empty());
    let text = match symptom {
        Some(symptom) => format!("{}\nWhat the user sees: {symptom}\n", TEXT.trim_end()),
        None => TEXT.to_owned(),
    };
    GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
        .with_description(DESCRIPTION)
}

/// The symptom among the arguments, or which argument is wrong.
pub(crate) fn symptom(
    arguments: Option<&rmcp::model::JsonObject>,
) -> Result<Option<String>, String> {
    let Some(arguments) = arguments else {
        return Ok(None);
    };
    if let Some(other) = arguments.keys().find(|key| *key != ARGUMENT) {
        return Err(format!(
            "unknown argument {other}: the prompt takes only {ARGUMENT}"
        ));
    }
    match arguments.get(ARGUMENT) {
        None => Ok(None),
        Some(serde_json::Value::String(symptom)) => Ok(Some(symptom.clone())),
        Some(other) => Err(format!("{ARGUMENT} must be a text, not {other}")),
    }
}
