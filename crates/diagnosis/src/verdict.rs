//! From the features to the diagnosis.

use crate::case::{Case, WORTH_NAMING};
use crate::features::{Features, Feeder, Part};
use crate::output::{BudgetPart, Code, Confidence, Diagnosis, FeederSummary, Finding, Verdict};
use crate::rules::{Outcome, RULES};
use crate::text::{count, duration, percent};

/// A job whose feeder waits for the GPU this much is limited by it, if the GPU hardly idles.
const GPU_BOUND_WAIT: f64 = 0.6;
const GPU_BOUND_IDLE: f64 = 0.05;
/// A feeder that was active for less than this part of the time since its first CUDA call is idle.
const ACTIVE: f64 = 0.1;
/// With fewer steps than this nothing can be said of a steady state.
const FEWEST_STEPS: u64 = 3;
/// Below this much time likewise.
const SHORTEST_S: f64 = 0.2;
/// A recording with more unknown time than this cannot be judged.
const TOO_UNKNOWN: f64 = 0.2;

/// Diagnoses one window of one recording.
pub fn diagnose(features: &Features) -> Diagnosis {
    let mut caveats = features.recorded.caveats.clone();
    let lossy = !features.recorded.lost.is_empty();
    let state = |code, confidence, summary: String, next: Vec<String>| Diagnosis {
        summary,
        verdict: Verdict { code, confidence },
        findings: Vec::new(),
        budget: features.feeder.as_ref().map(budget).unwrap_or_default(),
        feeder: features.feeder.as_ref().map(summarize),
        caveats: caveats.clone(),
        next,
    };
    if !features.recorded.cuda {
        return state(
            Code::Insufficient,
            Confidence::High,
            "No process of the job loaded a CUDA library (libcudart or libcuda) that could be probed, so nothing can be said about what the GPU waited for: the job uses no CUDA, or its libraries could not be reached.".to_owned(),
            vec!["list_processes shows what the job did instead".to_owned()],
        );
    }
    let Some(case) = Case::of(features) else {
        let window_s = (features.window_end_ms - features.window_start_ms) / 1e3;
        if window_s < SHORTEST_S {
            // Every job does nothing for a moment.
            return state(
                Code::Insufficient,
                Confidence::High,
                format!(
                    "No work was given to the GPU, but {} are too short to call the job idle.",
                    duration(window_s)
                ),
                vec!["ask again about a second or more".to_owned()],
            );
        }
        let summary = match &features.feeder {
            Some(feeder) => format!(
                "The GPU was given no work: process {} called CUDA, but launched nothing and copied nothing in this window.",
                feeder.pid
            ),
            None => {
                "The GPU was given no work: no process made a CUDA call in this window.".to_owned()
            }
        };
        let confidence = if lossy {
            Confidence::Medium
        } else {
            Confidence::High
        };
        return state(
            Code::Idle,
            confidence,
            summary,
            vec!["if the job should have been busy, see list_processes and fork_timeline for what it did instead".to_owned()],
        );
    };
    if let Some(why) = insufficient(features, &case) {
        return state(
            Code::Insufficient,
            Confidence::High,
            format!("This recording is not enough for a diagnosis: {why}."),
            vec![
                "record at least 10 steps of the job in its steady state, e.g. with --duration 20"
                    .to_owned(),
            ],
        );
    }
    let feeder = case.feeder;
    if feeder.span_s < ACTIVE * feeder.since_first_call_s {
        return state(
            Code::Idle,
            Confidence::Medium,
            format!(
                "The GPU was given work only for {} of the {} since the first CUDA call; the rest of the time the job asked nothing of it.",
                duration(feeder.span_s),
                duration(feeder.since_first_call_s)
            ),
            vec![
                "ask again with start_ms and end_ms around the active time to judge that"
                    .to_owned(),
            ],
        );
    }
    let idle = case.gpu_idle_share();
    let waits = case.gpu_wait_share();
    let loss = case.share(case.host_loss_s());
    let mut unsure = Vec::new();
    let mut findings = Vec::new();
    if !(waits >= GPU_BOUND_WAIT && idle <= GPU_BOUND_IDLE) {
        for rule in &RULES {
            match (rule.judge)(&case) {
                Outcome::Holds(finding) => findings.push(*finding),
                Outcome::DoesNotHold(_) => {}
                Outcome::CannotTell(missing) => {
                    unsure.push(format!("{} cannot be judged: {missing}", rule.code.name()));
                }
            }
        }
    }
    findings.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    if case.loader.is_some() {
        hide_behind_the_loader(&mut findings);
    }
    if lossy {
        for finding in &mut findings {
            finding.confidence = finding.confidence.lowered();
        }
    }
    caveats.extend(unsure);
    caveats.push(
        "what the GPU did inside its kernels, its clocks, and which line of code the host was in are not part of the recording".to_owned(),
    );
    let (code, confidence, summary, next) = if let Some(first) = findings.first() {
        name_causes(&case, first, &findings)
    } else if loss < WORTH_NAMING || (waits >= GPU_BOUND_WAIT && idle <= GPU_BOUND_IDLE) {
        healthy(&case, loss)
    } else {
        unexplained(&case, loss)
    };
    Diagnosis {
        summary,
        verdict: Verdict {
            code,
            confidence: if lossy {
                confidence.lowered()
            } else {
                confidence
            },
        },
        findings,
        budget: budget(feeder),
        feeder: Some(summarize(feeder)),
        caveats,
        next,
    }
}

