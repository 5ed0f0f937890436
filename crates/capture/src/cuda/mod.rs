//! Probes on the CUDA runtime and driver: finds the libraries that target processes map, attaches to their
//! functions, and makes rows of the calls.
//!
//! [`calls`] lists what is recorded; [`mappings`] and [`search`] find libraries, [`symbols`] the
//! functions in them; [`attach`] and [`sys`] set the probes; [`rows`] makes rows.

mod attach;
mod calls;
pub(crate) mod installed;
mod mappings;
mod rows;
mod search;
mod self_test;
mod symbols;
mod sys;

use crate::kernel::{self, KernelError};
use crate::procfs;
use crate::wire::{self, CudaEvent, CudaLayout, CudaOpenCall, WireRecord as _};
use attach::{Attached, Place, Programs};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use calls::{CALLS, Layer};
use ingero_trace::{Probe, TraceWriter};
use mappings::{Mapping, Mappings, Notice};
use rows::OpenCalls;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use symbols::Function;

/// Why CUDA calls cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CudaError {
    #[error("the compiled kernel programs have no {0} {1}")]
    Missing(&'static str, &'static str),
    #[error("cannot read the compiled kernel programs: {0}")]
    Parse(#[from] aya_obj::ParseError),
    #[error("cannot link the kernel programs to their maps: {0}")]
    Relocate(#[from] aya_obj::relocation::EbpfRelocationError),
    #[error("the kernel refused the program {name}: {source}")]
    Load {
        name: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Map(#[from] KernelError),
    #[error("cannot watch which libraries are loaded (perf_event_open): {0}")]
    Watch(#[source] io::Error),
    #[error("cannot read /proc/self/maps: {0}")]
    SelfMaps(#[source] io::Error),
    #[error("cannot probe a function of the recorder itself: {0}")]
    SelfProbe(#[source] io::Error),
    #[error(
        "self-test of the CUDA probes: {seen} of {made} calls of the recorder itself were seen"
    )]
    SelfTest { seen: u32, made: u32 },
    #[error(
        "self-test of the CUDA probes: {nested} of {made} calls that the recorder made inside of another \
         were known as such"
    )]
    SelfTestNested { nested: u32, made: u32 },
}

/// The probes and what they tell.
pub(crate) struct CudaProbes {
    programs: Programs,
    mappings: Mappings,
    ring: RingBuf<MapData>,
    in_flight: HashMap<MapData, u32, CudaOpenCall>,
    lost: Array<MapData, u64>,
    undecoded: u64,
    open_calls: OpenCalls,
    /// By device and inode.
    libraries: BTreeMap<(u64, u64), Library>,
    /// Libraries that could not be opened, and why.
    unreachable: BTreeMap<PathBuf, String>,
}

impl std::fmt::Debug for CudaProbes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaProbes")
            .field("libraries", &self.libraries)
            .finish_non_exhaustive()
    }
}

/// A CUDA library that was found.
#[derive(Debug)]
struct Library {
    path: PathBuf,
    /// Whether a target has mapped it; else it was only expected to.
    mapped: bool,
    probed: Result<Probed, String>,
}

#[derive(Debug)]
struct Probed {
    functions: Vec<Function>,
    /// Which calls were not seen all the same.
    gap: Option<String>,
    _attached: Attached,
}

/// How a library was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nobody has mapped it yet.
    Expected,
    /// A target had mapped it when it was looked at.
    Existing,
    /// A target mapped it at this time.
    MappedAt(u64),
}

impl CudaProbes {
    /// Loads the programs of `object` on the maps that `ebpf` has created from it.
    pub(crate) fn new(ebpf: &mut aya::Ebpf, object: &[u8]) -> Result<Self, CudaError> {
        Self::with(ebpf, |maps| Programs::load_best(object, maps))
    }

