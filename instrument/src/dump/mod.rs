//! Text form of the rewriter's results for a small file, for people and for golden tests.

mod clones;
mod function;
mod headers;
mod instruction_text;

pub use crate::dump::function::dump_function;

use crate::pipeline::function_pass::analyze;
use crate::pipeline::rewrite::rewrite;
use crate::pipeline::settings::Settings;
use crate::pipeline::understand::understand;
use crate::program::InstrumentOptions;
use mgz_elf::{Elf, Refusal};

/// First record id in dumps, so that they do not depend on the file's hash.
const ID_FIRST: u32 = 0x1000;

/// Control flow, classes, plan, clone, unwind rows and program headers of all functions of a file.
pub fn dump(data: &[u8], options: &InstrumentOptions) -> Result<String, Refusal> {
    let settings = Settings {
        id_first: Some(ID_FIRST),
        ..Settings::default()
    };
    let done = rewrite(data, options, &settings, |image| image.to_bytes())?;
    let sidecar = done.annotations.sidecar();
    let sidecar = sidecar.map_err(|e| Refusal::failed(e.to_string()))?;
    let (old, new) = (Elf::parse(data)?, Elf::parse(&done.begun)?);
    let known = understand(&old, options)?;
    let mut out = String::new();
    out += "program headers of the original\n";
    headers::write_header_lines(&mut out, &old);
    out += "program headers of the rewritten file\n";
    headers::write_header_lines(&mut out, &new);
    for info in &known.program.functions {
        let name = match info.name.is_empty() {
            true => "(without a name)",
            false => &info.name,
        };
        out += &format!(
            "\nfunction {name} {:#x}..{:#x}\n",
            info.range.start, info.range.end
        );
        let (input, program) = (&known.input, &known.program);
        match analyze(input, program, info.id, options, &known.faults) {
            Ok(planned) => dump_function(&mut out, &planned),
            Err(reason) => out += &format!("  left: {reason}\n"),
        }
        let row = sidecar.functions.get(info.id.0 as usize);
        if let Some(row) = row.filter(|row| row.clone_start != 0) {
            clones::write_clone_dump(&mut out, &old, &new, &sidecar, row);
        }
    }
    Ok(out)
}
