//! Jobs with one known bottleneck each (`tests/workloads/scenarios.py`), recorded live through the stand-in
//! CUDA library and diagnosed: does the diagnosis name what was built into the job?

use crate::others::Others;
use crate::{program, repository, stderr};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The most of a budget that may remain unknown.
const UNKNOWN_MAX: f64 = 0.05;

/// CPUs that others may use while a scenario runs. Its job is made for CPUs of its own: where others
/// take more than this, its bottleneck may be another one than was built into it.
const OTHERS_CPUS_MAX: f64 = 0.25;

/// Rounding of the shares in an answer, summed over a budget.
const ROUNDING: f64 = 0.005;

/// A job, and what is true of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its name in the script.
    pub name: &'static str,
    /// The codes of the causes that were built into it, the costliest first: it is the verdict.
    pub expected: &'static [&'static str],
    /// The job itself, for a reader of the table.
    pub what: &'static str,
    /// The script that holds it, in `tests/workloads`.
    script: &'static str,
    /// Something outside the job burdens it.
    outside: bool,
}

const fn scenario(
    name: &'static str,
    expected: &'static [&'static str],
    what: &'static str,
) -> Scenario {
    Scenario {
        name,
        expected,
        what,
        script: "scenarios.py",
        outside: false,
    }
}

const fn blind(
    name: &'static str,
    expected: &'static [&'static str],
    what: &'static str,
) -> Scenario {
    Scenario {
        script: "blind.py",
        ..scenario(name, expected, what)
    }
}

const fn burdened(scenario: Scenario) -> Scenario {
    Scenario {
        outside: true,
        ..scenario
    }
}

/// All scenarios that were known when the rules were written. G6 is of a kind that no rule knows: there
/// the verdict is that the cause is on the host and not explained.
pub const ALL: [Scenario; 18] = [
    scenario("G1", &["WORKER_OVERSUB"], "4 computing workers per CPU"),
    scenario("G2", &["LOADER_CPU_BOUND"], "1 worker that cannot keep up"),
    scenario("G3", &["LOADER_IPC_INMEM"], "tiny batches handed over"),
    scenario("G4", &["WORKER_RESPAWN"], "new workers every 6 batches"),
    scenario(
        "G5",
        &["QUOTA_THROTTLE"],
        "2 workers under a quota of 0.5 CPUs",
    ),
    scenario("G6", &["HOST_UNEXPLAINED"], "random reads from disk"),
    scenario(
        "G7",
        &["SYNC_EVERY_STEP"],
        "a value read back after each kernel",
    ),
    scenario(
        "G8",
        &["LAUNCH_BOUND"],
        "kernels as short as their launches",
    ),
    burdened(scenario(
        "G9",
        &["EXTERNAL_CONTENTION"],
        "others fill the CPUs",
    )),
    scenario("G10", &["HEALTHY_GPU_BOUND"], "workers that keep up"),
    scenario("G11", &["HEALTHY_GPU_BOUND"], "full launch queue, no sync"),
    scenario("G12", &["IDLE"], "context without work"),
    scenario(
        "MASK",
        &["AFFINITY_CONFINED"],
        "3 workers on the 1 CPU of a mask",
    ),
    scenario("R1", &["ALLOC_CHURN"], "allocates and frees in each step"),
    scenario("R2", &["H2D_PAGEABLE"], "large copies from pageable memory"),
    scenario("R3", &["HEALTHY_GPU_BOUND"], "the same from pinned memory"),
    scenario("R4", &["HOST_SERIAL"], "main thread computes"),
    scenario("R5", &["LOADER_CPU_BOUND"], "main thread prepares batches"),
];

/// Scenarios that were written from the names of the kinds alone, without sight of the rules.
pub const BLIND: [Scenario; 6] = [
    blind(
        "B1",
        &["LOADER_IPC_INMEM", "H2D_PAGEABLE"],
        "ranking model, features in memory",
    ),
    blind(
        "B2",
        &["HEALTHY_GPU_BOUND"],
        "fine-tuning of a language model",
    ),
    burdened(blind(
        "B3",
        &["EXTERNAL_CONTENTION"],
        "video classification beside a build",
    )),
    blind(
        "B4",
        &["LAUNCH_BOUND"],
        "text generation with small kernels",
    ),
    blind(
        "B5",
        &["HOST_SERIAL", "ALLOC_CHURN"],
        "detection, boxes matched on the host",
    ),
    blind(
        "B6",
        &["WORKER_RESPAWN"],
        "few-shot learning in short epochs",
    ),
];

/// How a scenario is run.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Factor on all its durations.
    pub scale: f64,
    /// The name that its workers give themselves.
    pub worker_name: &'static str,
    /// Whether a compiler works beside it.
    pub loaded: bool,
}

/// As the scenarios were designed.
pub const STANDARD: Variant = Variant {
    scale: 1.0,
    worker_name: "pt_data_worker",
    loaded: false,
};

