//! Structures, arrays and source files of a program, from its debug information.

use crate::fix::source::params;
use anyhow::{Context, bail};
use gimli::{AttributeValue, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Bytes<'a>>;

/// C23, for which `gimli` has no name. Source: the DWARF committee's list of languages.
const LANGUAGE_C23: gimli::DwLang = gimli::DwLang(0x3e);

/// A member of a structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name; empty for an unnamed structure or union.
    pub name: String,
    /// Bytes from the structure's begin.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Alignment in bytes; 0 if unknown.
    pub align: u64,
    /// True for a bit field.
    pub is_bit_field: bool,
    /// True if it is a structure itself.
    pub is_structure: bool,
}

/// A structure type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Its tag, or the name of its type definition without one.
    pub name: String,
    /// Names of type definitions.
    pub aliases: BTreeSet<String>,
    /// Bytes.
    pub bytes: u64,
    /// File of its declaration.
    pub file: PathBuf,
    /// Line of its declaration.
    pub line: u64,
    /// Members in their order.
    pub members: Vec<Member>,
    /// Structures that contain it by value, by name.
    pub containers: BTreeSet<String>,
    /// Source files of the units with this structure.
    pub files: BTreeSet<PathBuf>,
    /// The reason why its layout is uncertain; empty if it is certain.
    pub doubt: &'static str,
}

/// A variable that is an array of two or more dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Name.
    pub name: String,
    /// Lengths of the dimensions.
    pub dimensions: Vec<u64>,
    /// Bytes of an element.
    pub element: u64,
    /// File of its declaration.
    pub file: PathBuf,
    /// Line of its declaration.
    pub line: u64,
    /// Source files of the units with this variable.
    pub files: BTreeSet<PathBuf>,
}

/// Facts of a whole program.
#[derive(Clone, Debug, Default)]
pub struct DebugInfo {
    /// Structures with names.
    pub structures: Vec<Structure>,
    /// Arrays of arrays.
    pub grids: Vec<Grid>,
    /// Main files of the units.
    pub main_files: BTreeSet<PathBuf>,
    /// Files of all units.
    pub files: BTreeSet<PathBuf>,
    /// A unit in another language than C and assembler.
    pub other_language: Option<PathBuf>,
    /// A unit in assembler.
    pub assembler: Option<PathBuf>,
    /// A function without debug information, whose uses of structures are unknown.
    pub unknown_code: Option<String>,
}

/// Functions that compilers add to each program. They use no structures of the source.
const START_CODE: [&str; 11] = [
    "_start",
    "_init",
    "_fini",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
    "_dl_relocate_static_pie",
    "__libc_csu_init",
    "__libc_csu_fini",
    "__clang_call_terminate",
];

impl DebugInfo {
    /// Reads a program.
    pub fn read(program: &Path) -> anyhow::Result<DebugInfo> {
        let cannot = || format!("{}: cannot be read", program.display());
        let data = std::fs::read(program).with_context(cannot)?;
        let separate = mgz_elf::debug_files::separate(program);
        let file = object::File::parse(&*data).with_context(cannot)?;
        let apart = (separate.as_deref())
            .and_then(|data| object::File::parse(data).ok())
            .filter(|f| f.section_by_name(".debug_info").is_some());
        let debug = apart.as_ref().unwrap_or(&file);
        let size = debug.section_by_name(".debug_info").map_or(0, |s| s.size());
        if size == 0 {
            bail!(
                "{}: has no debug information, so that nothing leads to its source; compile it with -g",
                program.display()
            );
        }
        if size > params::MAX_DEBUG_BYTES {
            bail!(
                "{}: has more than 256 MiB of debug information, which is not searched",
                program.display()
            );
        }
        let sections = gimli::DwarfSections::load(|id| {
            let data = (debug.section_by_name(id.name())).and_then(|s| s.uncompressed_data().ok());
            Ok::<_, gimli::Error>(data.unwrap_or(Cow::Borrowed(&[])))
        })?;
        let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        let damaged = || format!("{}: its debug information is damaged", program.display());
        Reader::default().run(&dwarf, debug).with_context(damaged)
    }

    /// The reason why code in the program may differ from its text as C.
    pub fn is_not_c(&self) -> Option<String> {
        let file = self.other_language.as_ref()?;
        Some(format!(
            "{} is not in C, and sources of other languages are not understood for sure",
            file.display()
        ))
    }

