//! Types of debug information: as text, and where the fields of an element lie.

use gimli::{AttributeValue, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// Bytes of debug information.
pub(crate) type DebugBytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<DebugBytes<'a>>;

/// Larger debug information is not searched for types: that would take seconds.
const MAX_DEBUG: u64 = 256 << 20;
/// Maximum length of a chain of types: damaged debug information may have cycles.
const MAX_DEPTH: usize = 16;
/// Maximum depth of nested structures whose fields are listed.
const MAX_NESTED: usize = 6;
/// Maximum number of fields of an element.
const MAX_FIELDS: usize = 64;

/// A field of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Bytes from the element's begin.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Name as in the source; for a nested structure, with the name of its field before it.
    pub name: String,
}

/// Layout of the elements of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    /// Bytes of an element; 0 if it is not known.
    pub bytes: u64,
    /// Fields, by offset; empty for types without fields.
    pub fields: Vec<Field>,
}

impl Layout {
    /// As the column `fields` has it: `0:8:next,8:4:key`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for field in &self.fields {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(
                text,
                "{comma}{}:{}:{}",
                field.offset,
                field.bytes,
                field.name.replace(',', ";")
            );
        }
        text
    }
}

/// The debug sections of a file; nothing if it has none, or too much.
pub(crate) fn sections<'a>(file: &object::File<'a>) -> Option<gimli::DwarfSections<Cow<'a, [u8]>>> {
    let size = file.section_by_name(".debug_info").map(|s| s.size());
    if !size.is_some_and(|s| s > 0 && s <= MAX_DEBUG) {
        return None;
    }
    gimli::DwarfSections::load(|id| {
        let data = file
            .section_by_name(id.name())
            .and_then(|s| s.uncompressed_data().ok());
        Ok::<_, gimli::Error>(data.unwrap_or(Cow::Borrowed(&[])))
    })
    .ok()
}

/// Types of one unit.
pub(crate) struct Types<'d, 'a> {
    pub(crate) dwarf: &'d gimli::Dwarf<DebugBytes<'a>>,
    pub(crate) unit: &'d gimli::Unit<DebugBytes<'a>>,
    known: HashMap<UnitOffset, String>,
}

impl<'d, 'a> Types<'d, 'a> {
    pub(crate) fn new(
        dwarf: &'d gimli::Dwarf<DebugBytes<'a>>,
        unit: &'d gimli::Unit<DebugBytes<'a>>,
    ) -> Types<'d, 'a> {
        Types {
            dwarf,
            unit,
            known: HashMap::new(),
        }
    }

    /// The type that an entry names.
    pub(crate) fn type_of(&self, at: UnitOffset) -> Option<UnitOffset> {
        self.link(at, gimli::DW_AT_type)
    }

    /// Another entry of the unit that an entry names.
    pub(crate) fn link(&self, at: UnitOffset, by: gimli::DwAt) -> Option<UnitOffset> {
        self.reference(&self.unit.entry(at).ok()?.attr_value(by)?)
    }

    /// The entry of this unit that a value refers to.
    pub(crate) fn reference(&self, value: &AttributeValue<DebugBytes<'a>>) -> Option<UnitOffset> {
        match value {
            AttributeValue::UnitRef(at) => Some(*at),
            // Go refers so to types even inside of the unit that has them all.
            AttributeValue::DebugInfoRef(at) => at.to_unit_offset(&self.unit.header),
            _ => None,
        }
    }

    /// An entry, and those of which it is an instance or the definition.
    pub(crate) fn origins(&self, at: UnitOffset) -> Vec<UnitOffset> {
        let mut chain = vec![at];
        while chain.len() < MAX_DEPTH {
            let last = chain[chain.len() - 1];
            let next = self
                .link(last, gimli::DW_AT_abstract_origin)
                .or_else(|| self.link(last, gimli::DW_AT_specification));
            let Some(next) = next else { break };
            chain.push(next);
        }
        chain
    }

    /// The type of an entry or of its abstract origin.
    pub(crate) fn type_of_instance(&self, at: UnitOffset) -> Option<UnitOffset> {
        self.origins(at).into_iter().find_map(|at| self.type_of(at))
    }

