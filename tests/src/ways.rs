//! Variants of compiling, linking and stripping a program, for the torture matrix.

use crate::{programs, tools};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kind of executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutableKind {
    /// Position-independent, with a loader.
    Pie,
    /// At a fixed address, with a loader.
    NoPie,
    /// At a fixed address, without a loader.
    Static,
    /// Position-independent, without a loader.
    StaticPie,
}

impl ExecutableKind {
    /// Arguments for gcc and clang.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            ExecutableKind::Pie => &["-fPIE", "-pie"],
            ExecutableKind::NoPie => &["-fno-pie", "-no-pie"],
            ExecutableKind::Static => &["-fno-pie", "-no-pie", "-static"],
            ExecutableKind::StaticPie => &["-fPIE", "-static-pie"],
        }
    }
}

impl std::fmt::Display for ExecutableKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ExecutableKind::Pie => "pie",
            ExecutableKind::NoPie => "nopie",
            ExecutableKind::Static => "static",
            ExecutableKind::StaticPie => "staticpie",
        })
    }
}

/// Parts to strip from the finished file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strip {
    /// Nothing.
    No,
    /// Symbols.
    Symbols,
    /// Symbols and the table of section headers.
    Sections,
}

/// One variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Use LLVM's compilers instead of GNU's.
    pub clang: bool,
    /// Optimisation level, e.g. `2`.
    pub opt: &'static str,
    /// Kind of executable.
    pub kind: ExecutableKind,
    /// The parts to strip.
    pub strip: Strip,
    /// Additional compiler arguments.
    pub flags: &'static [&'static str],
}

impl Way {
    /// GNU's compilers, with symbols.
    pub const GCC: Way = Way {
        clang: false,
        opt: "2",
        kind: ExecutableKind::Pie,
        strip: Strip::No,
        flags: &[],
    };
    /// LLVM's compilers, with symbols.
    pub const CLANG: Way = Way {
        clang: true,
        ..Way::GCC
    };

    /// With these compiler arguments.
    pub const fn with(self, flags: &'static [&'static str]) -> Way {
        Way { flags, ..self }
    }

    /// At this level of optimisation.
    pub const fn opt(self, opt: &'static str) -> Way {
        Way { opt, ..self }
    }

    /// As this kind of executable.
    pub const fn kind(self, kind: ExecutableKind) -> Way {
        Way { kind, ..self }
    }

    /// Without these parts.
    pub const fn strip(self, strip: Strip) -> Way {
        Way { strip, ..self }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}-O{}-{}",
            if self.clang { "clang" } else { "gcc" },
            self.opt,
            self.kind
        )?;
        match self.strip {
            Strip::No => {}
            Strip::Symbols => f.write_str("-stripped")?,
            Strip::Sections => f.write_str("-nosections")?,
        }
        self.flags.iter().try_for_each(|flag| write!(f, " {flag}"))
    }
}

/// All variants: {gcc, clang} × {-O0, -O1, -O2, -O3, -Os} × {PIE, no PIE, static} × {stripped, not
/// stripped}, and a few static PIEs.
pub fn all_ways() -> Vec<Way> {
    let mut all = Vec::new();
    for clang in [false, true] {
        for opt in ["0", "1", "2", "3", "s"] {
            for kind in [
                ExecutableKind::Pie,
                ExecutableKind::NoPie,
                ExecutableKind::Static,
            ] {
                for strip in [Strip::No, Strip::Symbols] {
                    all.push(Way {
                        clang,
                        opt,
                        kind,
                        strip,
                        flags: &[],
                    });
                }
            }
        }
        let base = if clang { Way::CLANG } else { Way::GCC };
        let static_pie = base.kind(ExecutableKind::StaticPie);
        all.push(static_pie.strip(Strip::Symbols));
        all.push(static_pie.opt("0"));
    }
    all
}

