//! Where the functions of a library lie in its file.

use super::calls::{CALLS, Layer};
use object::read::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache};
use object::{SymbolKind, elf};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// A function that a library exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Number of the call, its place in [`CALLS`].
    pub(crate) call: u32,
    pub(crate) symbol: String,
    pub(crate) file_offset: u64,
    /// Whether the kernel steps over its first instruction by itself; else each probe costs a trap more.
    pub(crate) cheap: bool,
}

/// Why no functions were found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SymbolError {
    #[error("it is not a shared library of this machine: {0}")]
    Object(#[from] object::Error),
    #[error("it is not an ELF file for x86-64")]
    Foreign,
    #[error("it exports none of the known functions")]
    NoneExported,
}

/// The calls of `layer` that a library exports, each place in the file once: names may share one.
pub(crate) fn functions(file: &File, layer: Layer) -> Result<Vec<Function>, SymbolError> {
    let mut wanted = HashMap::new();
    for (call, entry) in CALLS
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.layer == layer)
    {
        for symbol in entry.symbols() {
            wanted.insert(symbol, call as u32);
        }
    }
    // Reads what it needs: libraries may be hundreds of megabytes.
    let cache = ReadCache::new(file);
    let library = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache)?;
    if library.elf_header().e_machine.get(library.endian()) != elf::EM_X86_64 {
        return Err(SymbolError::Foreign);
    }
    let mut found = BTreeMap::new();
    for symbol in library.dynamic_symbols() {
        if !symbol.is_definition() || symbol.kind() != SymbolKind::Text {
            continue;
        }
        let Some((name, call)) = symbol
            .name()
            .ok()
            .and_then(|name| Some((name, *wanted.get(name)?)))
        else {
            continue;
        };
        let segments = library
            .segments()
            .map(|segment| (segment.address(), segment.file_range()));
        let Some(file_offset) = file_offset(segments, symbol.address()) else {
            continue; // not in the file: nothing to call
        };
        let mut first = [0; 5];
        // What cannot be read is reported as slow.
        let cheap = file.read_exact_at(&mut first, file_offset).is_ok() && is_cheap(first);
        let function = Function {
            call,
            symbol: name.to_owned(),
            file_offset,
            cheap,
        };
        found.entry(file_offset).or_insert(function);
    }
    if found.is_empty() {
        return Err(SymbolError::NoneExported);
    }
    Ok(found.into_values().collect())
}

/// The place in the file that is loaded at `address`, by segments of (address, (offset, size) in the file).
fn file_offset(mut segments: impl Iterator<Item = (u64, (u64, u64))>, address: u64) -> Option<u64> {
    segments.find_map(|(start, (offset, size))| {
        let within = address.checked_sub(start)?;
        if within < size {
            offset.checked_add(within)
        } else {
            None
        }
    })
}

/// Whether the kernel emulates an instruction instead of stepping over it with a second trap:
/// pushes of a register, no-operations and jumps, as `uprobe_setup_xol_ops` has them.
fn is_cheap(first: [u8; 5]) -> bool {
    matches!(
        first,
        [0x50..=0x57, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x0f, 0x1f, 0x44, 0x00, 0x00]
            | [0x90 | 0xe8 | 0xe9 | 0xeb, ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::cudart;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::io::Write as _;

    #[test]
    fn addresses_become_offsets_by_their_segment() {
        let segments = [
            (0, (0, 0x1000)),
            (0x3000, (0x2000, 0x500)),
            (u64::MAX - 8, (u64::MAX - 4, 16)),
        ];
        let offset = |address| file_offset(segments.into_iter(), address);
        assert_eq!(offset(0x10), Some(0x10));
        assert_eq!(offset(0x3000), Some(0x2000));
        assert_eq!(offset(0x34ff), Some(0x24ff));
        assert_eq!(offset(0x3500), None, "after the part that is in the file");
        assert_eq!(offset(0x2fff), None);
        assert_eq!(offset(u64::MAX), None, "no offset overflows");
    }

    #[test]
    fn the_stand_ins_export_every_call_and_begin_like_the_real_libraries() {
        let mut exported = BTreeSet::new();
        for (path, layer) in [
            (cudart::stand_in(), Layer::Runtime),
            (cudart::driver_stand_in(), Layer::Driver),
        ] {
            let file = File::open(path).unwrap();
            for function in functions(&file, layer).unwrap() {
                let mut first = [0];
                file.read_exact_at(&mut first, function.file_offset)
                    .unwrap();
                assert_eq!(first, [0x55], "{} starts with push %rbp", function.symbol);
                assert!(function.cheap);
                exported.insert(function.call);
            }
        }
        assert_eq!(exported.len(), CALLS.len());
    }

    #[test]
    fn a_library_without_the_functions_says_so() {
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = libc.lines().find(|line| line.contains("libc.so")).unwrap();
        let path = &path[path.find('/').unwrap()..];
        assert!(matches!(
            functions(&File::open(path).unwrap(), Layer::Runtime),
            Err(SymbolError::NoneExported)
        ));
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512), cut in 0usize..60_000) {
            let mut noise = tempfile::tempfile().unwrap();
            noise.write_all(&bytes).unwrap();
            prop_assert!(functions(&noise, Layer::Runtime).is_err());
            // A library cut short, with some bytes overwritten.
            let mut library = std::fs::read(cudart::stand_in()).unwrap();
            library.truncate(cut);
            for (index, byte) in bytes.iter().enumerate() {
                if let Some(place) = library.get_mut(index * 97) {
                    *place = *byte;
                }
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&library).unwrap();
            let _ = functions(&file, Layer::Runtime);
        }
    }
}
