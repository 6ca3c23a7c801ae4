//! From calls by address to calls by name, with inlined functions.
//!
//! A call of a function that is already on the path leads back to it: a recursion is one call of
//! any depth, and paths through it are one.

use crate::objects::heap::generated_frames::{GENERATED, is_generated};
use crate::objects::heap::names::plain;
use crate::paths::WindowPath;
use crate::paths::tree::{NONE, Tree, UNKNOWN};
use addr2line::Loader;
use mgz_elf::demangle::readable;
use mgz_elf::function_names::Symbols;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Name in place of unknown callers.
pub const CALLERS_UNKNOWN: &str = "[callers unknown]";

/// A function, as called by way of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Call {
    /// Number of the caller; 0 for a thread's first function.
    pub parent: u32,
    /// Function.
    pub function: String,
    /// File of the code.
    pub module: String,
    /// Source file of the function; empty if unknown.
    pub file: String,
    /// Line of the call in the caller; 0 if unknown.
    pub call_line: u32,
    /// Source file of that line.
    pub call_file: String,
    /// True if it was inlined there.
    pub inlined: bool,
    /// True for a Python function.
    pub python: bool,
}

/// Calls by name.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Calls by number from 1 on; number 0 is none. Callers come before their callees.
    pub calls: Vec<Call>,
    /// Call by number in the tree.
    pub of_node: Vec<u32>,
    /// Call by number in the tree and of the innermost Python frame.
    pub of_pair: HashMap<(u32, u32), u32>,
}

impl Named {
    /// The call in which a window began; 0 if unknown.
    pub fn of(&self, window: &WindowPath) -> u32 {
        let pair = (window.node, window.python);
        let of_node = || self.of_node.get(window.node as usize).copied();
        self.of_pair
            .get(&pair)
            .copied()
            .or_else(of_node)
            .unwrap_or(0)
    }
}

/// The function and line at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionLine {
    /// Name.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
}

/// Suffix of the symbols of clones.
const CLONE_SUFFIX: &str = ".mgz";

/// Translates an address in a clone to that of the original.
pub type Original<'a> = &'a dyn Fn(&Path, u64) -> Option<u64>;

/// The function at an address of a file that cannot be read, or of generated code. `None` for files
/// that can be read, and for generated code without a name.
pub type Elsewhere<'a> = &'a dyn Fn(&Path, u64) -> Option<String>;

/// Names all calls. `original` translates return addresses in clones.
pub fn name_calls(tree: &Tree, original: Original<'_>, elsewhere: Elsewhere<'_>) -> Named {
    let mut namer = Namer::new(tree, original, elsewhere);
    // Each node's call, and the source position at which it calls the next one.
    let mut done: Vec<(u32, String, u32)> = vec![(0, String::new(), 0); tree.nodes.len()];
    for (number, node) in tree.nodes.iter().enumerate() {
        // Callers come before their callees.
        let (mut call, mut file, mut line) = match number as u32 {
            NONE | UNKNOWN => (0, String::new(), 0),
            _ => done[node.parent as usize].clone(),
        };
        let steps = namer.steps(number as u32);
        if steps.is_empty() {
            (file, line) = (String::new(), 0);
        }
        for step in steps.into_iter().rev() {
            call = namer.call(call, &step, std::mem::take(&mut file), line);
            (file, line) = (step.place.file, step.place.line);
        }
        done[number] = (call, file, line);
    }
    Named {
        calls: namer.builder.calls,
        of_node: done.into_iter().map(|d| d.0).collect(),
        of_pair: HashMap::new(),
    }
}

/// A function on a path, with the line at which it calls the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The place.
    pub place: FunctionLine,
    /// File of the code; empty if the callers are unknown.
    pub module: String,
    /// True if it was inlined.
    pub inlined: bool,
    /// True for a Python function.
    pub python: bool,
}

