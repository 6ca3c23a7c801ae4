//! An order of symbols for linkers: functions and variables that are used together are neighbours.
//!
//! Functions are ordered by the calls that windows show: the call path of a window, and the functions
//! that its loads are in. Variables are ordered by the windows that read both of two. [`clusters`]
//! makes the order, [`symbols`] knows what a linker can place.

pub mod clusters;
pub mod symbols;

use anyhow::bail;
use clusters::{ClusterNode, Edges};
use mgz_analyzer::commands::stream::AccessSegment;
use mgz_analyzer::commands::visit;
use mgz_analyzer::data::call_paths::{CallPaths, same};
use mgz_analyzer::input::call_paths::read_call_paths;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::Document;
use mgz_analyzer::report::Analysis;
use mgz_analyzer::util::fast_hash::Mixed;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::{HashMap, HashSet};
use symbols::ProgramSymbols;

/// Loads within which two variables count as used together. Source: Chosen; the order of a window.
const LOADS_TOGETHER: usize = 1024;
/// Variables of that many loads that are counted as pairs, at most. Source: Chosen, to bound time.
const MAX_TOGETHER: usize = 64;

/// A file of symbols, one a line.
pub struct Order {
    /// Text.
    pub text: String,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Part of the trace could not be read.
    pub damaged: bool,
}

/// The program of a trace.
struct Program {
    path: String,
    symbols: ProgramSymbols,
    /// By process: run-time minus link-time addresses.
    biases: HashMap<u32, u64>,
    /// Run-time minus link-time addresses in processes without a note of their own: children.
    of_children: Option<u64>,
    /// Processes in which files are known.
    known: HashSet<u32>,
    /// Numbers of its modules in the manifest.
    modules: Vec<u32>,
}

impl Program {
    fn find(trace: &Trace) -> anyhow::Result<Program> {
        let modules = &trace.manifest.modules;
        for module in modules {
            let Ok(sidecar) = Sidecar::read(&trace.folder.join(&module.sidecar)) else {
                continue;
            };
            let input = sidecar.header.input;
            let Some(symbols) = ProgramSymbols::read(&input)? else {
                continue;
            };
            let is_it =
                |m: &mgz_annotations_schema::manifest::Module| m.sidecar_id == module.sidecar_id;
            let own = modules.iter().filter(|m| is_it(m));
            let biases: HashMap<u32, u64> = (own.clone())
                .flat_map(|m| m.loads.iter().map(|load| (load.process, m.bias)))
                .collect();
            let mut all = own.map(|m| m.bias);
            let first = all.next();
            let numbers = (0..).zip(modules).filter(|(_, m)| is_it(m));
            return Ok(Program {
                path: input.path,
                symbols,
                biases,
                of_children: first.filter(|first| all.all(|bias| bias == *first)),
                known: (modules.iter())
                    .flat_map(|m| m.loads.iter().map(|load| load.process))
                    .collect(),
                modules: numbers.map(|(number, _)| number).collect(),
            });
        }
        bail!(
            "{}: no recorded file is a program, and only a program's symbols are ordered; instrument the program too",
            trace.folder.display()
        )
    }

    /// The symbol at a run-time address of a process.
    fn symbol(&self, process: u32, address: u64) -> Option<usize> {
        let bias = match self.known.contains(&process) {
            true => *self.biases.get(&process)?,
            false => self.of_children?,
        };
        self.symbols.at(address.wrapping_sub(bias))
    }
}

/// Counts of the rows of a trace.
struct Counting<'a> {
    trace: &'a Trace,
    program: &'a Program,
    paths: Option<CallPaths>,
    /// By call of a path: its function.
    of_call: Vec<Option<usize>>,
    /// By function of the code map: its symbol.
    of_function: Vec<Option<usize>>,
    /// By function of the code map: its loads.
    function_loads: Vec<u64>,
    /// By symbol: its loads, if it is a variable.
    data_loads: Vec<u64>,
    calls: Edges,
    together: Edges,
    /// Functions that the window is in, outermost first.
    stack: Vec<usize>,
    /// Variables that were read since the last count of pairs, with their loads.
    recent: HashMap<usize, u64, Mixed>,
    /// Loads since then.
    since: usize,
}

