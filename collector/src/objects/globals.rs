//! Global variables of a file: addresses from its symbols, types from its debug information.

use crate::objects::types::{self, DebugBytes, Layout, Types};
use gimli::{AttributeValue, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Link-time address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Demangled name of the variable.
    pub name: String,
    /// Its type as in the source; empty if debug information does not give it.
    pub of_type: String,
    /// Layout of its elements.
    pub layout: Layout,
}

/// Variables of a file, by address. The error is a sentence for the user.
pub fn variables(path: &Path) -> Result<Vec<Variable>, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
    // process could fault, as for every program that maps its input.
    let data = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| e.to_string())?;
    let separate = mgz_elf::debug_files::separate(path);
    parse(&data, separate.as_deref()).map_err(|e| e.to_string())
}

/// Variables of `data`. `separate`: the file with its debug information and stripped symbols.
fn parse(data: &[u8], separate: Option<&[u8]>) -> Result<Vec<Variable>, object::Error> {
    let file = object::File::parse(data)?;
    let debug_file = separate.and_then(|data| object::File::parse(data).ok());
    let mut found: BTreeMap<u64, Variable> = BTreeMap::new();
    let symbols = debug_file.iter().flat_map(|f| f.symbols());
    for symbol in file.symbols().chain(file.dynamic_symbols()).chain(symbols) {
        if symbol.kind() != SymbolKind::Data || symbol.is_undefined() || symbol.size() == 0 {
            continue;
        }
        let Some(name) = symbol.name().ok().filter(|n| !n.is_empty()) else {
            continue;
        };
        let variable = Variable {
            address: symbol.address(),
            bytes: symbol.size(),
            name: readable(name),
            of_type: String::new(),
            layout: Layout::default(),
        };
        match found.get_mut(&symbol.address()) {
            // Two symbols at one address: the larger one is kept.
            Some(known) if known.bytes < variable.bytes => *known = variable,
            Some(_) => {}
            None => {
                found.insert(symbol.address(), variable);
            }
        }
    }
    // Types are a help on top: an error in them is no reason to lose the names.
    let _ = add_types(debug_file.as_ref().unwrap_or(&file), &mut found);
    Ok(found.into_values().collect())
}

/// Versions of dynamic symbols are not part of the name.
fn readable(name: &str) -> String {
    mgz_elf::demangle::readable(name.split('@').next().unwrap_or(name))
}

fn add_types(file: &object::File<'_>, found: &mut BTreeMap<u64, Variable>) -> gimli::Result<()> {
    let Some(sections) = types::sections(file) else {
        return Ok(());
    };
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut units = dwarf.units();
    let headers: Vec<_> = std::iter::from_fn(|| units.next().ok().flatten()).collect();
    let mut units_of_types: HashMap<usize, gimli::Unit<DebugBytes>> = HashMap::new();
    for &header in &headers {
        let unit = dwarf.unit(header)?;
        let mut types = Types::new(&dwarf, &unit);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_variable {
                continue;
            }
            let Some(AttributeValue::Exprloc(place)) = entry.attr_value(gimli::DW_AT_location)
            else {
                continue;
            };
            let mut operations = place.operations(unit.encoding());
            let Ok(Some(gimli::Operation::Address { address })) = operations.next() else {
                continue;
            };
            let Some(variable) = found.get_mut(&address).filter(|v| v.of_type.is_empty()) else {
                continue;
            };
            // A definition that refers to a declaration has its type there.
            let declaration = || {
                let declaration = entry.attr_value(gimli::DW_AT_specification)?;
                types.type_of(types.reference(&declaration)?)
            };
            let at = match entry.attr_value(gimli::DW_AT_type) {
                Some(AttributeValue::DebugInfoRef(of)) if of.to_unit_offset(&header).is_none() => {
                    let place = |(number, header)| Some((number, of.to_unit_offset(header)?));
                    if let Some((number, at)) = headers.iter().enumerate().find_map(place) {
                        let unit = match units_of_types.entry(number) {
                            Entry::Occupied(known) => known.into_mut(),
                            Entry::Vacant(new) => new.insert(dwarf.unit(headers[number])?),
                        };
                        add_type(&mut Types::new(&dwarf, unit), at, variable);
                    }
                    continue;
                }
                Some(value) => types.reference(&value),
                None => declaration(),
            };
            if let Some(at) = at {
                add_type(&mut types, at, variable);
            }
        }
    }
    Ok(())
}

fn add_type(types: &mut Types<'_, '_>, at: UnitOffset, variable: &mut Variable) {
    variable.of_type = types.name(at, 0);
    variable.layout = types.layout(types.element(at));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "
struct node { struct node *next; int value; };
double field[3][4];
static struct node nodes[100];
struct node *first = nodes;
const char *const names[] = {\"a\", \"b\"};
__thread int apart;
int main(void) { static unsigned long counter = 5; return (int)(counter + field[0][0] + nodes[1].value + first->value + apart + names[0][0]); }
";

    #[test]
    fn variables_of_a_program_have_their_types() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
        std::fs::write(&source, PROGRAM).unwrap();
        let compile = |debug: &str| {
            std::process::Command::new("cc")
                .args([debug, "-o"])
                .arg(&program)
                .arg(&source)
                .status()
        };
        if !compile("-g").is_ok_and(|s| s.success()) {
            eprintln!("SKIPPED: cc cannot compile with debug information");
            return;
        }
        let found = variables(&program).unwrap();
        let of = |name: &str| {
            found
                .iter()
                .find(|v| v.name == name || v.name.starts_with(&format!("{name}.")))
                .map(|v| (v.bytes, v.of_type.as_str()))
        };
        assert_eq!(of("field"), Some((96, "double[3][4]")));
        assert_eq!(of("nodes"), Some((1600, "struct node[100]")));
        assert_eq!(of("first"), Some((8, "struct node*")));
        assert_eq!(of("names"), Some((16, "char*[2]")));
        assert_eq!(of("counter"), Some((8, "long unsigned int")));
        assert_eq!(
            of("apart"),
            None,
            "variables of a thread have no address in the file"
        );
        assert!(found.windows(2).all(|w| w[0].address < w[1].address));
        // Without debug information names stay.
        assert!(compile("-g0").unwrap().success());
        let bare = variables(&program).unwrap();
        assert!(
            bare.iter()
                .any(|v| v.name == "field" && v.of_type.is_empty())
        );
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "text").unwrap();
        assert!(variables(&path).is_err());
        assert!(variables(&dir.path().join("none")).is_err());
    }
}