/// While the workers cannot keep up, what the feeder saves it only waits longer for them: what is
/// won by a change to the feeder's own work is sure only once they do.
fn hide_behind_the_loader(findings: &mut [Finding]) {
    const LOADER_IS_SLOW: [Code; 2] = [Code::LoaderCpuBound, Code::WorkerOversub];
    const FEEDERS_OWN: [Code; 5] = [
        Code::HostSerial,
        Code::H2dPageable,
        Code::SyncEveryStep,
        Code::LaunchBound,
        Code::AllocChurn,
    ];
    if !findings.iter().any(|f| LOADER_IS_SLOW.contains(&f.code)) {
        return;
    }
    let own = findings
        .iter_mut()
        .filter(|finding| FEEDERS_OWN.contains(&finding.code));
    for advice in own.flat_map(|finding| &mut finding.advice) {
        if let Some(gain) = &mut advice.expected_speedup {
            gain.low = 1.0;
            advice
                .check
                .push_str("; the job gets faster only once the loader keeps up");
        }
    }
}

/// Why a recording is not enough.
fn insufficient(features: &Features, case: &Case<'_>) -> Option<String> {
    let feeder = case.feeder;
    let unknown = case.share(feeder.budget.seconds(Part::Unknown));
    if !features.recorded.switches {
        return Some("switches of threads were not recorded".to_owned());
    }
    if unknown > TOO_UNKNOWN {
        return Some(format!(
            "{} of the feeder's time is not known",
            percent(unknown)
        ));
    }
    if feeder.span_s < SHORTEST_S {
        return Some(format!(
            "the GPU was given work for only {}",
            duration(feeder.span_s)
        ));
    }
    if feeder.steps < FEWEST_STEPS && case.gpu_wait_share() < WORTH_NAMING {
        return Some(format!(
            "it holds {} in which the job waited for the GPU, so it does not show whether the GPU was busy",
            count(feeder.steps, "step")
        ));
    }
    None
}

type Said = (Code, Confidence, String, Vec<String>);

fn name_causes(case: &Case<'_>, first: &Finding, all: &[Finding]) -> Said {
    let mut summary = format!(
        "{}. This costs {} of the time ({} of {}).",
        capitalized(&first.title),
        percent(first.share),
        duration(first.seconds),
        duration(case.feeder.span_s)
    );
    if let Some(advice) = first.advice.first() {
        summary.push_str(&format!(" Do: {}", advice.change));
        if let Some(gain) = advice.expected_speedup {
            summary.push_str(&format!(" (expected: {})", gain.in_words()));
        }
        summary.push('.');
    }
    for other in &all[1..] {
        summary.push_str(&format!(
            " Besides: {} ({}).",
            other.title,
            percent(other.share)
        ));
    }
    let next = vec![
        "list_processes compares the CPU time of the workers with their lifetimes, and names the CPUs that the job may use".to_owned(),
        format!("top_offcpu with pid {} and by thread shows who ended the feeder's waits", case.feeder.pid),
        "cuda_wait_latency lists the longest gaps in which the GPU was handed nothing".to_owned(),
    ];
    (first.code, first.confidence, summary, next)
}

fn healthy(case: &Case<'_>, loss: f64) -> Said {
    let waits = case.gpu_wait_share();
    let confidence = if waits >= GPU_BOUND_WAIT {
        Confidence::High
    } else {
        Confidence::Medium
    };
    (
        Code::HealthyGpuBound,
        confidence,
        format!(
            "The GPU is the limit: the feeder waited for it {} of the time, and the host left it without work for at most {}. Nothing on the host is worth changing; more speed has to come from the GPU's own work.",
            percent(waits),
            percent(loss.max(case.gpu_idle_share()))
        ),
        vec!["cuda_wait_latency shows the calls that waited".to_owned()],
    )
}

