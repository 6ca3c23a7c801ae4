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
use mgz_elf::image::ManagedRuntime;
use mgz_elf::{Elf, Refusal, bytes};

/// First word of the table of functions (`pclntab`) of Go 1.18 and 1.19.
const KNOWN_TABLE: u32 = 0xffff_fff0;
/// Bytes behind that word: two zeros, the unit of instruction lengths, and the size of a pointer.
const X86_64: [u8; 4] = [0, 0, 1, 8];

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
        Some("use --backend soft --for burst, and record with --mode burst")
    } else if options.prefetch.is_some() {
        Some("such a program gets no prefetches")
    } else {
        match runtime {
            ManagedRuntime::Go => go_problem(elf, input),
            ManagedRuntime::OCaml => ocaml_problem(elf, input),
        }
    };
    match why {
        Some(why) => Err(Refusal::declined(format!("{}; {why}", what(runtime)))),
        None => Ok(()),
    }
}

/// The reason why a Go program cannot be recorded.
fn go_problem(elf: &Elf, input: &Input) -> Option<&'static str> {
    if !is_executable(elf) {
        return Some("libraries and plugins of Go code cannot be recorded");
    }
    if !has_known_table(elf) {
        return Some("the layout of this table is unknown (known: that of Go 1.18 and 1.19)");
    }
    if !has(input, "runtime.main") {
        return Some("it has no symbols, so its functions are unknown (build without -ldflags=-s)");
    }
    None
}

/// True if the file has a table of functions in a known layout.
fn has_known_table(elf: &Elf) -> bool {
    let table = elf.section(".gopclntab").and_then(|s| elf.at(s.addr));
    table.is_some_and(|table| {
        bytes::u32(table, 0) == Some(KNOWN_TABLE) && table.get(4..8) == Some(&X86_64[..])
    })
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
