//! Names of accessed memory: variables, else the mapping.
//!
//! Mappings of data are in a recording only if perf was told to record them (`perf mem` does so).
//! Addresses of variables follow from the mapping of their module's code.

use crate::import::measured::code::Files;
use crate::import::paths::file_of;
use mgz_annotations_schema::ObjectKind;
use mgz_collector::objects::globals::{Variable, variables};
use mgz_collector::trace::measured::ObjectNames;
use mgz_elf::function_names::Symbols;
use mgz_perf_data::Session;
use mgz_perf_data::mapping::Mapping;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The variables of a module as loaded into a process.
struct Loaded {
    /// Time of the mapping, nanoseconds.
    begin_ns: u64,
    bias: u64,
    module: Arc<ModuleData>,
}

/// The variables of a file, by address.
struct ModuleData {
    file_name: String,
    symbols: Symbols,
    variables: Vec<Variable>,
    names: HashMap<usize, Arc<ObjectNames>>,
}

/// Looks up accessed addresses.
pub struct Data<'l, 'a> {
    session: &'l Session<'l>,
    files: &'l Files<'a>,
    modules: BTreeMap<String, Option<Arc<ModuleData>>>,
    processes: HashMap<u32, Vec<Loaded>>,
    of_mapping: HashMap<usize, Arc<ObjectNames>>,
    nothing: Arc<ObjectNames>,
}

impl ModuleData {
    fn read(path: &Path) -> Option<ModuleData> {
        let mut data = ModuleData {
            file_name: path.file_name()?.to_string_lossy().into_owned(),
            symbols: Symbols::read(path),
            variables: variables(path).ok()?,
            names: HashMap::new(),
        };
        data.variables.sort_by_key(|v| v.address);
        let names = data.variables.iter().enumerate().map(|(number, variable)| {
            let names = ObjectNames {
                kind: ObjectKind::Global,
                name: variable.name.clone(),
                module: data.file_name.clone(),
            };
            (number, Arc::new(names))
        });
        data.names = names.collect();
        Some(data)
    }

    /// The variable at a link-time address.
    fn variable(&self, address: u64) -> Option<Arc<ObjectNames>> {
        let after = self.variables.partition_point(|v| v.address <= address);
        let number = after.checked_sub(1)?;
        let variable = &self.variables[number];
        let is_in = address - variable.address < variable.bytes;
        is_in.then(|| self.names.get(&number).cloned()).flatten()
    }
}

impl<'l, 'a> Data<'l, 'a> {
    /// A lookup; files are read only when needed.
    pub fn new(session: &'l Session<'l>, files: &'l Files<'a>) -> Data<'l, 'a> {
        Data {
            session,
            files,
            modules: BTreeMap::new(),
            processes: HashMap::new(),
            of_mapping: HashMap::new(),
            nothing: Arc::default(),
        }
    }

    /// The names of a process's memory at an address and time.
    pub fn names(&mut self, process: u32, time: u64, address: u64) -> Arc<ObjectNames> {
        if !self.processes.contains_key(&process) {
            let loaded = self.loaded(process);
            self.processes.insert(process, loaded);
        }
        let loaded = self.processes.get(&process).into_iter().flatten();
        let there = loaded.filter(|l| l.begin_ns <= time);
        let mut variables = there.filter_map(|l| l.module.variable(address.wrapping_sub(l.bias)));
        if let Some(variable) = variables.next() {
            return variable;
        }
        let spaces = &self.session.spaces;
        let Some(number) = spaces.find(process, time, address) else {
            return self.nothing.clone();
        };
        let Some(mapping) = spaces.mappings().get(number) else {
            return self.nothing.clone();
        };
        let names = || Arc::new(of_mapping(mapping));
        self.of_mapping.entry(number).or_insert_with(names).clone()
    }

    /// The modules of a process's last program.
    fn loaded(&mut self, process: u32) -> Vec<Loaded> {
        let spaces = &self.session.spaces;
        let mut found: BTreeMap<&str, Loaded> = BTreeMap::new();
        for number in spaces.of_last_program(process) {
            let Some(mapping) = spaces.mappings().get(number) else {
                continue;
            };
            let Some(path) = file_of(mapping).filter(|path| !found.contains_key(path)) else {
                continue;
            };
            let Some(module) = self.module(path) else {
                continue;
            };
            let Some(address) = module.symbols.address(mapping.offset) else {
                continue;
            };
            let loaded = Loaded {
                begin_ns: spaces.appeared(number).unwrap_or(0),
                bias: mapping.start.wrapping_sub(address),
                module,
            };
            found.insert(path, loaded);
        }
        found.into_values().collect()
    }

    fn module(&mut self, path: &str) -> Option<Arc<ModuleData>> {
        if let Some(known) = self.modules.get(path) {
            return known.clone();
        }
        let file = self.files.file(path).filter(|file| file.is_here);
        let read = file.and_then(|file| ModuleData::read(&file.path));
        let read = read.map(Arc::new);
        self.modules.insert(path.to_owned(), read.clone());
        read
    }
}

/// The names of memory without a variable.
fn of_mapping(mapping: &Mapping) -> ObjectNames {
    let kind = ObjectKind::of_mapping(&mapping.path);
    let name = match kind {
        // Only the address distinguishes anonymous mappings.
        ObjectKind::Anonymous => format!("{:#x}", mapping.start),
        _ => mapping.path.clone(),
    };
    ObjectNames {
        kind,
        name,
        module: String::new(),
    }
}
