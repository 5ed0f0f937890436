//! The first command of the README: the diagnosis of the recordings that come with the repository.

use ingero_tests::{repository, run, stderr, stdout};
use std::path::PathBuf;

/// The recordings in `fixtures/`: catalogs, or packed files.
fn fixtures() -> Vec<PathBuf> {
    let folder = repository().join("fixtures/pytorch-dataloader");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path());
    let mut traces: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "duckdb"))
        .collect();
    traces.sort();
    traces
}

#[test]
fn the_fixtures_are_there_and_explained() {
    let names: Vec<_> = fixtures()
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["direct", "workers0", "workers4"]);
    for trace in fixtures() {
        let trace = trace.to_str().unwrap();
        let output = run("ingero-mcp", ["--db", trace, "explain"]);
        assert!(output.status.success(), "{trace}: {}", stderr(&output));
        assert!(!stdout(&output).trim().is_empty(), "{trace}");
    }
}
