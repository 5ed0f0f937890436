//! Whether the kernel programs load, attach and fire: the recorder tries them on itself.

use super::{Item, Status};
use crate::cuda::{CudaError, CudaProbes};
use crate::kernel::{self, Kernel, OBJECT};
use crate::{procfs, self_test};
use ingero_trace::Probe;

/// Programs that record one kind of events.
struct Family {
    id: &'static str,
    title: &'static str,
    required: bool,
    holds: fn(&str) -> bool,
    /// What it means to do without.
    without: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        id: "scheduler",
        title: "scheduler",
        required: true,
        holds: |name| name.starts_with("sched_") && !name.starts_with("sched_process_"),
        without: "waits and CPU times are not complete",
    },
    Family {
        id: "processes",
        title: "processes",
        required: true,
        holds: |name| name.starts_with("sched_process_") || name == "task_rename",
        without: "children of the job may be missed",
    },
    Family {
        id: "interrupts",
        title: "interrupts",
        required: false,
        holds: |name| {
            ["irq_", "softirq_", "hrtimer_"]
                .iter()
                .any(|start| name.starts_with(start))
        },
        without: "it is not known whether a task woke another, or was only interrupted when that happened",
    },
    Family {
        id: "page_allocations",
        title: "page allocations",
        required: false,
        holds: |name| name == kernel::PAGE_ALLOC,
        without: "who allocates memory is not recorded; the rest is",
    },
];
const CUDA: (&str, &str) = ("cuda_calls", "CUDA calls");

/// Tries everything, unless there is an obstacle already.
pub(super) fn items(obstacle: Option<&str>) -> Vec<Item> {
    if let Some(obstacle) = obstacle {
        return unusable("not tried", &format!("see {obstacle}"), "not tried");
    }
    match try_all() {
        Ok(items) => items,
        Err(error) => unusable(
            &error,
            "a sandbox, or a container that is not privileged, may refuse bpf(2): run the recorder on the host",
            "not tried after the others failed",
        ),
    }
}

/// All as missing: for what is required, why; for the rest, that it was not tried.
fn unusable(why: &str, advice: &str, not_tried: &str) -> Vec<Item> {
    let family = |family: &Family| {
        let found = if family.required { why } else { not_tried };
        let item = Item::ok(family.id, family.title, found).missing(advice);
        if family.required {
            item.required()
        } else {
            item
        }
    };
    let cuda = Item::ok(CUDA.0, CUDA.1, not_tried).missing(advice);
    FAMILIES.iter().map(family).chain([cuda]).collect()
}

fn try_all() -> Result<Vec<Item>, String> {
    let mut kernel = Kernel::load().map_err(|error| error.to_string())?;
    let loaded = CudaProbes::new(kernel.ebpf(), OBJECT);
    let may_not_watch = matches!(loaded, Err(CudaError::Watch(_)));
    let mut cuda = loaded.map_err(|error| error.to_string());
    let pair_cost_ns = self_test::run(&mut kernel, &mut cuda).map_err(|error| error.to_string())?;
    let mut items: Vec<Item> = FAMILIES
        .iter()
        .map(|family| family.item(&kernel.probes))
        .collect();
    items.push(match &cuda {
        Ok(cuda) => cuda_item(cuda.has_multi_links(), pair_cost_ns.unwrap_or(0)),
        Err(reason) => {
            let setting = procfs::read_lossy("/proc/sys/kernel/perf_event_paranoid");
            no_cuda_item(reason, may_not_watch, setting.as_deref())
        }
    });
    Ok(items)
}

impl Family {
    fn item(&self, probes: &[Probe]) -> Item {
        let own: Vec<&Probe> = probes
            .iter()
            .filter(|probe| (self.holds)(&probe.name))
            .collect();
        let attached = own.iter().filter(|probe| probe.attached).count();
        let problems: Vec<String> = own
            .iter()
            .filter_map(|probe| Some(format!("{} ({})", probe.name, probe.reason.as_deref()?)))
            .collect();
        let mut item = if problems.is_empty() {
            Item::ok(
                self.id,
                self.title,
                format!("{attached} of {} programs attached and tested", own.len()),
            )
        } else {
            Item::ok(self.id, self.title, problems.join(", ")).lacking(
                if attached == 0 {
                    Status::Missing
                } else {
                    Status::Limited
                },
                self.without,
            )
        };
        item.required = self.required;
        item
    }
}