    fn with(
        ebpf: &mut aya::Ebpf,
        load: impl FnOnce(&std::collections::HashMap<&str, RawFd>) -> Result<Programs, CudaError>,
    ) -> Result<Self, CudaError> {
        let mappings = Mappings::watch().map_err(CudaError::Watch)?;
        let [ring, in_flight, layouts] = ["cuda_ring", "cuda_open", "cuda_layouts"];
        let shared = ["config", "targets", "lost"];
        let owned = [ring, in_flight, layouts].map(|name| (name, ebpf.take_map(name)));
        let borrowed = shared.map(|name| (name, ebpf.map(name)));
        let all = owned
            .iter()
            .map(|(name, map)| (*name, map.as_ref()))
            .chain(borrowed);
        let mut fds = std::collections::HashMap::new();
        for (name, map) in all {
            fds.insert(
                name,
                map.and_then(map_fd)
                    .ok_or(CudaError::Missing("map", name))?,
            );
        }
        let programs = load(&fds)?;
        let [ring_map, in_flight_map, layouts_map] = owned;
        let own =
            |(name, map): (&'static str, Option<Map>)| map.ok_or(CudaError::Missing("map", name));
        set_layouts(kernel::map(own(layouts_map)?, layouts)?)?;
        Ok(Self {
            programs,
            mappings,
            ring: kernel::map(own(ring_map)?, ring)?,
            in_flight: kernel::map(own(in_flight_map)?, in_flight)?,
            lost: kernel::map(kernel::shared(ebpf, "lost")?, "lost")?,
            undecoded: 0,
            open_calls: OpenCalls::default(),
            libraries: BTreeMap::new(),
            unreachable: BTreeMap::new(),
        })
    }

    /// Descriptors that become readable when any process maps an executable file: time for
    /// [`Self::poll_libraries`].
    pub(crate) fn mmap_fds(&self) -> &[RawFd] {
        self.mappings.fds()
    }

    /// A descriptor that becomes readable when the ring fills quickly: time for [`Self::drain`].
    pub(crate) fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Probes what a command with this environment will probably load, before it runs.
    pub(crate) fn pre_attach(&mut self, environment: &[(OsString, OsString)]) {
        for path in search::libraries(environment) {
            // What cannot be opened now is looked at again when it is mapped.
            if let Ok(file) = open_library(&path) {
                self.probe(&file, &path, Found::Expected);
            }
        }
    }

    /// Probes the libraries that a process has mapped already.
    pub(crate) fn scan_process(&mut self, pid: i32) {
        // A process that has ended needs no probes.
        let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else {
            return;
        };
        for mapping in mappings::parse_maps(&maps, pid) {
            self.probe_mapping(&mapping);
        }
    }

    /// Probes the libraries that targets have mapped since the last call.
    pub(crate) fn poll_libraries(&mut self, is_target: &dyn Fn(i32) -> bool) {
        let mut some_lost = false;
        let mut mapped = Vec::new();
        for notice in self.mappings.take() {
            match notice {
                Notice::Mapped(mapping) => mapped.push(mapping),
                Notice::Lost => some_lost = true,
            }
        }
        // Rings of several CPUs: the first to map a library tells what was missed.
        mapped.sort_by_key(|mapping| mapping.mapped_ns);
        for mapping in mapped {
            if is_cuda(&mapping.path) && is_target(mapping.pid) {
                self.probe_mapping(&mapping);
            }
        }
        if some_lost {
            for pid in procfs::processes()
                .into_iter()
                .filter(|pid| is_target(*pid))
            {
                self.scan_process(pid);
            }
        }
    }

    fn probe_mapping(&mut self, mapping: &Mapping) {
        if !is_cuda(&mapping.path) {
            return;
        }
        match open_mapping(mapping) {
            Ok(file) => {
                let found = mapping.mapped_ns.map_or(Found::Existing, Found::MappedAt);
                self.probe(&file, &mapping.path, found);
            }
            Err(error) => {
                self.unreachable
                    .entry(mapping.path.clone())
                    .or_insert_with(|| format!("cannot open it: {error}"));
            }
        }
    }

    /// Probes a library, unless that was done or tried before.
    fn probe(&mut self, file: &File, path: &Path, found: Found) {
        let (Ok(metadata), Some(layer)) = (file.metadata(), layer_of(path)) else {
            return;
        };
        let file_id = (metadata.dev(), metadata.ino());
        if let Some(library) = self.libraries.get_mut(&file_id) {
            library.mapped |= found != Found::Expected;
            return;
        }
        let library = Library {
            path: path.to_owned(),
            mapped: found != Found::Expected,
            probed: self.attach(file, layer, found),
        };
        self.libraries.insert(file_id, library);
    }

    fn attach(&self, file: &File, layer: Layer, found: Found) -> Result<Probed, String> {
        let functions = symbols::functions(file, layer).map_err(|error| error.to_string())?;
        let place = |function: &Function| Place {
            file_offset: function.file_offset,
            call: function.call,
        };
        let places: Vec<Place> = functions.iter().map(place).collect();
        let attached = self.programs.attach(&attach::path_of(file), &places, 0);
        let attached =
            attached.map_err(|error| format!("the kernel refused the probes: {error}"))?;
        let gap = match found {
            Found::Expected => None,
            Found::Existing => {
                Some("in use before it was probed: earlier calls, and those then in flight, were not seen".to_owned())
            }
            Found::MappedAt(mapped_ns) => {
                let late_ns = crate::clock::monotonic_ns().saturating_sub(mapped_ns);
                Some(format!("probed {:.1} ms after it was mapped: calls before that were not seen", late_ns as f64 / 1e6))
            }
        };
        Ok(Probed {
            functions,
            gap,
            _attached: attached,
        })
    }

    /// Writes the calls that ended.
    pub(crate) fn drain(&mut self, start_ns: u64, writer: &mut TraceWriter) {
        while let Some(item) = self.ring.next() {
            let row = CudaEvent::from_bytes(&item)
                .and_then(|event| self.open_calls.finished(&event, start_ns));
            match row {
                Some(row) => writer.push(row),
                None => self.undecoded += 1,
            }
        }
    }

    /// Writes what is new of the calls that are in flight at `until_ns`, after [`Self::drain`].
    pub(crate) fn flush_open(&mut self, until_ns: u64, start_ns: u64, writer: &mut TraceWriter) {
        for tid in self.in_flight.keys().filter_map(Result::ok) {
            let read = || self.in_flight.get(&tid, 0).ok();
            // The same twice, or the call has just ended, and perhaps another begun: the ring tells.
            let Some(call) = read().filter(|call| read().as_ref() == Some(call)) else {
                continue;
            };
            if let Some(row) = self.open_calls.open(tid, &call, until_ns, start_ns) {
                writer.push(row);
            }
        }
    }

    /// Calls that could not be recorded since the start.
    pub(crate) fn lost(&self) -> Result<u64, CudaError> {
        let lost = self.lost.get(&wire::LOST_CUDA, 0);
        let lost = lost.map_err(|source| KernelError::Map {
            name: "lost",
            source,
        })?;
        Ok(lost + self.undecoded)
    }

    /// Probes functions of the recorder itself, to show that probes fire and that calls inside of calls
    /// are known. Returns what a pair of probes adds to a call, in ns.
    pub(crate) fn self_test_and_calibrate(&mut self) -> Result<u64, CudaError> {
        let places = self_test::places()?;
        let without = (0..self_test::ROUNDS)
            .map(|_| self_test::call_probed())
            .collect();
        let attached =
            self.programs
                .attach(&c"/proc/self/exe".to_owned(), &places, std::process::id());
        let attached = attached.map_err(CudaError::SelfProbe)?;
        let mut with = Vec::new();
        let (mut seen, mut nested) = (0, 0);
        for _ in 0..self_test::ROUNDS {
            with.push(self_test::call_probed());
            self_test::call_probed_nested();
            while let Some(event) = self
                .ring
                .next()
                .and_then(|item| CudaEvent::from_bytes(&item))
            {
                // The functions return their argument, so both ends of the pair are checked.
                if event.bytes == event.status as u64 && event.end_ns > event.entry_ns {
                    seen += 1;
                    nested += event.nested;
                }
            }
        }
        drop(attached);
        // All of the first kind, and those that the others lie in.
        let made = self_test::ROUNDS * (self_test::CALLS + 1);
        if seen != made {
            return Err(CudaError::SelfTest { seen, made });
        }
        let made = self_test::ROUNDS * self_test::CALLS;
        if nested != made {
            return Err(CudaError::SelfTestNested { nested, made });
        }
        Ok(self_test::pair_cost_ns(without, with))
    }

    /// Every probe of the libraries that targets have mapped. A function that a library does not
    /// export is not listed: nobody can call it there.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for library in self.libraries.values().filter(|library| library.mapped) {
            let name = library
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            match &library.probed {
                Ok(probed) => probes.extend(probed.functions.iter().map(|function| Probe {
                    name: format!("{name}:{}", function.symbol),
                    attached: true,
                    reason: self.limits(function, probed.gap.as_deref()),
                })),
                Err(reason) => probes.push(failed(&name, reason)),
            }
        }
        for (path, reason) in &self.unreachable {
            probes.push(failed(
                &path.file_name().unwrap_or_default().to_string_lossy(),
                reason,
            ));
        }
        probes
    }

    /// Whether the kernel has one link for all functions of a library.
    pub(crate) fn has_multi_links(&self) -> bool {
        self.programs.attachment() == sys::Attachment::Multi
    }

    fn limits(&self, function: &Function, gap: Option<&str>) -> Option<String> {
        let slow = "its first instruction is stepped over with a trap: about 10 us for each call";
        let perf = "this kernel has no uprobe-multi links (since 6.6): stopping takes 0.1 s for each probe";
        let limits: Vec<&str> = [
            gap,
            (!function.cheap).then_some(slow),
            (!self.has_multi_links()).then_some(perf),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!limits.is_empty()).then(|| limits.join("; "))
    }

    /// Paths of the probed libraries that targets have mapped.
    pub(crate) fn libraries(&self) -> Vec<String> {
        let probed = self
            .libraries
            .values()
            .filter(|library| library.mapped && library.probed.is_ok());
        probed
            .map(|library| library.path.to_string_lossy().into_owned())
            .collect()
    }
}

