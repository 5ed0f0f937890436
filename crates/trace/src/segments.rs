//! The Parquet segments of one table: their names, which of them count, and whether one is whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// One segment: the rows of the flushes `first..=last`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    /// First flush it holds.
    pub(crate) first: u64,
    /// Last flush it holds.
    pub(crate) last: u64,
}

impl Segment {
    /// The segment of a single flush.
    pub(crate) fn single(flush: u64) -> Self {
        Self {
            first: flush,
            last: flush,
        }
    }

    /// `00000007.parquet`, or `00000001-00000030.parquet` once merged.
    pub(crate) fn file_name(&self) -> String {
        if self.first == self.last {
            format!("{:08}.parquet", self.first)
        } else {
            format!("{:08}-{:08}.parquet", self.first, self.last)
        }
    }

    /// Reads a file name; `None` if it is not the name of a segment.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(".parquet")?;
        let number = |text: &str| -> Option<u64> {
            (text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()))
                .then(|| text.parse().ok())
                .flatten()
        };
        match stem.split_once('-') {
            None => number(stem).map(Self::single),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                (first < last).then_some(Self { first, last })
            }
        }
    }

    fn covers(&self, other: &Self) -> bool {
        self != other && self.first <= other.first && other.last <= self.last
    }
}

/// The segments in a folder that count, in order: those that a merged one covers are left out.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut all: Vec<Segment> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        if let Some(segment) = entry?.file_name().to_str().and_then(Segment::parse) {
            all.push(segment);
        }
    }
    // Widest first, so that a covering segment is met before what it covers.
    all.sort_by_key(|segment| (segment.first, std::cmp::Reverse(segment.last)));
    let mut kept: Vec<Segment> = Vec::new();
    for segment in all {
        if !kept.last().is_some_and(|last| last.covers(&segment)) {
            kept.push(segment);
        }
    }
    Ok(kept)
}

/// Why a file cannot be a whole Parquet file, judged by its two ends; `None` if it may be one.
pub(crate) fn damage(path: &Path) -> io::Result<Option<&'static str>> {
    const MAGIC: &[u8; 4] = b"PAR1";
    // Asked before it is opened: opening a pipe waits for somebody who writes.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(Some("it is no file"));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length < 12 {
        return Ok(Some("it is shorter than any Parquet file"));
    }
    let mut head = [0; 4];
    file.read_exact(&mut head)?;
    let mut tail = [0; 8];
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut tail)?;
    let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    Ok(if &head != MAGIC {
        Some("it does not begin like a Parquet file")
    } else if &tail[4..] != MAGIC || footer + 12 > length {
        Some("its end is missing")
    } else {
        None
    })
}

/// The folder of a table's segments.
pub(crate) fn table_folder(events: &Path, table: &str) -> PathBuf {
    events.join(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        list(folder.path())
            .unwrap()
            .iter()
            .map(Segment::file_name)
            .collect()
    }

    #[test]
    fn a_merged_segment_hides_what_it_covers() {
        assert_eq!(
            listed(&[
                "00000000.parquet",
                "00000001.parquet",
                "00000002.parquet",
                "00000001-00000002.parquet",
                "00000003.parquet",
                "00000000-00000002.parquet",
            ]),
            ["00000000-00000002.parquet", "00000003.parquet"]
        );
    }

    #[test]
    fn other_files_are_no_segments() {
        assert!(
            listed(&[
                "1.parquet",
                "00000001.parquet.tmp",
                "00000002-00000001.parquet"
            ])
            .is_empty()
        );
    }

    #[test]
    fn what_is_no_file_is_damaged_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert_eq!(damage(path).unwrap(), Some("it is no file"), "{path:?}");
        }
    }

    #[test]
    fn a_file_cut_short_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"PAR1aaaaaaaa").unwrap();
        assert_eq!(damage(&path).unwrap(), Some("its end is missing"));
        std::fs::write(&path, b"").unwrap();
        assert!(damage(&path).unwrap().is_some());
    }
}
