//! Names of sampled instructions.
//!
//! An instruction may lie in a clone, which has no debug information; then its original is named.

use crate::import::measured::generated::GeneratedNames;
use crate::import::modules::{Modules, same_build_id};
use crate::import::paths::file_of;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_collector::paths::names::{CodeLookup, FunctionLine};
use mgz_collector::trace::call_paths::{function_at, original};
use mgz_collector::trace::measured::CodeNames;
use mgz_elf::function_names::unnamed;
use mgz_perf_data::Session;
use object::Object;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mapped file.
pub struct MappedFile {
    /// Path in the recording's mappings.
    pub path: PathBuf,
    /// Path of the original, if the file is instrumented; else its own.
    original: String,
    /// The file exists on this machine, unchanged since it was mapped.
    pub is_here: bool,
    sidecar: Option<Arc<Sidecar>>,
}

/// The mapped files of a session, by path.
pub struct Files<'a> {
    session: &'a Session<'a>,
    modules: &'a Modules,
    list: BTreeMap<&'a str, MappedFile>,
}

impl<'a> Files<'a> {
    /// Examines each mapped file.
    pub fn of(session: &'a Session<'a>, modules: &'a Modules) -> Files<'a> {
        let mut sidecars: HashMap<usize, Option<Arc<Sidecar>>> = HashMap::new();
        let mut list: BTreeMap<&str, MappedFile> = BTreeMap::new();
        for (number, mapping) in session.spaces.mappings().iter().enumerate() {
            let Some(path) = file_of(mapping) else {
                continue;
            };
            let noted = mapping.build_id.as_ref();
            let noted = noted.or_else(|| session.build_ids.get(path));
            let file = list.entry(path).or_insert_with(|| MappedFile {
                path: path.into(),
                original: path.into(),
                is_here: is_here(Path::new(path), noted.map(String::as_str)),
                sidecar: None,
            });
            let placed = modules.placed(number).filter(|_| file.sidecar.is_none());
            if let Some(placed) = placed {
                let read = || {
                    let path = &modules.sidecar(placed.sidecar)?.path;
                    Sidecar::read(path).ok().map(Arc::new)
                };
                let sidecar = sidecars.entry(placed.sidecar).or_insert_with(read).clone();
                let input = sidecar.as_ref().map(|s| s.header.input.path.clone());
                file.original = input.filter(|p| !p.is_empty()).unwrap_or(path.into());
                file.sidecar = sidecar;
            }
        }
        Files {
            session,
            modules,
            list,
        }
    }

    /// A file by its path.
    pub fn file(&self, path: &str) -> Option<&MappedFile> {
        self.list.get(path)
    }

    fn sidecar(&self, path: &Path) -> Option<&Sidecar> {
        self.file(path.to_str()?)?.sidecar.as_deref()
    }
}

/// True if there is an ELF file at a path, with this build id if one was recorded.
fn is_here(path: &Path, noted: Option<&str>) -> bool {
    // (Opening a pipe would wait for its writer.)
    if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        return false;
    }
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    // SAFETY: the mapping is private and read-only. If another process shortens the file meanwhile,
    // access faults, as with every mapped input.
    let Ok(bytes) = (unsafe { memmap2::Mmap::map(&file) }) else {
        return false;
    };
    let Ok(parsed) = object::File::parse(&bytes[..]) else {
        return false;
    };
    let own = parsed.build_id().ok().flatten().unwrap_or_default();
    let own: String = own.iter().map(|b| format!("{b:02x}")).collect();
    noted.is_none_or(|noted| same_build_id(noted, &own))
}

/// Looks up instructions, each only once.
pub struct Code<'l, 'a> {
    files: &'l Files<'a>,
    generated: &'l GeneratedNames,
    lookup: CodeLookup<'l>,
    known: HashMap<(u32, u64), Vec<(usize, Arc<CodeNames>)>>,
    kernel: Arc<CodeNames>,
    nothing: Arc<CodeNames>,
}

/// Calls `work` with a lookup of code in these files, and of generated code.
pub fn with_lookup<T>(
    files: &Files<'_>,
    generated: &GeneratedNames,
    work: impl FnOnce(Code<'_, '_>) -> T,
) -> T {
    // Addresses are translated before they are looked up.
    let same = |_: &Path, _: u64| None;
    let elsewhere = |path: &Path, address: u64| {
        let file = files.file(path.to_str()?)?;
        let sidecar = file.sidecar.as_deref().filter(|_| !file.is_here)?;
        Some(function_at(sidecar, address).unwrap_or_else(|| unnamed(address)))
    };
    work(Code {
        files,
        generated,
        lookup: CodeLookup::new(&same, &elsewhere),
        known: HashMap::new(),
        kernel: Arc::new(CodeNames {
            module: "[kernel]".into(),
            function: "[kernel]".into(),
            ..CodeNames::default()
        }),
        nothing: Arc::default(),
    })
}

impl Code<'_, '_> {
    /// The names of the kernel's code.
    pub fn kernel(&self) -> Arc<CodeNames> {
        self.kernel.clone()
    }

    /// The names of an instruction.
    pub fn names(&mut self, process: u32, time: u64, ip: u64) -> Arc<CodeNames> {
        if let Some(names) = self.generated.get(process, time, ip) {
            return names;
        }
        let spaces = &self.files.session.spaces;
        let Some(mapping) = spaces.find_near(process, time, ip) else {
            return self.nothing.clone();
        };
        let known = self.known.get(&(process, ip));
        if let Some((_, names)) = known.into_iter().flatten().find(|k| k.0 == mapping) {
            return names.clone();
        }
        let names = Arc::new(self.look_up(mapping, ip).unwrap_or_default());
        let entry = self.known.entry((process, ip)).or_default();
        entry.push((mapping, names.clone()));
        names
    }

    fn look_up(&mut self, number: usize, ip: u64) -> Option<CodeNames> {
        let files = self.files;
        let mapping = files.session.spaces.mappings().get(number)?;
        let Some(path) = file_of(mapping) else {
            // Generated code without a name, or a page of the kernel's.
            return Some(CodeNames {
                module: mapping.path.clone(),
                ..CodeNames::default()
            });
        };
        let file = files.file(path)?;
        let module = file.original.clone();
        let placed = files.modules.placed(number);
        if !file.is_here && file.sidecar.is_none() {
            return Some(CodeNames {
                module,
                ..CodeNames::default()
            });
        }
        let offset = (ip - mapping.start).wrapping_add(mapping.offset);
        let address = match placed {
            Some(placed) => ip.wrapping_sub(placed.bias),
            None => self.lookup.address(&file.path, offset)?,
        };
        let sidecar = files.sidecar(&file.path);
        let address = sidecar
            .and_then(|s| original(s, address))
            .unwrap_or(address);
        let frames = self.lookup.places(&file.path, address);
        Some(of_frames(module, &frames))
    }
}

/// Names from the functions at an address, the innermost first.
fn of_frames(module: String, frames: &[FunctionLine]) -> CodeNames {
    let (Some(inner), Some(outer)) = (frames.first(), frames.last()) else {
        return CodeNames {
            module,
            ..CodeNames::default()
        };
    };
    CodeNames {
        module,
        function: outer.function.clone(),
        inlined: match frames.len() {
            1 => String::new(),
            _ => inner.function.clone(),
        },
        file: inner.file.clone(),
        line: inner.line,
    }
}
