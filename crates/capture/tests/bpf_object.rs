//! The compiled kernel programs that are kept in the repository are those of the sources beside them.

#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::process::Command;

#[test]
fn the_kept_object_is_made_from_its_sources() {
    const TEST: &str = "the_kept_object_is_made_from_its_sources";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kept = std::fs::read(root.join("bpf/ingero.bpf.o")).unwrap();
    let Some(version) = clang_version() else {
        ingero_testkit::skip::skip(TEST, "clang-19 is not installed");
        return;
    };
    let made_with = std::fs::read_to_string(root.join("bpf/ingero.bpf.o.compiler")).unwrap();
    if version != made_with.trim() {
        ingero_testkit::skip::skip(
            TEST,
            &format!("it was made with {}, here is {version}", made_with.trim()),
        );
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
    Some(
        String::from_utf8(output.stdout)
            .ok()?
            .lines()
            .next()?
            .to_owned(),
    )
}
