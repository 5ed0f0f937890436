//! What a tool is: a name, schemas, and a function from arguments to an answer.

use crate::cursor;
use crate::session::Session;
use crate::text;
use ingero_analysis::AnalysisError;
use rmcp::model::{JsonObject, Tool as Announced, ToolAnnotations};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Why a tool has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The arguments do not fit; the message says which, and what would.
    #[error("{0}")]
    Arguments(String),
    /// The question has no answer.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// The answer could not be put into JSON.
    #[error("the answer could not be written as JSON: {0}")]
    Answer(#[source] serde_json::Error),
}

impl From<ingero_trace::QueryError> for ToolError {
    fn from(error: ingero_trace::QueryError) -> Self {
        Self::Analysis(error.into())
    }
}

/// A question that can be asked of a trace.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Arguments that work, for error messages.
    pub(crate) example: &'static str,
    pub(crate) input: fn() -> Arc<JsonObject>,
    pub(crate) output: fn() -> Arc<JsonObject>,
    pub(crate) run: fn(&Session, Value) -> Result<Value, ToolError>,
}

impl Tool {
    /// How it is announced to clients.
    pub(crate) fn announce(&self) -> Announced {
        Announced::new(self.name, self.description, (self.input)())
            .with_title(self.title)
            .with_raw_output_schema((self.output)())
            .with_annotations(ToolAnnotations::from_raw(
                None,
                Some(true),
                Some(false),
                Some(true),
                Some(false),
            ))
    }

    /// Its answer, with all text in it cleaned.
    pub(crate) fn answer(
        &self,
        session: &Session,
        mut arguments: Value,
    ) -> Result<Value, ToolError> {
        let list = cursor::list(self.name, &arguments);
        let opened = cursor::open(&mut arguments, list);
        let answered = opened.and_then(|()| (self.run)(session, arguments));
        let mut answer = answered.map_err(|error| match error {
            ToolError::Arguments(why) => ToolError::Arguments(format!(
                "{why}. Arguments that work for {}: {}",
                self.name, self.example
            )),
            error => error,
        })?;
        make_safe(&mut answer);
        cursor::seal(&mut answer, list);
        Ok(answer)
    }
}

/// Reads the arguments, asks, and turns the answer into JSON.
pub(crate) fn run<A: DeserializeOwned, O: Serialize>(
    session: &Session,
    arguments: Value,
    ask: fn(&Session, A) -> Result<O, ToolError>,
) -> Result<Value, ToolError> {
    if !arguments.is_object() {
        return Err(ToolError::Arguments(format!(
            "the arguments must be a JSON object, not {arguments}"
        )));
    }
    let arguments = serde_json::from_value(arguments)
        .map_err(|error| ToolError::Arguments(error.to_string()))?;
    let answer = ask(session, arguments)?;
    serde_json::to_value(answer).map_err(ToolError::Answer)
}

/// Integers beyond this are not exact in clients that keep numbers as doubles.
const LARGEST_EXACT: u64 = 1 << 53;

/// Cleans all text, rounds fractions to four digits, and makes integers that clients would
/// corrupt inexact here already.
fn make_safe(value: &mut Value) {
    match value {
        Value::String(string) => *string = text::clean(string),
        Value::Array(values) => values.iter_mut().for_each(make_safe),
        Value::Object(object) => object.values_mut().for_each(make_safe),
        Value::Number(number) => {
            if let Some(integer) = number.as_i64() {
                if integer.unsigned_abs() > LARGEST_EXACT {
                    *value = Value::from(integer as f64);
                }
            } else if let Some(fraction) = number.as_f64() {
                *value = Value::from((fraction * 1e4).round() / 1e4);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_made_safe_at_every_depth() {
        let mut answer = json!({"a": [["x\u{202e}y"]], "n": i64::MAX, "m": 5, "f": 0.123_456});
        make_safe(&mut answer);
        assert_eq!(answer["a"][0][0], "xy");
        assert!(answer["n"].is_f64());
        assert_eq!(answer["m"], 5);
        assert_eq!(answer["f"], 0.1235);
    }
}