impl Step {
    fn unknown() -> Step {
        Step {
            place: FunctionLine {
                function: CALLERS_UNKNOWN.into(),
                ..FunctionLine::default()
            },
            ..Step::default()
        }
    }
}

/// Names the calls of a tree.
pub struct Namer<'a> {
    tree: &'a Tree,
    lookup: CodeLookup<'a>,
    places: HashMap<(u32, u64), Vec<FunctionLine>>,
    builder: Builder,
}

impl<'a> Namer<'a> {
    /// A namer that has named nothing yet.
    pub fn new(tree: &'a Tree, original: Original<'a>, elsewhere: Elsewhere<'a>) -> Namer<'a> {
        Namer {
            tree,
            lookup: CodeLookup::new(original, elsewhere),
            places: HashMap::new(),
            builder: Builder {
                calls: vec![Call::default()],
                numbers: HashMap::new(),
            },
        }
    }

    /// The functions of a node, from the inside out: several if some were inlined.
    pub fn steps(&mut self, number: u32) -> Vec<Step> {
        if number == UNKNOWN {
            return vec![Step::unknown()];
        }
        let Some(node) = self.tree.nodes.get(number as usize) else {
            return Vec::new();
        };
        let Some(path) = self.tree.files.get(node.file as usize) else {
            return Vec::new();
        };
        if is_generated(path) {
            // (Code without a name counts as an unknown caller.)
            let named = (self.lookup.elsewhere)(path, node.address).map(|function| Step {
                place: FunctionLine {
                    function,
                    ..FunctionLine::default()
                },
                module: GENERATED.into(),
                ..Step::default()
            });
            return named.into_iter().collect();
        }
        if path.as_os_str().is_empty() {
            return vec![Step::unknown()];
        }
        let lookup = &mut self.lookup;
        let places = self
            .places
            .entry((node.file, node.address))
            .or_insert_with(|| lookup.places(path, node.address));
        let outermost = places.len().saturating_sub(1);
        let step = |(depth, place): (usize, &FunctionLine)| Step {
            place: place.clone(),
            module: path.display().to_string(),
            inlined: depth < outermost,
            python: false,
        };
        places.iter().enumerate().map(step).collect()
    }

    /// The call of a function from a line of another function.
    fn call(&mut self, parent: u32, step: &Step, call_file: String, call_line: u32) -> u32 {
        let call = Call {
            parent,
            function: step.place.function.clone(),
            module: step.module.clone(),
            file: step.place.file.clone(),
            call_line,
            call_file,
            inlined: step.inlined,
            python: step.python,
        };
        match step.module.as_str() {
            // Unknown callers are never merged with earlier ones.
            "" => self.builder.number(Call {
                call_line: 0,
                call_file: String::new(),
                ..call
            }),
            _ => self.builder.call(call),
        }
    }

    /// The innermost call of a path, given from the inside out.
    pub fn path(&mut self, steps: &[Step]) -> u32 {
        let (mut call, mut file, mut line) = (0, String::new(), 0);
        for step in steps.iter().rev() {
            call = self.call(call, step, std::mem::take(&mut file), line);
            (file, line) = (step.place.file.clone(), step.place.line);
        }
        call
    }

    /// All calls named so far.
    pub fn finish(self) -> Vec<Call> {
        self.builder.calls
    }
}

/// Calls without repetition.
struct Builder {
    calls: Vec<Call>,
    numbers: HashMap<Call, u32>,
}

impl Builder {
    /// A new call, or the earlier call of the same function on its path.
    fn call(&mut self, call: Call) -> u32 {
        let mut at = call.parent;
        while at != 0 {
            let above = &self.calls[at as usize];
            if (&above.function, &above.module, &above.file)
                == (&call.function, &call.module, &call.file)
            {
                return at;
            }
            // A function that Python calls again is not recursive if Python frames lie between.
            if above.python && !call.python {
                break;
            }
            at = above.parent;
        }
        self.number(call)
    }

