//! Which files processes map: told by the kernel as it happens, or read from `/proc/PID/maps`.
//!
//! A dummy perf event on every CPU reports each executable mapping of any process, so a library that
//! is loaded later is known at once and `/proc` need not be searched again and again.

use aya_obj::generated::perf_event_attr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a ring for mappings, without its first page. A mapping takes about 150 bytes.
const RING_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// Places in the first page of a ring, by `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A file in the address space of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) pid: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// As the process sees it.
    pub(crate) path: PathBuf,
    /// When it was mapped, on the monotonic clock; `None` if it was there before.
    pub(crate) mapped_ns: Option<u64>,
}

/// What the kernel reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    Mapped(Mapping),
    /// Some were not reported: there was no room.
    Lost,
}

/// Notices of all CPUs.
#[derive(Debug)]
pub(crate) struct Mappings {
    rings: Vec<PerfRing>,
    fds: Vec<RawFd>,
}

impl Mappings {
    /// Watches from now on.
    pub(crate) fn watch() -> io::Result<Self> {
        let cpus = aya::util::online_cpus().map_err(|(_, error)| error)?;
        let rings = cpus
            .into_iter()
            .map(PerfRing::open)
            .collect::<io::Result<Vec<_>>>()?;
        let fds = rings.iter().map(|ring| ring.fd.as_raw_fd()).collect();
        Ok(Self { rings, fds })
    }

    /// Descriptors that become readable when something is mapped.
    pub(crate) fn fds(&self) -> &[RawFd] {
        &self.fds
    }

    /// What was reported since the last call.
    pub(crate) fn take(&mut self) -> Vec<Notice> {
        self.rings.iter_mut().flat_map(PerfRing::take).collect()
    }
}

/// The ring of one CPU.
#[derive(Debug)]
struct PerfRing {
    fd: OwnedFd,
    pages: *mut u8,
}

impl PerfRing {
    fn open(cpu: u32) -> io::Result<Self> {
        const PERF_TYPE_SOFTWARE: u32 = 1;
        const PERF_COUNT_SW_DUMMY: u64 = 9;
        const PERF_SAMPLE_TIME: u64 = 4;
        // SAFETY: all zero is a valid attribute: numbers and sets of flags.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.size = size_of_val(&attr) as u32;
        attr.type_ = PERF_TYPE_SOFTWARE;
        attr.config = PERF_COUNT_SW_DUMMY;
        attr.sample_type = PERF_SAMPLE_TIME;
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        // Readable as soon as there is one byte.
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let fd = super::sys::perf_event_open(&attr, cpu as i32)?;
        // SAFETY: a new mapping of an open descriptor; the result is checked.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES + RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            fd,
            pages: pages.cast(),
        })
    }

    fn counter(&self, place: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as `self` lives, and these places in it are
        // aligned 64-bit counters that the kernel and we access atomically.
        unsafe { &*self.pages.add(place).cast::<AtomicU64>() }
    }

    fn take(&mut self) -> Vec<Notice> {
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let waiting = head.wrapping_sub(tail).min(RING_BYTES as u64) as usize;
        let mut bytes = Vec::with_capacity(waiting);
        let begin = tail as usize % RING_BYTES;
        let first = waiting.min(RING_BYTES - begin);
        // SAFETY: both ranges lie inside the data pages, and the kernel does not write between tail
        // and head until the tail moves.
        unsafe {
            let data = self.pages.add(PAGE_BYTES);
            bytes.extend_from_slice(std::slice::from_raw_parts(data.add(begin), first));
            bytes.extend_from_slice(std::slice::from_raw_parts(data, waiting - first));
        }
        self.counter(DATA_TAIL).store(head, Ordering::Release);
        parse_records(&bytes)
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.pages.cast(), PAGE_BYTES + RING_BYTES) };
    }
}

/// The notices in a run of perf records. What follows a record of an impossible size is left out.
fn parse_records(mut bytes: &[u8]) -> Vec<Notice> {
    const PERF_RECORD_LOST: u32 = 2;
    const PERF_RECORD_MMAP2: u32 = 10;
    const HEADER_BYTES: usize = 8;
    let mut notices = Vec::new();
    while let (Some(kind), Some(size)) = (number::<4>(bytes, 0), number::<2>(bytes, 6)) {
        let size = size as usize;
        let Some(record) = bytes.get(HEADER_BYTES..size) else {
            break;
        };
        match kind as u32 {
            PERF_RECORD_MMAP2 => notices.extend(parse_mapping(record).map(Notice::Mapped)),
            PERF_RECORD_LOST => notices.push(Notice::Lost),
            _ => {}
        }
        bytes = &bytes[size..];
    }
    notices
}

