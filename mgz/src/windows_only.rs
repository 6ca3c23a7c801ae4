//! Programs of which only windows can be recorded, not every load.

use mgz_abi::module_note::{FEATURE_READS_CODE, ModuleNote};
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::shell;
use mgz_collector::program::note::{instrumented_note, is_for_windows_only};
use mgz_elf::Elf;
use mgz_elf::image::ManagedRuntime;
use std::ffi::OsString;
use std::path::Path;

/// The reason why `mgz run --full` does not record a program, with the remedy. `file`: its
/// instrumented form. `command`: the user's program and arguments.
pub fn no_full(program: &Path, file: &Path, command: &[OsString]) -> Option<String> {
    if !is_for_windows_only(file) {
        return None;
    }
    let note = instrumented_note(file).ok().flatten()?;
    let data = std::fs::read(program).unwrap_or_default();
    let runtime = Elf::parse(&data).ok().and_then(|elf| elf.managed_runtime());
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    Some(format!(
        "{}: --full: {}, so only windows of it can be recorded, which change neither its code nor its stacks; leave --full out, and give --overhead=20% for more windows: `mgz run --overhead=20% -- {}`",
        program.display(),
        reason(runtime, &note),
        shell::line(words.iter().map(String::as_str))
    ))
}

fn reason(runtime: Option<ManagedRuntime>, note: &ModuleNote) -> &'static str {
    match runtime {
        Some(ManagedRuntime::Go) => {
            "it is a Go program, whose runtime walks stacks by return addresses"
        }
        Some(ManagedRuntime::OCaml) => {
            "it is an OCaml program, whose runtime walks stacks by return addresses"
        }
        None if note.features & FEATURE_READS_CODE != 0 => "it reads its own code as data",
        None => {
            "it single-steps itself, checks the alignment of its accesses, or has its system calls handed back to it"
        }
    }
}

/// True if a file of a recording is such a program.
pub fn is_recorded_in(manifest: &Manifest) -> bool {
    let mut files = manifest.modules.iter();
    files.any(|module| is_for_windows_only(Path::new(&module.path)))
}