    /// The structure of a type by its name in traces: `struct node[100]`. The error is the reason
    /// why there is none.
    pub fn structure(&self, of_type: &str) -> Result<&Structure, String> {
        let name = of_type.split('[').next().unwrap_or_default().trim();
        let name = name.strip_prefix("struct ").unwrap_or(name);
        let mut found =
            (self.structures.iter()).filter(|s| s.name == name || s.aliases.contains(name));
        match (found.next(), found.next()) {
            _ if name.is_empty() => Err("the type of the data is unknown".into()),
            (Some(one), None) => Ok(one),
            (None, _) => Err(format!("{of_type} is no structure of the source")),
            _ => Err(format!("several structures have the name {name}")),
        }
    }
}

/// Collects data from all units.
#[derive(Default)]
struct Reader {
    info: DebugInfo,
    known: BTreeMap<(String, PathBuf, u64), usize>,
    grids: BTreeMap<(String, PathBuf, u64), usize>,
    covered: Vec<(u64, u64)>,
}

impl Reader {
    fn run(
        mut self,
        dwarf: &gimli::Dwarf<Bytes<'_>>,
        file: &object::File<'_>,
    ) -> gimli::Result<DebugInfo> {
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let mut ranges = dwarf.unit_ranges(&unit)?;
            while let Some(range) = ranges.next()? {
                self.covered.push((range.begin, range.end));
            }
            self.unit(&Unit { dwarf, unit: &unit })?;
        }
        self.covered.sort_unstable();
        self.info.unknown_code = self.unknown_code(file);
        Ok(self.info)
    }

    /// A function of the program that is in no unit.
    fn unknown_code(&self, file: &object::File<'_>) -> Option<String> {
        let is_covered = |address: u64| {
            let next = self.covered.partition_point(|r| r.0 <= address);
            // Ranges may contain each other.
            self.covered[..next].iter().any(|r| address < r.1)
        };
        let own = file.symbols().find(|s| {
            let name = s.name().unwrap_or_default();
            s.kind() == SymbolKind::Text
                && s.is_definition()
                && !START_CODE.contains(&name)
                && !name.starts_with("__x86.get_pc_thunk")
                && !is_covered(s.address())
        });
        own.map(|s| s.name().unwrap_or_default().to_owned())
    }

    fn unit(&mut self, unit: &Unit) -> gimli::Result<()> {
        let files = unit.files();
        self.info.main_files.extend(unit.main_file());
        self.info.files.extend(files.iter().cloned());
        let main = unit.main_file().unwrap_or_default();
        match unit.language() {
            None | Some(gimli::DW_LANG_C89 | gimli::DW_LANG_C | gimli::DW_LANG_C99) => {}
            Some(gimli::DW_LANG_C11 | gimli::DW_LANG_C17 | LANGUAGE_C23) => {}
            Some(gimli::DW_LANG_Mips_Assembler) => self.info.assembler = Some(main),
            Some(_) => self.info.other_language = Some(main),
        }
        let mut here: BTreeMap<UnitOffset, usize> = BTreeMap::new();
        let mut entries = unit.unit.entries();
        let mut later: Vec<(UnitOffset, gimli::DwTag)> = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            match entry.tag() {
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                    if let Some(structure) = unit.structure(entry, &files) {
                        here.insert(entry.offset(), self.add(structure, &files));
                    }
                    later.push((entry.offset(), entry.tag()));
                }
                tag @ (gimli::DW_TAG_typedef | gimli::DW_TAG_union_type) => {
                    later.push((entry.offset(), tag));
                }
                gimli::DW_TAG_variable => {
                    if let Some(grid) = unit.grid(entry, &files) {
                        self.add_grid(grid, &files);
                    }
                }
                _ => {}
            }
        }
        for (at, tag) in later {
            self.relate(unit, (at, tag), &here, &files);
        }
        Ok(())
    }

    fn add(&mut self, mut structure: Structure, files: &[PathBuf]) -> usize {
        structure.files.extend(files.iter().cloned());
        let key = (
            structure.name.clone(),
            structure.file.clone(),
            structure.line,
        );
        match self.known.get(&key) {
            Some(&number) => {
                let old = &mut self.info.structures[number];
                if old.members != structure.members || old.bytes != structure.bytes {
                    old.doubt = "its layout is not the same in all parts of the program";
                }
                old.files.append(&mut structure.files);
                number
            }
            None => {
                let number = self.info.structures.len();
                self.known.insert(key, number);
                self.info.structures.push(structure);
                number
            }
        }
    }

    fn add_grid(&mut self, mut grid: Grid, files: &[PathBuf]) {
        grid.files.extend(files.iter().cloned());
        let key = (grid.name.clone(), grid.file.clone(), grid.line);
        match self.grids.get(&key) {
            Some(&number) => self.info.grids[number].files.append(&mut grid.files),
            None => {
                self.grids.insert(key, self.info.grids.len());
                self.info.grids.push(grid);
            }
        }
    }

    /// Names of type definitions, and structures and unions that contain structures.
    fn relate(
        &mut self,
        unit: &Unit,
        (at, tag): (UnitOffset, gimli::DwTag),
        here: &BTreeMap<UnitOffset, usize>,
        files: &[PathBuf],
    ) {
        let Ok(entry) = unit.unit.entry(at) else {
            return;
        };
        let name = unit.name(&entry);
        if tag == gimli::DW_TAG_typedef {
            let Some(of) = unit.link(at).and_then(|of| unit.bare(of)) else {
                return;
            };
            if let Some(&number) = here.get(&of.0) {
                self.info.structures[number].aliases.extend(name);
            } else if let Some(mut structure) = unit
                .unit
                .entry(of.0)
                .ok()
                .filter(|e| unit.name(e).is_none())
                .and_then(|e| unit.structure_named(&e, name.unwrap_or_default(), files))
            {
                structure.aliases.insert(structure.name.clone());
                self.add(structure, files);
            }
            return;
        }
        for of in unit.member_types(at) {
            let Some(&number) = here.get(&of) else {
                continue;
            };
            let inner = &mut self.info.structures[number];
            match (tag, &name) {
                (gimli::DW_TAG_union_type, _) => inner.doubt = "it is part of a union",
                (_, Some(name)) => {
                    inner.containers.insert(name.clone());
                }
                _ => inner.doubt = "it is part of a structure without a name",
            }
        }
    }
}

