//! Symbols of a program that a linker can place.

use anyhow::{Context, bail};
use mgz_annotations_schema::sidecar::Input;
use mgz_elf::symbols::{Symbol, symbols_of_table};
use mgz_elf::{Elf, debug_files};
use object::elf;
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::path::Path;
use twox_hash::XxHash3_64;

/// Beginnings of the names of sections whose input sections a linker sorts. The others have contents
/// that the linker makes, or an order of their own.
const SORTED_SECTIONS: [&str; 7] = [
    ".text", ".data", ".bss", ".rodata", ".ldata", ".lbss", ".lrodata",
];

/// A function or variable that the program defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// Link-time address.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Name as in the file.
    pub name: String,
    /// Index of its section.
    pub section: u16,
    /// It is a function.
    pub is_function: bool,
}

/// The symbols of a program, one for each address.
#[derive(Debug, Default)]
pub struct ProgramSymbols {
    /// By address.
    pub list: Vec<Placed>,
    /// By readable name: the function.
    functions: HashMap<String, usize>,
}

impl ProgramSymbols {
    /// Those of the file that was instrumented. `Ok(None)`: it is a library.
    pub fn read(input: &Input) -> anyhow::Result<Option<ProgramSymbols>> {
        let path = Path::new(&input.path);
        let cannot_read = || format!("{}: cannot be read for its symbols", path.display());
        let data = std::fs::read(path).with_context(cannot_read)?;
        let elf = Elf::parse(&data).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let is_program =
            elf.kind == elf::ET_EXEC.0 || elf.interpreter().is_some() || elf.is_static_executable();
        if !is_program {
            return Ok(None);
        }
        if !is_same_build(&elf, input) {
            bail!(
                "{}: another build than the one that was recorded; record this build",
                path.display()
            );
        }
        let separate = debug_files::separate(path);
        let separate = separate.as_deref().and_then(|data| Elf::parse(data).ok());
        let symbols = ProgramSymbols::new(placed(&elf, separate.as_ref()));
        if symbols.list.is_empty() {
            bail!(
                "{}: has no symbols to order; record a program that is not stripped",
                path.display()
            );
        }
        Ok(Some(symbols))
    }

    fn new(mut list: Vec<Placed>) -> ProgramSymbols {
        // The largest first: a linker moves whole sections, so one name is enough for an address.
        list.sort_unstable_by(|a, b| {
            let key = |of: &Placed| (of.start, u64::MAX - of.bytes);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        list.dedup_by_key(|symbol| symbol.start);
        let mut functions = HashMap::new();
        for (at, symbol) in list.iter().enumerate().filter(|(_, s)| s.is_function) {
            let readable = mgz_elf::demangle::readable(&symbol.name);
            functions.entry(readable).or_insert(at);
        }
        ProgramSymbols { list, functions }
    }

    /// The symbol at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        let at = self.list.partition_point(|s| s.start <= address);
        let at = at.checked_sub(1)?;
        let symbol = &self.list[at];
        (address - symbol.start < symbol.bytes.max(1)).then_some(at)
    }

    /// The function with a readable name.
    pub fn named(&self, readable: &str) -> Option<usize> {
        self.functions.get(readable).copied()
    }
}

fn is_same_build(elf: &Elf<'_>, input: &Input) -> bool {
    let id = elf.build_id();
    if !id.is_empty() || !input.build_id.is_empty() {
        return id == input.build_id;
    }
    let mut hash = XxHash3_64::with_seed(0);
    hash.write(elf.data);
    format!("{:016x}", hash.finish()) == input.hash
}

/// Symbols of the first file that has a table of all symbols.
fn placed(elf: &Elf<'_>, separate: Option<&Elf<'_>>) -> Vec<Placed> {
    // The loader copies these variables from libraries, so no object file of the program defines them.
    let relocations = elf.relocations().into_iter();
    let copied: HashSet<u64> = relocations
        .filter(|r| r.kind == elf::R_X86_64_COPY.0)
        .map(|r| r.at)
        .collect();
    for file in std::iter::once(elf).chain(separate) {
        let tables = file.sections.iter();
        let symbols: Vec<Symbol<'_>> = tables
            .filter(|section| section.kind == elf::SHT_SYMTAB.0)
            .flat_map(|section| symbols_of_table(file, section))
            .collect();
        if !symbols.is_empty() {
            let own = symbols.iter().filter(|s| !copied.contains(&s.value));
            return own
                .filter_map(|symbol| placed_symbol(file, symbol))
                .collect();
        }
    }
    Vec::new()
}

fn placed_symbol(file: &Elf<'_>, symbol: &Symbol<'_>) -> Option<Placed> {
    let is_function = symbol.kind == elf::STT_FUNC.0;
    if !is_function && symbol.kind != elf::STT_OBJECT.0 {
        return None;
    }
    // Undefined symbols have section 0, whose name is empty; reserved numbers have no section.
    let section = &file.sections.get(usize::from(symbol.section))?.name;
    let begins = |name: &&str| {
        let rest = section.strip_prefix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let name = symbol.name().into_owned();
    let is_plain = !name.is_empty()
        && !name.starts_with('#')
        && !name.contains(|c: char| c.is_whitespace() || c == char::REPLACEMENT_CHARACTER);
    (SORTED_SECTIONS.iter().any(begins) && is_plain && symbol.size > 0).then_some(Placed {
        start: symbol.value,
        bytes: symbol.size,
        name,
        section: symbol.section,
        is_function,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, bytes: u64, name: &str) -> Placed {
        Placed {
            start,
            bytes,
            name: name.into(),
            section: 1,
            is_function: true,
        }
    }

    #[test]
    fn addresses_and_names_lead_to_symbols() {
        let list = vec![
            symbol(0x20, 8, "_ZN3app6kernelEi"),
            symbol(0x10, 4, "alias"),
            symbol(0x10, 8, "first"),
        ];
        let symbols = ProgramSymbols::new(list);
        let name = |at: Option<usize>| at.map(|at| symbols.list[at].name.as_str());
        assert_eq!(name(symbols.at(0x17)), Some("first"));
        assert_eq!((symbols.at(0x18), symbols.at(0xf)), (None, None));
        assert_eq!(name(symbols.at(0x20)), Some("_ZN3app6kernelEi"));
        assert_eq!(symbols.named("app::kernel(int)"), symbols.at(0x20));
        assert_eq!(symbols.named("kernel"), None);
    }
}
