//! The first command of the README: the diagnosis of the recordings that come with the repository.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_tests::{repository, run, stderr, stdout};
use serde_json::Value;
use std::path::Path;

/// The recordings in `fixtures/`, and what a careful engineer concludes from them.
const VERDICTS: [(&str, &str); 14] = [
    ("closed-loop/empty-cache", "ALLOC_CHURN"),
    ("closed-loop/few-workers", "LOADER_CPU_BOUND"),
    ("closed-loop/healthy", "HEALTHY_GPU_BOUND"),
    ("closed-loop/host-serial", "HOST_SERIAL"),
    ("closed-loop/item", "SYNC_EVERY_STEP"),
    ("closed-loop/launch", "LAUNCH_BOUND"),
    ("closed-loop/pageable", "H2D_PAGEABLE"),
    ("closed-loop/respawn", "WORKER_RESPAWN"),
    ("closed-loop/two", "LOADER_CPU_BOUND"),
    ("closed-loop/workers0", "LOADER_CPU_BOUND"),
    ("closed-loop/workers4", "LOADER_CPU_BOUND"),
    ("pytorch-dataloader/direct", "H2D_PAGEABLE"),
    ("pytorch-dataloader/workers0", "LOADER_CPU_BOUND"),
    ("pytorch-dataloader/workers4", "LOADER_CPU_BOUND"),
];

fn recording(name: &str) -> String {
    let path = repository().join("fixtures").join(name);
    path.with_extension("duckdb").to_str().unwrap().to_owned()
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
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let mut names: Vec<String> = entries(&repository().join("fixtures"))
        .filter(|path| path.is_dir())
        .flat_map(|folder| entries(&folder))
        .filter(|path| path.extension().is_some_and(|e| e == "duckdb"))
        .map(|path| {
            let folder = path.parent().unwrap().file_name().unwrap();
            let name = path.file_stem().unwrap();
            format!("{}/{}", folder.to_str().unwrap(), name.to_str().unwrap())
        })
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
    for name in ["pytorch-dataloader/workers0", "pytorch-dataloader/workers4"] {
        let diagnosis = diagnosis(name);
        let change = diagnosis["findings"][0]["advice"][0]["change"]
            .as_str()
            .unwrap();
        assert!(change.contains("index whole batches"), "{name}: {change}");
    }
}

#[test]
fn too_few_workers_get_the_number_that_their_cpus_carry() {
    let diagnosis = diagnosis("closed-loop/few-workers");
    assert_eq!(
        diagnosis["findings"][0]["advice"][0]["change"],
        "num_workers=4"
    );
}

#[test]
fn two_problems_of_one_job_are_both_found() {
    let diagnosis = diagnosis("closed-loop/two");
    let findings = diagnosis["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding["code"] == "H2D_PAGEABLE"),
        "{findings:#?}"
    );
}
