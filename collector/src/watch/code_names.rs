//! Addresses of code to files and offsets while a process runs, and to functions and lines afterwards.

use mgz_elf::function_names::Symbols;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A place in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the file; 0 is none.
    pub file: u32,
    /// Offset in it; the address where there is no file.
    pub offset: u64,
}

/// Executable mappings of processes.
#[derive(Default)]
pub struct Maps {
    files: Vec<String>,
    processes: HashMap<i32, Vec<(u64, u64, Place)>>,
}

impl Maps {
    /// The place of an address. The process's mappings are read again if they do not have it.
    pub fn place(&mut self, process: i32, ip: u64) -> Place {
        if let Some(place) = self.known(process, ip) {
            return place;
        }
        self.read(process);
        self.known(process, ip).unwrap_or(Place {
            file: 0,
            offset: ip,
        })
    }

    fn known(&self, process: i32, ip: u64) -> Option<Place> {
        let list = self.processes.get(&process)?;
        let (start, _, place) = list
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&ip))?;
        Some(Place {
            offset: place.offset + (ip - start),
            ..*place
        })
    }

    fn read(&mut self, process: i32) {
        let text = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mut list = Vec::new();
        for (start, end, offset, path) in text.lines().filter_map(executable) {
            let file = match self.files.iter().position(|f| f == path) {
                Some(at) => at,
                None => {
                    self.files.push(path.to_owned());
                    self.files.len() - 1
                }
            };
            list.push((
                start,
                end,
                Place {
                    file: file as u32 + 1,
                    offset,
                },
            ));
        }
        // One that has ended keeps what was known.
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

/// Start, end, offset and path of a line of `maps` about code in a file.
fn executable(line: &str) -> Option<(u64, u64, u64, &str)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    if !fields.next()?.contains('x') {
        return None;
    }
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    path.starts_with('/').then_some((start, end, offset, path))
}

/// What a place is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
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
pub struct Names {
    files: BTreeMap<String, (Symbols, Option<addr2line::Loader>)>,
    known: HashMap<Place, Code>,
}

impl Names {
    /// The name of a place.
    pub fn code(&mut self, maps: &Maps, place: Place) -> Code {
        if let Some(code) = self.known.get(&place) {
            return code.clone();
        }
        let path = maps.path(place.file);
        let code = if path.is_empty() {
            Code {
                function: format!("[{:x}]", place.offset),
                ..Code::default()
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
            Code {
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
        let code = Names::default().code(&maps, place);
        assert!(code.function.contains("this_code_has_a_name"), "{code:?}");
        assert!(
            code.file.ends_with("code_names.rs") && code.line > 0,
            "{code:?}"
        );
        let nowhere = maps.place(std::process::id() as i32, 8);
        assert_eq!(
            (
                nowhere,
                Names::default().code(&maps, nowhere).function.as_str()
            ),
            (Place { file: 0, offset: 8 }, "[8]")
        );
    }

    #[test]
    fn lines_without_code_or_sense_are_left_out() {
        assert_eq!(
            executable("7f00-7f10 r-xp 00002000 fe:00 12    /lib/a b.so"),
            Some((0x7f00, 0x7f10, 0x2000, "/lib/a b.so"))
        );
        for line in [
            "",
            "7f00-7f10 rw-p 00002000 fe:00 12 /lib/a",
            "7f00 r-xp 0 0 0 /a",
            "7f00-7f10 r-xp 0 0:0 0 [vdso]",
            "7f00-7f10 r-xp 0 0:0 0",
        ] {
            assert_eq!(executable(line), None, "{line}");
        }
    }
}
