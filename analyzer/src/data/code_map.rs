//! The code that a row belongs to: functions, source lines, and *line pieces*.
//!
//! A line piece is the code of one machine function that stems from one source position with one
//! inline chain and is in the same loops (without line information: the code of the function in the
//! same loops). The stages count by the classes of pieces ([`Group`]). Function, line and loop
//! tables are sums of pieces.

use crate::data::group::{AccessClass, Group};
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::sidecar::{NONE, Origin, Sidecar, SiteFlags};
use mgz_annotations_schema::sources::is_system;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Load instructions of a module, by index in its sidecar.
pub type Sites = HashSet<u32, Mixed>;

/// Begin of the name of a function without a symbol: `[0x…]`.
const LINK_TIME_ADDRESS: &str = "[0x";

/// True if a function has no symbol, so that its name is only its address.
pub fn is_function_address(name: &str) -> bool {
    name.starts_with(LINK_TIME_ADDRESS)
}

/// A row of the function table.
#[derive(Clone, Default, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FunctionName {
    /// Name; `[0x…]` (link-time address) if there is no symbol; `[unknown]` for rows without a
    /// site.
    pub function: String,
    /// File name of the module, without folders.
    pub module: String,
}

/// A row of the line table.
#[derive(Clone, Default, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct LineName {
    /// Innermost function at this position.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
}

/// A row of the loop table.
#[derive(Clone, Default, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct LoopName {
    /// Index into [`CodeMap::functions`].
    pub function: u32,
    /// Link-time address of its head.
    pub header: u64,
    /// Link-time address of the head of the loop around it.
    pub outer: Option<u64>,
    /// Nesting depth: number of loops around its body, itself included.
    pub depth: u32,
    /// Source file of the branch back to the head; empty if unknown.
    pub file: String,
    /// Its line; 0 if unknown.
    pub line: u32,
    /// Callers that the code was inlined into, innermost first.
    pub chain: Vec<InlineCaller>,
}

/// A caller that code was inlined into.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct InlineCaller {
    /// The caller.
    pub function: String,
    /// Source file of the call, without folders.
    pub file: String,
    /// Line of the call.
    pub line: u32,
}

impl std::fmt::Display for InlineCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}:{}", self.function, self.file, self.line)
    }
}

/// The text of a chain of callers.
pub fn chain_text(chain: &[InlineCaller]) -> String {
    let callers: Vec<String> = chain.iter().map(InlineCaller::to_string).collect();
    callers.join(" < ")
}

/// Units by which rows are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The whole trace.
    Whole,
    /// Functions.
    Function,
    /// Source lines.
    Line,
    /// Loops, each including its inner loops.
    Loop,
}

/// A line piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct LinePiece {
    /// Index into [`CodeMap::functions`].
    pub function: u32,
    /// Index into [`CodeMap::lines`].
    pub line: u32,
    /// Indices into [`CodeMap::loops`] of the loops that it is in, the innermost first.
    pub loops: Vec<u32>,
    /// Callers that the code was inlined into, innermost first.
    pub chain: Vec<InlineCaller>,
}

/// One traced file, mapped at one address.
struct ModuleCode {
    /// Line piece of each site.
    sites: Arc<Vec<u32>>,
    /// Line piece of rows whose site is not known.
    unknown: u32,
    /// Number of its first site in the numbering of the whole trace.
    first_site: u32,
}

