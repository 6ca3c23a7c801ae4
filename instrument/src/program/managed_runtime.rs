//! Programs whose runtime walks stacks by tables of the original's return addresses: Go and OCaml.
//! Their collectors find the pointers in a frame in this way, and Go also moves stacks, continues
//! interrupted code elsewhere, and writes profiles.
//!
//! Translated clones push original return addresses, and handlers see original addresses. Two more
//! rules make the stack the original's at every instruction:
//!
//! - no call has a way back into the clone behind it (`GS_BACK`), because a return address in the
//!   clone might stay on a stack that the runtime walks. Windows end at calls of code without a
//!   clone;
//! - no register counts as free: these compilers have calling conventions of their own.
//!
//! See docs/design/managed-runtimes.md.

use crate::program::{Input, InstrumentOptions};
use mgz_abi::module_note::FLAVOUR_SOFT;
use mgz_elf::go_frames::GoFrames;
use mgz_elf::image::ManagedRuntime;
use mgz_elf::{Elf, Refusal};

/// The program, and the reason why it cannot be recorded in every mode.
pub fn what(runtime: ManagedRuntime) -> String {
    let program = match runtime {
        ManagedRuntime::Go => "a Go program",
        ManagedRuntime::OCaml => "an OCaml program",
    };
    format!(
        "{program}: its runtime looks up return addresses in its own tables, which do not contain instrumented code"
    )
}

/// Declines a file of such a runtime if it cannot be recorded in `burst`.
///
/// # Errors
/// The reason, with the remedy.
pub fn check_runtime(
    runtime: ManagedRuntime,
    elf: &Elf,
    input: &Input,
    options: &InstrumentOptions,
) -> Result<(), Refusal> {
    let why = if options.flavour != FLAVOUR_SOFT || !options.translated || options.counts {
        Some("use --backend soft --for burst, and record with --mode burst".into())
    } else if options.prefetch.is_some() {
        Some("such a program gets no prefetches".into())
    } else {
        match runtime {
            ManagedRuntime::Go => go_problem(elf, input),
            ManagedRuntime::OCaml => ocaml_problem(elf, input).map(String::from),
        }
    };
    match why {
        Some(why) => Err(Refusal::declined(format!("{}; {why}", what(runtime)))),
        None => Ok(()),
    }
}

/// The reason why a Go program cannot be recorded.
fn go_problem(elf: &Elf, input: &Input) -> Option<String> {
    if !is_executable(elf) {
        return Some("libraries and plugins of Go code cannot be recorded".into());
    }
    if elf.section(POSITION_INDEPENDENT_TABLE).is_some() {
        return Some(
            "position-independent Go programs cannot be recorded (build with -buildmode=exe)"
                .into(),
        );
    }
    if !has_known_table(elf) {
        let version = go_version(elf).unwrap_or_else(|| "an unknown version of Go".into());
        return Some(format!(
            "it was built by {version}, and the layout of its table is unknown (known: that of Go 1.18 and 1.19; build it with one of these)"
        ));
    }
    if !has(input, "runtime.main") {
        return Some(
            "it has no symbols, so its functions are unknown (build without -ldflags=-s)".into(),
        );
    }
    None
}

/// Name of the table's section in position-independent files.
const POSITION_INDEPENDENT_TABLE: &str = ".data.rel.ro.gopclntab";

/// The version of Go that has built a file, as in `go1.19.8`. `None` if the file does not tell it
/// in the form that Go has written since 1.18.
fn go_version(elf: &Elf) -> Option<String> {
    const FLAGS_AT: usize = 15;
    /// The version follows as a text with its length.
    const HAS_TEXT: u8 = 2;
    const TEXT_AT: usize = 32;
    let information = elf.section_bytes(elf.section(".go.buildinfo")?)?;
    if information.get(FLAGS_AT)? & HAS_TEXT == 0 {
        return None;
    }
    // (The lengths of versions have one byte.)
    let length = usize::from(*information.get(TEXT_AT)?);
    let text = information.get(TEXT_AT + 1..)?.get(..length)?;
    let text = std::str::from_utf8(text).ok()?;
    // A version of a compiler from its sources may hold more words.
    let version = text.split(' ').next()?;
    version.starts_with("go").then(|| version.to_owned())
}

/// True if the file has a table of functions in a known layout.
fn has_known_table(elf: &Elf) -> bool {
    let table = elf.section(".gopclntab").and_then(|s| elf.at(s.addr));
    table.is_some_and(GoFrames::is_known)
}

/// The reason why an OCaml program cannot be recorded.
fn ocaml_problem(elf: &Elf, input: &Input) -> Option<&'static str> {
    if !is_executable(elf) {
        return Some("libraries of OCaml code cannot be recorded");
    }
    if !has(input, "caml_start_program") {
        return Some("it has no symbols, so its functions are unknown (do not strip it)");
    }
    if has(input, "caml_runstack") {
        return Some("programs of OCaml 5 have stacks of their own (known: OCaml 4)");
    }
    None
}

fn is_executable(elf: &Elf) -> bool {
    elf.interpreter().is_some() || elf.is_static_executable()
}

fn has(input: &Input, name: &str) -> bool {
    input.symbols.iter().any(|s| s.name == name)
}