fn cuda_item(has_multi_links: bool, pair_cost_ns: u64) -> Item {
    let found = format!(
        "probes on functions fire, {:.1} us for each call",
        pair_cost_ns as f64 / 1e3
    );
    let item = Item::ok(CUDA.0, CUDA.1, found);
    if has_multi_links {
        return item;
    }
    item.limited("it takes 0.1 s to remove each probe when a recording ends; kernel 6.6 and newer do it at once")
}

/// `setting` is that of kernel.perf_event_paranoid.
fn no_cuda_item(reason: &str, may_not_watch: bool, setting: Option<&str>) -> Item {
    let item = Item::ok(CUDA.0, CUDA.1, reason);
    match setting {
        Some(setting) if may_not_watch => item.missing(format!(
            "kernel.perf_event_paranoid is {}, which may bind whoever is not root: run it with sudo",
            setting.trim()
        )),
        _ => item.missing("the host side of a job is recorded all the same"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str, attached: bool, reason: Option<&str>) -> Probe {
        Probe {
            name: name.to_owned(),
            attached,
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn each_program_belongs_to_one_family() {
        for name in kernel::program_names() {
            let families = FAMILIES.iter().filter(|family| (family.holds)(name));
            assert_eq!(families.count(), 1, "{name}");
        }
    }

    #[test]
    fn a_family_is_as_good_as_its_programs() {
        let [scheduler, _, interrupts, pages] = &FAMILIES;
        let good = scheduler.item(&[
            probe("sched_switch", true, None),
            probe("sched_waking", true, None),
            probe("sched_process_fork", false, Some("of another family")),
        ]);
        assert_eq!((good.status, good.required), (Status::Ok, true));
        assert!(good.found.starts_with("2 of 2"), "{good:?}");

        let late = scheduler.item(&[probe("sched_switch", true, Some("read a little late"))]);
        assert_eq!(late.status, Status::Limited);
        assert_eq!(late.found, "sched_switch (read a little late)");

        let some = interrupts.item(&[
            probe("irq_handler_entry", true, None),
            probe("softirq_exit", false, Some("refused")),
        ]);
        assert_eq!((some.status, some.required), (Status::Limited, false));
        let none = pages.item(&[probe("mm_page_alloc", false, Some("refused"))]);
        assert_eq!(none.status, Status::Missing);
    }

    #[test]
    fn what_was_not_tried_is_not_called_broken() {
        let items = items(Some("privileges"));
        assert_eq!(items.len(), FAMILIES.len() + 1);
        for item in &items {
            assert_eq!(item.status, Status::Missing);
            assert_eq!(item.found, "not tried");
            assert_eq!(item.advice.as_deref(), Some("see privileges"));
        }
        let refused = unusable("EPERM", "", "not tried");
        let found: Vec<&str> = refused.iter().map(|item| item.found.as_str()).collect();
        assert_eq!(
            found,
            ["EPERM", "EPERM", "not tried", "not tried", "not tried"]
        );
    }

    #[test]
    fn cuda_probes_by_kernel_and_right() {
        assert_eq!(cuda_item(true, 700).status, Status::Ok);
        assert!(cuda_item(true, 700).found.contains("0.7 us"));
        assert_eq!(cuda_item(false, 700).status, Status::Limited);
        let refused = no_cuda_item("refused", true, Some("4\n"));
        assert!(
            refused
                .advice
                .unwrap()
                .contains("perf_event_paranoid is 4,")
        );
        let other = no_cuda_item("refused", false, Some("4\n"));
        assert!(other.advice.unwrap().contains("all the same"));
    }
}