/// See the module's text.
#[derive(Default)]
pub struct CodeMap {
    modules: Vec<ModuleCode>,
    known: HashMap<String, (Arc<Vec<u32>>, u32, u32)>,
    /// Line piece of each site of the whole trace.
    site_pieces: Vec<u32>,
    /// Class of each of these sites; empty for a map of names.
    site_classes: Vec<u8>,
    /// Link-time address of each of these sites; empty for a map of names.
    site_addresses: Vec<u64>,
    /// By site: origin of its address from the sidecar, and the number of the site that the address
    /// comes from.
    site_origins: Vec<(Origin, Option<u32>)>,
    /// Stores are recorded too.
    has_stores: bool,
    /// By piece: the innermost position outside of system headers.
    users: Vec<Option<LineName>>,
    /// By function: its module and address. The list may be shorter than the functions.
    function_starts: Vec<Option<(u32, u64)>>,
    /// Functions.
    pub functions: Vec<FunctionName>,
    /// Source lines.
    pub lines: Vec<LineName>,
    /// Loops.
    pub loops: Vec<LoopName>,
    /// Line pieces.
    pub pieces: Vec<LinePiece>,
    line_index: HashMap<LineName, u32>,
    nowhere: Option<u32>,
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl CodeMap {
    /// A map without modules.
    pub fn new() -> CodeMap {
        let mut map = CodeMap::default();
        map.nowhere = Some(map.unknown("[unknown module]"));
        map
    }

    /// Module and link-time address of a function. Modules are numbered as in the manifest; of several
    /// with the same code, it is the first.
    pub fn function_start(&self, function: u32) -> Option<(u32, u64)> {
        self.function_starts
            .get(function as usize)
            .copied()
            .flatten()
    }

    /// Names of the functions that a piece is in: its own, the one with its machine code, and those
    /// that it was inlined into.
    pub fn names(&self, piece: u32) -> impl Iterator<Item = &str> {
        let piece = self.pieces.get(piece as usize);
        let own = piece.and_then(|p| self.lines.get(p.line as usize));
        let machine = piece.and_then(|p| self.functions.get(p.function as usize));
        let callers = piece.map_or(&[][..], |p| &p.chain).iter();
        (own.map(|l| &*l.function).into_iter())
            .chain(machine.map(|f| &*f.function))
            .chain(callers.map(|c| &*c.function))
    }

    fn line(&mut self, name: LineName) -> u32 {
        if let Some(&index) = self.line_index.get(&name) {
            return index;
        }
        let index = self.lines.len() as u32;
        self.lines.push(name.clone());
        self.line_index.insert(name, index);
        index
    }

    /// Adds a function and a piece for rows of a module whose site is unknown.
    fn unknown(&mut self, module: &str) -> u32 {
        let function = self.functions.len() as u32;
        self.functions.push(FunctionName {
            function: "[unknown]".into(),
            module: module.into(),
        });
        let line = self.line(LineName {
            function: "[unknown]".into(),
            module: module.into(),
            file: String::new(),
            line: 0,
        });
        self.pieces.push(LinePiece {
            function,
            line,
            loops: Vec::new(),
            chain: Vec::new(),
        });
        self.pieces.len() as u32 - 1
    }

    /// Adds the next module of the manifest. Sidecars with the same `id` are equal (an empty one is
    /// equal to none). Functions without any load instruction in `seen` are left out, and their
    /// loads count as those of unknown code. With `None` all functions are kept.
    pub fn add_module(
        &mut self,
        path: &str,
        id: &str,
        sidecar: Option<&Sidecar>,
        seen: Option<&Sites>,
    ) {
        if let Some((sites, unknown, first_site)) = self.known.get(id) {
            self.modules.push(ModuleCode {
                sites: sites.clone(),
                unknown: *unknown,
                first_site: *first_site,
            });
            return;
        }
        let original = sidecar
            .map(|s| s.header.input.path.as_str())
            .filter(|p| !p.is_empty())
            .unwrap_or(path);
        let module = file_name(original).to_string();
        let unknown = self.unknown(&module);
        let sites = sidecar.map(|s| self.sites(s, (&module, unknown), &functions_of(s, seen)));
        let sites = Arc::new(sites.unwrap_or_default());
        let first_site = self.site_pieces.len() as u32;
        self.site_pieces.extend(sites.iter());
        self.site_classes
            .extend(sidecar.iter().flat_map(|s| s.sites.iter().map(|s| s.class)));
        self.site_addresses
            .extend(sidecar.iter().flat_map(|s| s.sites.iter().map(|s| s.ip)));
        let stores = |s: &Sidecar| s.sites.iter().any(|s| s.flags & SiteFlags::STORE != 0);
        self.has_stores |= sidecar.is_some_and(stores);
        let origins = sidecar.iter().flat_map(|s| s.sites.iter().enumerate());
        self.site_origins.extend(origins.map(|(at, site)| {
            let from = (at as i64 + site.origin_site) as u32 + first_site;
            let from = (site.origin_site != 0).then_some(from);
            (Origin::from_u8(site.origin).unwrap_or_default(), from)
        }));
        if !id.is_empty() && sidecar.is_some() {
            self.known
                .insert(id.to_string(), (sites.clone(), unknown, first_site));
        }
        self.modules.push(ModuleCode {
            sites,
            unknown,
            first_site,
        });
    }

    /// Makes functions, lines and pieces of a sidecar; returns the piece of each site. Sites of
    /// functions that are not `wanted` get the piece `unknown`.
    fn sites(
        &mut self,
        sidecar: &Sidecar,
        (module, unknown): (&str, u32),
        wanted: &[bool],
    ) -> Vec<u32> {
        let is_wanted = |function: u32| wanted.get(function as usize) == Some(&true);
        // The outermost name in the debug information is demangled; it is the function's own.
        let mut names: Vec<Option<u32>> = vec![None; sidecar.functions.len()];
        for site in sidecar.sites.iter().filter(|s| is_wanted(s.function)) {
            if let Some(name) = names.get_mut(site.function as usize)
                && name.is_none()
                && site.location != NONE
            {
                let outermost = chain(sidecar, site.location)
                    .last()
                    .map_or(NONE, |l| l.function);
                if !sidecar.string(outermost).is_empty() {
                    *name = Some(outermost);
                }
            }
        }
        // Index here of each function of the sidecar.
        let mut numbers: Vec<u32> = vec![NONE; sidecar.functions.len()];
        for (at, (function, name)) in sidecar.functions.iter().zip(names).enumerate() {
            if !is_wanted(at as u32) {
                continue;
            }
            let symbol = sidecar.string(function.name);
            let text = match name {
                Some(name) => fuller(sidecar.string(name), symbol).to_string(),
                None if !symbol.is_empty() => symbol.to_string(),
                None => format!("{LINK_TIME_ADDRESS}{:x}]", function.start),
            };
            numbers[at] = self.functions.len() as u32;
            self.function_starts.resize(self.functions.len(), None);
            self.function_starts
                .push(Some((self.modules.len() as u32, function.start)));
            self.functions.push(FunctionName {
                function: text,
                module: module.into(),
            });
        }
        let number = |function: u32| numbers.get(function as usize).copied().unwrap_or(NONE);
        // Index here of each loop of the sidecar.
        let mut loops: Vec<u32> = vec![NONE; sidecar.loops.len()];
        for (at, of) in sidecar.loops.iter().enumerate() {
            let function = number(of.function);
            if function != NONE {
                loops[at] = self.loops.len() as u32;
                self.loops.push(loop_name(sidecar, at, function));
            }
        }
        let mut pieces: HashMap<(u32, u32, u32), u32, Mixed> = HashMap::default();
        let mut out = Vec::with_capacity(sidecar.sites.len());
        for site in &sidecar.sites {
            let function = number(site.function);
            if function == NONE {
                out.push(unknown);
                continue;
            }
            let key = (site.function, site.location, site.in_loop);
            let piece = match pieces.get(&key) {
                Some(&piece) => piece,
                None => {
                    let around = nest(sidecar, site.in_loop)
                        .filter_map(|l| loops.get(l as usize).copied())
                        .filter(|&l| l != NONE)
                        .collect();
                    let piece = self.piece(sidecar, module, function, site.location, around);
                    pieces.insert(key, piece);
                    piece
                }
            };
            out.push(piece);
        }
        out
    }

    fn piece(
        &mut self,
        sidecar: &Sidecar,
        module: &str,
        function: u32,
        location: u32,
        loops: Vec<u32>,
    ) -> u32 {
        let frames = chain(sidecar, location);
        let inner = frames.first();
        let mut name = inner.map_or("", |l| sidecar.string(l.function)).to_string();
        // Code that is not inlined belongs to the function itself.
        if name.is_empty() || frames.len() == 1 {
            name.clone_from(&self.functions[function as usize].function);
        }
        let name_of = name.clone();
        let line = self.line(LineName {
            function: name,
            module: module.into(),
            file: inner.map_or("", |l| sidecar.string(l.file)).into(),
            line: inner.map_or(0, |l| l.line),
        });
        self.users.resize(self.pieces.len(), None);
        self.users.push(user_of(sidecar, &frames, &name_of, module));
        self.pieces.push(LinePiece {
            function,
            line,
            loops,
            chain: callers(sidecar, &frames),
        });
        self.pieces.len() as u32 - 1
    }

    /// A map with names only, for a partial result. Sites are the pieces themselves.
    pub fn from_parts(
        functions: Vec<FunctionName>,
        lines: Vec<LineName>,
        loops: Vec<LoopName>,
        pieces: Vec<LinePiece>,
    ) -> CodeMap {
        let site_pieces = (0..pieces.len() as u32).collect();
        CodeMap {
            functions,
            lines,
            loops,
            pieces,
            site_pieces,
            ..CodeMap::default()
        }
    }

    /// Adds the code of another map of names. Returns the index here of each of its pieces.
    /// Functions with the same name in a module are matched in their order.
    pub fn adopt(&mut self, other: &CodeMap) -> Vec<u32> {
        fn numbered<T: Clone + Eq + std::hash::Hash>(list: &[T]) -> Vec<(T, u32)> {
            let mut times: HashMap<T, u32> = HashMap::new();
            let number = |item: &T| {
                let n = times.entry(item.clone()).or_default();
                *n += 1;
                (item.clone(), *n)
            };
            list.iter().map(number).collect()
        }
        let mut functions: HashMap<(FunctionName, u32), u32> =
            numbered(&self.functions).into_iter().zip(0..).collect();
        let mut lines: HashMap<LineName, u32> = self.lines.iter().cloned().zip(0..).collect();
        let mut loops: HashMap<LoopName, u32> = self.loops.iter().cloned().zip(0..).collect();
        let mut pieces: HashMap<LinePiece, u32> = self.pieces.iter().cloned().zip(0..).collect();
        let function_of: Vec<u32> = numbered(&other.functions)
            .into_iter()
            .map(|name| {
                *functions.entry(name.clone()).or_insert_with(|| {
                    self.functions.push(name.0);
                    self.functions.len() as u32 - 1
                })
            })
            .collect();
        let line_of: Vec<u32> = other
            .lines
            .iter()
            .map(|name| {
                *lines.entry(name.clone()).or_insert_with(|| {
                    self.lines.push(name.clone());
                    self.lines.len() as u32 - 1
                })
            })
            .collect();
        let loop_of: Vec<u32> = other
            .loops
            .iter()
            .map(|name| {
                let name = LoopName {
                    function: function_of[name.function as usize],
                    ..name.clone()
                };
                *loops.entry(name.clone()).or_insert_with(|| {
                    self.loops.push(name);
                    self.loops.len() as u32 - 1
                })
            })
            .collect();
        let piece_of = other.pieces.iter().map(|p| {
            let piece = LinePiece {
                function: function_of[p.function as usize],
                line: line_of[p.line as usize],
                loops: p.loops.iter().map(|&l| loop_of[l as usize]).collect(),
                chain: p.chain.clone(),
            };
            *pieces.entry(piece.clone()).or_insert_with(|| {
                self.pieces.push(piece);
                self.pieces.len() as u32 - 1
            })
        });
        let piece_of = piece_of.collect();
        self.site_pieces = (0..self.pieces.len() as u32).collect();
        piece_of
    }

    /// The rows of a table in which the loads of a line piece count.
    #[inline(always)]
    pub fn targets_of_piece(&self, target: Target, piece: u32) -> &[u32] {
        self.targets(target, Group::new(piece, AccessClass::Constant))
    }

    /// The rows of a table in which a group's loads count.
    #[inline(always)]
    pub fn targets(&self, target: Target, group: Group) -> &[u32] {
        match self.pieces.get(group.piece() as usize) {
            None => &[],
            Some(piece) => match target {
                Target::Whole => &[0],
                Target::Function => std::slice::from_ref(&piece.function),
                Target::Line => std::slice::from_ref(&piece.line),
                Target::Loop => &piece.loops,
            },
        }
    }

    /// Number of rows of a table.
    pub fn rows(&self, target: Target) -> usize {
        match target {
            Target::Whole => 1,
            Target::Function => self.functions.len(),
            Target::Line => self.lines.len(),
            Target::Loop => self.loops.len(),
        }
    }

    /// Number of modules.
    pub fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        Group::count(self.pieces.len())
    }

