//! Addresses of code to files and offsets while a process runs, and to functions and lines
//! afterwards.

use crate::util::clock::monotonic_ns;
use mgz_elf::function_names::Symbols;
use mgz_generated_code::watch::{GeneratedCodeWatch, NamedProcesses, is_generated};
use mgz_perf::proc_maps;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Time between two looks at a process with generated code, nanoseconds. Source: Chosen.
const LOOK_INTERVAL_NS: u64 = 250_000_000;

/// Position of code: an offset in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeOffset {
    /// Number of the file; 0 for none.
    pub file: u32,
    /// Offset in the file, or the address if there is no file.
    pub offset: u64,
    /// The process, for generated code; otherwise 0.
    pub process: u32,
}

/// Executable mappings of processes.
#[derive(Default)]
pub struct Maps {
    files: Vec<String>,
    processes: HashMap<i32, Vec<(u64, u64, CodeOffset)>>,
    generated: GeneratedCodeWatch,
    /// CLOCK_MONOTONIC of the last look at a process.
    looks: HashMap<i32, u64>,
}

impl Maps {
    /// The file and offset of an address. The process's mappings are read again if they do not
    /// contain it.
    pub fn place(&mut self, process: i32, ip: u64) -> CodeOffset {
        if let Some(place) = self.known(process, ip) {
            if place.process != 0 && self.is_due(process) {
                self.read(process);
            }
            return place;
        }
        self.read(process);
        self.known(process, ip).unwrap_or(CodeOffset {
            file: 0,
            offset: ip,
            process: 0,
        })
    }

    fn is_due(&self, process: i32) -> bool {
        let last = self.looks.get(&process).copied().unwrap_or(0);
        monotonic_ns() >= last + LOOK_INTERVAL_NS
    }

    /// The names of generated code, once all processes are over.
    pub fn generated_names(&mut self) -> NamedProcesses {
        std::mem::take(&mut self.generated).finish()
    }

    fn known(&self, process: i32, ip: u64) -> Option<CodeOffset> {
        let list = self.processes.get(&process)?;
        let (start, _, place) = list
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&ip))?;
        Some(CodeOffset {
            offset: place.offset + (ip - start),
            ..*place
        })
    }

    fn read(&mut self, process: i32) {
        let text = proc_maps::read_process_maps(process as u32).unwrap_or_default();
        let now = monotonic_ns();
        self.looks.insert(process, now);
        self.generated.look(process as u32, &text, now);
        let mut list = Vec::new();
        for line in proc_maps::lines(&text).filter(is_generated) {
            let place = CodeOffset {
                file: 0,
                offset: line.start,
                process: process as u32,
            };
            list.push((line.start, line.end, place));
        }
        let is_of_file = |line: &proc_maps::MapsLine<'_>| {
            line.is_executable() && line.name.starts_with('/') && !is_generated(line)
        };
        for line in proc_maps::lines(&text).filter(is_of_file) {
            let file = match self.files.iter().position(|f| f == line.name) {
                Some(at) => at,
                None => {
                    self.files.push(line.name.to_owned());
                    self.files.len() - 1
                }
            };
            list.push((
                line.start,
                line.end,
                CodeOffset {
                    file: file as u32 + 1,
                    offset: line.offset,
                    process: 0,
                },
            ));
        }
        // A process that has ended keeps its known mappings.
        if !list.is_empty() {
            self.processes.insert(process, list);
        }
    }

    /// Drops the mappings of a process that executes another program.
    pub fn forget(&mut self, process: i32) {
        self.processes.remove(&process);
    }

    /// Path of a file.
    pub fn path(&self, file: u32) -> &str {
        (file as usize)
            .checked_sub(1)
            .and_then(|i| self.files.get(i))
            .map_or("", String::as_str)
    }
}

/// Name of a place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceName {
    /// Path of the file; empty for code without one.
    pub module: String,
    /// Function.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
}

/// Names of places, by file.
#[derive(Default)]
pub struct CodeNames<'a> {
    files: BTreeMap<String, (Symbols, Option<addr2line::Loader>)>,
    known: HashMap<CodeOffset, PlaceName>,
    generated: Option<&'a NamedProcesses>,
}

impl<'a> CodeNames<'a> {
    /// With the names of generated code.
    pub fn new(generated: &'a NamedProcesses) -> CodeNames<'a> {
        CodeNames {
            generated: Some(generated),
            ..CodeNames::default()
        }
    }

    /// The latest function of generated code at a place. (Samples have no time.)
    fn generated(&self, place: CodeOffset) -> Option<PlaceName> {
        let code = self.generated?.processes.get(&place.process)?;
        let name = code.last_name_of(place.offset)?;
        Some(PlaceName {
            module: String::new(),
            function: name.function.clone(),
            file: name.file.clone(),
            line: name.line,
        })
    }

    /// The name of a place.
    pub fn code(&mut self, maps: &Maps, place: CodeOffset) -> PlaceName {
        if let Some(code) = self.known.get(&place) {
            return code.clone();
        }
        let path = maps.path(place.file);
        let code = if path.is_empty() {
            self.generated(place).unwrap_or_else(|| PlaceName {
                function: format!("[{:x}]", place.offset),
                ..PlaceName::default()
            })
        } else {
            let (symbols, lines) = self.files.entry(path.to_owned()).or_insert_with(|| {
                (
                    Symbols::read(Path::new(path)),
                    addr2line::Loader::new(PathBuf::from(path)).ok(),
                )
            });
            let location = symbols
                .address(place.offset)
                .and_then(|address| lines.as_ref()?.find_location(address).ok()?);
            let (file, line) = location.map_or((String::new(), 0), |l| {
                (l.file.unwrap_or("").to_owned(), l.line.unwrap_or(0))
            });
            PlaceName {
                module: path.to_owned(),
                function: symbols.name(place.offset).readable,
                file,
                line,
            }
        };
        self.known.insert(place, code.clone());
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_code_has_a_name_and_a_line() {
        let mut maps = Maps::default();
        let ip = this_code_has_a_name_and_a_line as fn() as usize as u64;
        let place = maps.place(std::process::id() as i32, ip);
        assert!(place.file > 0);
        let code = CodeNames::default().code(&maps, place);
        assert!(code.function.contains("this_code_has_a_name"), "{code:?}");
        assert!(
            code.file.ends_with("code_names.rs") && code.line > 0,
            "{code:?}"
        );
        let nowhere = maps.place(std::process::id() as i32, 8);
        assert_eq!(
            (
                nowhere,
                CodeNames::default().code(&maps, nowhere).function.as_str()
            ),
            (
                CodeOffset {
                    offset: 8,
                    ..CodeOffset::default()
                },
                "[8]"
            )
        );
    }
}
