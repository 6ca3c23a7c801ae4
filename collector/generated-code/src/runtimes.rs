//! Runtimes that generate code, and the commands that make them write its names.

/// A runtime with a just-in-time compiler.
#[derive(Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its name.
    pub name: &'static str,
    /// Prefixes of the names of its files.
    files: &'static [&'static str],
    /// Command or variable that makes it write the names of its code.
    pub command: &'static str,
}

const fn runtime(
    name: &'static str,
    files: &'static [&'static str],
    command: &'static str,
) -> Runtime {
    Runtime {
        name,
        files,
        command,
    }
}

/// Known runtimes. Source: their documentation, and for Node.js and Java also a test run.
const RUNTIMES: [Runtime; 14] = [
    runtime(
        "Node.js",
        &["node", "nodejs", "libnode.so"],
        "node --perf-basic-prof",
    ),
    runtime("Deno", &["deno"], "deno run --v8-flags=--perf-basic-prof"),
    runtime(
        "Chrome",
        &["chrome", "chromium", "electron"],
        "--js-flags=--perf-basic-prof",
    ),
    runtime("OpenJ9", &["libj9vm"], "java -XX:+PerfTool"),
    runtime(
        "Java",
        &["libjvm.so"],
        "java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit",
    ),
    runtime(".NET", &["libcoreclr.so"], "DOTNET_PerfMapEnabled=1"),
    runtime("Julia", &["libjulia"], "ENABLE_JITPROFILING=1"),
    runtime("Numba", &["libllvmlite.so"], "NUMBA_ENABLE_PROFILING=1"),
    runtime(
        "LuaJIT",
        &["luajit", "libluajit"],
        "make XCFLAGS=-DLUAJIT_USE_PERFTOOLS",
    ),
    runtime(
        "Wasmtime",
        &["wasmtime", "libwasmtime.so"],
        "wasmtime run --profile=perfmap",
    ),
    runtime("Ruby", &["ruby", "libruby"], "ruby --yjit-perf"),
    runtime("Erlang", &["beam.smp"], "erl +JPperf true"),
    runtime("PHP", &["php", "libphp"], "php -d opcache.jit_debug=0x10"),
    runtime("CPython", &["python3", "libpython3"], "python3 -X perf"),
];

impl Runtime {
    /// The options of its command; `None` if it needs a variable or another build instead.
    pub fn flags(&self) -> Option<impl Iterator<Item = &'static str>> {
        let (first, rest) = self.command.split_once(' ')?;
        let is_program = !first.contains('=') && first != "make";
        is_program.then(|| rest.split(' '))
    }
}

/// The runtime of a process, by its mapped files.
pub fn find<'a>(mapped: impl Iterator<Item = &'a str>) -> Option<&'static Runtime> {
    let names: Vec<&str> = mapped
        .filter(|path| path.starts_with('/'))
        .map(|path| path.rsplit('/').next().unwrap_or(path))
        .collect();
    let is_of = |name: &str, file: &str| {
        // `node` must not match `nodes`, but `python3` must match `python3.12`.
        let rest = name.strip_prefix(file);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    let has = |runtime: &Runtime| {
        let mut files = runtime.files.iter();
        files.any(|file| names.iter().any(|name| is_of(name, file)))
    };
    RUNTIMES.iter().find(|runtime| has(runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        let name = |files: &[&str]| find(files.iter().copied()).map(|r| r.name);
        assert_eq!(name(&["/usr/bin/node", "/lib/libc.so.6"]), Some("Node.js"));
        assert_eq!(
            name(&["/cache/node", "/cache/libnode.so.115"]),
            Some("Node.js")
        );
        assert_eq!(name(&["/usr/lib/jvm/lib/server/libjvm.so"]), Some("Java"));
        assert_eq!(
            name(&["/usr/bin/python3.12", "/x/libllvmlite.so"]),
            Some("Numba")
        );
        assert_eq!(name(&["/usr/bin/python3.12"]), Some("CPython"));
        assert_eq!(name(&["/usr/bin/nodes", "[vdso]", "node"]), None);
    }
}