    /// Number of a row's load instruction in the whole trace; `u32::MAX` if it is not known.
    #[inline(always)]
    pub fn site(&self, module: u16, site: u32) -> u32 {
        match self.modules.get(module as usize) {
            Some(code) if (site as usize) < code.sites.len() => code.first_site + site,
            _ => u32::MAX,
        }
    }

    /// Line piece of each load instruction.
    pub fn site_pieces(&self) -> &[u32] {
        &self.site_pieces
    }

    /// Origin of the address of a load instruction.
    pub fn origin(&self, site: u32) -> (Origin, Option<u32>) {
        let known = self.site_origins.get(site as usize);
        known.copied().unwrap_or_default()
    }

    /// True if some module's stores are recorded too.
    pub fn has_stores(&self) -> bool {
        self.has_stores
    }

    /// Class of a load instruction.
    pub fn site_class(&self, site: u32) -> Option<u8> {
        self.site_classes.get(site as usize).copied()
    }

    /// Link-time address of a load instruction in its original file.
    pub fn site_address(&self, site: u32) -> Option<u64> {
        self.site_addresses.get(site as usize).copied()
    }

    /// The file with the machine code of a load instruction.
    pub fn site_module(&self, site: u32) -> Option<&str> {
        let piece = self
            .pieces
            .get(*self.site_pieces.get(site as usize)? as usize)?;
        let function = self.functions.get(piece.function as usize)?;
        Some(&function.module)
    }

