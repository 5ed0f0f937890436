//! The rules, one kind of bottleneck a file.

mod affinity_confined;
mod alloc_churn;
mod external_contention;
mod h2d_pageable;
mod host_serial;
mod launch_bound;
mod loader_cpu_bound;
mod loader_ipc_inmem;
mod quota_throttle;
mod sync_every_step;
mod worker_oversub;
mod worker_respawn;

use crate::case::Case;
use crate::features::{Loader, Part};
use crate::output::{Advice, Code, Evidence, Finding, Gain, RuledOut, speedup};
use crate::text::{bytes, duration};

/// What a rule says of a case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The cause is there.
    Holds(Box<Finding>),
    /// It is not; the reason.
    DoesNotHold(String),
    /// The recording does not tell; what is missing.
    CannotTell(String),
}

/// A rule and the kind that it finds.
pub(crate) struct Rule {
    pub(crate) code: Code,
    pub(crate) judge: fn(&Case<'_>) -> Outcome,
}

const fn rule(code: Code, judge: fn(&Case<'_>) -> Outcome) -> Rule {
    Rule { code, judge }
}

/// All rules. They look for different signatures, so their order does not matter.
pub(crate) const RULES: [Rule; 12] = [
    rule(Code::WorkerOversub, worker_oversub::judge),
    rule(Code::LoaderCpuBound, loader_cpu_bound::judge),
    rule(Code::LoaderIpcInmem, loader_ipc_inmem::judge),
    rule(Code::WorkerRespawn, worker_respawn::judge),
    rule(Code::ExternalContention, external_contention::judge),
    rule(Code::QuotaThrottle, quota_throttle::judge),
    rule(Code::AffinityConfined, affinity_confined::judge),
    rule(Code::SyncEveryStep, sync_every_step::judge),
    rule(Code::LaunchBound, launch_bound::judge),
    rule(Code::HostSerial, host_serial::judge),
    rule(Code::H2dPageable, h2d_pageable::judge),
    rule(Code::AllocChurn, alloc_churn::judge),
];

fn evidence(tool: &str, fact: String) -> Evidence {
    Evidence {
        fact,
        tool: tool.to_owned(),
    }
}

/// How long the feeder and its workers were ready and had no CPU.
fn queued_evidence(case: &Case<'_>) -> Evidence {
    evidence(
        "explain_bottleneck",
        format!(
            "the feeder waited {} for a CPU, and {} for workers that had none",
            duration(case.exposed(&[Part::CpuWait])),
            duration(case.exposed(&[Part::LoaderCpuWait]))
        ),
    )
}

fn ruled_out(what: &str, why: String) -> RuledOut {
    RuledOut {
        what: what.to_owned(),
        why,
    }
}

/// Workers that lived but never ran: their CPU time is missing from the recording.
fn unknown_work(loader: &Loader) -> Option<Outcome> {
    (loader.alive_s > 0.0 && loader.run_s <= 0.0).then(|| {
        Outcome::CannotTell("the CPU time of the loader workers was not recorded".to_owned())
    })
}

/// Bytes a step may read without it counting as reading a data set: indices, control messages.
const CONTROL_BYTES_PER_STEP: f64 = 64.0 * 1024.0;
/// The same as a part of what the step copies to the GPU. The indices of a batch of 50,000 rows
/// are 175 KiB, 0.9% of its 20 MB; compressed images are 5% and more of the tensors made of them.
const CONTROL_PART_OF_BATCH: f64 = 0.02;

/// How the data set is read, as far as reads show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataSource {
    /// Nothing is read while the job runs: the data is in memory already.
    Memory,
    /// Read through read calls, from storage or the page cache.
    Files,
    /// No sample of the readers falls into the span.
    Unknown,
}

/// What the readers of the data set read per step. With workers, they read the data set; what the
/// feeder reads are their batches.
fn read_per_step(case: &Case<'_>) -> Option<f64> {
    let rchar = match case.loader {
        Some(loader) => loader.rchar_bytes,
        None => case.feeder.rchar_bytes,
    };
    Some(rchar? as f64 / case.feeder.steps.max(1) as f64)
}

fn data_source(case: &Case<'_>) -> DataSource {
    match read_per_step(case) {
        None => DataSource::Unknown,
        Some(read) => {
            let batch = case.feeder.h2d_bytes as f64 / case.feeder.steps.max(1) as f64;
            if read <= CONTROL_BYTES_PER_STEP.max(CONTROL_PART_OF_BATCH * batch) {
                DataSource::Memory
            } else {
                DataSource::Files
            }
        }
    }
}

/// The fact about where the data is.
fn data_evidence(case: &Case<'_>) -> Evidence {
    let who = if case.loader.is_some() {
        "the workers"
    } else {
        "the process"
    };
    let fact = match (data_source(case), read_per_step(case)) {
        (DataSource::Memory, Some(read)) => format!(
            "{who} read {} per step through read calls, {}: the data is in memory, mapped, or made up",
            bytes(read),
            if case.feeder.h2d_bytes > 0 {
                format!(
                    "for {} that a step copies to the GPU",
                    bytes(case.feeder.h2d_bytes as f64 / case.feeder.steps.max(1) as f64)
                )
            } else {
                "which is no data set".to_owned()
            }
        ),
        (_, Some(read)) => format!("{who} read {} per step through read calls", bytes(read)),
        (_, None) => format!("what {who} read was not sampled"),
    };
    evidence("explain_bottleneck", fact)
}

/// What makes a batch cheaper to prepare.
fn cheaper_batches(source: DataSource) -> &'static str {
    match source {
        DataSource::Memory => {
            "do less for each sample in Python: fewer and vectorized operations, or the same on the GPU"
        }
        DataSource::Files | DataSource::Unknown => {
            "make preparing a batch cheaper: cache or resize the data offline, use a faster decoder, or prepare on the GPU"
        }
    }
}

/// The advice for data in memory: whole batches instead of samples. It helps for sure where
/// handing over is what costs; elsewhere only if a sample is not computed but looked up.
fn index_batches(case: &Case<'_>, cost_s: f64, handing_over: bool) -> Advice {
    let bound = speedup(case.share(cost_s));
    let (condition, low) = if handing_over {
        ("", 1.0 + (bound - 1.0) / 2.0)
    } else {
        ("if a sample is only a row of data in memory: ", 1.0)
    };
    Advice {
        change: format!(
            "{condition}index whole batches in the training process instead of loading sample by sample"
        ),
        why: "nothing is read while the job runs, so the data is in memory, and a batch is one indexing operation; a DataLoader takes it apart into samples and puts them together again, and sends the result through another process when it has workers".to_owned(),
        snippet: Some("for i in torch.randperm(len(X)).split(batch_size): x, y = X[i].to(device), Y[i].to(device)".to_owned()),
        expected_speedup: Some(Gain { low, high: bound }),
        check: format!(
            "a step took {} here; record again, {} must be gone from the budget",
            duration(case.step_s()),
            if case.loader.is_some() { "loader_compute" } else { "host_compute" }
        ),
    }
}
