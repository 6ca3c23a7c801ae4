//! The traced programs of tests, and the variants in which they are compiled.

use crate::tools;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A variant of compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// LLVM's compilers instead of GNU's.
    pub clang: bool,
    /// Optimisation level, e.g. `2`.
    pub opt: &'static str,
    /// Position-independent executable.
    pub pie: bool,
}

impl Variant {
    /// gcc with `-O1`, position-independent.
    pub const O1: Variant = Variant {
        clang: false,
        opt: "1",
        pie: true,
    };
    /// gcc with `-O2`, position-independent.
    pub const O2: Variant = Variant {
        opt: "2",
        ..Variant::O1
    };
    /// clang with `-O0`, at a fixed address.
    pub const CLANG_FIXED: Variant = Variant {
        clang: true,
        opt: "0",
        pie: false,
    };
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}-O{}-{}",
            if self.clang { "clang" } else { "gcc" },
            self.opt,
            if self.pie { "pie" } else { "nopie" }
        )
    }
}

/// gcc and clang at -O0, -O2 and -O3, PIE and not.
pub fn all_variants() -> Vec<Variant> {
    let mut all = Vec::new();
    for clang in [false, true] {
        for opt in ["0", "2", "3"] {
            for pie in [true, false] {
                all.push(Variant { clang, opt, pie });
            }
        }
    }
    all
}

/// The variants for a run of the tests: all with `MGZ_TESTS=full`. Otherwise two, which differ in
/// compiler, level and kind, and vary by program. One of the two is not optimised.
pub fn variants(program: &str) -> Vec<Variant> {
    let all = all_variants();
    if tools::full_matrix() {
        return all;
    }
    let shift = program.bytes().map(usize::from).sum::<usize>();
    let mut steps = (0..all.len()).map(|i| all[(shift + 5 * i) % all.len()]);
    let first = steps.next();
    let wanted = |v: &Variant| (v.opt == "0") != first.is_some_and(|f| f.opt == "0");
    let second = steps.find(wanted);
    first.into_iter().chain(second).collect()
}

/// Folder of the sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The source file of a program.
pub fn source(name: &str) -> PathBuf {
    let dir = sources();
    ["c", "cpp", "f90", "rs"]
        .iter()
        .map(|e| dir.join(format!("{name}.{e}")))
        .find(|p| p.exists())
        .unwrap_or_else(|| panic!("no program {name}"))
}

/// Compiles a source file with gcc. The options stand behind it, so that they may name libraries.
pub fn compile(source: &Path, out: &Path, options: &[&str]) {
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(out).arg(source).args(options);
    tools::succeed(&mut gcc, tools::LIMIT).unwrap();
}

/// Compiles C code with gcc, and keeps it beside the program, with the ending `c`.
pub fn compile_text(text: impl AsRef<[u8]>, out: &Path, options: &[&str]) {
    let source = out.with_extension("c");
    std::fs::write(&source, text).unwrap();
    compile(&source, out, options);
}

/// Compiles a program to `dir/name`, with extra arguments for the compiler. `None`, after a
/// message, if this machine lacks the compiler.
pub fn build(name: &str, variant: Variant, extra: &[&str], dir: &Path) -> Result<Option<PathBuf>> {
    let source = source(name);
    let kind = source
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let compiler = match (kind.as_str(), variant.clang) {
        ("c", false) => "gcc",
        ("c", true) => "clang",
        ("cpp", false) => "g++",
        ("cpp", true) => "clang++",
        ("f90", _) => "gfortran",
        _ => "rustc",
    };
    if !tools::have(compiler) {
        tools::skip(&format!(
            "{compiler} is not installed, so {name} was not tested with it"
        ));
        return Ok(None);
    }
    let out = dir.join(name);
    let mut command = Command::new(compiler);
    if kind == "rs" {
        let model = if variant.pie { "pic" } else { "static" };
        command
            .args(["--edition", "2024", "-C"])
            .arg(format!("opt-level={}", variant.opt))
            .arg("-C")
            .arg(format!("relocation-model={model}"));
    } else {
        command
            .arg(format!("-O{}", variant.opt))
            .args(if variant.pie {
                ["-fPIE", "-pie"]
            } else {
                ["-fno-pie", "-no-pie"]
            });
        command.args(["-w", "-pthread"]);
    }
    command.args(extra).arg("-o").arg(&out).arg(&source);
    let assembly = source.with_extension("S");
    if assembly.exists() {
        command.arg(assembly);
    }
    let done = command.output()?;
    if !done.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(Some(out))
}