    /// The name of an entry or of its abstract origin.
    pub(crate) fn name_of_instance(&self, at: UnitOffset) -> Option<String> {
        self.origins(at).into_iter().find_map(|at| {
            let entry = self.unit.entry(at).ok()?;
            self.own_name(&entry)
        })
    }

    pub(crate) fn own_name(&self, entry: &Entry<'a>) -> Option<String> {
        let name = entry.attr_value(gimli::DW_AT_name)?;
        let name = self.dwarf.attr_string(self.unit, name).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// `double[1024]`, `struct node*`, …, without qualifiers such as `const`.
    pub(crate) fn name(&mut self, at: UnitOffset, depth: usize) -> String {
        if let Some(known) = self.known.get(&at) {
            return known.clone();
        }
        let text = self.describe(at, depth).unwrap_or_default();
        self.known.insert(at, text.clone());
        text
    }

    fn describe(&mut self, at: UnitOffset, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let entry = self.unit.entry(at).ok()?;
        let inner = |this: &mut Self| {
            this.type_of(at)
                .map_or_else(|| "void".to_owned(), |t| this.name(t, depth + 1))
        };
        Some(match entry.tag() {
            gimli::DW_TAG_pointer_type => inner(self) + "*",
            gimli::DW_TAG_reference_type => inner(self) + "&",
            gimli::DW_TAG_rvalue_reference_type => inner(self) + "&&",
            // Qualifiers only make names longer.
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => inner(self),
            gimli::DW_TAG_array_type => inner(self) + &self.dimensions(at),
            gimli::DW_TAG_subroutine_type => "function".to_owned(),
            tag => {
                let name = self
                    .own_name(&entry)
                    .unwrap_or_else(|| "(unnamed)".to_owned());
                match tag {
                    gimli::DW_TAG_structure_type => format!("struct {name}"),
                    gimli::DW_TAG_union_type => format!("union {name}"),
                    gimli::DW_TAG_enumeration_type => format!("enum {name}"),
                    _ => name,
                }
            }
        })
    }

    /// `[2][3]`; `[]` where the length is not known.
    fn dimensions(&self, at: UnitOffset) -> String {
        let mut text = String::new();
        for count in self.counts(at) {
            text += &count.map_or_else(|| "[]".to_owned(), |n| format!("[{n}]"));
        }
        text
    }

    /// Lengths of an array's dimensions.
    fn counts(&self, at: UnitOffset) -> Vec<Option<u64>> {
        let mut counts = Vec::new();
        self.children(at, |child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                let number = |name| child.attr_value(name).and_then(|v| v.udata_value());
                counts.push(
                    number(gimli::DW_AT_count).or_else(|| {
                        number(gimli::DW_AT_upper_bound).and_then(|n| n.checked_add(1))
                    }),
                );
            }
        });
        counts
    }

    /// Visits the children of an entry.
    pub(crate) fn children(&self, at: UnitOffset, mut visit: impl FnMut(&Entry<'a>)) {
        let Ok(mut tree) = self.unit.entries_tree(Some(at)) else {
            return;
        };
        let Ok(root) = tree.root() else { return };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            visit(child.entry());
        }
    }

    /// The type without typedefs and qualifiers.
    pub(crate) fn bare(&self, mut at: UnitOffset) -> Option<(UnitOffset, gimli::DwTag)> {
        for _ in 0..MAX_DEPTH {
            let tag = self.unit.entry(at).ok()?.tag();
            match tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => at = self.type_of(at)?,
                _ => return Some((at, tag)),
            }
        }
        None
    }

    /// Type that a pointer points to; `None` for `void*`, for pointers to functions and for other
    /// types.
    pub(crate) fn pointee(&self, at: UnitOffset) -> Option<UnitOffset> {
        let (pointer, tag) = self.bare(at)?;
        if !matches!(
            tag,
            gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type
        ) {
            return None;
        }
        let inner = self.type_of(pointer)?;
        let (_, tag) = self.bare(inner)?;
        let is_data = !matches!(
            tag,
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_unspecified_type
        );
        is_data.then_some(inner)
    }

    /// True for `void *`.
    pub(crate) fn is_untyped(&self, at: UnitOffset) -> bool {
        let bare = self.bare(at);
        let pointer = bare.filter(|(_, tag)| *tag == gimli::DW_TAG_pointer_type);
        pointer.is_some_and(|(pointer, _)| self.type_of(pointer).is_none())
    }

    /// True for `char` and its like.
    pub(crate) fn is_byte(&self, at: UnitOffset) -> bool {
        let bare = self.bare(at);
        bare.is_some_and(|(of, tag)| tag == gimli::DW_TAG_base_type && self.bytes(of) == Some(1))
    }

    /// Bytes of a type.
    pub(crate) fn bytes(&self, at: UnitOffset) -> Option<u64> {
        self.bytes_to_depth(at, 0)
    }

    fn bytes_to_depth(&self, at: UnitOffset, depth: usize) -> Option<u64> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (at, tag) = self.bare(at)?;
        let entry = self.unit.entry(at).ok()?;
        let told = entry
            .attr_value(gimli::DW_AT_byte_size)
            .and_then(|v| v.udata_value());
        match tag {
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type => Some(told.unwrap_or(8)),
            gimli::DW_TAG_array_type if told.is_none() => {
                let element = self.bytes_to_depth(self.type_of(at)?, depth + 1)?;
                let mut counts = self.counts(at).into_iter();
                counts.try_fold(element, |all, n| all.checked_mul(n?))
            }
            _ => told,
        }
    }

    /// The element of an array, or the type itself.
    pub(crate) fn element(&self, mut at: UnitOffset) -> UnitOffset {
        for _ in 0..MAX_DEPTH {
            match self.bare(at) {
                Some((array, gimli::DW_TAG_array_type)) => match self.type_of(array) {
                    Some(inner) => at = inner,
                    None => return at,
                },
                _ => return at,
            }
        }
        at
    }

    /// The element of an array whose variable only describes it. The first word of the variable is
    /// the elements' address, as in allocatable arrays and pointers of Fortran.
    pub(crate) fn element_elsewhere(&self, at: UnitOffset) -> Option<UnitOffset> {
        let (array, tag) = self.bare(at)?;
        let entry = self.unit.entry(array).ok()?;
        let is_elsewhere =
            tag == gimli::DW_TAG_array_type && entry.has_attr(gimli::DW_AT_data_location);
        is_elsewhere.then(|| self.type_of(array)).flatten()
    }

    /// Layout of elements of a type.
    pub(crate) fn layout(&self, at: UnitOffset) -> Layout {
        let mut layout = Layout {
            bytes: self.bytes(at).unwrap_or(0),
            fields: Vec::new(),
        };
        if self.is_structure(at) {
            self.flatten(at, (0, ""), 0, &mut layout.fields);
        }
        layout.fields.sort();
        layout.fields.dedup_by_key(|f| f.offset);
        layout
    }

    fn is_structure(&self, at: UnitOffset) -> bool {
        let tag = self.bare(at).map(|b| b.1);
        matches!(
            tag,
            Some(gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
        )
    }

    /// Adds the fields of the value that lies `from` bytes behind the element's start.
    fn flatten(
        &self,
        at: UnitOffset,
        (from, path): (u64, &str),
        depth: usize,
        out: &mut Vec<Field>,
    ) {
        if out.len() >= MAX_FIELDS {
            return;
        }
        let bytes = self.bytes(at).unwrap_or(0);
        let structure = self.bare(at).filter(|_| self.is_structure(at));
        let Some((at, _)) = structure.filter(|_| depth < MAX_NESTED) else {
            if bytes > 0 {
                let name = if path.is_empty() { "value" } else { path };
                out.push(Field {
                    offset: from,
                    bytes,
                    name: name.to_owned(),
                });
            }
            return;
        };
        // Storage for a value that containers of the C++ library construct later.
        if let Some(inner) = self.room_for(at) {
            let path = path.strip_suffix("_M_storage").unwrap_or(path);
            return self.flatten(inner, (from, path.trim_end_matches('.')), depth + 1, out);
        }
        let mut parts: Vec<(u64, Option<String>, UnitOffset, Option<u64>)> = Vec::new();
        self.children(at, |child| {
            let number = |name| child.attr_value(name).and_then(|v| v.udata_value());
            let is_base = child.tag() == gimli::DW_TAG_inheritance;
            let apart = [gimli::DW_AT_external, gimli::DW_AT_declaration];
            if !is_base && child.tag() != gimli::DW_TAG_member
                || apart.into_iter().any(|a| child.has_attr(a))
            {
                return;
            }
            let bits = number(gimli::DW_AT_bit_size).map(|b| b.div_ceil(8));
            let offset = number(gimli::DW_AT_data_member_location)
                .or_else(|| number(gimli::DW_AT_data_bit_offset).map(|b| b / 8));
            let name = if is_base { None } else { self.own_name(child) };
            let of = child.attr_value(gimli::DW_AT_type);
            if let Some(of) = of.and_then(|value| self.reference(&value)) {
                parts.push((offset.unwrap_or(0), name, of, bits));
            }
        });
        let before = out.len();
        for (offset, name, of, bits) in parts {
            let path = match (path, name) {
                (path, None) => path.to_owned(),
                ("", Some(name)) => name,
                (path, Some(name)) => format!("{path}.{name}"),
            };
            let offset = from.saturating_add(offset);
            match bits {
                Some(bytes) => out.push(Field {
                    offset,
                    bytes,
                    name: path,
                }),
                None => self.flatten(of, (offset, &path), depth + 1, out),
            }
        }
        // Variants, and types without parts of their own.
        if out.len() == before && bytes > 0 && !path.is_empty() {
            out.push(Field {
                offset: from,
                bytes,
                name: path.to_owned(),
            });
        }
    }

    fn room_for(&self, at: UnitOffset) -> Option<UnitOffset> {
        let name = self.own_name(&self.unit.entry(at).ok()?)?;
        let is_room = name.starts_with("__aligned_membuf") || name.starts_with("__aligned_buffer");
        if is_room {
            self.parameter(at, "_Tp")
        } else {
            None
        }
    }

    /// A type that a template or a generic function was made with.
    pub(crate) fn parameter(&self, at: UnitOffset, wanted: &str) -> Option<UnitOffset> {
        let mut found = None;
        self.children(at, |child| {
            if found.is_none()
                && child.tag() == gimli::DW_TAG_template_type_parameter
                && self.own_name(child).is_some_and(|n| n == wanted)
                && let Some(of) = child.attr_value(gimli::DW_AT_type)
            {
                found = self.reference(&of);
            }
        });
        found
    }

    /// The member at an offset from the start of a value: its type, and the name of the field.
    pub(crate) fn inside(&self, at: UnitOffset, offset: u64) -> Option<(UnitOffset, String)> {
        let (mut at, mut offset, mut name) = (at, offset, String::new());
        for _ in 0..MAX_DEPTH {
            let (bare, tag) = self.bare(at)?;
            match tag {
                gimli::DW_TAG_array_type => {
                    let element = self.type_of(bare)?;
                    offset %= self.bytes(element).filter(|&b| b > 0)?;
                    at = element;
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => {
                    let mut found = None;
                    self.children(bare, |child| {
                        if !matches!(
                            child.tag(),
                            gimli::DW_TAG_member | gimli::DW_TAG_inheritance
                        ) || child.has_attr(gimli::DW_AT_external)
                        {
                            return;
                        }
                        let place = child.attr_value(gimli::DW_AT_data_member_location);
                        let begin = place.and_then(|v| v.udata_value()).unwrap_or(0);
                        let of = child.attr_value(gimli::DW_AT_type);
                        if let Some(of) = of.and_then(|value| self.reference(&value))
                            && found.is_none()
                            && begin <= offset
                            && offset - begin < self.bytes(of).unwrap_or(0)
                        {
                            found = Some((begin, of, self.own_name(child)));
                        }
                    });
                    let (begin, of, field) = found?;
                    (at, offset) = (of, offset - begin);
                    name = field.unwrap_or(name);
                }
                _ => return (offset == 0).then_some((at, name)),
            }
        }
        None
    }
}
