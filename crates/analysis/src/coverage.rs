//! What was not recorded, was lost or is estimated: the caveats of an answer.

use crate::{AnalysisError, Window, ask};
use ingero_trace::duckdb::{self, named_params};
use ingero_trace::{Probe, Trace, TraceInfo};

/// The kinds of events that an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `off_cpu` and `cpu_time`.
    Scheduler,
    /// `process_events`.
    Processes,
    /// `cuda_calls`.
    Cuda,
    /// `page_allocs`.
    Pages,
}

/// The class of switches to a thread that the kernel did not report. The recorder then lets the run begin
/// after the last switch that it saw on that CPU: no event is missing and no time is lost, but part of the
/// run may have been waiting for the CPU.
const SWITCH_IN: &str = "switch_in";

impl Source {
    /// The classes of lost events that touch it. What could not be decoded may be of any kind.
    fn loses(self, class: &str) -> bool {
        match class {
            "off_cpu" | "cpu_time" | SWITCH_IN => self == Self::Scheduler,
            "process" => self == Self::Processes,
            "cuda" => self == Self::Cuda,
            "page_allocs" => self == Self::Pages,
            _ => true,
        }
    }

    fn needs(self, probe: &Probe) -> bool {
        let of_library = probe.name.contains(':');
        match self {
            Self::Scheduler => probe.name.starts_with("sched_") && !is_process_probe(probe),
            Self::Processes => is_process_probe(probe),
            Self::Cuda => of_library,
            Self::Pages => probe.name == PAGE_PROBE,
        }
    }
}

fn is_process_probe(probe: &Probe) -> bool {
    probe.name.starts_with("sched_process") || probe.name == "task_rename"
}

/// The probe of page allocations.
const PAGE_PROBE: &str = "mm_page_alloc";

/// Whether page allocations were recorded.
pub fn records_pages(info: &TraceInfo) -> bool {
    let mut probes = info.probes.iter();
    probes.any(|probe| probe.attached && Source::Pages.needs(probe))
}

/// Whether any CUDA call could be recorded.
pub fn records_cuda(info: &TraceInfo) -> bool {
    let mut probes = info.probes.iter();
    probes.any(|probe| probe.attached && Source::Cuda.needs(probe))
}

/// What limits an answer about `window` that rests on `sources`.
///
/// # Errors
/// If the trace cannot be read.
pub fn caveats(
    trace: &Trace,
    info: &TraceInfo,
    window: Window,
    sources: &[Source],
) -> Result<Vec<String>, AnalysisError> {
    let mut caveats = Vec::new();
    if !info.ended {
        caveats.push(format!(
            "the recording is still running, or its recorder was killed: it is complete up to {:.0} ms",
            info.duration_ns as f64 / 1e6
        ));
    }
    if window.dur_ns() == 0 {
        caveats.push("the recording has no length yet: nothing was recorded".to_owned());
    }
    for (class, count) in lost(trace, window, sources)? {
        caveats.push(if class == SWITCH_IN {
            format!(
                "the kernel did not report {count} switches to a thread in this window: such a run is taken \
                 to begin with the switch before it on the same CPU, so that some of it may have been waiting"
            )
        } else {
            format!("{count} events of class {class} were lost in this window")
        });
    }
    if sources.contains(&Source::Cuda) && !records_cuda(info) {
        caveats.push(
            "no CUDA library was probed: that no CUDA calls are shown does not mean that none were made"
                .to_owned(),
        );
    }
    if sources.contains(&Source::Pages) && !records_pages(info) {
        caveats.push(
            "page allocations were not recorded: their numbers are missing, which does not mean 0"
                .to_owned(),
        );
    }
    caveats.extend(missing_probes(info, sources));
    caveats.extend(trace.caveats());
    Ok(caveats)
}