    /// Innermost position of a piece outside of system headers, along its inline chain.
    pub fn user(&self, piece: u32) -> Option<&LineName> {
        self.users.get(piece as usize)?.as_ref()
    }

    /// The group in which the loads of an instruction count.
    pub fn site_group(&self, site: u32) -> Option<Group> {
        let (piece, class) = (
            self.site_pieces.get(site as usize)?,
            self.site_classes.get(site as usize)?,
        );
        Some(Group::of_load(*piece, *class))
    }

    /// Pieces of a module's sites, the piece of all other sites, and whether the module is known.
    pub fn pieces_of(&self, module: u16) -> (&[u32], u32, bool) {
        match self.modules.get(module as usize) {
            None => (&[], self.nowhere.unwrap_or(0), false),
            Some(code) => (&code.sites, code.unknown, true),
        }
    }
}

/// Flags the functions of a sidecar that have a load instruction in `seen`; all for `None`.
fn functions_of(sidecar: &Sidecar, seen: Option<&Sites>) -> Vec<bool> {
    let mut wanted = vec![seen.is_none(); sidecar.functions.len()];
    for &site in seen.into_iter().flatten() {
        let site = sidecar.sites.get(site as usize);
        if let Some(wanted) = site.and_then(|s| wanted.get_mut(s.function as usize)) {
            *wanted = true;
        }
    }
    wanted
}