fn unexplained(case: &Case<'_>, loss: f64) -> Said {
    let mut parts: Vec<(Part, f64)> = Part::ALL
        .into_iter()
        .filter(|part| !matches!(part, Part::GpuWait | Part::Recorder | Part::Unknown))
        .map(|part| (part, case.share(case.exposed(&[part]))))
        .filter(|(_, share)| *share >= 0.01)
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told: Vec<String> = parts
        .iter()
        .take(3)
        .map(|(part, share)| {
            let rate = if *part == Part::Copy {
                copy_rate(case)
            } else {
                String::new()
            };
            format!("it {} for {}{rate}", part.meaning(), percent(*share))
        })
        .collect();
    let neighbours = neighbours(case);
    let mut next: Vec<String> = parts
        .iter()
        .take(2)
        .map(|(part, _)| would_settle(*part).to_owned())
        .collect();
    next.dedup();
    next.push("cuda_wait_latency lists the longest gaps in which the GPU was given nothing; top_offcpu shows who waited for whom".to_owned());
    (
        Code::HostUnexplained,
        Confidence::Medium,
        format!(
            "For up to {} of the time the job does not wait for the GPU's kernels but is held up on the host, and none of the known causes fits. Where the feeder's time went: {}.{neighbours}",
            percent(loss),
            told.join(", ")
        ),
        next,
    )
}

/// How fast the copies to the device went.
fn copy_rate(case: &Case<'_>) -> String {
    let seconds = case.feeder.budget.seconds(Part::Copy);
    if seconds <= 0.0 {
        return String::new();
    }
    let gigabytes = case.feeder.h2d_bytes as f64 / 1e9;
    format!(" ({gigabytes:.1} GB at {:.1} GB/s)", gigabytes / seconds)
}

/// Who else used the CPUs, where the feeder or its workers wanted for them.
fn neighbours(case: &Case<'_>) -> String {
    let wanted = case.share(case.exposed(&[Part::CpuWait, Part::LoaderCpuWait]));
    if wanted < WORTH_NAMING {
        return String::new();
    }
    let contention = case.contention;
    let most = contention
        .top_others
        .first()
        .map_or_else(String::new, |other| {
            format!(", {} the most", other.in_words())
        });
    format!(
        " While the job's threads waited for a CPU, the job itself used {} of the CPUs and processes outside it {}{most}.",
        percent(contention.job_share),
        percent(contention.other_share)
    )
}

/// What would tell the cause, for a part of the budget that no rule explains.
fn would_settle(part: Part) -> &'static str {
    match part {
        Part::HostCompute | Part::OwnThread => {
            "a sampling profiler on the feeder (py-spy record --pid PID) names the code that runs between the CUDA calls"
        }
        Part::Submit => {
            "a timeline of the GPU (Nsight Systems) tells whether it is busy while the host launches"
        }
        Part::Alloc => {
            "cuda_wait_latency lists the calls that allocate and free; a profiler of the framework's allocator (torch.cuda.memory_stats()) tells why"
        }
        Part::Copy => {
            "whether the copied memory is pinned decides: look for pin_memory and non_blocking in the code"
        }
        Part::CpuWait | Part::LoaderCpuWait => "top_offcpu names who took the CPUs",
        Part::Disk | Part::LoaderDisk => {
            "iostat -x 1 on the host, and whether the data is read for the first time"
        }
        Part::LoaderCompute | Part::LoaderSleep => {
            "py-spy dump --pid of a loader worker names what it does"
        }
        _ => "top_offcpu names who ended the waits; strace -p PID shows what the feeder waits for",
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

/// The budget as it is shown: all parts that took time, with shares that sum to 1.
fn budget(feeder: &Feeder) -> Vec<BudgetPart> {
    let total = feeder.budget.total();
    if total <= 0.0 {
        return Vec::new();
    }
    Part::ALL
        .into_iter()
        .map(|part| (part, feeder.budget.seconds(part)))
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(part, seconds)| BudgetPart {
            part: part.name().to_owned(),
            share: seconds / total,
            seconds,
            meaning: part.meaning().to_owned(),
        })
        .collect()
}

fn summarize(feeder: &Feeder) -> FeederSummary {
    let share = if feeder.span_s > 0.0 {
        (feeder.gpu_idle_lower_bound_s / feeder.span_s).min(1.0)
    } else {
        0.0
    };
    FeederSummary {
        pid: feeder.pid,
        tid: feeder.tid,
        name: feeder.name.clone(),
        from_ms: feeder.span_start_ms,
        to_ms: feeder.span_start_ms + feeder.span_s * 1e3,
        steps: feeder.steps,
        gpu_idle_share_at_least: share,
    }
}
