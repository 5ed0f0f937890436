//! Facts about the host and the target that do not change while recording.

use crate::cgroup::Quota;
use crate::{cgroup, procfs, samples};
use std::path::Path;

/// What the host is.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    pub(crate) cores_online: i32,
    pub(crate) smt_active: Option<bool>,
    pub(crate) memory_bytes: i64,
    pub(crate) gpus: String,
    pub(crate) driver_version: Option<String>,
}

/// Reads them. A fact that the host does not tell is empty.
pub(crate) fn read() -> Host {
    let line = |path: &str| procfs::read_lossy(path).map(|text| text.trim().to_owned());
    let cpuinfo = procfs::read_lossy("/proc/cpuinfo").unwrap_or_default();
    let meminfo = procfs::read_lossy("/proc/meminfo").unwrap_or_default();
    Host {
        name: line("/proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpu_model: cpu_model(&cpuinfo).unwrap_or_default(),
        // SAFETY: takes a number and returns one.
        cores_online: unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as i32,
        smt_active: line("/sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        memory_bytes: samples::meminfo_bytes(&meminfo, "MemTotal").unwrap_or_default(),
        gpus: gpu_names(Path::new("/proc/driver/nvidia/gpus")).join(", "),
        driver_version: line("/sys/module/nvidia/version"),
    }
}

/// Which CPUs a thread may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Affinity {
    pub(crate) cores: i32,
    /// As a list, e.g. `0-3,8`.
    pub(crate) cpus: String,
}

/// The affinity of a process's main thread, or `None` if it has ended.
pub(crate) fn affinity_of(pid: i32) -> Option<Affinity> {
    let status = procfs::read_lossy(format!("/proc/{pid}/status"))?;
    let cpus = procfs::field(&status, "Cpus_allowed_list")?;
    Some(Affinity {
        cores: count_cpus(cpus)?,
        cpus: cpus.to_owned(),
    })
}

/// What the target may use of the host.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) affinity: Option<Affinity>,
    pub(crate) quota: Option<Quota>,
}

impl Limits {
    /// Reads the limits of a process; of one that has ended none are known.
    pub(crate) fn of(pid: i32) -> Self {
        Self {
            affinity: affinity_of(pid),
            quota: cgroup::quota_of(pid),
        }
    }
}

/// What the target can really use: the smallest of the CPUs online, its affinity and its quota.
pub(crate) fn cores_usable(online: i32, affinity: Option<&Affinity>, quota: Option<&Quota>) -> i32 {
    let affinity = affinity.map_or(online, |affinity| affinity.cores);
    let quota = quota.map_or(online, |quota| quota.cores.floor() as i32);
    online.min(affinity).min(quota).max(1)
}

fn count_cpus(list: &str) -> Option<i32> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(last.trim().parse::<i32>().ok()? - first.trim().parse::<i32>().ok()? + 1)
        })
        .sum()
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    })
}

/// The driver keeps a folder for each GPU.
fn gpu_names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut gpus: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    gpus.sort();
    gpus.iter()
        .filter_map(|gpu| {
            let text = procfs::read_lossy(gpu.join("information"))?;
            Some(procfs::field(&text, "Model")?.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(count_cpus("0-3,8"), Some(5));
        assert_eq!(count_cpus("2"), Some(1));
        assert_eq!(count_cpus("x"), None);
    }

    #[test]
    fn the_smallest_limit_counts_and_is_at_least_one() {
        let affinity = |cores| Affinity {
            cores,
            cpus: String::new(),
        };
        assert_eq!(cores_usable(8, None, None), 8);
        assert_eq!(cores_usable(8, Some(&affinity(4)), None), 4);
        assert_eq!(cores_usable(2, Some(&affinity(4)), None), 2);
    }

    #[test]
    fn gpus_in_the_order_of_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        for (gpu, model) in [("0001", "B"), ("0000", "A")] {
            std::fs::create_dir(folder.path().join(gpu)).unwrap();
            let text = format!("Model: \t\t {model}\nIRQ: 1\n");
            std::fs::write(folder.path().join(gpu).join("information"), text).unwrap();
        }
        assert_eq!(gpu_names(folder.path()), ["A", "B"]);
        assert!(gpu_names(&folder.path().join("missing")).is_empty());
    }
}
