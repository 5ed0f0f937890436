//! What `/proc` tells about processes and threads.

use std::path::{Path, PathBuf};

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) comm: String,
    /// One letter, e.g. R running, S sleeping, Z ended and not yet waited for.
    pub(crate) state: char,
    pub(crate) parent_pid: i32,
    pub(crate) minflt: i64,
    pub(crate) majflt: i64,
    pub(crate) threads: i32,
    pub(crate) rss_pages: i64,
}

/// Reads the line of a `stat` file. The name may contain spaces and parentheses.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    // fields[0] is the third of proc(5).
    let number = |index: usize| fields.get(index - 3)?.parse::<i64>().ok();
    Some(Stat {
        comm: text.get(open + 1..close)?.to_owned(),
        state: fields.first()?.chars().next()?,
        parent_pid: number(4)? as i32,
        minflt: number(10)?,
        majflt: number(12)?,
        threads: number(20)? as i32,
        rss_pages: number(24)?,
    })
}

/// `/proc/PID/stat`, or `None` if the process has ended.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&read_lossy(format!("/proc/{pid}/stat"))?)
}

/// `/proc/PID/task/TID/stat`, or `None` if the thread has ended.
pub(crate) fn thread_stat(pid: i32, tid: i32) -> Option<Stat> {
    parse_stat(&read_lossy(format!("/proc/{pid}/task/{tid}/stat"))?)
}

/// All processes of the host.
pub(crate) fn processes() -> Vec<i32> {
    numbers_in(Path::new("/proc"))
}

/// The threads of a process; none if it has ended.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&PathBuf::from(format!("/proc/{pid}/task")))
}

/// The arguments of a process; `None` if it has ended, empty for kernel threads.
pub(crate) fn arguments(pid: i32) -> Option<Vec<String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(split_arguments(&bytes))
}

/// Arguments that are each ended by a zero.
pub(crate) fn split_arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// The value after `name:` in a file of such lines, e.g. `/proc/PID/status`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// A file of `/proc` as text; names in it are written by anybody and may be no UTF-8.
pub(crate) fn read_lossy(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned())
}

fn numbers_in(folder: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// The most memory that the recorder has had, 0 if the kernel does not say.
pub(crate) fn own_peak_bytes() -> u64 {
    read_lossy("/proc/self/status")
        .as_deref()
        .and_then(|status| field(status, "VmHWM"))
        .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "12 (a) b) (c) S 7 12 12 0 -1 4194304 100 0 3 0 1 2 0 0 20 0 5 0 99 1000 42 0";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                comm: "a) b) (c".to_owned(),
                state: 'S',
                parent_pid: 7,
                minflt: 100,
                majflt: 3,
                threads: 5,
                rss_pages: 42,
            })
        );
        assert_eq!(parse_stat("12 (a"), None);
        assert_eq!(parse_stat(")("), None);
    }

    #[test]
    fn arguments_may_be_empty() {
        assert_eq!(split_arguments(b"a\0\0b\0"), ["a", "", "b"]);
        assert_eq!(split_arguments(b""), Vec::<String>::new());
    }
}
