//! Makes the Rust structs of the kernel's events from `bpf/events.h`, so that the two cannot drift.
//!
//! Only the plain C of that header is understood: enums with a number for every name, structs of
//! fixed-width fields and arrays, and an assertion of every size. Anything else stops the build.

#![allow(clippy::print_stdout)] // how a build script talks to cargo

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), String> {
    // At run time: checkouts that share a target folder share this program.
    let package =
        env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not set CARGO_MANIFEST_DIR")?;
    let header = Path::new(&package).join("../../bpf/events.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let source = fs::read_to_string(&header)
        .map_err(|error| format!("cannot read {}: {error}", header.display()))?;
    let rust = translate(&source).map_err(|error| format!("bpf/events.h: {error}"))?;
    let out = env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?;
    let events = Path::new(&out).join("events.rs");
    fs::write(&events, rust).map_err(|error| format!("cannot write {}: {error}", events.display()))
}

struct Field {
    name: String,
    rust_type: String,
    offset: usize,
}

/// The Rust text for a header.
fn translate(source: &str) -> Result<String, String> {
    let tokens = tokenize(source)?;
    let mut tokens = Tokens { tokens, next: 0 };
    let mut rust = String::from("// Made from bpf/events.h by build.rs.\n");
    let mut sizes: HashMap<String, usize> = HashMap::new();
    let mut asserted: HashMap<String, usize> = HashMap::new();
    while let Some(keyword) = tokens.peek() {
        match keyword {
            "enum" => enumeration(&mut tokens, &mut rust)?,
            "struct" => {
                let (name, size) = structure(&mut tokens, &mut rust)?;
                sizes.insert(name, size);
            }
            "_Static_assert" => {
                let (name, size) = size_assertion(&mut tokens)?;
                asserted.insert(name, size);
            }
            other => return Err(format!("unexpected {other:?}")),
        }
    }
    for (name, size) in &sizes {
        if asserted.get(name) != Some(size) {
            return Err(format!(
                "struct {name} needs an assertion that its size is {size}"
            ));
        }
    }
    Ok(rust)
}

/// Words, numbers and signs, without comments and preprocessor lines.
fn tokenize(source: &str) -> Result<Vec<String>, String> {
    let mut text = String::new();
    let mut rest = source;
    while let Some(start) = rest.find("/*") {
        text.push_str(&rest[..start]);
        let length = rest[start..].find("*/").ok_or("a comment has no end")?;
        rest = &rest[start + length + 2..];
    }
    text.push_str(rest);
    let mut tokens = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let mut word = String::new();
        for character in line.chars().chain([' ']) {
            if character.is_ascii_alphanumeric() || character == '_' {
                word.push(character);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if !character.is_whitespace() {
                tokens.push(character.to_string());
            }
        }
    }
    Ok(tokens)
}

struct Tokens {
    tokens: Vec<String>,
    next: usize,
}

impl Tokens {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.next).map(String::as_str)
    }

    fn take(&mut self) -> Result<String, String> {
        let token = self
            .tokens
            .get(self.next)
            .ok_or("the file ends too early")?;
        self.next += 1;
        Ok(token.clone())
    }

    fn expect(&mut self, wanted: &[&str]) -> Result<(), String> {
        for wanted in wanted {
            let token = self.take()?;
            if token != *wanted {
                return Err(format!("expected {wanted:?}, found {token:?}"));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<usize, String> {
        let token = self.take()?;
        token
            .parse()
            .map_err(|_| format!("expected a decimal number, found {token:?}"))
    }
}

/// `enum name { NAME = number, ... };`
fn enumeration(tokens: &mut Tokens, rust: &mut String) -> Result<(), String> {
    tokens.expect(&["enum"])?;
    tokens.take()?;
    tokens.expect(&["{"])?;
    while tokens.peek() != Some("}") {
        let name = tokens.take()?;
        tokens.expect(&["="])?;
        let value = tokens.number()?;
        tokens.expect(&[","])?;
        writeln!(rust, "pub(crate) const {name}: u32 = {value};")
            .map_err(|error| error.to_string())?;
    }
    tokens.expect(&["}", ";"])
}

/// `struct name { type field; type field[length]; ... };`
fn structure(tokens: &mut Tokens, rust: &mut String) -> Result<(String, usize), String> {
    tokens.expect(&["struct"])?;
    let name = tokens.take()?;
    tokens.expect(&["{"])?;
    let mut fields: Vec<Field> = Vec::new();
    let mut size = 0;
    let mut alignment = 1;
    while tokens.peek() != Some("}") {
        let c_type = tokens.take()?;
        let (element, bytes) = match c_type.as_str() {
            "__u8" | "char" => ("u8", 1),
            "__u16" => ("u16", 2),
            "__u32" => ("u32", 4),
            "__s32" => ("i32", 4),
            "__u64" => ("u64", 8),
            "__s64" => ("i64", 8),
            other => {
                return Err(format!(
                    "struct {name}: the type {other:?} has no fixed width"
                ));
            }
        };
        let field = tokens.take()?;
        let (rust_type, length) = if tokens.peek() == Some("[") {
            tokens.expect(&["["])?;
            let length = tokens.number()?;
            tokens.expect(&["]"])?;
            (format!("[{element}; {length}]"), length)
        } else {
            (element.to_owned(), 1)
        };
        tokens.expect(&[";"])?;
        if size % bytes != 0 {
            return Err(format!("struct {name}: there is padding before {field}"));
        }
        fields.push(Field {
            name: field,
            rust_type,
            offset: size,
        });
        size += bytes * length;
        alignment = alignment.max(bytes);
    }
    tokens.expect(&["}", ";"])?;
    if size % alignment != 0 {
        return Err(format!("struct {name}: there is padding at its end"));
    }
    emit_structure(&name, size, &fields, rust).map_err(|error| error.to_string())?;
    Ok((name, size))
}

fn emit_structure(
    name: &str,
    size: usize,
    fields: &[Field],
    rust: &mut String,
) -> std::fmt::Result {
    let camel: String = name
        .split('_')
        .map(|part| part[..1].to_uppercase() + &part[1..])
        .collect();
    writeln!(
        rust,
        "\n#[repr(C)]\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]"
    )?;
    writeln!(rust, "pub(crate) struct {camel} {{")?;
    for field in fields {
        writeln!(rust, "    pub(crate) {}: {},", field.name, field.rust_type)?;
    }
    writeln!(
        rust,
        "}}\nconst _: () = {{\n    assert!(size_of::<{camel}>() == {size});"
    )?;
    for field in fields {
        let Field { name, offset, .. } = field;
        writeln!(
            rust,
            "    assert!(std::mem::offset_of!({camel}, {name}) == {offset});"
        )?;
    }
    writeln!(rust, "}};")?;
    writeln!(
        rust,
        "// SAFETY: only integers and arrays of them, without padding: the fields fill the size asserted above.\n\
         unsafe impl aya::Pod for {camel} {{}}\n\
         impl WireRecord for {camel} {{}}"
    )
}

/// `_Static_assert(sizeof(struct name) == size, "text");`
fn size_assertion(tokens: &mut Tokens) -> Result<(String, usize), String> {
    tokens.expect(&["_Static_assert", "(", "sizeof", "(", "struct"])?;
    let name = tokens.take()?;
    tokens.expect(&[")", "=", "="])?;
    let size = tokens.number()?;
    tokens.expect(&[","])?;
    while tokens.peek() != Some(")") {
        tokens.take()?;
    }
    tokens.expect(&[")", ";"])?;
    Ok((name, size))
}
