//! Loads the two CUDA programs and attaches them to the functions of a file.

use super::CudaError;
use super::sys::{self, Attachment};
use aya_obj::generated::perf_event_attr;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

const ENTRY: &str = "cuda_entry";
const RETURN: &str = "cuda_return";

/// A place to attach to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) file_offset: u64,
    /// Number of the call.
    pub(crate) call: u32,
}

/// The loaded programs.
#[derive(Debug)]
pub(crate) struct Programs {
    attachment: Attachment,
    entry: OwnedFd,
    returns: OwnedFd,
}

/// Attached while it lives.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Closed in this order: a link before the event that it is attached to.
    _fds: Vec<OwnedFd>,
}

impl Programs {
    /// Loads the programs of `object` for the better attachment that this kernel has, on the maps
    /// that exist already, by name.
    pub(crate) fn load_best(object: &[u8], maps: &HashMap<&str, RawFd>) -> Result<Self, CudaError> {
        // Old kernels load the program for either, so only an attempt to attach tells.
        match Self::load(object, maps, Attachment::Multi) {
            Ok(programs) if has_multi(&programs) => Ok(programs),
            // What else is wrong is wrong here too, and told.
            _ => Self::load(object, maps, Attachment::Perf),
        }
    }

    pub(crate) fn load(
        object: &[u8],
        maps: &HashMap<&str, RawFd>,
        attachment: Attachment,
    ) -> Result<Self, CudaError> {
        let mut object = aya_obj::Object::parse(object)?;
        let kept = |name: &str| [ENTRY, RETURN].contains(&name);
        object.programs.retain(|name, _| kept(name));
        // The others need maps and type information that are of no concern here.
        object.functions.retain(|_, function| kept(&function.name));
        let definitions = std::mem::take(&mut object.maps);
        let existing = definitions
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), *maps.get(name.as_str())?, map)));
        object.relocate_maps(existing, &HashSet::new())?;

        let load = |name: &'static str| {
            let program = object.programs.get(name);
            let program = program.ok_or(CudaError::Missing("program", name))?;
            let function = object.functions.get(&program.function_key());
            let function = function.ok_or(CudaError::Missing("program", name))?;
            sys::load_uprobe(name, &function.instructions, &program.license, attachment)
                .map_err(|source| CudaError::Load { name, source })
        };
        Ok(Self {
            attachment,
            entry: load(ENTRY)?,
            returns: load(RETURN)?,
        })
    }

    pub(crate) fn attachment(&self) -> Attachment {
        self.attachment
    }

    /// Attaches to functions of the file that `path` leads to, for one process or (0) for all.
    pub(crate) fn attach(
        &self,
        path: &CString,
        places: &[Place],
        pid: u32,
    ) -> io::Result<Attached> {
        // The return first: an entry that is seen has its return seen.
        match self.attachment {
            Attachment::Multi => {
                let offsets: Vec<u64> = places.iter().map(|place| place.file_offset).collect();
                let cookies: Vec<u64> = places.iter().map(|place| place.call.into()).collect();
                let returns =
                    sys::link_multi(self.returns.as_fd(), path, &offsets, &cookies, true, pid)?;
                let entry =
                    sys::link_multi(self.entry.as_fd(), path, &offsets, &cookies, false, pid)?;
                Ok(Attached {
                    _fds: vec![entry, returns],
                })
            }
            Attachment::Perf => {
                let mut fds = Vec::with_capacity(4 * places.len());
                for place in places {
                    for (program, is_return) in [(&self.returns, true), (&self.entry, false)] {
                        let event = perf_uprobe(path, place.file_offset, is_return)?;
                        fds.push(sys::link_perf(
                            program.as_fd(),
                            event.as_fd(),
                            place.call.into(),
                        )?);
                        fds.push(event);
                    }
                }
                Ok(Attached { _fds: fds })
            }
        }
    }
}

/// Whether the kernel knows links to many uprobes: it then complains about a path that is no file, and
/// else about the kind of link.
fn has_multi(programs: &Programs) -> bool {
    let attempt = sys::link_multi(programs.entry.as_fd(), c"/", &[1], &[0], false, 0);
    attempt.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

/// A uprobe as a perf event.
fn perf_uprobe(path: &CString, file_offset: u64, is_return: bool) -> io::Result<OwnedFd> {
    const ANY_CPU_OF_ALL: i32 = 0; // a uprobe fires on every CPU, whichever is named
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    // SAFETY: all zero is a valid attribute: numbers and sets of flags.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of_val(&attr) as u32;
    attr.type_ = kind.trim().parse().map_err(io::Error::other)?;
    attr.config = is_return.into(); // bit 0, by the device's format/retprobe
    attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = file_offset;
    sys::perf_event_open(&attr, ANY_CPU_OF_ALL)
}

/// A path to an open file that needs no rights on the way, from this process.
pub(crate) fn path_of(file: &std::fs::File) -> CString {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    #[allow(clippy::unwrap_used)] // a path of letters and digits holds no zero
    CString::new(path).unwrap()
}
