//! Names of allocation sites: function, file and line of each call, from the innermost on.

use crate::objects::heap::allocated::{self, Allocated, Told};
use crate::objects::heap::call_frame::CallFrame;
use crate::python::is_loop;
use addr2line::Loader;
use mgz_annotations_schema::sources::is_system;
use mgz_elf::demangle::readable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// An allocation site.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The call that requested memory: the innermost that is outside allocators and standard
    /// libraries.
    pub name: String,
    /// All calls, from the inside out, joined by ` < `.
    pub stack: String,
    /// Content of the blocks, as far as debug information gives it.
    pub allocated: Allocated,
    /// Column of the call in its line; 0 if unknown.
    pub(crate) column: u32,
}

/// Call stacks of allocations with names.
#[derive(Debug, Default)]
pub struct NamedStacks {
    /// By number of the call stack.
    pub sites: Vec<Site>,
    /// By the same number: files and return addresses in the originals, as linked, from the call of
    /// the allocator to the call that the site is named by. A function that returns the block is
    /// part of the allocator.
    pub returns: Vec<Vec<CallFrame>>,
}

/// Findings about calls, by file and address of a call's last byte.
type ToldOfCalls = HashMap<(PathBuf, u64), Told>;

/// Maximum number of the user's functions around a call that are examined as allocators. Source:
/// chosen; few programs have a wrapper of a wrapper.
const MAX_ALLOCATORS_OF_USER: usize = 2;

/// A call: function, place, column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Call {
    function: String,
    place: String,
    column: u32,
    /// Its source comes with a compiler or the system, whatever its name.
    library: bool,
}

impl Call {
    /// True if the frame is not the user's code.
    fn is_plumbing(&self) -> bool {
        self.library || is_plumbing(&self.function)
    }

    fn text(&self) -> String {
        if self.place.is_empty() {
            self.function.clone()
        } else {
            format!("{} {}", self.function, self.place)
        }
    }
}

/// True if a file is the interpreter of Python or an installed module, by its path.
fn is_of_python(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("python3")
        || name.starts_with("libpython3")
        || is_system(&file.to_string_lossy())
}

/// Functions between the program and the allocator.
fn is_plumbing(function: &str) -> bool {
    const STARTS: [&str; 17] = [
        "operator new",
        "std::",
        "__gnu_cxx::",
        "void std::",
        "alloc::",
        "core::",
        "<alloc::",
        "<core::",
        "__rust_",
        "__rustc",
        "__rdl_",
        "hashbrown::",
        "<hashbrown::",
        "malloc",
        "calloc",
        "realloc",
        "g_malloc",
    ];
    const WHOLE_NAMES: [&str; 8] = [
        "xmalloc",
        "xcalloc",
        "xrealloc",
        "xstrdup",
        "strdup",
        "__strdup",
        "posix_memalign",
        "aligned_alloc",
    ];
    let named = without_result(function);
    STARTS
        .iter()
        .any(|s| function.starts_with(s) || named.starts_with(s))
        || WHOLE_NAMES.contains(&function)
}

/// A name without the type of the result that templates have before it.
fn without_result(function: &str) -> &str {
    let (mut depth, mut begin) = (0u32, 0);
    for (at, byte) in function.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth = depth.saturating_sub(1),
            b'(' if depth == 0 => break,
            b' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &function[begin..]
}

/// Looks names up, each address once.
pub struct AddressNames<'a> {
    /// Translates an address in a clone to that of the original.
    original: &'a dyn Fn(&Path, u64) -> Option<u64>,
    loaders: HashMap<PathBuf, Option<Loader>>,
    known: HashMap<CallFrame, Vec<Call>>,
}

