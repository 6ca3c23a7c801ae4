//! `--heap-hook KIND=NAME`: allocators under names of their own.
//!
//! The image of the runtime for `--heap` has spare functions under placeholder names
//! (`runtime/src/wrap/heap/named.rs`). Here the user's names are written over those, and the table
//! by which the loader finds symbols is made anew. That works for functions that are called through
//! the loader: those of shared libraries. A preloaded library cannot replace functions that a
//! program calls inside itself.

use mgz_abi::heap_log::{HOOK_KINDS, HOOK_NAME, HOOKS};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use object::{LittleEndian, SymbolIndex};
use std::path::Path;
use std::str::FromStr;

/// Maximum number of functions of one kind.
const HOOKS_PER_KIND: usize = HOOKS / HOOK_KINDS.len();

/// A function that allocates or frees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Index into [`HOOK_KINDS`].
    pub kind: usize,
    /// Its symbol.
    pub name: String,
}

impl FromStr for Hook {
    type Err = String;

    fn from_str(text: &str) -> Result<Hook, String> {
        let kinds = HOOK_KINDS.join(", ");
        let (kind, name) = text
            .split_once('=')
            .ok_or_else(|| format!("give KIND=NAME, with a kind of {kinds}"))?;
        let kind = HOOK_KINDS
            .iter()
            .position(|k| *k == kind)
            .ok_or_else(|| format!("there is no kind {kind:?}; there are {kinds}"))?;
        if name.is_empty() || name.len() >= HOOK_NAME || !name.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(format!(
                "{name:?} is no symbol of 1 to {} letters",
                HOOK_NAME - 1
            ));
        }
        Ok(Hook {
            kind,
            name: name.into(),
        })
    }
}

/// The image with wrappers for these functions.
pub fn with_hooks(image: &[u8], hooks: &[Hook]) -> Result<Vec<u8>, String> {
    let mut out = image.to_vec();
    let mut used = [0usize; HOOK_KINDS.len()];
    let names = place_of(image, "mgz_heap_hook_names")
        .ok_or("the runtime's image has no table of names")?;
    for hook in hooks {
        let number = used[hook.kind];
        used[hook.kind] += 1;
        if number == HOOKS_PER_KIND {
            return Err(format!(
                "--heap-hook {}=… can be given at most {HOOKS_PER_KIND} times",
                HOOK_KINDS[hook.kind]
            ));
        }
        let placeholder = format!(
            "{:_<width$}",
            format!("mgz_heap_hook_{}_{number}", HOOK_KINDS[hook.kind]),
            width = HOOK_NAME - 1
        );
        let mut name = hook.name.clone().into_bytes();
        name.resize(HOOK_NAME, 0);
        let text = strings(image).and_then(|range| {
            let at = image[range.clone()]
                .windows(HOOK_NAME)
                .position(|w| &w[..HOOK_NAME - 1] == placeholder.as_bytes())?;
            Some(range.start + at)
        });
        let slot = names + (hook.kind * HOOKS_PER_KIND + number) * HOOK_NAME;
        for at in [text.ok_or("the runtime's image lacks a stand-in")?, slot] {
            out.get_mut(at..at + HOOK_NAME)
                .ok_or("the runtime's image is too short")?
                .copy_from_slice(&name);
        }
    }
    rehash(&mut out).ok_or("the runtime's image has no table of symbols that can be made anew")?;
    Ok(out)
}

type Header = FileHeader64<LittleEndian>;

/// Offset in the file of a symbol's content.
fn place_of(image: &[u8], name: &str) -> Option<usize> {
    use object::read::elf::ProgramHeader;
    let header = Header::parse(image).ok()?;
    let symbols = header
        .sections(LittleEndian, image)
        .ok()?
        .symbols(LittleEndian, image, object::elf::SHT_DYNSYM)
        .ok()?;
    let found = symbols.iter().find(|s| {
        symbols
            .symbol_name(LittleEndian, s)
            .is_ok_and(|n| n == name.as_bytes())
    })?;
    let address = found.st_value(LittleEndian);
    let segments = header.program_headers(LittleEndian, image).ok()?;
    let holds = |s: &&object::elf::ProgramHeader64<LittleEndian>| {
        s.p_type(LittleEndian) == object::elf::PT_LOAD
            && (s.p_vaddr(LittleEndian)..s.p_vaddr(LittleEndian) + s.p_filesz(LittleEndian))
                .contains(&address)
    };
    segments
        .iter()
        .find(holds)
        .map(|s| (address - s.p_vaddr(LittleEndian) + s.p_offset(LittleEndian)) as usize)
}

/// Range of a section in the file.
fn section(image: &[u8], name: &str) -> Option<std::ops::Range<usize>> {
    use object::read::elf::SectionHeader;
    let header = Header::parse(image).ok()?;
    let sections = header.sections(LittleEndian, image).ok()?;
    let (_, found) = sections.section_by_name(LittleEndian, name.as_bytes())?;
    let (offset, size) = found.file_range(LittleEndian)?;
    Some(offset as usize..(offset + size) as usize)
}

