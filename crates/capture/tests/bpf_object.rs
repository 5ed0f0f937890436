//! The compiled kernel programs that are kept in the repository are those of the sources beside them.

#![allow(clippy::unwrap_used)] // a test

use std::process::Command;

#[test]
fn the_kept_object_is_made_from_its_sources() {
    const TEST: &str = "the_kept_object_is_made_from_its_sources";
    let root = ingero_testkit::repository();
    let kept = std::fs::read(root.join("bpf/ingero.bpf.o")).unwrap();
    let Some(here) = clang_version() else {
        ingero_testkit::skip::skip(TEST, "clang-19 is not installed");
        return;
    };
    let made_with = std::fs::read_to_string(root.join("bpf/ingero.bpf.o.compiler")).unwrap();
    let made_with = number(&made_with);
    if here != made_with {
        let reason = format!("it was made with clang {made_with}, here is {here}");
        ingero_testkit::skip::skip(TEST, &reason);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("fresh.o");
    let output = Command::new(root.join("scripts/build-bpf"))
        .arg(&fresh)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        kept == std::fs::read(&fresh).unwrap(),
        "bpf/ingero.bpf.o is not what its sources give: run scripts/build-bpf"
    );
}

fn clang_version() -> Option<String> {
    let output = Command::new("clang-19").arg("--version").output().ok()?;
    Some(number(&String::from_utf8(output.stdout).unwrap()))
}

/// The number in what clang says of its version; the packaging that is named after it makes no difference.
fn number(said: &str) -> String {
    let (_, after) = said.split_once("version ").unwrap();
    after.split_whitespace().next().unwrap().to_owned()
}
