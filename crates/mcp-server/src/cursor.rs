//! Cursors belong to one list: that of a tool with the same arguments.
//!
//! A cursor that is edited, or given to another tool or with other arguments, would point into a
//! list that it does not come from, and the answer would look right.

use crate::tool::ToolError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What tells a list from others: the tool and its arguments without those that only say which
/// part of the list is wanted.
pub(crate) fn list(tool: &str, arguments: &Value) -> u64 {
    let arguments: BTreeMap<&String, String> = arguments
        .as_object()
        .into_iter()
        .flat_map(Map::iter)
        .filter(|(name, value)| !matches!(name.as_str(), "limit" | "cursor") && !value.is_null())
        .map(|(name, value)| (name, value.to_string()))
        .collect();
    hash(&(tool, arguments))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Ties the next cursor of an answer to its list.
pub(crate) fn seal(answer: &mut Value, list: u64) {
    if let Some(Value::String(cursor)) = answer.get_mut("next_cursor") {
        *cursor = format!("{cursor}.{:016x}", hash(&(list, cursor.as_str())));
    }
}

/// Takes the seal off the cursor among the arguments, if there is one.
///
/// # Errors
/// If the cursor does not belong to the list.
pub(crate) fn open(arguments: &mut Value, list: u64) -> Result<(), ToolError> {
    let Some(Value::String(cursor)) = arguments.get_mut("cursor") else {
        return Ok(());
    };
    match cursor.rsplit_once('.') {
        Some((plain, seal)) if seal == format!("{:016x}", hash(&(list, plain))) => {
            *cursor = plain.to_owned();
            Ok(())
        }
        _ => Err(ToolError::Arguments(format!(
            "cursor={cursor:?} is none that an earlier answer of the same tool, with the same other arguments, gave as next_cursor"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sealed_cursor_opens_for_its_list_only() {
        let lists = [
            list("a", &json!({"pid": 1})),
            list("a", &json!({"pid": 2})),
            list("b", &json!({"pid": 1})),
        ];
        let mut answer = json!({"next_cursor": "20.5000"});
        seal(&mut answer, lists[0]);
        let arguments =
            json!({"pid": 1, "limit": 3, "start_ms": null, "cursor": answer["next_cursor"]});
        assert_eq!(list("a", &arguments), lists[0]);
        let mut opened = arguments.clone();
        open(&mut opened, lists[0]).unwrap();
        assert_eq!(opened["cursor"], "20.5000");
        for other in &lists[1..] {
            open(&mut arguments.clone(), *other).unwrap_err();
        }
    }
}
