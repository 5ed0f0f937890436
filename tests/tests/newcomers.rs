//! The first command of the README: the diagnosis of the recordings that come with the repository.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_tests::{repository, run, stderr, stdout};
use serde_json::Value;

/// The recordings in `fixtures/`, and what a careful engineer concludes from them.
const VERDICTS: [(&str, &str); 3] = [
    ("direct", "H2D_PAGEABLE"),
    ("workers0", "LOADER_CPU_BOUND"),
    ("workers4", "LOADER_CPU_BOUND"),
];

fn recording(name: &str) -> String {
    let folder = repository().join("fixtures/pytorch-dataloader");
    let path = folder.join(name).with_extension("duckdb");
    path.to_str().unwrap().to_owned()
}

fn diagnosis(name: &str) -> Value {
    let output = run(
        "ingero-mcp",
        ["--db", &recording(name), "call", "explain_bottleneck"],
    );
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_recording_has_an_expected_verdict() {
    let folder = repository().join("fixtures/pytorch-dataloader");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|e| e == "duckdb"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, VERDICTS.map(|(name, _)| name));
}

#[test]
fn the_first_command_prints_the_verdict() {
    for (name, code) in VERDICTS {
        let output = run("ingero-mcp", ["--db", &recording(name), "explain"]);
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let text = stdout(&output);
        assert!(text.starts_with(&format!("{code} (")), "{name}: {text}");
    }
}

#[test]
fn the_recordings_are_diagnosed() {
    for (name, code) in VERDICTS {
        let diagnosis = diagnosis(name);
        assert_eq!(diagnosis["verdict"]["code"], code, "{name}");
    }
}

#[test]
fn the_budgets_are_complete() {
    for (name, _) in VERDICTS {
        let diagnosis = diagnosis(name);
        let budget = diagnosis["budget"].as_array().unwrap();
        let share = |part: &Value| part["share"].as_f64().unwrap();
        let sum: f64 = budget.iter().map(share).sum();
        // A share is rounded to four digits.
        assert!(
            (sum - 1.0).abs() <= 0.5e-4 * budget.len() as f64,
            "{name}: {sum}"
        );
        let unknown = budget.iter().find(|part| part["part"] == "unknown");
        assert!(unknown.map_or(0.0, share) <= 0.05, "{name}: {budget:?}");
    }
}

#[test]
fn the_loaders_are_told_to_index_whole_batches_first() {
    for name in ["workers0", "workers4"] {
        let diagnosis = diagnosis(name);
        let change = diagnosis["findings"][0]["advice"][0]["change"]
            .as_str()
            .unwrap();
        assert!(change.contains("index whole batches"), "{name}: {change}");
    }
}
