//! The cgroup of the target, as far as it limits its CPUs.

use crate::procfs;
use std::path::{Path, PathBuf};

/// Where a CPU controller keeps its files, and which version it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// The cgroup that is visible as the mount's root.
    root: String,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The smallest CPU quota over a process's cgroup and its ancestors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quota {
    /// CPUs' worth of time.
    pub(crate) cores: f64,
    /// The cgroup that has it.
    folder: PathBuf,
}

/// How often and how long a cgroup was throttled, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttling {
    pub(crate) periods: i64,
    pub(crate) throttled: i64,
    pub(crate) throttled_us: i64,
}

/// The cgroup path of a process: of version 2, or that of the CPU controller of version 1.
pub(crate) fn path_of(pid: i32) -> Option<String> {
    let text = procfs::read_lossy(format!("/proc/{pid}/cgroup"))?;
    let v1 = controller_path(&text, Version::V1);
    controller_path(&text, Version::V2)
        .filter(|path| path != "/" || v1.is_none())
        .or(v1)
}

/// The versions of the CPU controllers that are mounted, each once.
pub(crate) fn versions() -> Vec<u32> {
    let mounts = procfs::read_lossy("/proc/self/mountinfo").unwrap_or_default();
    let mut versions: Vec<u32> = hierarchies(&mounts)
        .iter()
        .map(|hierarchy| match hierarchy.version {
            Version::V1 => 1,
            Version::V2 => 2,
        })
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// The CPU quota of a process, or `None` if nothing limits it.
pub(crate) fn quota_of(pid: i32) -> Option<Quota> {
    let membership = procfs::read_lossy(format!("/proc/{pid}/cgroup"))?;
    let mounts = procfs::read_lossy("/proc/self/mountinfo")?;
    hierarchies(&mounts)
        .iter()
        .filter_map(|hierarchy| {
            let path = controller_path(&membership, hierarchy.version)?;
            smallest_quota(hierarchy, &path)
        })
        .min_by(|left, right| left.cores.total_cmp(&right.cores))
}

impl Quota {
    /// The counters of the cgroup with this quota.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        parse_cpu_stat(&procfs::read_lossy(self.folder.join("cpu.stat"))?)
    }
}

fn smallest_quota(hierarchy: &Hierarchy, path: &str) -> Option<Quota> {
    let inside = Path::new(path).strip_prefix(&hierarchy.root).ok()?;
    let mut folder = hierarchy.mount.join(inside);
    let mut smallest: Option<Quota> = None;
    while folder.starts_with(&hierarchy.mount) {
        let read = |file: &str| procfs::read_lossy(folder.join(file));
        let cores = match hierarchy.version {
            Version::V2 => read("cpu.max").and_then(|text| parse_cpu_max(&text)),
            Version::V1 => read("cpu.cfs_quota_us")
                .zip(read("cpu.cfs_period_us"))
                .and_then(|(quota, period)| parse_quota(quota.trim(), period.trim())),
        };
        if let Some(cores) = cores
            && smallest
                .as_ref()
                .is_none_or(|smallest| cores < smallest.cores)
        {
            smallest = Some(Quota {
                cores,
                folder: folder.clone(),
            });
        }
        if !folder.pop() {
            break;
        }
    }
    smallest
}

/// `cpu.max`: quota and period in microseconds; `max` is no quota.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    parse_quota(quota, period)
}

/// Both in microseconds; version 1 says -1 for no quota.
fn parse_quota(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.parse().ok()?;
    let period: f64 = period.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// `cpu.stat` of either version: `throttled_usec`, or `throttled_time` in ns.
fn parse_cpu_stat(text: &str) -> Option<Throttling> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse::<i64>()
                .ok()
        })
    };
    Some(Throttling {
        periods: value("nr_periods")?,
        throttled: value("nr_throttled")?,
        throttled_us: value("throttled_usec").or_else(|| Some(value("throttled_time")? / 1000))?,
    })
}

/// The path in `/proc/PID/cgroup` for the CPU controller.
fn controller_path(membership: &str, version: Version) -> Option<String> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => controllers.split(',').any(|controller| controller == "cpu"),
        };
        found.then(|| path.to_owned())
    })
}

/// The mounted hierarchies that can limit CPUs, from `/proc/self/mountinfo`.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next()?, mount.next()?);
            let mut filesystem = filesystem.split(' ');
            let (kind, _source, options) =
                (filesystem.next()?, filesystem.next()?, filesystem.next()?);
            let version = match kind {
                "cgroup2" => Version::V2,
                "cgroup" if options.split(',').any(|option| option == "cpu") => Version::V1,
                _ => return None,
            };
            Some(Hierarchy {
                mount: point.into(),
                root: root.to_owned(),
                version,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_quota("-1", "100000"), None);
        assert_eq!(parse_quota("400000", "100000"), Some(4.0));
    }

    #[test]
    fn throttling_of_both_versions() {
        let expected = Some(Throttling {
            periods: 10,
            throttled: 4,
            throttled_us: 1500,
        });
        assert_eq!(
            parse_cpu_stat("usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500\n"),
            expected
        );
        assert_eq!(
            parse_cpu_stat("nr_periods 10\nnr_throttled 4\nthrottled_time 1500000\n"),
            expected
        );
        assert_eq!(parse_cpu_stat("usage_usec 9\n"), None);
    }

    #[test]
    fn the_smallest_quota_is_taken_from_the_ancestors() {
        let mount = tempfile::tempdir().unwrap();
        let leaf = mount.path().join("a/b");
        std::fs::create_dir_all(&leaf).unwrap();
        std::fs::write(leaf.join("cpu.max"), "300000 100000\n").unwrap();
        std::fs::write(mount.path().join("a/cpu.max"), "250000 100000\n").unwrap();
        let hierarchy = Hierarchy {
            mount: mount.path().to_owned(),
            root: "/".to_owned(),
            version: Version::V2,
        };
        let quota = smallest_quota(&hierarchy, "/a/b").unwrap();
        assert_eq!((quota.cores, quota.folder), (2.5, mount.path().join("a")));
    }

    #[test]
    fn mounts_and_memberships() {
        let mounts = "29 23 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                      30 23 0:26 /pod /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
                      31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let found = hierarchies(mounts);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].root.as_str(), found[1].version),
            ("/pod", Version::V1)
        );
        let membership = "4:memory:/m\n2:cpu,cpuacct:/pod/x\n0::/y\n";
        assert_eq!(
            controller_path(membership, Version::V1).as_deref(),
            Some("/pod/x")
        );
        assert_eq!(
            controller_path(membership, Version::V2).as_deref(),
            Some("/y")
        );
    }
}