impl Scenario {
    /// Whether its durations can be scaled and its workers named.
    pub fn has_variants(&self) -> bool {
        self.script == "scenarios.py"
    }
}

/// What the diagnosis said of a recorded scenario.
#[derive(Debug)]
pub struct Outcome {
    scenario: Scenario,
    variant: Variant,
    /// The structured answer of `explain_bottleneck`.
    pub answer: Value,
    /// CPUs that the rest of the machine used on average meanwhile.
    pub others_cpus: f64,
}

/// Records a scenario in `folder` and asks for its diagnosis. The caller holds the live lock.
///
/// # Panics
/// If the job, the recorder or the server fails, with what they said.
pub fn record_and_diagnose(scenario: Scenario, variant: Variant, folder: &Path) -> Outcome {
    let traces = tempfile::tempdir_in(folder).expect("a folder for the recording");
    let trace = traces.path().join("trace.duckdb");
    let script = repository().join("tests/workloads").join(scenario.script);
    let job: Vec<OsString> = vec!["python3".into(), script.into(), scenario.name.into()];
    let mut options: Vec<OsString> = Vec::new();
    if scenario.name == "G6" {
        let file = folder.join("600-mib");
        options.extend(["--file".into(), file.clone().into_os_string()]);
        if !file.exists() {
            let mut prepare = Command::new(&job[0]);
            succeed(prepare.args(&job[1..]).args(&options).arg("--prepare"));
        }
    }
    if scenario.has_variants() {
        options.extend(["--scale".into(), variant.scale.to_string().into()]);
        options.extend(["--worker-name".into(), variant.worker_name.into()]);
    }
    options.extend([
        "--cudart".into(),
        ingero_testkit::cudart::stand_in().into_os_string(),
    ]);

    let mut record = Command::new(program("ingero-capture"));
    record.args(["record", "-o"]).arg(&trace).arg("--");
    let others = Others::watch();
    let outside = scenario.outside.then(|| {
        let mut outside = Command::new(&job[0]);
        Beside::start(outside.args(&job[1..]).arg("--outside"))
    });
    let load = variant.loaded.then(|| {
        let mut compiler = Command::new("sh");
        Beside::start(compiler.args(["-c", COMPILER]).current_dir(traces.path()))
    });
    succeed(record.args(&job).args(&options));
    drop((outside, load));
    let others_cpus = others.cpus();
    let mut ask = Command::new(program("ingero-mcp"));
    ask.arg("--db").arg(&trace);
    let answer = succeed(ask.args(["call", "explain_bottleneck", "{}"]));
    Outcome {
        scenario,
        variant,
        answer: serde_json::from_slice(&answer.stdout).expect("the answer is JSON"),
        others_cpus,
    }
}

/// Compiles a file again and again, as a build beside the job does.
const COMPILER: &str =
    "seq 2000 | sed 's/.*/int f&(int x) { return x % 7 ? x * & + f&(x - 1) : 0; }/' > load.c
while :; do cc -O2 -c load.c -o load.o || exit 1; done";

/// A process that runs beside the job, with all that it starts, until this is dropped.
struct Beside(Child);

impl Beside {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).process_group(0);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self(child)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        // It may have ended by itself; then there is nothing to stop.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).output();
        let _ = self.0.wait();
    }
}

fn succeed(command: &mut Command) -> Output {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        stderr(&output)
    );
    output
}

impl Outcome {
    /// The code of the verdict.
    pub fn code(&self) -> &str {
        self.answer["verdict"]["code"].as_str().unwrap_or("none")
    }

    /// Share of the wall time that the finding of the verdict explains, 0 to 1; `None` without one.
    pub fn share(&self) -> Option<f64> {
        self.share_of(self.code())
    }

    fn share_of(&self, code: &str) -> Option<f64> {
        self.findings().find(|f| f["code"] == code)?["share"].as_f64()
    }

    /// Share of one part of the budget, 0 to 1; a part that is not listed is 0.
    pub fn part(&self, name: &str) -> f64 {
        let parts = self.budget().filter(|(part, _)| *part == name);
        // An empty sum of floats is -0.
        parts.map(|(_, share)| share).sum::<f64>() + 0.0
    }

    fn budget(&self) -> impl Iterator<Item = (&str, f64)> {
        let parts = self.answer["budget"].as_array().into_iter().flatten();
        parts.map(|part| {
            let name = part["part"].as_str().expect("every part has a name");
            (
                name,
                part["share"].as_f64().expect("every part has a share"),
            )
        })
    }

    fn findings(&self) -> impl Iterator<Item = &Value> {
        self.answer["findings"].as_array().into_iter().flatten()
    }

    /// Whether the job had its CPUs for itself, so that its bottleneck is the one that was built into it.
    pub fn undisturbed(&self) -> bool {
        self.scenario.outside || self.others_cpus <= OTHERS_CPUS_MAX
    }

