//! JSON Schema, as far as the tools use it. A keyword that is not known here is an error: a schema
//! must not be thought valid because it was not understood.

use serde_json::Value;

/// What in `value` does not fit `schema`.
pub(crate) fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, value, "", &mut errors);
    errors
}

fn check(schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        errors.push(format!("{at}: {schema} is no schema"));
        return;
    };
    for (keyword, rule) in keywords {
        let fits = match keyword.as_str() {
            "description" | "default" => true,
            "type" => is_of_type(value, rule),
            "enum" => rule.as_array().is_some_and(|words| words.contains(value)),
            "minimum" => value.as_f64() >= rule.as_f64(),
            "maximum" => value.as_f64() <= rule.as_f64(),
            "required" => rule
                .as_array()
                .into_iter()
                .flatten()
                .all(|name| name.as_str().is_some_and(|name| value.get(name).is_some())),
            "additionalProperties" => {
                rule == &Value::Bool(true)
                    || value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .all(|(name, _)| schema["properties"].get(name).is_some())
            }
            "properties" => {
                for (name, inner) in value.as_object().into_iter().flatten() {
                    if let Some(property) = rule.get(name) {
                        check(property, inner, &format!("{at}/{name}"), errors);
                    }
                }
                rule.is_object()
            }
            "items" => {
                for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, inner, &format!("{at}/{index}"), errors);
                }
                true
            }
            _ => false,
        };
        if !fits {
            errors.push(format!("{at}: {value} breaks {keyword} {rule}"));
        }
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "w": {"enum": ["a", "b"]}},
        "required": ["n"],
        "additionalProperties": false
    });
    let errors = |value| errors(&schema, &value).len();
    assert_eq!(errors(serde_json::json!({"n": 1, "w": "b"})), 0);
    assert_eq!(errors(serde_json::json!({"n": 0})), 1);
    assert_eq!(errors(serde_json::json!({"n": 1.5, "w": "c"})), 2);
    assert_eq!(errors(serde_json::json!({"x": 1})), 2);
    assert_eq!(
        self::errors(&serde_json::json!({"oneOf": []}), &Value::Null).len(),
        1
    );
}