/// A record of a mapping after its header: numbers, a path ended by zeros, the time.
fn parse_mapping(record: &[u8]) -> Option<Mapping> {
    const PATH: usize = 64;
    const TIME_BYTES: usize = 8;
    let time = record.len().checked_sub(TIME_BYTES)?;
    let path = record.get(PATH..time)?;
    let path = &path[..path.iter().position(|byte| *byte == 0)?];
    let start = number::<8>(record, 8)?;
    Some(Mapping {
        pid: number::<4>(record, 0)? as u32 as i32,
        start,
        end: start.checked_add(number::<8>(record, 16)?)?,
        path: path_of(path),
        mapped_ns: number::<8>(record, time),
    })
}

/// The unsigned number of `N` bytes at `offset`.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..N].copy_from_slice(bytes.get(offset..offset.checked_add(N)?)?);
    Some(u64::from_le_bytes(number))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// The executable mappings of files in the text of `/proc/PID/maps`.
pub(crate) fn parse_maps(text: &[u8], pid: i32) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| parse_maps_line(line, pid))
        .collect()
}

/// `start-end permissions offset device inode      path`; only the path may hold anything.
fn parse_maps_line(line: &[u8], pid: i32) -> Option<Mapping> {
    let slash = line.iter().position(|byte| *byte == b'/')?;
    let (numbers, path) = line.split_at(slash);
    let mut fields = std::str::from_utf8(numbers).ok()?.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if fields.next()?.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    Some(Mapping {
        pid,
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        path: path_of(path),
        mapped_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut record = kind.to_le_bytes().to_vec();
        record.extend(0u16.to_le_bytes());
        record.extend((8 + body.len() as u16).to_le_bytes());
        record.extend(body);
        record
    }

    fn mapping_body(path: &str) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(77i32.to_le_bytes()); // pid
        body.extend(78i32.to_le_bytes()); // tid
        body.extend(0x7000u64.to_le_bytes()); // address
        body.extend(0x2000u64.to_le_bytes()); // length
        body.extend([0; 40]); // offset, device, inode, generation, protection, flags
        body.extend(path.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend(123_456u64.to_le_bytes()); // time
        body
    }

    #[test]
    fn mappings_and_losses_are_read_in_order() {
        let mut bytes = record(10, &mapping_body("/opt/libcudart.so.12"));
        bytes.extend(record(9, &[0; 16])); // of no interest
        bytes.extend(record(2, &[0; 24]));
        let mapped = Mapping {
            pid: 77,
            start: 0x7000,
            end: 0x9000,
            path: "/opt/libcudart.so.12".into(),
            mapped_ns: Some(123_456),
        };
        assert_eq!(
            parse_records(&bytes),
            [Notice::Mapped(mapped), Notice::Lost]
        );
    }

    #[test]
    fn executable_files_are_read_from_maps() {
        let text =
            b"7f10-7f20 r-xp 00001000 fd:01 42    /opt/with space/libcudart.so.12 (deleted)\n\
            7f20-7f30 r--p 00002000 fd:01 42    /opt/libcudart.so.12\n\
            7f30-7f40 r-xp 00000000 00:00 0     [vdso]\n\
            7f40-7f50 r-xp 00000000 00:00 0\n\
            zz-7f60 r-xp 0 fd:01 42 /opt/libother.so\n";
        let paths: Vec<_> = parse_maps(text, 5)
            .into_iter()
            .map(|mapping| (mapping.start, mapping.path))
            .collect();
        assert_eq!(
            paths,
            [(
                0x7f10,
                PathBuf::from("/opt/with space/libcudart.so.12 (deleted)")
            )]
        );
    }

    #[test]
    fn own_mappings_are_found() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(
            parse_maps(&text, 1)
                .iter()
                .any(|mapping| mapping.path == program)
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_records(&bytes);
            let _ = parse_mapping(&bytes);
            let _ = parse_maps(&bytes, 1);
            // As a record of the right kind, so that its body is reached.
            prop_assert!(parse_records(&record(10, &bytes)).len() <= 1);
        }

        #[test]
        fn any_line_of_maps_is_taken_or_left(line in "[0-9a-f]{0,20}-?[0-9a-f]{0,20} [rwxps-]{0,5} [^\n]{0,40}") {
            prop_assert!(parse_maps(line.as_bytes(), 1).len() <= 1);
        }
    }
}
