//! Call paths of samples: the callers of the function in which each sample began.

use mgz_annotations_schema::sources::is_system;

/// A function, as called along one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Index of the caller, which is smaller than the call's own; 0 for a thread's first function.
    pub parent: u32,
    /// Function.
    pub function: String,
    /// File of the code.
    pub module: String,
    /// Source file of the function; empty if unknown.
    pub file: String,
    /// Source file of the line of the call.
    pub call_file: String,
    /// Line of the call in the caller; 0 if unknown.
    pub call_line: u32,
    /// True if the function was inlined there.
    pub inlined: bool,
    /// True for a function of Python.
    pub python: bool,
}

/// Prefixes of the file names of libraries that come with the system or the compiler.
const LIBRARIES: [&str; 25] = [
    "libc.",
    "libc-",
    "libm.",
    "libm-",
    "libmvec",
    "libpthread",
    "libdl.",
    "librt.",
    "libstdc++",
    "libc++",
    "libgcc_s",
    "libgfortran",
    "libquadmath",
    "libgomp",
    "libomp",
    "libiomp",
    "libtbb",
    "libjemalloc",
    "libtcmalloc",
    "libopenblas",
    "libscipy_openblas",
    "libmkl_",
    "ld-linux",
    "ld-musl",
    "ld.so",
];

/// Prefixes of functions that standard libraries put into the user's files. Debug information may
/// lack their source.
const STANDARD: [&str; 12] = [
    "std::",
    "void std::",
    "__gnu_cxx::",
    "core::",
    "alloc::",
    "<core::",
    "<alloc::",
    "<std::",
    "operator new",
    "hashbrown::",
    "<hashbrown::",
    "__libc_",
];

/// True if a file is a library of the system or of the compiler.
pub fn is_library(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or("");
    LIBRARIES.iter().any(|l| name.starts_with(l))
}

/// Prefixes of the file names of the interpreter of Python.
const INTERPRETERS: [&str; 2] = ["python3", "libpython3"];

/// True if machine code is the interpreter of Python: its users are lines of Python.
pub fn is_interpreter(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or("");
    INTERPRETERS.iter().any(|begin| name.starts_with(begin))
}

/// Parts of the names of extension modules of Python.
const EXTENSION_MODULES: [&str; 2] = [".cpython-3", ".abi3.so"];

/// True if machine code is an extension module of Python whose source is unknown. It may be the
/// user's or not.
pub fn is_installed_module(module: &str, file: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or("");
    file.is_empty() && EXTENSION_MODULES.iter().any(|part| name.contains(part))
}

impl Call {
    /// True if it is the user's own code, as far as files and names show it.
    pub fn is_own(&self) -> bool {
        if self.python {
            return !self.file.starts_with('<') && !is_system(&self.file);
        }
        if is_interpreter(&self.module) || is_installed_module(&self.module, &self.file) {
            return false;
        }
        let system = match self.file.as_str() {
            "" => STANDARD.iter().any(|s| self.function.starts_with(s)) || self.is_start(),
            file => is_system(file),
        };
        !self.module.is_empty() && !is_library(&self.module) && !system
    }

    /// True for code that runs before `main`.
    fn is_start(&self) -> bool {
        ["_start", "_init", "__clone", "clone", "start_thread"].contains(&self.function.as_str())
    }
}

/// A position in the user's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Function.
    pub function: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
}

/// Calls, and the call in which each sample began.
#[derive(Clone, Debug, Default)]
pub struct CallPaths {
    /// Calls by index; the first stands for none.
    pub calls: Vec<Call>,
    /// Call by sample; 0 if it is unknown.
    pub of_sample: Vec<u32>,
}

impl CallPaths {
    /// The call in which a sample began; 0 if it is unknown.
    pub fn of(&self, sample: u32) -> u32 {
        self.of_sample.get(sample as usize).copied().unwrap_or(0)
    }