/// Probes that matter and did not attach, with the same reason named once.
fn missing_probes(info: &TraceInfo, sources: &[Source]) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for probe in &info.probes {
        if probe.attached || !sources.iter().any(|source| source.needs(probe)) {
            continue;
        }
        let reason = probe.reason.as_deref().unwrap_or("no reason was stored");
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(&probe.name),
            None => by_reason.push((reason, vec![&probe.name])),
        }
    }
    by_reason
        .into_iter()
        .map(|(reason, names)| {
            let shown = names.len().min(3);
            let more = match names.len() - shown {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "not recorded: {}{more} ({reason})",
                names[..shown].join(", ")
            )
        })
        .collect()
}

/// Events missing from the tables that `sources` name, by class.
///
/// # Errors
/// If the trace cannot be read.
pub(crate) fn missing(
    trace: &Trace,
    window: Window,
    sources: &[Source],
) -> Result<Vec<(String, i64)>, AnalysisError> {
    let mut lost = lost(trace, window, sources)?;
    lost.retain(|(class, _)| class != SWITCH_IN);
    Ok(lost)
}

/// What the recorder lost of `sources`, by class.
fn lost(
    trace: &Trace,
    window: Window,
    sources: &[Source],
) -> Result<Vec<(String, i64)>, AnalysisError> {
    let lost: Vec<(String, i64)> = ask(trace, |c| {
        c.prepare(include_str!("coverage.sql"))?
            .query_map(
                named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns },
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?
            .collect::<duckdb::Result<_>>()
    })?;
    let touches = |class: &str| sources.iter().any(|source| source.loses(class));
    Ok(lost
        .into_iter()
        .filter(|(class, _)| touches(class))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::info;
    use ingero_trace::TraceWriter;
    use ingero_trace::rows::LostEvents;

    #[test]
    fn losses_count_where_they_fall_and_only_for_what_rests_on_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        for (second, class, count) in [
            (0, "cuda", 5),
            (3, "cuda", 7),
            (3, "off_cpu", 9),
            (3, "switch_in", 4),
            (4, "page_allocs", 2),
        ] {
            writer.push(LostEvents {
                ts_ns: second * 1_000_000_000,
                class: class.into(),
                count,
            });
        }
        let mut info = info(5_000_000_000);
        info.ended = false;
        info.probes.push(Probe {
            name: "libcudart.so.13:cudaFree".to_owned(),
            attached: false,
            reason: Some("no such symbol".to_owned()),
        });
        writer.finish(&info).unwrap();
        let trace = Trace::open(&path).unwrap();

        let window = Window {
            start_ns: 3_500_000_000,
            end_ns: 5_000_000_000,
        };
        let cuda = caveats(&trace, &info, window, &[Source::Cuda]).unwrap();
        assert_eq!(
            cuda[1..],
            [
                "7 events of class cuda were lost in this window".to_owned(),
                "not recorded: libcudart.so.13:cudaFree (no such symbol)".to_owned(),
            ]
        );
        assert!(cuda[0].contains("complete up to 5000 ms"));
        let scheduler = caveats(&trace, &info, window, &[Source::Scheduler]).unwrap();
        assert_eq!(
            scheduler[1],
            "9 events of class off_cpu were lost in this window"
        );
        assert!(scheduler[2].starts_with("the kernel did not report 4 switches to a thread"));
        let missing = |sources: &[Source]| missing(&trace, window, sources).unwrap();
        assert_eq!(missing(&[Source::Scheduler]), [("off_cpu".to_owned(), 9)]);
        assert_eq!(missing(&[Source::Processes]), []);
        let pages = caveats(&trace, &info, window, &[Source::Pages]).unwrap();
        assert_eq!(
            pages[1],
            "2 events of class page_allocs were lost in this window"
        );
        assert!(pages[2].starts_with("page allocations were not recorded"));
        info.probes.push(Probe {
            name: "mm_page_alloc".to_owned(),
            attached: true,
            reason: None,
        });
        let pages = caveats(&trace, &info, window, &[Source::Pages]).unwrap();
        assert_eq!(pages.len(), 2);
    }
}