/// The more complete of two names of a function. Debug information has only the last part of some
/// names, such as those of code made from a lambda: `_M_run` is
/// `std::thread::_State_impl<…>::_M_run()`.
fn fuller<'a>(debug: &'a str, symbol: &'a str) -> &'a str {
    let plain = !debug.contains("::") && !debug.contains('(') || debug == "operator()";
    let in_scope = symbol.match_indices("::").any(|(at, colons)| {
        let rest = &symbol[at + colons.len()..];
        rest.strip_prefix(debug)
            .is_some_and(|rest| rest.starts_with(['(', '<', '[']))
    });
    if plain && in_scope { symbol } else { debug }
}

/// The loops that contain a load, from the inside out. The sidecar's reader has checked that the
/// chain ends.
fn nest(sidecar: &Sidecar, in_loop: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(in_loop.checked_sub(1), |&at| {
        sidecar
            .loops
            .get(at as usize)
            .map(|l| l.parent)
            .filter(|&p| p != NONE)
    })
}

fn loop_name(sidecar: &Sidecar, at: usize, function: u32) -> LoopName {
    let l = &sidecar.loops[at];
    let frames = chain(sidecar, l.location);
    LoopName {
        function,
        header: l.header,
        outer: sidecar.loops.get(l.parent as usize).map(|o| o.header),
        depth: nest(sidecar, at as u32 + 1).count() as u32,
        file: frames.first().map_or("", |f| sidecar.string(f.file)).into(),
        line: frames.first().map_or(0, |f| f.line),
        chain: callers(sidecar, &frames),
    }
}