    /// A call and its callers, from the inside out.
    pub fn outwards(&self, call: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = call;
        std::iter::from_fn(move || {
            let this = at;
            at = self.calls.get(this as usize).filter(|_| this != 0)?.parent;
            Some(this)
        })
    }

    /// The innermost call of a function on the path to a call.
    pub fn find(&self, call: u32, function: &str) -> Option<u32> {
        self.outwards(call)
            .find(|&c| same(&self.calls[c as usize].function, function))
    }

    /// Position in the user's own code that led to a call in other code. `None` if a caller in
    /// between is unknown, because it may be the user's.
    pub fn caller_of(&self, call: u32) -> Option<Position> {
        let mut below = &self.calls[call as usize];
        for number in self.outwards(call).skip(1) {
            let at = &self.calls[number as usize];
            if at.is_own() {
                return Some(Position {
                    function: at.function.clone(),
                    file: match below.call_file.as_str() {
                        "" => at.file.clone(),
                        file => file.into(),
                    },
                    line: below.call_line,
                });
            }
            // (The placeholder for unknown callers has no file.)
            if at.module.is_empty() {
                return None;
            }
            below = at;
        }
        None
    }

    /// Functions of a path with the lines of the calls, outermost first. Startup code of the
    /// program or thread is left out.
    pub fn text(&self, call: u32) -> Vec<String> {
        let mut inwards: Vec<u32> = self.outwards(call).collect();
        let is_start = |&number: &u32| {
            let call = &self.calls[number as usize];
            !call.is_own() && !call.module.is_empty()
        };
        if inwards.iter().any(|c| !is_start(c)) {
            while inwards.last().is_some_and(is_start) {
                inwards.pop();
            }
        }
        let one = |number: &u32| {
            let call = &self.calls[*number as usize];
            match call.call_line {
                0 => call.function.clone(),
                line => {
                    let file = call.call_file.rsplit('/').next().unwrap_or("");
                    format!("{} (from {file}:{line})", call.function)
                }
            }
        };
        inwards.iter().rev().map(one).collect()
    }
}

