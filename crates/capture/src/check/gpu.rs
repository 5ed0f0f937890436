//! The GPUs, and the CUDA libraries that a job would load.

use super::Item;
use crate::cuda::installed::{self, Installed};
use crate::host;
use std::ffi::OsString;
use std::path::Path;

pub(super) fn items(environment: &[(OsString, OsString)]) -> [Item; 2] {
    let host = host::read();
    [
        libraries(&installed::libraries(environment)),
        gpus(
            &host.gpus,
            host.driver_version.as_deref(),
            device_files(Path::new("/dev")),
        ),
    ]
}

/// Installations of Python bring a library each.
const MOST_SHOWN: usize = 4;

fn libraries(found: &[Installed]) -> Item {
    let item = |found: String| Item::ok("cuda_libraries", "CUDA libraries", found);
    let later = "a library that a job brings along is found when the job loads it";
    if found.is_empty() {
        return item("none in the usual places of this environment".to_owned()).missing(later);
    }
    // What is wrong first, as not all are shown.
    let (good, bad): (Vec<_>, Vec<_>) = found.iter().partition(|library| library.functions.is_ok());
    let said = bad.iter().chain(&good).map(|library| say(library));
    let mut said: Vec<String> = said.take(MOST_SHOWN).collect();
    if found.len() > MOST_SHOWN {
        said.push(format!("{} more", found.len() - MOST_SHOWN));
    }
    let item = item(said.join(", "));
    if !bad.is_empty() {
        return item.limited("calls into a library that cannot be probed are not recorded");
    }
    item
}

fn say(library: &Installed) -> String {
    let path = library.path.display();
    match &library.functions {
        Ok(functions) => format!(
            "{path} ({} with {functions} known functions)",
            library.layer
        ),
        Err(reason) => format!("{path} ({reason})"),
    }
}

/// `names` is empty where no driver tells any.
fn gpus(names: &str, driver: Option<&str>, device_files: usize) -> Item {
    let driver = driver.map_or(String::new(), |version| format!(", driver {version}"));
    let item = |found: String| Item::ok("gpus", "GPUs", found);
    match (names.is_empty(), device_files) {
        (false, 1..) => item(format!("{names}{driver}")),
        (false, 0) => item(format!("{names}{driver}, but no /dev/nvidia0")).limited(
            "no job can use them: start nvidia-modprobe on the host, or give the container its GPUs",
        ),
        (true, 1..) => item(format!("{device_files} device files /dev/nvidiaN{driver}, but no /proc/driver/nvidia"))
            .limited("the names of the GPUs are not recorded; CUDA calls are"),
        (true, 0) => item("no NVIDIA driver is loaded".to_owned())
            .missing("the host side of a job is recorded all the same"),
    }
}

/// How many `nvidia0`, `nvidia1`, ... there are.
fn device_files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_gpu(name))
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn gpus_by_what_the_driver_and_dev_tell() {
        for (names, files, status, found) in [
            ("H200, H200", 2, Status::Ok, "H200, H200, driver 580.1"),
            (
                "H200",
                0,
                Status::Limited,
                "H200, driver 580.1, but no /dev/nvidia0",
            ),
            ("", 1, Status::Limited, "1 device files /dev/nvidiaN"),
            ("", 0, Status::Missing, "no NVIDIA driver is loaded"),
        ] {
            let item = gpus(names, Some("580.1"), files);
            assert_eq!(item.status, status);
            assert!(item.found.starts_with(found), "{item:?}");
            assert!(!item.is_obstacle());
        }
    }

    #[test]
    fn control_devices_are_no_gpus() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "nvidia0",
            "nvidia12",
            "nvidiactl",
            "nvidia-uvm",
            "null",
            "nvidia",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(device_files(folder.path()), 2);
        assert_eq!(device_files(&folder.path().join("missing")), 0);
    }

    #[test]
    fn a_library_that_cannot_be_probed_is_named_with_the_reason() {
        let library = |functions| Installed {
            path: "/usr/lib/libcudart.so.12".into(),
            layer: "runtime",
            functions,
        };
        let good = libraries(&[library(Ok(24))]);
        assert_eq!(
            (good.status, good.found.as_str()),
            (
                Status::Ok,
                "/usr/lib/libcudart.so.12 (runtime with 24 known functions)"
            )
        );
        let bad = libraries(&[library(Ok(24)), library(Err("it is empty".to_owned()))]);
        assert_eq!(bad.status, Status::Limited);
        assert!(
            bad.found
                .starts_with("/usr/lib/libcudart.so.12 (it is empty), ")
        );
        let many: Vec<Installed> = (0..9).map(|_| library(Ok(24))).collect();
        assert!(libraries(&many).found.ends_with("functions), 5 more"));
        assert_eq!(libraries(&[]).status, Status::Missing);
    }
}
