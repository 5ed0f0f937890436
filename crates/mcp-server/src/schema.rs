//! JSON schemas that every client understands.
//!
//! What schemars writes by default breaks some of them: references, formats, `null` among the
//! types, and `oneOf` for a list of words.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::sync::Arc;

/// The schema of a tool's arguments.
pub(crate) fn input<T: JsonSchema>() -> Arc<JsonObject> {
    Arc::new(plain::<T>(SchemaSettings::draft2020_12()))
}

/// The schema of a tool's answer.
pub(crate) fn output<T: JsonSchema>() -> Arc<JsonObject> {
    Arc::new(plain::<T>(SchemaSettings::draft2020_12().for_serialize()))
}

/// The schema of `T` without references.
pub(crate) fn plain<T: JsonSchema>(mut settings: SchemaSettings) -> JsonObject {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    simplify(&mut schema);
    let Value::Object(mut schema) = schema else {
        return JsonObject::new();
    };
    // The tool has a title and a description of its own.
    schema.remove("title");
    schema.remove("description");
    schema
}

/// Takes out of a schema what clients stumble over.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("format");
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            not_null(object);
            words(object);
            for (key, value) in object.iter_mut() {
                if key == "properties" {
                    // Here keys are names of fields, and "format" could be one.
                    for property in value
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|p| p.values_mut())
                    {
                        simplify(property);
                    }
                } else {
                    simplify(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// `oneOf` (or `anyOf`) of constants becomes an `enum`, with their descriptions in the text.
fn words(object: &mut JsonObject) {
    for key in ["oneOf", "anyOf"] {
        let Some(alternatives) = object.get(key).and_then(Value::as_array) else {
            continue;
        };
        let mut allowed = Vec::new();
        let mut notes = Vec::new();
        for alternative in alternatives.iter().filter(|a| a["type"] != "null") {
            match (alternative.get("const"), alternative.get("enum")) {
                (Some(word), _) => {
                    if let Some(note) = alternative["description"].as_str() {
                        let word = word.as_str().unwrap_or_default();
                        notes.push(format!("{word}: {note}"));
                    }
                    allowed.push(word.clone());
                }
                (None, Some(Value::Array(words))) => allowed.extend(words.iter().cloned()),
                _ => {
                    allowed.clear();
                    break;
                }
            }
        }
        if allowed.is_empty() {
            continue;
        }
        object.remove(key);
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), Value::Array(allowed));
        if !notes.is_empty() {
            let before = object.get("description").and_then(Value::as_str);
            let text = format!("{} {}", before.unwrap_or_default(), notes.join("; "));
            object.insert("description".to_owned(), text.trim().into());
        }
    }
}

/// A field that may be missing is missing, never `null`.
fn not_null(object: &mut JsonObject) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(alternatives)) = object.get("anyOf") else {
        return;
    };
    let real: Vec<&Value> = alternatives
        .iter()
        .filter(|a| a["type"] != "null")
        .collect();
    if let [Value::Object(only)] = real.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    /// What to rank by.
    #[derive(Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)] // only its schema is looked at
    enum By {
        /// all time
        TotalTime,
        /// number
        Count,
    }

    #[derive(Debug, Serialize, JsonSchema)]
    #[allow(dead_code)]
    struct Inner {
        format: String,
    }

    #[derive(Debug, Serialize, JsonSchema)]
    #[allow(dead_code)]
    struct Example {
        /// Bytes.
        bytes: u64,
        /// What comes first.
        by: Option<By>,
        #[serde(skip_serializing_if = "Option::is_none")]
        inner: Option<Inner>,
        numbers: Vec<Option<f64>>,
    }

    #[test]
    fn schemas_are_plain() {
        let schema = Value::Object(plain::<Example>(SchemaSettings::draft2020_12()));
        let text = schema.to_string();
        for unwanted in [
            "$ref", "$defs", "$schema", "\"null\"", "oneOf", "anyOf", "uint64",
        ] {
            assert!(!text.contains(unwanted), "{unwanted} in {text}");
        }
        assert_eq!(schema["type"], "object");
        assert_eq!(
            schema["properties"]["by"]["enum"],
            serde_json::json!(["total_time", "count"])
        );
        let description = schema["properties"]["by"]["description"].as_str().unwrap();
        assert!(
            description.contains("total_time: all time"),
            "{description}"
        );
        // A field called "format" is no format.
        assert_eq!(
            schema["properties"]["inner"]["properties"]["format"]["type"],
            "string"
        );
    }
}