impl<'a> AddressNames<'a> {
    /// `original` translates addresses in clones, as linked.
    pub fn new(original: &'a dyn Fn(&Path, u64) -> Option<u64>) -> AddressNames<'a> {
        AddressNames {
            original,
            loaders: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Names call stacks.
    pub fn sites(&mut self, stacks: &[Vec<CallFrame>]) -> NamedStacks {
        let told = self.ask(stacks);
        let mut named = NamedStacks::default();
        for stack in stacks {
            let (site, frames) = self.site(stack, &told);
            let machine = stack[..frames].iter().filter(|f| f.python.is_none());
            let returns = machine.map(|frame| CallFrame {
                file: frame.file.clone(),
                address: self.address(frame) + 1,
                python: None,
            });
            named.returns.push(returns.collect());
            named.sites.push(site);
        }
        tell_apart(&mut named.sites);
        named
    }

    /// Examines the calls of each stack, from the inside out, up to the first ones in the user's
    /// code.
    fn ask(&mut self, stacks: &[Vec<CallFrame>]) -> ToldOfCalls {
        let mut calls: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
        for stack in stacks {
            let mut users = 0;
            for frame in stack.iter().filter(|frame| frame.python.is_none()) {
                let address = self.address(frame);
                let of = calls.entry(frame.file.as_path().to_owned()).or_default();
                of.insert(address);
                users += usize::from(self.calls(frame).iter().any(|c| !c.is_plumbing()));
                // The user's function may be an allocator itself, so its callers are examined too.
                if users > MAX_ALLOCATORS_OF_USER {
                    break;
                }
            }
        }
        let mut told = HashMap::new();
        for (file, calls) in calls {
            for (call, what) in allocated::of_calls(&file, &calls) {
                told.insert((file.clone(), call), what);
            }
        }
        told
    }

    /// The calls of a stack, and the one that requested memory. Python frames stand where the
    /// interpreter runs them.
    fn calls_and_site(
        &mut self,
        frames: &[CallFrame],
        told: &ToldOfCalls,
    ) -> (Vec<Call>, Option<Call>) {
        let (python, machine): (Vec<&CallFrame>, Vec<&CallFrame>) =
            frames.iter().partition(|frame| frame.python.is_some());
        let python: Vec<Call> = python.into_iter().flat_map(|f| self.calls(f)).collect();
        let mut calls = Vec::new();
        let mut site = None;
        let mut allocator = None;
        for frame in machine {
            let found = self.calls(frame);
            let told = told.get(&(frame.file.as_path().to_owned(), self.address(frame)));
            let allocators = match told {
                Some(Told { returned: true, .. }) => found.len(),
                told => told.map_or(0, |t| t.inlined_allocators),
            };
            if !python.is_empty() && found.iter().any(|c| is_loop(&c.function)) {
                break;
            }
            // Below Python only code with sources of its own is the user's.
            let may_be_site = python.is_empty() || !is_of_python(&frame.file);
            let is_site =
                |c: &&Call| !c.is_plumbing() && (python.is_empty() || !c.place.is_empty());
            if may_be_site && site.is_none() {
                allocator = allocator.or_else(|| found.iter().find(is_site).cloned());
                site = found.iter().skip(allocators).find(is_site).cloned();
            }
            calls.extend(found);
        }
        let own = python.iter().find(|c| !c.library).or(python.first());
        let site = site.or(own.cloned()).or(allocator);
        let site = site.or(calls.first().cloned());
        calls.extend(python);
        (calls, site)
    }

    /// The site of a call stack, and the number of its innermost frames that determine it.
    fn site(&mut self, frames: &[CallFrame], told: &ToldOfCalls) -> (Site, usize) {
        let (calls, site) = self.calls_and_site(frames, told);
        let mut allocated = None;
        let mut own = frames.len();
        for (number, frame) in frames.iter().enumerate() {
            let told = told.get(&(frame.file.as_path().to_owned(), self.address(frame)));
            allocated = allocated.or_else(|| told.and_then(|t| t.allocated.clone()));
            let is_users = self.calls(frame).iter().any(|c| !c.is_plumbing());
            if is_users && !told.is_some_and(|t| t.returned) {
                own = number + 1;
                break;
            }
        }
        let site = Site {
            name: (site.as_ref()).map_or_else(|| "[unknown call]".to_owned(), Call::text),
            stack: calls.iter().map(Call::text).collect::<Vec<_>>().join(" < "),
            column: site.map_or(0, |s| s.column),
            allocated: allocated.unwrap_or_default(),
        };
        (site, own)
    }

    /// Address of a call's last byte in the original.
    fn address(&self, frame: &CallFrame) -> u64 {
        // The map is looked up at the address of the next instruction, one past the call's last
        // byte.
        (self.original)(frame.file.as_path(), frame.address + 1).map_or(frame.address, |a| a - 1)
    }

    /// A call, and those that it was inlined into.
    fn calls(&mut self, frame: &CallFrame) -> Vec<Call> {
        if let Some(known) = self.known.get(frame) {
            return known.clone();
        }
        if let Some(code) = &frame.python {
            let file = code.file.rsplit('/').next().unwrap_or(&code.file);
            return vec![Call {
                function: code.name.clone(),
                place: format!("{file}:{}", frame.address),
                column: 0,
                library: is_system(&code.file) || code.file.starts_with('<'),
            }];
        }
        let found = self.look_up(frame);
        self.known.insert(frame.clone(), found.clone());
        found
    }

    fn look_up(&mut self, frame: &CallFrame) -> Vec<Call> {
        let file = frame.file.as_path();
        let module = file
            .file_name()
            .map_or_else(|| "?".to_owned(), |n| n.to_string_lossy().into_owned());
        let address = self.address(frame);
        let named = |function: String| Call {
            function,
            ..Call::default()
        };
        let unknown = vec![named(format!("{module}+{address:#x}"))];
        let loader = self
            .loaders
            .entry(file.to_owned())
            .or_insert_with(|| Loader::new(file).ok());
        let Some(loader) = loader else { return unknown };
        let mut calls = Vec::new();
        if let Ok(mut frames) = loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(function) = frame.function.as_ref() else {
                    continue;
                };
                let name = function
                    .raw_name()
                    .map_or_else(|_| String::new(), |n| readable(&n));
                let place = frame
                    .location
                    .as_ref()
                    .and_then(|l| Some((l.file?, l.line?)));
                calls.push(Call {
                    function: plain(&name),
                    place: place.map_or_else(String::new, |(file, line)| {
                        format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
                    }),
                    column: frame.location.as_ref().and_then(|l| l.column).unwrap_or(0),
                    library: place.is_some_and(|(file, _)| is_system(file)),
                });
            }
        }
        if calls.is_empty() {
            match loader.find_symbol(address) {
                Some(symbol) => calls.push(named(plain(&readable(symbol)))),
                None => return unknown,
            }
        }
        calls
    }
}

/// Gives different calls in one line different names: by the variables that keep their blocks, or
/// else by their columns.
fn tell_apart(sites: &mut [Site]) {
    type Look = (String, String, String);
    let look =
        |s: &Site| -> Look { (s.name.clone(), s.stack.clone(), s.allocated.of_type.clone()) };
    // The variables that keep blocks, by column, for sites that look the same.
    let mut alike: HashMap<Look, BTreeMap<u32, BTreeSet<String>>> = HashMap::new();
    for site in sites.iter() {
        let kept = alike.entry(look(site)).or_default();
        let kept = kept.entry(site.column).or_default();
        kept.insert(site.allocated.kept_in.clone());
    }
    for site in sites.iter_mut() {
        let Some(all) = alike.get(&look(site)).filter(|all| all.len() > 1) else {
            continue;
        };
        let kept_in = &site.allocated.kept_in;
        let others = all.iter().filter(|(column, _)| **column != site.column);
        let is_only =
            !kept_in.is_empty() && others.clone().all(|(_, kept)| !kept.contains(kept_in));
        if is_only {
            site.name = format!("{} ({kept_in})", site.name);
        } else if site.column > 0 {
            site.name = format!("{}:{}", site.name, site.column);
        }
    }
    // The remaining columns and variables do not distinguish sites, so they are cleared.
    for site in sites {
        site.column = 0;
        site.allocated.kept_in = String::new();
    }
}

/// A name without Rust's hash and without a symbol's version.
pub(crate) fn plain(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    match name.rfind("::h") {
        Some(at)
            if name.len() == at + 19 && name[at + 3..].bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            name[..at].to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_the_call_that_the_programmer_wrote() {
        for (function, plumbing) in [
            ("operator new(unsigned long)", true),
            ("std::vector<int>::push_back", true),
            ("main", false),
            ("alloc::raw_vec::finish_grow", true),
            ("make_table", false),
            ("xmalloc", true),
            (
                "item& std::vector<item, std::allocator<item> >::emplace_back<item>(item&&)",
                true,
            ),
        ] {
            assert_eq!(is_plumbing(function), plumbing, "{function}");
        }
        // Inlined functions of Rust's library have everyday names.
        let call = |library| Call {
            function: "with_capacity<u64>".into(),
            library,
            ..Call::default()
        };
        assert!(call(true).is_plumbing() && !call(false).is_plumbing());
        assert_eq!(plain("demo::run::h0123456789abcdef"), "demo::run");
        assert_eq!(plain("free@@GLIBC_2.2.5"), "free");
    }

    #[test]
    fn blocks_of_python_are_named_by_the_line_of_the_script() {
        use crate::python::code::PythonCode;
        let frame = |name: &str, file: &str, line| CallFrame {
            address: line,
            python: Some(std::sync::Arc::new(PythonCode {
                name: name.into(),
                file: file.into(),
                first_line: 1,
            })),
            ..CallFrame::default()
        };
        let machine = CallFrame {
            file: std::sync::Arc::new("/nowhere/_umath.cpython-311-x86_64-linux-gnu.so".into()),
            address: 0x10,
            python: None,
        };
        let library = frame(
            "zeros_like",
            "/usr/lib/python3/dist-packages/numpy/core/numeric.py",
            9,
        );
        let own = frame("Model.step", "/home/me/train.py", 12);
        let original = |_: &Path, _: u64| None;
        let mut names = AddressNames::new(&original);
        let found = names
            .sites(&[
                vec![machine.clone(), library.clone(), own],
                vec![machine, library],
            ])
            .sites;
        assert_eq!(found[0].name, "Model.step train.py:12");
        let stack = "_umath.cpython-311-x86_64-linux-gnu.so+0x10 < zeros_like numeric.py:9 < Model.step train.py:12";
        assert_eq!(found[0].stack, stack);
        assert_eq!(found[1].name, "zeros_like numeric.py:9");
    }

    #[test]
    fn frames_of_this_program_have_names() {
        let file = std::sync::Arc::new(std::env::current_exe().unwrap());
        let loader = Loader::new(&*file).unwrap();
        // An address without code is a number.
        let original = |_: &Path, _: u64| None;
        let mut names = AddressNames::new(&original);
        let named = names.sites(&[
            vec![CallFrame {
                file: file.clone(),
                address: 1 << 60,
                python: None,
            }],
            Vec::new(),
        ]);
        let nowhere = named.sites;
        assert_eq!(named.returns[0][0].address, (1 << 60) + 1);
        assert!(named.returns[1].is_empty());
        assert!(
            nowhere[0].name.ends_with("+0x1000000000000000"),
            "{nowhere:?}"
        );
        assert_eq!(nowhere[1].name, "[unknown call]");
        drop(loader);
    }

    #[test]
    fn calls_of_one_line_are_told_apart() {
        let site = |column: u32, of_type: &str, kept_in: &str| Site {
            name: "main a.c:3".into(),
            stack: "malloc < main a.c:3".into(),
            allocated: Allocated {
                of_type: of_type.into(),
                kept_in: kept_in.into(),
                ..Allocated::default()
            },
            column,
        };
        let names = |mut sites: Vec<Site>| -> Vec<String> {
            tell_apart(&mut sites);
            sites.into_iter().map(|s| s.name).collect()
        };
        let two = vec![site(13, "double", "a"), site(30, "double", "b")];
        assert_eq!(names(two), ["main a.c:3 (a)", "main a.c:3 (b)"]);
        let nameless = vec![site(13, "", ""), site(30, "", "")];
        assert_eq!(names(nameless), ["main a.c:3:13", "main a.c:3:30"]);
        // Types already distinguish the sites. One call that was compiled twice is one site.
        let typed = vec![site(13, "int", "a"), site(30, "double", "b")];
        assert_eq!(names(typed), ["main a.c:3"; 2]);
        let twice = vec![site(13, "int", "a"), site(13, "int", "b")];
        assert_eq!(names(twice), ["main a.c:3"; 2]);
    }
}