/// A compilation unit.
struct Unit<'d, 'a> {
    dwarf: &'d gimli::Dwarf<Bytes<'a>>,
    unit: &'d gimli::Unit<Bytes<'a>>,
}

impl<'a> Unit<'_, 'a> {
    fn text(&self, value: AttributeValue<Bytes<'a>>) -> Option<String> {
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    fn name(&self, entry: &Entry<'a>) -> Option<String> {
        let name = self.text(entry.attr_value(gimli::DW_AT_name)?)?;
        (!name.is_empty()).then_some(name)
    }

    fn folder(&self) -> PathBuf {
        let folder = self.unit.comp_dir.as_ref();
        folder.map_or_else(PathBuf::new, |f| f.to_string_lossy().into_owned().into())
    }

    fn language(&self) -> Option<gimli::DwLang> {
        let root = self.unit.entry(self.unit.header.root_offset()).ok()?;
        match root.attr_value(gimli::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    fn main_file(&self) -> Option<PathBuf> {
        let name = self.unit.name.as_ref()?.to_string_lossy().into_owned();
        Some(plain(&self.folder().join(name)))
    }

    /// Paths of the line table, by their numbers.
    fn files(&self) -> Vec<PathBuf> {
        let Some(program) = &self.unit.line_program else {
            return Vec::new();
        };
        let header = program.header();
        let count = header.file_names().len() as u64 + 1;
        let path = |number: u64| -> Option<PathBuf> {
            let file = header.file(number)?;
            let mut path = self.folder();
            if let Some(folder) = file.directory(header).and_then(|d| self.text(d)) {
                path.push(folder);
            }
            path.push(self.text(file.path_name())?);
            Some(plain(&path))
        };
        (0..count).map(|n| path(n).unwrap_or_default()).collect()
    }

    fn number(entry: &Entry<'a>, by: gimli::DwAt) -> Option<u64> {
        entry.attr_value(by).and_then(|v| v.udata_value())
    }

    /// File and line of a declaration.
    fn place(entry: &Entry<'a>, files: &[PathBuf]) -> Option<(PathBuf, u64)> {
        let file = match entry.attr_value(gimli::DW_AT_decl_file)? {
            AttributeValue::FileIndex(number) => number,
            other => other.udata_value()?,
        };
        let line = Self::number(entry, gimli::DW_AT_decl_line)?;
        Some((files.get(file as usize)?.clone(), line))
    }

    fn link(&self, at: UnitOffset) -> Option<UnitOffset> {
        match self.unit.entry(at).ok()?.attr_value(gimli::DW_AT_type)? {
            AttributeValue::UnitRef(at) => Some(at),
            _ => None,
        }
    }

    /// The type behind type definitions and qualifiers.
    fn bare(&self, mut at: UnitOffset) -> Option<(UnitOffset, gimli::DwTag)> {
        for _ in 0..params::MAX_TYPE_DEPTH {
            let tag = self.unit.entry(at).ok()?.tag();
            match tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => at = self.link(at)?,
                _ => return Some((at, tag)),
            }
        }
        None
    }

    fn children(&self, at: UnitOffset, mut visit: impl FnMut(&Entry<'a>)) {
        let Ok(mut tree) = self.unit.entries_tree(Some(at)) else {
            return;
        };
        let Ok(root) = tree.root() else { return };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            visit(child.entry());
        }
    }

    /// Lengths of an array. `None` if one is unknown.
    fn lengths(&self, array: UnitOffset) -> Option<Vec<u64>> {
        let mut lengths = Some(Vec::new());
        self.children(array, |child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                let length = Self::number(child, gimli::DW_AT_count).or_else(|| {
                    Self::number(child, gimli::DW_AT_upper_bound).and_then(|n| n.checked_add(1))
                });
                match (&mut lengths, length) {
                    (Some(all), Some(length)) => all.push(length),
                    _ => lengths = None,
                }
            }
        });
        lengths
    }

    /// Bytes and alignment of a type; the alignment is 0 if it is unknown.
    fn size(&self, at: UnitOffset, depth: usize) -> Option<(u64, u64)> {
        let (at, tag) = self.bare(at)?;
        let entry = self.unit.entry(at).ok()?;
        let told = Self::number(&entry, gimli::DW_AT_byte_size);
        if depth > params::MAX_TYPE_DEPTH {
            return None;
        }
        match tag {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Some((told.unwrap_or(8), 8)),
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => Some((told?, told?)),
            gimli::DW_TAG_array_type => {
                let (bytes, align) = self.size(self.link(at)?, depth + 1)?;
                let mut lengths = self.lengths(at)?.into_iter();
                let all = lengths.try_fold(bytes, |all, n| all.checked_mul(n))?;
                Some((all, align))
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let mut align = Some(1);
                self.children(at, |child| {
                    let is_part = matches!(
                        child.tag(),
                        gimli::DW_TAG_member | gimli::DW_TAG_inheritance
                    );
                    let is_static = child.attr_value(gimli::DW_AT_external).is_some()
                        || child.attr_value(gimli::DW_AT_declaration).is_some();
                    if is_part
                        && !is_static
                        && let Some(AttributeValue::UnitRef(of)) =
                            child.attr_value(gimli::DW_AT_type)
                    {
                        let own = self.size(of, depth + 1).map(|s| s.1);
                        align = align.zip(own).map(|(a, b): (u64, u64)| a.max(b));
                    }
                });
                let aligned = Self::number(&entry, gimli::DW_AT_alignment);
                Some((told?, aligned.or(align).unwrap_or(0)))
            }
            _ => Some((told?, 0)),
        }
    }

    fn structure(&self, entry: &Entry<'a>, files: &[PathBuf]) -> Option<Structure> {
        self.structure_named(entry, self.name(entry)?, files)
    }

    fn structure_named(
        &self,
        entry: &Entry<'a>,
        name: String,
        files: &[PathBuf],
    ) -> Option<Structure> {
        let is_structure = matches!(
            entry.tag(),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type
        );
        if !is_structure || entry.attr_value(gimli::DW_AT_declaration).is_some() {
            return None;
        }
        let (file, line) = Self::place(entry, files)?;
        let mut structure = Structure {
            name,
            bytes: Self::number(entry, gimli::DW_AT_byte_size)?,
            file,
            line,
            ..Structure::default()
        };
        if entry.attr_value(gimli::DW_AT_alignment).is_some() {
            structure.doubt = "it has an alignment of its own";
        }
        self.children(entry.offset(), |child| match child.tag() {
            gimli::DW_TAG_member if child.attr_value(gimli::DW_AT_external).is_none() => {
                structure.members.push(self.member(child));
            }
            gimli::DW_TAG_inheritance => structure.doubt = "it has a base class",
            gimli::DW_TAG_variant_part => structure.doubt = "it has variants",
            _ => {}
        });
        Some(structure)
    }

    fn member(&self, entry: &Entry<'a>) -> Member {
        let of = match entry.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(of)) => Some(of),
            _ => None,
        };
        let (bytes, align) = of.and_then(|of| self.size(of, 0)).unwrap_or((0, 0));
        let bits = Self::number(entry, gimli::DW_AT_data_bit_offset);
        let tag = of.and_then(|of| self.bare(of)).map(|b| b.1);
        Member {
            name: self.name(entry).unwrap_or_default(),
            offset: Self::number(entry, gimli::DW_AT_data_member_location)
                .or(bits.map(|b| b / 8))
                .unwrap_or(0),
            bytes,
            align: match entry.attr_value(gimli::DW_AT_alignment) {
                Some(_) => 0,
                None => align,
            },
            is_bit_field: entry.attr_value(gimli::DW_AT_bit_size).is_some(),
            is_structure: matches!(
                tag,
                Some(gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
            ),
        }
    }

    /// Types of the members, or of their elements.
    fn member_types(&self, at: UnitOffset) -> Vec<UnitOffset> {
        let mut types = Vec::new();
        self.children(at, |child| {
            if let Some(AttributeValue::UnitRef(of)) = child.attr_value(gimli::DW_AT_type)
                && child.tag() == gimli::DW_TAG_member
                && let Some((mut of, mut tag)) = self.bare(of)
            {
                for _ in 0..params::MAX_TYPE_DEPTH {
                    let inner = self.link(of).and_then(|of| self.bare(of));
                    match inner.filter(|_| tag == gimli::DW_TAG_array_type) {
                        Some(inner) => (of, tag) = inner,
                        None => break,
                    }
                }
                types.push(of);
            }
        });
        types
    }

    fn grid(&self, entry: &Entry<'a>, files: &[PathBuf]) -> Option<Grid> {
        let Some(AttributeValue::UnitRef(of)) = entry.attr_value(gimli::DW_AT_type) else {
            return None;
        };
        let (array, tag) = self.bare(of)?;
        if tag != gimli::DW_TAG_array_type {
            return None;
        }
        let dimensions = self.lengths(array)?;
        if dimensions.len() < 2 {
            return None;
        }
        let (file, line) = Self::place(entry, files)?;
        Some(Grid {
            name: self.name(entry)?,
            dimensions,
            element: self.size(self.link(array)?, 0)?.0,
            file,
            line,
            files: BTreeSet::new(),
        })
    }
}

