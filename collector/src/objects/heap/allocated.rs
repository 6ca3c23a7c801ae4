//! Type of the blocks that a call of an allocator returns.
//!
//! No record of it exists, but three sources show it:
//!
//! * Containers call an allocator of their element's type, inlined or not. Its debug information
//!   has the type: in C++ as its return type, in Rust as its type parameter.
//! * The code behind the call shows the destination of the result (`heap/flow.rs`).
//! * A function that returns the result is an allocator itself, so the calls of it are examined.

use crate::objects::heap::flow::{self, Goes};
use crate::objects::heap::scope::Scope;
use crate::objects::types::{self, DebugBytes, Layout, Types};
use gimli::{EndianSlice, LittleEndian, UnitOffset};
use mgz_elf::debug_files;
use mgz_elf::demangle::readable;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Maximum number of calls that are examined in a file.
const MAX_CALLS: usize = 4096;

/// The blocks of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allocated {
    /// Type of their elements, as in the source; empty if it is not known.
    pub of_type: String,
    /// Layout of these elements.
    pub layout: Layout,
    /// Variable or field that keeps the address; empty if it is not known.
    pub kept_in: String,
}

/// Findings about one call.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Type and layout of its blocks, if they were found.
    pub allocated: Option<Allocated>,
    /// Its function returns the result.
    pub returned: bool,
    /// Number of inlined functions around the call, from the inside out, that return untyped
    /// memory (`void *`). They are allocators too.
    pub inlined_allocators: usize,
}

/// Examines the calls of a file, given by the address of their last byte, as linked.
pub fn of_calls(path: &Path, calls: &BTreeSet<u64>) -> HashMap<u64, Told> {
    let read = || -> Option<HashMap<u64, Told>> {
        let file = std::fs::File::open(path).ok()?;
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let data = unsafe { memmap2::Mmap::map(&file) }.ok()?;
        let file = object::File::parse(&*data).ok()?;
        let separate = debug_files::separate(path);
        let apart = separate
            .as_deref()
            .map(object::File::parse)
            .transpose()
            .ok()?;
        let sections = types::sections(apart.as_ref().unwrap_or(&file))?;
        let view = || sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        let dwarf = view();
        let units = addr2line::Context::from_dwarf(view()).ok()?;
        let code = flow::FileCode::new(&file, apart.as_ref());
        let calls = calls.iter().take(MAX_CALLS);
        Some(
            calls
                .map(|&call| (call, told(&dwarf, &units, &code, call).unwrap_or_default()))
                .collect(),
        )
    };
    read().unwrap_or_default()
}

fn told(
    dwarf: &gimli::Dwarf<DebugBytes<'_>>,
    units: &addr2line::Context<DebugBytes<'_>>,
    code: &flow::FileCode<'_>,
    call: u64,
) -> Option<Told> {
    let unit = units.find_dwarf_and_unit(call).skip_all_loads()?;
    let mut types = Types::new(dwarf, unit.unit);
    let mut frames = units.find_frames(call).skip_all_loads().ok()?;
    // By function around the call, from the inside out: it returns untyped memory.
    let mut untyped = Vec::new();
    let mut function = None;
    while let Ok(Some(frame)) = frames.next() {
        let (Some(at), Some(name)) = (frame.dw_die_offset, frame.function) else {
            continue;
        };
        function = Some(at);
        untyped.push(
            types
                .type_of_instance(at)
                .is_some_and(|of| types.is_untyped(of)),
        );
        let name = name.raw_name().map(|n| readable(&n)).ok()?;
        if let Some(of) = by_signature(&types, at, &name) {
            return Some(Told {
                allocated: Some(make(&mut types, of, String::new())),
                ..Told::default()
            });
        }
    }
    let scope = Scope::read(&types, function?)?;
    let found = flow::follow(&types, &scope, code, call);
    // The outermost function is no inlined one.
    untyped.pop();
    let inlined_allocators = untyped.iter().take_while(|&&u| u).count();
    Some(Told {
        returned: matches!(found, Goes::Back),
        allocated: match found {
            Goes::To { of, kept_in } => Some(make(&mut types, of, kept_in)),
            Goes::Named(of_type) => Some(Allocated {
                of_type,
                ..Allocated::default()
            }),
            Goes::Back | Goes::Somewhere => None,
        },
        inlined_allocators,
    })
}

fn make(types: &mut Types<'_, '_>, of: UnitOffset, kept_in: String) -> Allocated {
    Allocated {
        of_type: types.name(of, 0),
        layout: types.layout(types.element(of)),
        kept_in,
    }
}

/// The element's type of an allocator's function, from its debug information.
fn by_signature(types: &Types<'_, '_>, function: UnitOffset, name: &str) -> Option<UnitOffset> {
    let is_cpp = name.starts_with("std::") || name.starts_with("__gnu_cxx::");
    let last = name.split('(').next().unwrap_or(name).rsplit("::").next();
    if is_cpp && last.is_some_and(|n| matches!(n, "allocate" | "_M_allocate")) {
        return types.pointee(types.type_of_instance(function)?);
    }
    let is_rust = ["alloc::", "<alloc::", "hashbrown::", "<hashbrown::"];
    if is_rust.iter().any(|s| name.starts_with(s)) {
        let made_with = |at| types.parameter(at, "T");
        return types.origins(function).into_iter().find_map(made_with);
    }
    None
}

#[cfg(test)]
mod tests;