    /// Everything about the answer that is not as it has to be.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let [expected, besides @ ..] = self.scenario.expected else {
            unreachable!("every scenario has a verdict")
        };
        if self.code() != *expected {
            faults.push(format!("the verdict is {}, not {expected}", self.code()));
        }
        for cause in besides {
            if self.share_of(cause).is_none() {
                faults.push(format!("{cause} is not found"));
            }
        }
        // Without launches there is no feeder whose time could be divided.
        if *expected != "IDLE" {
            let sum: f64 = self.budget().map(|(_, share)| share).sum();
            if (sum - 1.0).abs() > ROUNDING {
                faults.push(format!("the budget sums to {sum:.3}, not 1"));
            }
        }
        let unknown = self.part("unknown");
        if unknown > UNKNOWN_MAX {
            faults.push(format!("{unknown:.3} of the time is unknown"));
        }
        let advice = |finding: &Value| finding["advice"].as_array().is_some_and(|a| !a.is_empty());
        let explained = !["HEALTHY_GPU_BOUND", "IDLE", "HOST_UNEXPLAINED"].contains(&self.code());
        if !explained && self.findings().any(advice) {
            faults.push(format!("{} comes with advice", self.code()));
        }
        if explained && !self.findings().any(advice) {
            faults.push(format!("{} comes without advice", self.code()));
        }
        faults
    }
}

/// The outcomes as a table in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = String::from(
        "| scenario | job | run | expected | verdict | share | confidence | besides | unknown | CPUs of others | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        let Scenario {
            name,
            expected,
            what,
            ..
        } = outcome.scenario;
        let share = outcome
            .share()
            .map_or("-".to_owned(), |share| format!("{share:.2}"));
        let confidence = match &outcome.answer["verdict"]["confidence"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let besides: Vec<String> = outcome
            .findings()
            .filter(|finding| finding["code"] != outcome.code())
            .map(|finding| {
                let code = finding["code"].as_str().unwrap_or("none");
                format!("{code} {:.2}", finding["share"].as_f64().unwrap_or(0.0))
            })
            .collect();
        let faults = outcome.faults();
        let result = if faults.is_empty() {
            "ok".to_owned()
        } else {
            faults.join("; ")
        };
        table += &format!(
            "| {name} | {what} | {} | {} | {} | {share} | {confidence} | {} | {:.3} | {:.2} | {result} |\n",
            outcome.variant.in_words(outcome.scenario),
            expected.join(", "),
            outcome.code(),
            besides.join(", "),
            outcome.part("unknown"),
            outcome.others_cpus,
        );
    }
    table
}

impl Variant {
    fn in_words(&self, scenario: Scenario) -> String {
        let mut words = Vec::new();
        if scenario.has_variants() {
            words.push(format!("x{} {}", self.scale, self.worker_name));
        }
        if self.loaded {
            words.push("beside a compiler".to_owned());
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(scenario: &str, code: &str, shares: [f64; 2], advice: Value) -> Vec<String> {
        let scenario = ALL.iter().find(|s| s.name == scenario).expect("a scenario");
        let [gpu_wait, unknown] = shares;
        let outcome = Outcome {
            scenario: *scenario,
            variant: STANDARD,
            others_cpus: 0.0,
            answer: json!({
                "verdict": {"code": code, "confidence": "high"},
                "findings": [{"code": code, "share": 0.5, "advice": advice}],
                "budget": [
                    {"part": "gpu_wait", "share": gpu_wait},
                    {"part": "unknown", "share": unknown},
                ],
            }),
        };
        outcome.faults()
    }

    #[test]
    fn a_true_answer_has_no_faults() {
        let none: [String; 0] = [];
        assert_eq!(
            faults("G1", "WORKER_OVERSUB", [0.98, 0.02], json!(["x"])),
            none
        );
        assert_eq!(
            faults("G10", "HEALTHY_GPU_BOUND", [0.98, 0.02], json!([])),
            none
        );
    }

    #[test]
    fn every_fault_is_found() {
        let one = |scenario, code, shares, advice, part: &str| {
            let faults = faults(scenario, code, shares, advice);
            assert!(
                faults.len() == 1 && faults[0].contains(part),
                "{part}: {faults:?}"
            );
        };
        one(
            "G1",
            "LOADER_CPU_BOUND",
            [1.0, 0.0],
            json!(["x"]),
            "not WORKER_OVERSUB",
        );
        one(
            "G1",
            "WORKER_OVERSUB",
            [0.9, 0.0],
            json!(["x"]),
            "sums to 0.900",
        );
        one(
            "G1",
            "WORKER_OVERSUB",
            [0.9, 0.1],
            json!(["x"]),
            "is unknown",
        );
        one(
            "G1",
            "WORKER_OVERSUB",
            [1.0, 0.0],
            json!([]),
            "without advice",
        );
        one(
            "G6",
            "HOST_UNEXPLAINED",
            [1.0, 0.0],
            json!(["x"]),
            "with advice",
        );
    }
}