/// A path without `.`, `..` and links.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component;
    if let Ok(real) = std::fs::canonicalize(path) {
        return real;
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "
struct inner { int a; char b; };
typedef struct { double x; struct inner part[2]; char *name; } particle;
struct flags { unsigned a : 3; unsigned b : 5; };
union both { struct inner i; int n; };
static double grid[8][16];
int main(void) {
    particle p = { 0 };
    struct flags f = { 0 };
    union both u = { 0 };
    return (int)(p.x + p.part[1].a + f.a + u.n + grid[1][2]);
}
";

    #[test]
    fn structures_have_members_and_relations() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (source, program) = (dir.join("a.c"), dir.join("a"));
        std::fs::write(&source, PROGRAM).unwrap();
        let compiled = std::process::Command::new("cc")
            .args(["-g", "-o"])
            .arg(&program)
            .arg(&source)
            .status();
        if !compiled.is_ok_and(|s| s.success()) {
            eprintln!("SKIPPED: cc cannot compile with debug information");
            return;
        }
        let info = DebugInfo::read(&program).unwrap();
        assert!(info.main_files.contains(&source), "{:?}", info.main_files);
        assert_eq!(info.unknown_code, None);
        let particle = info.structure("particle[100]").unwrap();
        assert_eq!(
            (particle.bytes, particle.line, &particle.file),
            (32, 3, &source)
        );
        let members: Vec<(&str, u64, u64, u64)> = (particle.members.iter())
            .map(|m| (m.name.as_str(), m.offset, m.bytes, m.align))
            .collect();
        assert_eq!(
            members,
            [("x", 0, 8, 8), ("part", 8, 16, 4), ("name", 24, 8, 8)]
        );
        let inner = info.structure("struct inner").unwrap();
        assert_eq!(inner.doubt, "it is part of a union");
        let flags = info.structure("struct flags").unwrap();
        assert!(flags.members.iter().all(|m| m.is_bit_field));
        let grid = info.grids.iter().find(|g| g.name == "grid").unwrap();
        assert_eq!((&grid.dimensions[..], grid.element), (&[8, 16][..], 8));
        assert!(info.structure("struct none").is_err());
    }
}
