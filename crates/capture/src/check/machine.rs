//! Whether the kernel programs can be loaded at all.

use super::Item;
use crate::capabilities::Capabilities;
use crate::launch::{LaunchError, User};
use crate::preflight::{self, INITIAL_USER_NAMESPACE};
use crate::procfs;
use std::path::Path;

pub(super) fn items() -> Vec<Item> {
    let line = |path: &str| procfs::read_lossy(path).map(|text| text.trim().to_owned());
    // SAFETY: geteuid takes and returns numbers only.
    let uid = unsafe { libc::geteuid() };
    let in_first_user_namespace = preflight::is_namespace("user", INITIAL_USER_NAMESPACE);
    vec![
        privileges(uid, in_first_user_namespace, Capabilities::effective()),
        kernel(&line("/proc/sys/kernel/osrelease").unwrap_or_default()),
        type_information(Path::new(preflight::TYPE_INFORMATION)),
        pid_namespace(preflight::is_namespace(
            "pid",
            preflight::INITIAL_PID_NAMESPACE,
        )),
        lockdown(line("/sys/kernel/security/lockdown").as_deref()),
    ]
}

/// Who a recorded command would run as.
pub(super) fn user(user: &Result<Option<User>, LaunchError>) -> Item {
    let item = |found: String| Item::ok("user", "user of the command", found).required();
    match user {
        Ok(Some(user)) => item(format!("user {}, who called sudo", user.uid)),
        Ok(None) => item("the one who runs the recorder".to_owned()),
        Err(error) => item(error.to_string()).missing(
            "unset SUDO_UID and SUDO_GID to run commands as root, or start the recorder with sudo",
        ),
    }
}

fn privileges(uid: u32, in_first_user_namespace: bool, capabilities: Capabilities) -> Item {
    let who = if uid == 0 {
        "root".to_owned()
    } else {
        format!("user {uid}")
    };
    let item = |found: String| Item::ok("privileges", "privileges", found).required();
    if !in_first_user_namespace {
        return item(format!("{who} of a user namespace (a rootless container)")).missing(
            "run the recorder on the host with sudo, or in a privileged container of the real root",
        );
    }
    if !capabilities.may_load_programs() {
        let found = format!("{who} without CAP_BPF and CAP_PERFMON");
        return item(found).missing(if uid == 0 {
            "run the recorder on the host, or in a container started with --privileged --pid=host"
        } else {
            "run it with sudo"
        });
    }
    if !capabilities.may_open_libraries() {
        return item(format!("{who} without CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")).limited(
            "CUDA libraries that other users' processes load may not be opened; sudo gives these rights too",
        );
    }
    item(who)
}

/// The oldest kernel that the programs are meant for.
const OLDEST: (u32, u32) = (5, 15);

fn kernel(release: &str) -> Item {
    let item = Item::ok("kernel", "kernel", release);
    match version(release) {
        None => item.limited("this is no version number; what works is told below"),
        Some(version) if version < OLDEST => item.limited(
            "the recorder is made for 5.15 and newer; distributions add features to older ones, so what works is told below",
        ),
        Some(version) if version < (5, 18) => item.limited(
            "before 5.18 the state of a thread that leaves its CPU is read a little late, and before 6.6 it takes \
             0.1 s to remove each CUDA probe",
        ),
        Some(version) if version < (6, 6) => {
            item.limited("before 6.6 it takes 0.1 s to remove each CUDA probe when a recording ends")
        }
        Some(_) => item,
    }
}

/// `6.18.44-arch1` is (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn type_information(path: &Path) -> Item {
    let item =
        |found: &str| Item::ok("type_information", "type information (BTF)", found).required();
    let found = path.display();
    match std::fs::File::open(path) {
        Ok(_) => item(&found.to_string()),
        Err(error) => item(&format!("{found}: {error}")).missing(
            "a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed, as most distributions have it",
        ),
    }
}

fn pid_namespace(is_first: bool) -> Item {
    let item = |found| Item::ok("pid_namespace", "PID namespace", found).required();
    if is_first {
        return item("the host's");
    }
    item("that of a container, where process numbers differ from those the kernel reports").missing(
        "run the recorder on the host with --pid, or in a container started with --pid=host",
    )
}

/// The mode in force stands in brackets.
fn lockdown(modes: Option<&str>) -> Item {
    let mode = modes.and_then(|modes| modes.split_once('[')?.1.split_once(']'));
    let mode = mode.map_or("none", |(mode, _)| mode);
    let item = Item::ok("lockdown", "kernel lockdown", mode);
    if mode != "confidentiality" {
        return item;
    }
    item.required().missing(
        "no program may read the kernel's memory in this mode: start the kernel without lockdown=confidentiality",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use crate::capabilities::Capability::{Bpf, DacReadSearch, Perfmon, SysAdmin, SysPtrace};

    #[test]
    fn privileges_by_user_namespace_and_capability() {
        let all = Capabilities::of(&[SysAdmin, SysPtrace, DacReadSearch]);
        let few = Capabilities::of(&[Bpf, Perfmon]);
        let none = Capabilities::of(&[]);
        for (uid, first, capabilities, status, advice) in [
            (0, true, all, Status::Ok, None),
            (1000, true, few, Status::Limited, Some("CUDA libraries")),
            (1000, true, none, Status::Missing, Some("sudo")),
            (0, true, none, Status::Missing, Some("--privileged")),
            (0, false, all, Status::Missing, Some("on the host")),
        ] {
            let item = privileges(uid, first, capabilities);
            assert_eq!(item.status, status, "{item:?}");
            assert!(item.required);
            assert_eq!(item.advice.is_some(), advice.is_some());
            assert!(
                item.advice
                    .unwrap_or_default()
                    .contains(advice.unwrap_or_default())
            );
        }
    }

    #[test]
    fn kernels_by_what_they_lack() {
        for (release, advice) in [
            ("6.18.44-fc", None),
            ("6.6", None),
            ("7.0.0-rc1+", None),
            ("6.5.13", Some("before 6.6")),
            ("5.15.0-91-generic", Some("before 5.18")),
            ("5.14.0-427.el9", Some("5.15 and newer")),
            ("4.18.0", Some("5.15 and newer")),
            ("", Some("no version number")),
            ("6", Some("no version number")),
            ("99999999999.1", Some("no version number")),
        ] {
            let item = kernel(release);
            assert_eq!(item.advice.is_some(), advice.is_some(), "{item:?}");
            assert!(
                item.advice
                    .as_deref()
                    .unwrap_or_default()
                    .contains(advice.unwrap_or_default()),
                "{item:?}"
            );
            // The attempt to load decides, not a number.
            assert!(!item.is_obstacle());
        }
    }

    #[test]
    fn only_the_strictest_lockdown_is_in_the_way() {
        for (modes, found, obstacle) in [
            (None, "none", false),
            (Some("[none] integrity confidentiality"), "none", false),
            (Some("none [integrity] confidentiality"), "integrity", false),
            (
                Some("none integrity [confidentiality]"),
                "confidentiality",
                true,
            ),
            (Some("[broken"), "none", false),
        ] {
            let item = lockdown(modes);
            assert_eq!((item.found.as_str(), item.is_obstacle()), (found, obstacle));
        }
    }

    #[test]
    fn a_kernel_without_type_information() {
        assert!(type_information(Path::new("/nowhere/vmlinux")).is_obstacle());
        assert_eq!(
            type_information(Path::new("/proc/self/maps")).status,
            Status::Ok
        );
        assert!(pid_namespace(false).is_obstacle());
    }
}