fn failed(library: &str, reason: &str) -> Probe {
    Probe {
        name: format!("{library}:*"),
        attached: false,
        reason: Some(reason.to_owned()),
    }
}

fn layer_of(path: &Path) -> Option<Layer> {
    path.file_name()?.to_str().and_then(Layer::of_file_name)
}

fn is_cuda(path: &Path) -> bool {
    layer_of(path).is_some()
}

/// Tells the programs where each call's arguments lie.
fn set_layouts(mut layouts: Array<MapData, CudaLayout>) -> Result<(), CudaError> {
    let calls = CALLS
        .iter()
        .zip(0..)
        .map(|(call, number)| (number, call.layout()));
    for (number, layout) in calls.chain([(wire::CUDA_SELF_TEST, calls::SELF_TEST_LAYOUT)]) {
        let set = layouts.set(number, layout, 0);
        set.map_err(|source| KernelError::Map {
            name: "cuda_layouts",
            source,
        })?;
    }
    Ok(())
}

fn map_fd(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::RingBuf(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    }
}

/// Opens a file that a process has mapped: this very file, whatever has happened to its path since and
/// whatever file system the process sees.
fn open_mapping(mapping: &Mapping) -> io::Result<File> {
    let Mapping {
        pid,
        start,
        end,
        path,
        ..
    } = mapping;
    open_library(Path::new(&format!(
        "/proc/{pid}/map_files/{start:x}-{end:x}"
    )))
    .or_else(|_| {
        // It was mapped over meanwhile, or the kernel does not allow that way.
        let relative = path.strip_prefix("/").unwrap_or(path);
        open_library(&Path::new(&format!("/proc/{pid}/root")).join(relative))
    })
}

/// Opens a regular file, and nothing that would make the recorder wait.
fn open_library(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::OBJECT;
    use ingero_testkit::{live_lock, needs_root_and_bpf};
    use sys::Attachment;

    /// The tests of this crate use the way of the running kernel; this one the way of older kernels too.
    #[test]
    fn probes_fire_attached_in_either_way() {
        if !needs_root_and_bpf("probes_fire_attached_in_either_way") {
            return;
        }
        let _lock = live_lock();
        for attachment in [Attachment::Multi, Attachment::Perf] {
            let mut ebpf = aya::EbpfLoader::new().load(OBJECT).unwrap();
            let mut probes =
                CudaProbes::with(&mut ebpf, |maps| Programs::load(OBJECT, maps, attachment))
                    .unwrap();
            let pair_cost_ns = probes.self_test_and_calibrate().unwrap();
            assert!(pair_cost_ns > 0, "{attachment:?}");
            assert_eq!(probes.lost().unwrap(), 0);
        }
    }
}
