//! What the samples are taken from, and where the recording goes.

use super::Item;
use crate::cgroup;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub(super) fn items() -> [Item; 3] {
    let folder = std::env::current_dir();
    [
        pressure(std::fs::read_to_string("/proc/pressure/cpu").map(drop)),
        cgroups(&cgroup::versions()),
        match &folder {
            Ok(folder) => disk(folder, free_bytes(folder)),
            Err(error) => disk(
                Path::new("the current folder"),
                Err(io::Error::from(error.kind())),
            ),
        },
    ]
}

/// `read` is how reading a pressure file went: it may be there and say that it is switched off.
fn pressure(read: io::Result<()>) -> Item {
    let item = |found: String| Item::ok("pressure", "pressure (PSI)", found);
    match read {
        Ok(()) => item("/proc/pressure".to_owned()),
        Err(error) => item(format!("/proc/pressure/cpu: {error}")).missing(
            "start the kernel with psi=1 to have the host's pressure in the samples; the rest is recorded",
        ),
    }
}

fn cgroups(versions: &[u32]) -> Item {
    let item = |found: String| Item::ok("cgroups", "cgroups", found);
    if versions.is_empty() {
        return item("no CPU controller is mounted".to_owned())
            .missing("a CPU quota of the job, and how long it was throttled, would not be seen");
    }
    let versions: Vec<String> = versions.iter().map(u32::to_string).collect();
    item(format!(
        "CPU controller of version {}",
        versions.join(" and ")
    ))
}

/// Below this, a long recording of a busy job may fill the disk.
const LOW_BYTES: u64 = 1 << 30;

/// `free` is what this user may still write there.
fn disk(folder: &Path, free: io::Result<u64>) -> Item {
    let item = |found: String| Item::ok("disk", "disk", found);
    let elsewhere = "give another folder with -o";
    let shown = folder.display();
    match free {
        Err(error) => item(format!("cannot write into {shown}: {error}")).limited(elsewhere),
        Ok(bytes) => {
            let item = item(format!("{:.1} GB free in {shown}", bytes as f64 / 1e9));
            if bytes < LOW_BYTES {
                return item.limited(elsewhere);
            }
            item
        }
    }
}

/// Bytes that this user may write into a folder.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statvfs is valid: it holds numbers only.
    let mut filesystem: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero; the rights of this process in force are asked for, not its user's.
    let writable =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) };
    // SAFETY: as above, and the place for the result is valid.
    if writable != 0 || unsafe { libc::statvfs(path.as_ptr(), &mut filesystem) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(filesystem.f_bavail.saturating_mul(filesystem.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn room_on_the_disk() {
        let folder = Path::new("/data");
        assert_eq!(
            disk(folder, Ok(5_000_000_000)).found,
            "5.0 GB free in /data"
        );
        assert_eq!(disk(folder, Ok(LOW_BYTES - 1)).status, Status::Limited);
        let error = io::Error::from_raw_os_error(libc::EROFS);
        let closed = disk(folder, Err(error));
        assert_eq!(closed.status, Status::Limited);
        assert!(closed.found.contains("/data: Read-only"), "{closed:?}");

        let here = tempfile::tempdir().unwrap();
        assert!(free_bytes(here.path()).unwrap() > 0);
        assert!(free_bytes(&here.path().join("missing")).is_err());
    }

    #[test]
    fn samples_of_the_host() {
        assert_eq!(pressure(Ok(())).status, Status::Ok);
        let off = pressure(Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        assert_eq!(off.status, Status::Missing);
        assert!(off.advice.unwrap().contains("psi=1"));
        assert_eq!(cgroups(&[1, 2]).found, "CPU controller of version 1 and 2");
        assert_eq!(cgroups(&[]).status, Status::Missing);
    }
}
