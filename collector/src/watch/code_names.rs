//! Addresses of code to files and offsets while a process runs, and to functions and lines
//! afterwards.

use mgz_elf::function_names::Symbols;
use mgz_perf::proc_maps;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Position of code: an offset in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeOffset {
    /// Number of the file; 0 is none.
    pub file: u32,
    /// Offset in it; the address where there is no file.
    pub offset: u64,
}

/// Executable mappings of processes.
#[derive(Default)]
pub struct Maps {
    files: Vec<String>,
    processes: HashMap<i32, Vec<(u64, u64, CodeOffset)>>,
}

impl Maps {
    /// The file and offset of an address. The process's mappings are read again if they do not have
    /// it.
    pub fn place(&mut self, process: i32, ip: u64) -> CodeOffset {
        if let Some(place) = self.known(process, ip) {
            return place;
        }
        self.read(process);
        self.known(process, ip).unwrap_or(CodeOffset {
            file: 0,
            offset: ip,
        })
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
        let mut list = Vec::new();
        for line in proc_maps::lines(&text).filter(|l| l.is_executable() && l.name.starts_with('/'))
        {
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
                },
            ));
        }
        // A process that has ended keeps its known mappings.
        if !list.is_empty() {
            self.processes.insert(process, list);
        }
    }

    /// The process executes another program.
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
pub struct CodeNames {
    files: BTreeMap<String, (Symbols, Option<addr2line::Loader>)>,
    known: HashMap<CodeOffset, PlaceName>,
}

impl CodeNames {
    /// The name of a place.
    pub fn code(&mut self, maps: &Maps, place: CodeOffset) -> PlaceName {
        if let Some(code) = self.known.get(&place) {
            return code.clone();
        }
        let path = maps.path(place.file);
        let code = if path.is_empty() {
            PlaceName {
                function: format!("[{:x}]", place.offset),
                ..PlaceName::default()
            }
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
            (CodeOffset { file: 0, offset: 8 }, "[8]")
        );
    }
}