fn strings(image: &[u8]) -> Option<std::ops::Range<usize>> {
    section(image, ".dynstr").filter(|r| r.end <= image.len())
}

/// Fills the table of symbols by hash (`DT_HASH`, System V ABI, chapter 5) for the names as they
/// are now. Its size stays.
fn rehash(image: &mut [u8]) -> Option<()> {
    let table = section(image, ".hash").filter(|r| r.end <= image.len())?;
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?));
    let (buckets, chains) = (word(table.start)?, word(table.start + 4)?);
    let mut words = vec![0u32; (buckets + chains) as usize];
    {
        let header = Header::parse(&*image).ok()?;
        let symbols = header
            .sections(LittleEndian, &*image)
            .ok()?
            .symbols(LittleEndian, &*image, object::elf::SHT_DYNSYM)
            .ok()?;
        for number in 1..chains {
            let symbol = symbols.symbol(SymbolIndex(number as usize)).ok()?;
            let bucket = (object::elf::hash(symbols.symbol_name(LittleEndian, symbol).ok()?)
                % buckets) as usize;
            words[(buckets + number) as usize] = std::mem::replace(&mut words[bucket], number);
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    image
        .get_mut(table.start + 8..table.start + 8 + bytes.len())?
        .copy_from_slice(&bytes);
    Some(())
}

/// Why the calls of a function cannot be logged: the program defines the function itself, and its
/// calls do not go through the loader. `None` if they can, or if unknown.
pub fn refusal(program: &Path, hook: &Hook) -> Option<String> {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(program).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let imported = file
        .dynamic_symbols()
        .any(|s| s.is_undefined() && s.name() == Ok(&hook.name));
    let own = file
        .symbols()
        .chain(file.dynamic_symbols())
        .any(|s| s.is_definition() && s.name() == Ok(&hook.name));
    (own && !imported).then(|| {
        format!(
            "--heap-hook: {} has the function {} in itself, and what a program calls inside itself cannot be wrapped by mgz-record; put the allocator into a shared library (cc -shared -fPIC), or name a function of a library",
            program.display(),
            hook.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::runtime_image::RUNTIME_HEAP;

    #[test]
    fn options_are_read_and_wrong_ones_explained() {
        assert_eq!(
            "free2=pool_free".parse(),
            Ok(Hook {
                kind: 5,
                name: "pool_free".into()
            })
        );
        for (wrong, says) in [
            ("pool_free", "KIND=NAME"),
            ("size=x", "there are alloc"),
            ("alloc=", "no symbol"),
            ("alloc=a b", "no symbol"),
        ] {
            let error = wrong.parse::<Hook>().unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
        assert!(format!("alloc={}", "x".repeat(64)).parse::<Hook>().is_err());
    }

    #[test]
    fn the_image_has_the_names_in_its_symbols_and_its_table() {
        use object::{Object, ObjectSymbol};
        let hooks: Vec<Hook> = ["alloc=my_alloc", "alloc=other_alloc", "free2=pool_free"]
            .iter()
            .map(|h| h.parse().unwrap())
            .collect();
        let image = with_hooks(RUNTIME_HEAP, &hooks).unwrap();
        assert_eq!(image.len(), RUNTIME_HEAP.len());
        let file = object::File::parse(&*image).unwrap();
        for hook in &hooks {
            assert!(
                file.dynamic_symbols()
                    .any(|s| s.is_definition() && s.name() == Ok(&hook.name)),
                "{hook:?}"
            );
        }
        let too_many: Vec<Hook> = (0..=HOOKS_PER_KIND)
            .map(|n| Hook {
                kind: 0,
                name: format!("a{n}"),
            })
            .collect();
        assert!(
            with_hooks(RUNTIME_HEAP, &too_many)
                .unwrap_err()
                .contains("at most")
        );
        // The loader's own look-up finds each name, old and new.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.so");
        std::fs::write(&path, &image).unwrap();
        let table = section(&image, ".hash").unwrap();
        let word = |at: usize| {
            u32::from_le_bytes(
                image[table.start + 4 * at..table.start + 4 * at + 4]
                    .try_into()
                    .unwrap(),
            )
        };
        let header = Header::parse(&*image).unwrap();
        let symbols = header
            .sections(LittleEndian, &*image)
            .unwrap()
            .symbols(LittleEndian, &*image, object::elf::SHT_DYNSYM)
            .unwrap();
        for (index, symbol) in symbols.enumerate().skip(1) {
            let name = symbols.symbol_name(LittleEndian, symbol).unwrap();
            let mut at = word(2 + (object::elf::hash(name) % word(0)) as usize);
            while at != 0 && at as usize != index.0 {
                at = word(2 + word(0) as usize + at as usize);
            }
            assert_eq!(at as usize, index.0, "{}", String::from_utf8_lossy(name));
        }
    }
}
