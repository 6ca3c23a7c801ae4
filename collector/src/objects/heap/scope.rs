//! Variables of a function, and where they are at an instruction.

use crate::objects::types::{DebugBytes, Types};
use gimli::{AttributeValue, Operation, UnitOffset};

/// Location of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariablePlace {
    /// In a register, by its number in debug information.
    Register(u16),
    /// In memory, at an offset in bytes from the address in a register.
    Based(u16, i64),
    /// In memory, at an offset in bytes from the start of the frame (its CFA).
    Frame(i64),
}

/// A variable, and where it is from one instruction to another.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// Name.
    pub name: String,
    /// Type.
    pub of: UnitOffset,
    /// The object that a constructor makes.
    pub is_made: bool,
    /// First address, end, place.
    pub places: Vec<(u64, u64, VariablePlace)>,
}

/// Variables of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Variables of the function itself come before those of inlined functions.
    pub variables: Vec<Variable>,
    /// Address of its first instruction, and its end.
    pub code: (u64, u64),
    /// Type that it returns.
    pub returns: Option<UnitOffset>,
}

impl Scope {
    /// Reads the entries of a function.
    pub(crate) fn read(types: &Types<'_, '_>, function: UnitOffset) -> Option<Scope> {
        let entry = types.unit.entry(function).ok()?;
        let ranges = ranges(types, &entry);
        let mut scope = Scope {
            code: *ranges.first()?,
            returns: types.type_of_instance(function),
            ..Scope::default()
        };
        let base = entry
            .attr_value(gimli::DW_AT_frame_base)
            .and_then(|v| v.exprloc_value())
            .and_then(|e| frame_base(types, e));
        let mut entries = types.unit.entries_at_offset(function).ok()?;
        // The innermost block around an entry that has ranges, by depth, and whether it is a
        // constructor.
        let mut blocks: Vec<(isize, Vec<(u64, u64)>, bool)> = vec![(0, Vec::new(), false)];
        let mut first = true;
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth();
            if depth <= 0 && !first {
                break;
            }
            first = false;
            while blocks.len() > 1 && blocks.last().is_some_and(|b| b.0 >= depth) {
                blocks.pop();
            }
            match entry.tag() {
                gimli::DW_TAG_lexical_block => blocks.push((depth, ranges_of(types, entry), false)),
                gimli::DW_TAG_inlined_subroutine => {
                    let makes = is_constructor(types, entry.offset());
                    blocks.push((depth, ranges_of(types, entry), makes));
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    let Some(of) = types.type_of_instance(entry.offset()) else {
                        continue;
                    };
                    let name = types.name_of_instance(entry.offset()).unwrap_or_default();
                    let block = blocks.last();
                    let within = block.map_or(&[][..], |b| &b.1);
                    let places = places(types, entry, base, within);
                    if !places.is_empty() {
                        scope.variables.push(Variable {
                            is_made: name == "this" && block.is_some_and(|b| b.2),
                            name,
                            of,
                            places,
                        });
                    }
                }
                _ => {}
            }
        }
        Some(scope)
    }
}

type Entry<'a> = gimli::DebuggingInformationEntry<DebugBytes<'a>>;

fn ranges<'a>(types: &Types<'_, 'a>, entry: &Entry<'a>) -> Vec<(u64, u64)> {
    ranges_of(types, entry)
}

fn ranges_of<'a>(types: &Types<'_, 'a>, entry: &Entry<'a>) -> Vec<(u64, u64)> {
    let mut list = Vec::new();
    if let Ok(mut ranges) = types.dwarf.die_ranges(types.unit, entry) {
        while let Ok(Some(range)) = ranges.next() {
            list.push((range.begin, range.end));
        }
    }
    list
}

/// True if a function or an inlined call of one is a constructor of the class that its first
/// argument points to.
pub(crate) fn is_constructor(types: &Types<'_, '_>, function: UnitOffset) -> bool {
    let Some(name) = types.name_of_instance(function) else {
        return false;
    };
    let plain = |name: &str| name.split('<').next().unwrap_or(name).to_owned();
    first_argument(types, function)
        .and_then(|of| types.pointee(of))
        .and_then(|of| types.bare(of))
        .and_then(|(of, _)| types.own_name(&types.unit.entry(of).ok()?))
        .is_some_and(|class| plain(&class) == plain(&name))
}

/// The type of a function's first argument.
pub(crate) fn first_argument(types: &Types<'_, '_>, function: UnitOffset) -> Option<UnitOffset> {
    types.origins(function).into_iter().find_map(|at| {
        let mut first = None;
        types.children(at, |child| {
            if first.is_none() && child.tag() == gimli::DW_TAG_formal_parameter {
                first = Some(child.offset());
            }
        });
        first.and_then(|at| types.type_of_instance(at))
    })
}

fn frame_base<'a>(
    types: &Types<'_, 'a>,
    of: gimli::Expression<DebugBytes<'a>>,
) -> Option<VariablePlace> {
    match of.operations(types.unit.encoding()).next() {
        Ok(Some(Operation::CallFrameCFA)) => Some(VariablePlace::Frame(0)),
        Ok(Some(Operation::Register { register })) => Some(VariablePlace::Based(register.0, 0)),
        Ok(Some(Operation::RegisterOffset {
            register, offset, ..
        })) => Some(VariablePlace::Based(register.0, offset)),
        _ => None,
    }
}

/// Location of a variable, from an expression of a single operation.
fn place<'a>(
    types: &Types<'_, 'a>,
    of: gimli::Expression<DebugBytes<'a>>,
    base: Option<VariablePlace>,
) -> Option<VariablePlace> {
    let mut operations = of.operations(types.unit.encoding());
    let place = match operations.next().ok()?? {
        Operation::Register { register } => VariablePlace::Register(register.0),
        Operation::RegisterOffset {
            register, offset, ..
        } => VariablePlace::Based(register.0, offset),
        Operation::FrameOffset { offset } => match base? {
            VariablePlace::Frame(by) => VariablePlace::Frame(by.checked_add(offset)?),
            VariablePlace::Based(register, by) => {
                VariablePlace::Based(register, by.checked_add(offset)?)
            }
            VariablePlace::Register(_) => return None,
        },
        _ => return None,
    };
    operations.next().ok()?.is_none().then_some(place)
}

fn places<'a>(
    types: &Types<'_, 'a>,
    entry: &Entry<'a>,
    base: Option<VariablePlace>,
    within: &[(u64, u64)],
) -> Vec<(u64, u64, VariablePlace)> {
    let Some(location) = entry.attr_value(gimli::DW_AT_location) else {
        return Vec::new();
    };
    if let AttributeValue::Exprloc(of) = location {
        let Some(place) = place(types, of, base) else {
            return Vec::new();
        };
        return match within {
            [] => vec![(0, u64::MAX, place)],
            _ => within.iter().map(|&(from, to)| (from, to, place)).collect(),
        };
    }
    let mut list = Vec::new();
    if let Ok(Some(mut all)) = types.dwarf.attr_locations(types.unit, location) {
        while let Ok(Some(one)) = all.next() {
            if let Some(place) = place(types, one.data, base) {
                list.push((one.range.begin, one.range.end, place));
            }
        }
    }
    list
}