/// True if two names belong to one function: debug information lacks the suffixes of compiler-made
/// copies (`.constprop.0`) and Rust's hashes.
pub fn same(a: &str, b: &str) -> bool {
    fn base(name: &str) -> &str {
        let name = name.split(" [clone").next().unwrap_or(name);
        let name = match name.rfind("::h") {
            Some(at)
                if name.len() == at + 19
                    && name[at + 3..].bytes().all(|b| b.is_ascii_hexdigit()) =>
            {
                &name[..at]
            }
            _ => name,
        };
        match name.find('.') {
            Some(at) if at > 0 => &name[..at],
            _ => name,
        }
    }
    base(a) == base(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(parent: u32, function: &str, file: &str, call_line: u32) -> Call {
        Call {
            parent,
            function: function.into(),
            module: "/home/me/app.inst".into(),
            file: file.into(),
            call_file: "/home/me/app.cpp".into(),
            call_line,
            ..Call::default()
        }
    }

    #[test]
    fn the_users_frame_is_the_innermost_that_is_no_part_of_a_library() {
        let header = "/usr/include/c++/12/bits/stl_algo.h";
        let paths = CallPaths {
            calls: vec![
                Call::default(),
                call(0, "main", "/home/me/app.cpp", 0),
                call(1, "order", "/home/me/app.cpp", 30),
                call(2, "std::sort<int*>", header, 12),
                call(3, "std::__introsort_loop<int*>", header, 1950),
            ],
            of_sample: vec![4, 0],
        };
        let found = paths.caller_of(paths.of(0)).unwrap();
        assert_eq!((found.function.as_str(), found.line), ("order", 12));
        assert_eq!(paths.of(1), 0);
        assert_eq!(paths.of(9), 0);
        assert_eq!(paths.caller_of(1), None);
        assert_eq!(paths.find(4, "order.isra.0"), Some(2));
        assert_eq!(paths.text(2), ["main", "order (from app.cpp:30)"]);
    }

    #[test]
    fn code_of_libraries_is_none_of_the_users() {
        let of = |module: &str, function: &str, file: &str| {
            Call {
                module: module.into(),
                function: function.into(),
                file: file.into(),
                ..Call::default()
            }
            .is_own()
        };
        assert!(of("/home/me/app", "main", ""));
        assert!(of(
            "/usr/lib/postgresql/15/bin/postgres",
            "heap_getnext",
            ""
        ));
        assert!(!of("/lib/x86_64-linux-gnu/libc.so.6", "qsort", ""));
        assert!(!of("/home/me/app", "std::sort", ""));
        assert!(!of(
            "/home/me/app",
            "sort",
            "/rustc/90b35a6/library/core/src/slice/sort.rs"
        ));
        assert!(!of("", "[callers unknown]", ""));
        assert!(!of("/home/me/app", "_start", ""));
        let module = "/cache/_umath.cpython-311-x86_64-linux-gnu.so";
        assert!(!of(module, "take", ""));
        assert!(of(module, "walk", "/home/me/walk.c"));
        assert!(!of("/usr/bin/python3.11", "_PyEval_EvalFrameDefault", ""));
        let python = |file: &str| {
            Call {
                module: file.into(),
                file: file.into(),
                python: true,
                ..Call::default()
            }
            .is_own()
        };
        assert!(python("/home/me/train.py"));
        assert!(!python("/usr/lib/python3.11/json/decoder.py") && !python("<string>"));
    }

    #[test]
    fn the_line_of_python_is_the_users() {
        let python = |parent, function: &str, file: &str, call_line| Call {
            module: file.into(),
            python: true,
            ..call(parent, function, file, call_line)
        };
        let machine = |parent, function: &str, module: &str, file: &str, call_line| Call {
            module: module.into(),
            call_file: file.into(),
            ..call(parent, function, "", call_line)
        };
        let train = "/home/me/train.py";
        let paths = CallPaths {
            calls: vec![
                Call::default(),
                python(0, "<module>", train, 0),
                python(1, "step", train, 9),
                machine(
                    2,
                    "_PyEval_EvalFrameDefault",
                    "/usr/bin/python3.11",
                    train,
                    41,
                ),
                machine(
                    3,
                    "take",
                    "/c/_umath.cpython-311-x86_64-linux-gnu.so",
                    "",
                    0,
                ),
            ],
            of_sample: Vec::new(),
        };
        let found = paths.caller_of(4).unwrap();
        assert_eq!((found.function.as_str(), found.line), ("step", 41));
        assert_eq!(
            (found.file.as_str(), paths.caller_of(3)),
            (train, Some(found.clone()))
        );
    }

    #[test]
    fn copies_of_a_function_are_the_function() {
        assert!(same("walk.constprop.0", "walk"));
        assert!(same("walk(int) [clone .isra.0]", "walk(int)"));
        assert!(same("demo::run::h0123456789abcdef", "demo::run"));
        assert!(!same("walk", "walker"));
    }
    /// An unknown caller between the user's function and that of a library may be the user's.
    #[test]
    fn nobody_is_named_across_callers_that_are_not_known() {
        let main = call(0, "main", "/home/me/app.cpp", 0);
        let unknown = Call {
            module: String::new(),
            ..call(1, "[callers unknown]", "", 0)
        };
        let library = |parent| Call {
            module: "/lib/libc.so.6".into(),
            ..call(parent, "qsort", "", 7)
        };
        let paths = CallPaths {
            calls: vec![Call::default(), main, unknown, library(2), library(1)],
            of_sample: Vec::new(),
        };
        assert_eq!(paths.caller_of(3), None);
        assert_eq!(paths.caller_of(4).map(|p| p.line), Some(7));
    }
}