    fn number(&mut self, call: Call) -> u32 {
        if let Some(&number) = self.numbers.get(&call) {
            return number;
        }
        let number = self.calls.len() as u32;
        self.calls.push(call.clone());
        self.numbers.insert(call, number);
        number
    }
}

/// Looks addresses up.
pub struct CodeLookup<'a> {
    original: Original<'a>,
    elsewhere: Elsewhere<'a>,
    loaders: HashMap<PathBuf, Option<Loader>>,
    symbols: HashMap<PathBuf, Symbols>,
}

impl<'a> CodeLookup<'a> {
    /// A lookup that reads files only when needed.
    pub fn new(original: Original<'a>, elsewhere: Elsewhere<'a>) -> CodeLookup<'a> {
        CodeLookup {
            original,
            elsewhere,
            loaders: HashMap::new(),
            symbols: HashMap::new(),
        }
    }

    /// The link-time address of an offset in a file.
    pub fn address(&mut self, path: &Path, offset: u64) -> Option<u64> {
        self.symbols_of(path).address(offset)
    }

    /// The functions at an address, from the inside out; at least one.
    pub fn places(&mut self, path: &Path, address: u64) -> Vec<FunctionLine> {
        if let Some(function) = (self.elsewhere)(path, address) {
            return vec![FunctionLine {
                function,
                ..FunctionLine::default()
            }];
        }
        let places = self.lines(path, address);
        if !places.is_empty() {
            return self.completed(path, address, places);
        }
        if let Some(place) = self.symbol(path, address) {
            return vec![place];
        }
        // Debug information does not describe clones. (Maps are looked up at the address of the
        // next instruction.)
        if let Some(original) = (self.original)(path, address + 1).map(|a| a - 1) {
            let places = self.lines(path, original);
            if !places.is_empty() {
                return self.completed(path, original, places);
            }
            if let Some(place) = self.symbol(path, original) {
                return vec![place];
            }
        }
        let name = self.symbols_of(path).name_at(address);
        vec![FunctionLine {
            function: name.readable,
            ..FunctionLine::default()
        }]
    }

    /// Completes names. Debug information may have only a part of a name (`operator()`), while the
    /// symbol has all of it.
    fn completed(
        &mut self,
        path: &Path,
        address: u64,
        mut places: Vec<FunctionLine>,
    ) -> Vec<FunctionLine> {
        let whole = self.symbols_of(path).name_at(address);
        let is_mangled = whole.symbols.first().is_some_and(|s| *s != whole.readable);
        if let Some(outermost) = places.last_mut()
            && is_mangled
            && whole.readable.len() > outermost.function.len()
            && whole.readable.contains(&outermost.function)
        {
            outermost.function = plain(&whole.readable);
        }
        places
    }

    fn symbols_of(&mut self, path: &Path) -> &Symbols {
        self.symbols
            .entry(path.to_owned())
            .or_insert_with(|| Symbols::read(path))
    }

    /// The function at an address that has a symbol.
    fn symbol(&mut self, path: &Path, address: u64) -> Option<FunctionLine> {
        let name = self.symbols_of(path).name_at(address);
        // Clones have symbols for debuggers.
        let is_clones = |s: &String| s.ends_with(CLONE_SUFFIX);
        (!name.symbols.is_empty() && !name.symbols.iter().all(is_clones)).then(|| FunctionLine {
            function: plain(&name.readable),
            ..FunctionLine::default()
        })
    }

    /// The functions at an address, as far as debug information tells.
    fn lines(&mut self, path: &Path, address: u64) -> Vec<FunctionLine> {
        let loader = self
            .loaders
            .entry(path.to_owned())
            .or_insert_with(|| Loader::new(path).ok());
        let mut places = Vec::new();
        if let Some(loader) = loader
            && let Ok(mut frames) = loader.find_frames(address)
        {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
                let Some(name) = name else { continue };
                let (file, line) = (frame.location)
                    .map_or((None, None), |location| (location.file, location.line));
                places.push(FunctionLine {
                    function: plain(&readable(&name)),
                    file: file.unwrap_or_default().to_owned(),
                    line: line.unwrap_or(0),
                });
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(parent: u32, function: &str, call_line: u32) -> Call {
        Call {
            parent,
            function: function.into(),
            call_line,
            ..Call::default()
        }
    }

    #[test]
    fn recursions_lead_back_and_calls_of_other_lines_are_others() {
        let mut b = Builder {
            calls: vec![Call::default()],
            numbers: HashMap::new(),
        };
        let main = b.call(call(0, "main", 0));
        let walk = b.call(call(main, "walk", 10));
        assert_eq!(b.call(call(walk, "walk", 4)), walk);
        let visit = b.call(call(walk, "visit", 5));
        assert_eq!(b.call(call(visit, "walk", 7)), walk, "by way of another");
        assert_ne!(b.call(call(main, "walk", 11)), walk);
        assert_eq!(b.call(call(main, "walk", 10)), walk);
        assert_eq!(b.calls.len(), 1 + 4);
    }

    #[test]
    fn callers_that_are_passed_over_are_a_call_of_their_own() {
        use crate::objects::heap::call_frame::CallFrame;
        use crate::objects::heap::unwind::Unwound;
        use crate::paths::tree::gap;
        let file = std::sync::Arc::new(PathBuf::from("/nowhere"));
        let frame = |address| CallFrame {
            file: file.clone(),
            address,
            python: None,
        };
        let mut tree = Tree::default();
        let node = tree.add(&Unwound {
            frames: vec![frame(3), gap(), frame(2), gap(), frame(1)],
            whole: false,
            short: false,
        });
        let elsewhere = |_: &Path, address: u64| Some(format!("f{address}"));
        let named = name_calls(&tree, &|_, _| None, &elsewhere);
        let mut at = named.of_node[node as usize];
        let mut path = Vec::new();
        while at != 0 {
            path.push(named.calls[at as usize].function.as_str());
            at = named.calls[at as usize].parent;
        }
        let unknown = CALLERS_UNKNOWN;
        assert_eq!(path, ["f3", unknown, "f2", unknown, "f1", unknown]);
    }

    #[test]
    fn generated_code_has_a_call_if_it_has_a_name() {
        use crate::objects::heap::call_frame::CallFrame;
        use crate::objects::heap::generated_frames as generated;
        use crate::objects::heap::unwind::Unwound;
        let native = CallFrame {
            file: std::sync::Arc::new(PathBuf::from("/nowhere")),
            address: 1,
            python: None,
        };
        let path = |generated_address| {
            let mut tree = Tree::default();
            let node = tree.add(&Unwound {
                frames: vec![native.clone(), generated::frame(7, generated_address)],
                whole: false,
                short: false,
            });
            let elsewhere = |path: &Path, address: u64| match is_generated(path) {
                true => (address == 5).then(|| "made".to_owned()),
                false => Some("native".to_owned()),
            };
            let named = name_calls(&tree, &|_, _| None, &elsewhere);
            let mut at = named.of_node[node as usize];
            let mut path = Vec::new();
            while at != 0 {
                path.push(named.calls[at as usize].function.clone());
                at = named.calls[at as usize].parent;
            }
            path
        };
        assert_eq!(path(5), ["native", "made", CALLERS_UNKNOWN]);
        assert_eq!(path(6), ["native", CALLERS_UNKNOWN]);
    }

    #[test]
    fn nothing_has_no_names() {
        let named = name_calls(&Tree::default(), &|_, _| None, &|_, _| None);
        assert_eq!(named.of_node, [0, 1]);
        assert_eq!(named.calls[1].function, CALLERS_UNKNOWN);
    }
}