/// The variants of a program in this run of the tests.
pub fn ways(program: &str) -> Vec<Way> {
    let all = all_ways();
    if let Some(wanted) = std::env::var_os("MGZ_WAY") {
        let wanted = wanted.to_string_lossy().into_owned();
        return all
            .into_iter()
            .filter(|w| w.to_string().contains(&wanted))
            .collect();
    }
    if tools::full_matrix() {
        return all;
    }
    let shift = program
        .bytes()
        .fold(0usize, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    // The steps are coprime to the number of variants, so that each variant is used by some
    // programs.
    let mut picked: Vec<Way> = (0..2).map(|i| all[(shift + 23 * i) % all.len()]).collect();
    if !picked
        .iter()
        .any(|w| matches!(w.kind, ExecutableKind::Static | ExecutableKind::StaticPie))
    {
        let at = shift % picked.len();
        picked[at].kind = ExecutableKind::Static;
    }
    picked
}

impl Way {
    /// Compiles a program to `dir/name`. Returns `None` if this variant does not exist for the
    /// program or if this machine lacks a tool for it; the second case prints a note.
    pub fn build(&self, name: &str, dir: &Path) -> Result<Option<PathBuf>> {
        let source = programs::source(name);
        let kind = source
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let other = kind != "c" && kind != "cpp";
        if other && (self.clang || !self.flags.is_empty()) {
            return Ok(None);
        }
        let compiler = match (kind.as_str(), self.clang) {
            ("c", false) => "gcc",
            ("c", true) => "clang",
            ("cpp", false) => "g++",
            ("cpp", true) => "clang++",
            ("f90", _) => "gfortran",
            _ => "rustc",
        };
        let linker = self
            .flags
            .iter()
            .find_map(|f| f.strip_prefix("-fuse-ld="))
            .map_or(String::new(), |l| {
                if l == "mold" {
                    l.to_owned()
                } else {
                    format!("ld.{l}")
                }
            });
        for program in [compiler, &linker].into_iter().filter(|p| !p.is_empty()) {
            if !tools::have(program) {
                tools::skip(&format!(
                    "{program} is not installed, so {name} was not tested with it"
                ));
                return Ok(None);
            }
        }
        let out = dir.join(name);
        let mut command = Command::new(compiler);
        if kind == "rs" {
            let (model, crt) = match self.kind {
                ExecutableKind::Pie => ("pic", "-crt-static"),
                ExecutableKind::NoPie => ("static", "-crt-static"),
                ExecutableKind::Static => ("static", "+crt-static"),
                ExecutableKind::StaticPie => ("pic", "+crt-static"),
            };
            command
                .args(["--edition", "2024", "-C"])
                .arg(format!("opt-level={}", self.opt))
                .arg("-C")
                .arg(format!("relocation-model={model}"));
            command.arg("-C").arg(format!("target-feature={crt}"));
        } else {
            command
                .arg(format!("-O{}", self.opt))
                .args(self.kind.flags())
                .args(["-w", "-pthread"]);
            if kind == "cpp" {
                command.arg("-std=c++20");
            }
            if name == "openmp" {
                if self.clang {
                    crate::tools::skip(
                        "openmp by clang: its runtime is not among what the tests install",
                    );
                    return Ok(None);
                }
                command.arg("-fopenmp");
            }
        }
        command.args(self.flags).arg("-o").arg(&out).arg(&source);
        let assembly = source.with_extension("S");
        if assembly.exists() {
            command.arg(assembly);
        }
        if self.strip != Strip::No {
            command.arg(if kind == "rs" {
                "-Cstrip=symbols"
            } else {
                "-s"
            });
        }
        tools::succeed(command.current_dir(dir), tools::LIMIT)?;
        if self.strip == Strip::Sections {
            remove_sections(&out)?;
        }
        Ok(Some(out))
    }
}

/// Removes the table of section headers.
fn remove_sections(path: &Path) -> Result<()> {
    let mut bytes = std::fs::read(path)?;
    // ELF-64: e_shoff at 40 (8 bytes), e_shentsize, e_shnum, e_shstrndx at 58 (2 bytes each).
    let at = u64::from_le_bytes(bytes[40..48].try_into()?) as usize;
    bytes.get(at..).context("no table of section headers")?;
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    bytes.truncate(at);
    tools::write_program(path, &bytes)
}