impl<'a> Counting<'a> {
    fn new(trace: &'a Trace, program: &'a Program, paths: Option<CallPaths>) -> Counting<'a> {
        let symbols = &program.symbols;
        let of_function = (0..trace.code.functions.len() as u32).map(|function| {
            let (module, start) = trace.code.function_start(function)?;
            let symbol = symbols
                .at(start)
                .filter(|_| program.modules.contains(&module))?;
            symbols.list[symbol].is_function.then_some(symbol)
        });
        let of_function: Vec<Option<usize>> = of_function.collect();
        let calls = paths.as_ref().map_or(&[][..], |p| &p.calls);
        let of_call = calls.iter().map(|call| {
            let is_machine_code = !call.inlined && !call.python && !call.module.is_empty();
            let exact = || symbols.named(&call.function);
            // Debug information lacks suffixes of copies.
            let copy = || {
                let fits = |f: &&Option<usize>| {
                    f.is_some_and(|f| same(&symbols.list[f].name, &call.function))
                };
                of_function.iter().find(fits).copied().flatten()
            };
            let is_own = file_name(&call.module) == file_name(&program.path);
            (is_machine_code && is_own).then(|| exact().or_else(copy))?
        });
        Counting {
            of_call: of_call.collect(),
            function_loads: vec![0; of_function.len()],
            data_loads: vec![0; symbols.list.len()],
            of_function,
            trace,
            program,
            paths,
            calls: Edges::new(),
            together: Edges::new(),
            stack: Vec::new(),
            recent: HashMap::default(),
            since: 0,
        }
    }

    fn add(&mut self, segment: &AccessSegment<'_>) {
        if segment.starts {
            self.count_pairs();
            self.begin_window(segment.run.sample);
        }
        let rows = &segment.loads;
        for row in 0..segment.loads.len() {
            let loads = 1 + u64::from(rows.implied[row]);
            let piece = self.trace.code.pieces.get(rows.group[row].piece() as usize);
            if let Some(piece) = piece {
                self.function_loads[piece.function as usize] += loads;
                if let Some(symbol) = self.of_function[piece.function as usize] {
                    self.enter(symbol);
                }
            }
            let data = (self.program).symbol(segment.run.process, rows.address[row]);
            if let Some(symbol) = data
                && !self.program.symbols.list[symbol].is_function
            {
                self.data_loads[symbol] += 1;
                *self.recent.entry(symbol).or_default() += 1;
            }
            self.since += 1;
            if self.since == LOADS_TOGETHER {
                self.count_pairs();
            }
        }
    }

    /// Counts the calls of a window's path.
    fn begin_window(&mut self, sample: u32) {
        self.stack.clear();
        let Some(paths) = &self.paths else { return };
        let inwards = paths.outwards(paths.of(sample));
        let symbols = inwards.filter_map(|call| self.of_call[call as usize]);
        self.stack.extend(symbols);
        self.stack.reverse();
        for pair in self.stack.windows(2) {
            *self.calls.entry((pair[0], pair[1])).or_default() += 1;
        }
    }

    /// A load is in a function: one that called, or one that is called now.
    fn enter(&mut self, symbol: usize) {
        if let Some(at) = self.stack.iter().rposition(|&s| s == symbol) {
            self.stack.truncate(at + 1);
            return;
        }
        if let Some(&caller) = self.stack.last() {
            *self.calls.entry((caller, symbol)).or_default() += 1;
        }
        self.stack.push(symbol);
    }

    /// Counts the pairs of variables that were read since the last time.
    fn count_pairs(&mut self) {
        self.since = 0;
        let mut read: Vec<(usize, u64)> = self.recent.drain().collect();
        read.sort_unstable_by_key(|&(symbol, loads)| (u64::MAX - loads, symbol));
        read.truncate(MAX_TOGETHER);
        read.sort_unstable();
        for (at, (a, _)) in read.iter().enumerate() {
            for (b, _) in &read[at + 1..] {
                *self.together.entry((*a, *b)).or_default() += 1;
            }
        }
    }

    /// By symbol: the time of a function, or the loads of a variable.
    fn heat(&self, analysis: &Analysis) -> Vec<f64> {
        let code = &self.trace.code;
        let key = |function: usize| {
            let name = &code.functions[function];
            (name.function.as_str(), name.module.as_str())
        };
        let mut loads_of_name: HashMap<(&str, &str), u64> = HashMap::new();
        for (function, loads) in self.function_loads.iter().enumerate() {
            *loads_of_name.entry(key(function)).or_default() += loads;
        }
        let mut time_of_name = HashMap::new();
        if analysis.summary.trace.by_time {
            for row in &analysis.functions {
                let name = (row.function.as_str(), row.module.as_str());
                time_of_name.insert(name, row.loads.time.value.unwrap_or(0.0));
            }
        }
        let mut heat: Vec<f64> = self.data_loads.iter().map(|&l| l as f64).collect();
        for (function, symbol) in self.of_function.iter().enumerate() {
            let Some(symbol) = symbol else { continue };
            let loads = self.function_loads[function] as f64;
            // Functions of one name share its time by their loads.
            heat[*symbol] += match time_of_name.get(&key(function)) {
                Some(time) => time * loads / (loads_of_name[&key(function)] as f64).max(1.0),
                None if analysis.summary.trace.by_time => 0.0,
                None => loads,
            };
        }
        heat
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Some symbols in their order. `list`: sorted.
fn ordered(
    list: &[usize],
    (symbols, heat): (&ProgramSymbols, &[f64]),
    edges: &Edges,
    by: fn(&[ClusterNode], &Edges) -> Vec<usize>,
) -> Vec<usize> {
    let node = |&symbol: &usize| ClusterNode {
        bytes: symbols.list[symbol].bytes,
        heat: heat[symbol],
    };
    let nodes: Vec<ClusterNode> = list.iter().map(node).collect();
    let place = |symbol: usize| list.binary_search(&symbol).ok();
    let inside = edges
        .iter()
        .filter_map(|(pair, weight)| Some(((place(pair.0)?, place(pair.1)?), *weight)));
    let order = by(&nodes, &inside.collect());
    order.into_iter().map(|node| list[node]).collect()
}

/// Makes the order from a trace. `analysis`: what it says of the time of functions.
pub fn order_symbols(trace: &Trace, analysis: &Analysis) -> anyhow::Result<Order> {
    let program = Program::find(trace)?;
    let mut notes = Vec::new();
    let paths = read_call_paths(&trace.folder).unwrap_or_else(|sentence| {
        notes.push(sentence);
        None
    });
    let mut counting = Counting::new(trace, &program, paths);
    let mut document = Document::new("export");
    let columns = ColumnSet::default();
    let damaged = visit(trace, columns, &mut document, &mut |s| counting.add(s));
    counting.count_pairs();
    notes.extend(document.warnings);
    let heat = counting.heat(analysis);
    let symbols = &program.symbols;
    let called: HashSet<usize> = counting.calls.keys().flat_map(|c| [c.0, c.1]).collect();
    let mut functions = Vec::new();
    let mut data: HashMap<u16, Vec<usize>> = HashMap::new();
    for (at, symbol) in symbols.list.iter().enumerate() {
        match symbol.is_function {
            true if heat[at] > 0.0 || called.contains(&at) => functions.push(at),
            false if heat[at] > 0.0 => data.entry(symbol.section).or_default().push(at),
            _ => {}
        }
    }
    let facts = (symbols, &heat[..]);
    let mut order = ordered(&functions, facts, &counting.calls, clusters::by_calls);
    let mut sections: Vec<(u16, Vec<usize>)> = data.into_iter().collect();
    sections.sort_unstable();
    for (_, list) in &sections {
        order.extend(ordered(
            list,
            facts,
            &counting.together,
            clusters::by_affinity,
        ));
    }
    notes.push(format!(
        "{} functions and {} variables of {}; link objects of -ffunction-sections -fdata-sections with -Wl,--symbol-ordering-file=FILE",
        functions.len(),
        order.len() - functions.len(),
        program.path
    ));
    // Linkers warn of a name that is there twice, as local symbols may be.
    let mut named = HashSet::new();
    let mut text = String::new();
    for symbol in order {
        let name = &symbols.list[symbol].name;
        if named.insert(name) {
            text.push_str(name);
            text.push('\n');
        }
    }
    Ok(Order {
        text,
        notes,
        damaged,
    })
}