/// The innermost frame in the user's own code.
fn user_of(
    sidecar: &Sidecar,
    frames: &[&mgz_annotations_schema::sidecar::Location],
    function: &str,
    module: &str,
) -> Option<LineName> {
    let of_user = |l: &mgz_annotations_schema::sidecar::Location| {
        let file = sidecar.string(l.file);
        l.line > 0 && !file.is_empty() && !is_system(file)
    };
    let frame = frames.iter().find(|l| of_user(l))?;
    let name = sidecar.string(frame.function);
    Some(LineName {
        function: if name.is_empty() { function } else { name }.into(),
        module: module.into(),
        file: sidecar.string(frame.file).into(),
        line: frame.line,
    })
}

/// Callers that code was inlined into.
fn callers(
    sidecar: &Sidecar,
    frames: &[&mgz_annotations_schema::sidecar::Location],
) -> Vec<InlineCaller> {
    let caller = |l: &&mgz_annotations_schema::sidecar::Location| InlineCaller {
        function: sidecar.string(l.function).into(),
        file: file_name(sidecar.string(l.file)).into(),
        line: l.line,
    };
    frames.iter().skip(1).map(caller).collect()
}

/// Frames of a location from the inside out. The sidecar's reader has checked that chains end.
fn chain(sidecar: &Sidecar, location: u32) -> Vec<&mgz_annotations_schema::sidecar::Location> {
    let mut frames = Vec::new();
    let mut at = location;
    while let Some(frame) = sidecar.locations.get(at as usize) {
        frames.push(frame);
        at = frame.inlined_into;
        if frames.len() > 256 {
            break;
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_no_names_of_code() {
        let mut map = CodeMap::new();
        map.functions.push(FunctionName {
            function: "main".into(),
            module: "app".into(),
        });
        let line = map.line(LineName {
            function: "next".into(),
            ..LineName::default()
        });
        let caller = InlineCaller {
            function: "walk".into(),
            file: "btree.c".into(),
            line: 7,
        };
        map.pieces.push(LinePiece {
            function: map.functions.len() as u32 - 1,
            line,
            loops: Vec::new(),
            chain: vec![caller],
        });
        assert_eq!(
            chain_text(&map.pieces[map.pieces.len() - 1].chain),
            "walk at btree.c:7"
        );
        let piece = map.pieces.len() as u32 - 1;
        assert_eq!(
            map.names(piece).collect::<Vec<_>>(),
            ["next", "main", "walk"]
        );
        assert_eq!(map.names(piece + 1).next(), None);
    }

    #[test]
    fn half_a_name_is_completed_by_the_symbol() {
        let whole = "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()";
        assert_eq!(fuller("_M_run", whole), whole);
        let lambda = "main::{lambda()#1}::operator()() const";
        assert_eq!(fuller("operator()", lambda), lambda);
        // A plain function, a part that the compiler split off, and another name of a function.
        assert_eq!(fuller("main", "main"), "main");
        assert_eq!(fuller("sum", "sum.constprop.0"), "sum");
        assert_eq!(fuller("pow", "std::power(int)"), "pow");
        assert_eq!(fuller("std::sum(int)", "a::std::sum(int)"), "std::sum(int)");
        assert_eq!(fuller("run", ""), "run");
    }
}
