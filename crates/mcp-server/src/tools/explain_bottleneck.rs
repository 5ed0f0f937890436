//! `explain_bottleneck`: the diagnosis.

use crate::arguments::{Asked, Lenient, WindowShown};
use crate::schema;
use crate::session::Session;
use crate::tool::{self, Tool, ToolError};
use ingero_analysis::Window;
use ingero_analysis::features::features;
use ingero_analysis::roles::{Role, Roles};
use ingero_diagnosis::Diagnosis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "explain_bottleneck",
    title: "What the GPU was waiting for",
    description: "Start here, without arguments: what the GPU of the recorded job was waiting for, \
        how much of the time that costs, what to change with concrete values and by how much it \
        can help, what was ruled out, and what cannot be known. The budget divides the time of \
        the feeder (the thread that hands the GPU its work) among what it did and waited for. A \
        verdict can also be that the GPU is the limit, that the job was idle, or that the \
        evidence does not suffice.",
    example: r#"{"start_ms": 0, "end_ms": 10000}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Start of the window in milliseconds since the recording's start. Default: its start.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    start_ms: Lenient,
    /// End of the window in milliseconds since the recording's start. Default: its end.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    end_ms: Lenient,
    /// The process to explain, where several feed a GPU. Default: the one with the most to do.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pid: Lenient,
    /// The code of a finding to show in full, e.g. H2D_PAGEABLE. Default: the costliest; the
    /// next two come with their first advice only, further ones are named.
    #[serde(default)]
    finding: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    /// The window that was asked for.
    window: WindowShown,
}

/// Diagnoses a window.
pub(crate) fn diagnose(
    session: &Session,
    window: Window,
    pid: Option<i32>,
) -> Result<Diagnosis, ToolError> {
    let features = features(&session.trace, window, pid)?;
    Ok(ingero_diagnosis::diagnose(&features))
}

/// Only a feeder has a budget: of another process a diagnosis would say that the GPU was idle.
pub(super) fn feeds_a_gpu(roles: &Roles, pid: i32) -> Result<(), ToolError> {
    let feeders: Vec<String> = roles.feeders.iter().map(|f| f.pid.to_string()).collect();
    let Some(first) = feeders.first() else {
        return Ok(());
    };
    if roles.of(pid) == Role::Feeder {
        return Ok(());
    }
    Err(ToolError::Arguments(format!(
        "pid={pid} does not feed a GPU: {} does, e.g. pid={first}; top_offcpu {{\"pid\": {pid}}} shows what {pid} waited for",
        feeders.join(", ")
    )))
}

fn answer(session: &Session, arguments: Arguments) -> Result<Answer, ToolError> {
    let asked = Asked::new(
        session,
        &arguments.start_ms,
        &arguments.end_ms,
        &arguments.pid,
    )?;
    if let Some(pid) = asked.pid {
        let roles = session.roles(&asked.info)?;
        feeds_a_gpu(&roles, pid)?;
    }
    let mut diagnosis = diagnose(session, asked.window, asked.pid)?;
    shorten(&mut diagnosis, arguments.finding.as_deref())?;
    Ok(Answer {
        diagnosis,
        window: asked.window.into(),
    })
}

/// Other findings than the one that is shown whole.
const OTHERS_SHOWN: usize = 2;
/// What to do next besides asking for the other findings.
const NEXT_BESIDE_FINDINGS: usize = 1;

/// Leaves one finding whole, so that an answer stays short however many causes there are.
fn shorten(diagnosis: &mut Diagnosis, wanted: Option<&str>) -> Result<(), ToolError> {
    let findings = &mut diagnosis.findings;
    let codes: Vec<&str> = findings.iter().map(|f| f.code.name()).collect();
    let whole = match wanted {
        None => 0,
        Some(wanted) => codes
            .iter()
            .position(|code| code.eq_ignore_ascii_case(wanted))
            .ok_or_else(|| {
                ToolError::Arguments(format!(
                    "finding={wanted} is not found in this window: {}",
                    match codes.first() {
                        Some(first) => {
                            format!("there are {}, e.g. finding={first}", codes.join(", "))
                        }
                        None => "there is no finding, so leave it out".to_owned(),
                    }
                ))
            })?,
    };
    let codes: Vec<String> = codes.into_iter().map(str::to_owned).collect();
    let mut index = 0;
    findings.retain_mut(|finding| {
        let others_before = index - usize::from(whole < index);
        let here = index;
        index += 1;
        if here == whole {
            return true;
        }
        finding.evidence.clear();
        finding.advice.truncate(1);
        finding.ruled_out.clear();
        finding.would_not_help.clear();
        others_before < OTHERS_SHOWN
    });
    if codes.len() > 1 {
        diagnosis.next.truncate(NEXT_BESIDE_FINDINGS);
        diagnosis.next.insert(
            0,
            format!(
                "ask again with finding=CODE for all evidence and advice of another of {}",
                codes.join(", ")
            ),
        );
    }
    Ok(())
}
