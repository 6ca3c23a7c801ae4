//! speedscope, the Firefox profiler, collapsed stacks and callgrind.

use crate::profile::{Frame, FrameChain, Profile};
use crate::values::Weight;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

fn thread_name(profile: &Profile, at: usize) -> String {
    let thread = &profile.threads[at];
    match thread.name.is_empty() {
        true => format!("{}/{}", thread.process, thread.thread),
        false => format!("{} {}/{}", thread.name, thread.process, thread.thread),
    }
}

/// Frames of places, the outermost first, each frame once: the frames and the stacks.
fn stacks(profile: &Profile) -> (Vec<&Frame>, Vec<Vec<usize>>) {
    let mut index: HashMap<&Frame, usize> = HashMap::new();
    let mut frames: Vec<&Frame> = Vec::new();
    let stacks = profile.places.iter().map(|place| {
        let frames = place.stack().rev().map(|frame| {
            *index.entry(frame).or_insert_with(|| {
                frames.push(frame);
                frames.len() - 1
            })
        });
        frames.collect()
    });
    let stacks: Vec<Vec<usize>> = stacks.collect();
    (frames, stacks)
}

/// A weight as a number: a whole one for loads.
fn number(weight: &Weight, place: usize, loads: u64) -> Value {
    match weight.name.as_str() {
        "loads" => loads.into(),
        _ => weight.of(place, loads).into(),
    }
}

/// speedscope's file: a profile for each thread, in the order of time.
pub fn speedscope(profile: &Profile, weight: &Weight) -> Value {
    let (frames, stacks) = stacks(profile);
    let shared: Vec<Value> = frames
        .iter()
        .map(|frame| {
            let mut value = json!({"name": frame.function});
            if !frame.file.is_empty() {
                value["file"] = frame.file.clone().into();
                value["line"] = frame.line.into();
            }
            value
        })
        .collect();
    let profiles: Vec<Value> = (0..profile.threads.len())
        .map(|thread| {
            let (mut samples, mut weights, mut all) = (Vec::new(), Vec::new(), 0.0);
            for slice in profile.slices.iter().filter(|s| s.thread == thread) {
                for &(place, loads) in &slice.loads {
                    samples.push(stacks[place].clone());
                    weights.push(number(weight, place, loads));
                    all += weight.of(place, loads);
                }
            }
            json!({
                "type": "sampled",
                "name": format!("{} ({})", thread_name(profile, thread), weight.name),
                "unit": if weight.is_time { "nanoseconds" } else { "none" },
                "startValue": 0,
                "endValue": all,
                "samples": samples,
                "weights": weights,
            })
        })
        .collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": profile.command_line(),
        "exporter": concat!("mgz ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": {"frames": shared},
        "profiles": profiles,
    })
}

/// Texts of a thread of the Firefox profiler.
#[derive(Default)]
struct Strings {
    index: HashMap<String, usize>,
    list: Vec<String>,
}

impl Strings {
    fn get(&mut self, text: &str) -> usize {
        if let Some(&at) = self.index.get(text) {
            return at;
        }
        self.list.push(text.into());
        self.index.insert(text.into(), self.list.len() - 1);
        self.list.len() - 1
    }
}

/// Functions of the frames.
#[derive(Default)]
struct Functions {
    /// Index of each function's name in the strings.
    names: Vec<usize>,
    files: Vec<Value>,
    modules: Vec<usize>,
    /// Function of each frame.
    of_frame: Vec<usize>,
}

/// Stacks as a tree.
struct Nodes {
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
    /// Innermost node of each stack.
    leaves: Vec<Option<usize>>,
}

impl Nodes {
    fn new(stacks: &[Vec<usize>]) -> Nodes {
        let mut nodes: HashMap<(Option<usize>, usize), usize> = HashMap::new();
        let (mut prefix, mut node_frame): (Vec<Option<usize>>, Vec<usize>) = Default::default();
        let mut leaf = |stack: &Vec<usize>| {
            let mut parent = None;
            for &frame in stack {
                let next = prefix.len();
                let node = *nodes.entry((parent, frame)).or_insert(next);
                if node == next {
                    prefix.push(parent);
                    node_frame.push(frame);
                }
                parent = Some(node);
            }
            parent
        };
        let leaves = stacks.iter().map(&mut leaf).collect();
        Nodes {
            prefix,
            frame: node_frame,
            leaves,
        }
    }
}

/// Data that all threads of a file of the Firefox profiler share.
struct Firefox<'a> {
    profile: &'a Profile,
    weight: &'a Weight<'a>,
    frames: Vec<&'a Frame>,
    stacks: Vec<Vec<usize>>,
    /// Sorted.
    modules: Vec<&'a str>,
    /// Begin of the first slice, nanoseconds.
    first_ns: u64,
}

impl Firefox<'_> {
    fn ms(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.first_ns) as f64 / 1e6
    }

    /// Lists the functions of the frames, each once.
    fn functions(&self, strings: &mut Strings) -> Functions {
        let mut known: HashMap<(&str, &str), usize> = HashMap::new();
        let mut out = Functions::default();
        for frame in &self.frames {
            let next = out.names.len();
            let function = *known.entry((&frame.function, &frame.file)).or_insert(next);
            if function == next {
                out.names.push(strings.get(&frame.function));
                out.files.push(match frame.file.is_empty() {
                    true => Value::Null,
                    false => strings.get(&frame.file).into(),
                });
                let module = self.modules.binary_search(&frame.module.as_str());
                out.modules.push(module.unwrap_or(0));
            }
            out.of_frame.push(function);
        }
        out
    }

    /// Makes the value of a thread.
    fn thread(&self, at: usize) -> Value {
        let mut strings = Strings::default();
        let functions = self.functions(&mut strings);
        let nodes = Nodes::new(&self.stacks);
        let (mut stack, mut time, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = 0;
        for slice in self.profile.slices.iter().filter(|s| s.thread == at) {
            for &(place, loads) in &slice.loads {
                stack.push(nodes.leaves[place]);
                time.push(self.ms(slice.from_ns));
                weights.push(number(self.weight, place, loads));
            }
            last = last.max(slice.to_ns);
        }
        let resource_names: Vec<usize> = self.modules.iter().map(|m| strings.get(m)).collect();
        let zeros = |n: usize| vec![0; n];
        let nulls = |n: usize| vec![Value::Null; n];
        let (nf, nn) = (self.frames.len(), nodes.prefix.len());
        let (nfu, nm) = (functions.names.len(), self.modules.len());
        let thread = &self.profile.threads[at];
        let name = match thread.name.is_empty() {
            true => thread.thread.to_string(),
            false => thread.name.clone(),
        };
        json!({
            "processType": "default",
            "processName": self.profile.command_line(),
            "processStartupTime": 0,
            "processShutdownTime": null,
            "registerTime": 0,
            "unregisterTime": self.ms(last),
            "pausedRanges": [],
            "name": name,
            "isMainThread": thread.process == thread.thread,
            "pid": thread.process.to_string(),
            "tid": thread.thread,
            "samples": {"length": stack.len(), "stack": stack, "time": time, "weight": weights, "weightType": "samples"},
            "markers": {"length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": []},
            "stackTable": {"length": nn, "prefix": nodes.prefix, "frame": nodes.frame, "category": zeros(nn), "subcategory": zeros(nn)},
            "frameTable": {
                "length": nf, "address": vec![-1; nf], "inlineDepth": zeros(nf), "category": zeros(nf), "subcategory": zeros(nf),
                "func": functions.of_frame, "nativeSymbol": nulls(nf), "innerWindowID": nulls(nf), "implementation": nulls(nf),
                "line": self.frames.iter().map(|f| if f.line == 0 { Value::Null } else { f.line.into() }).collect::<Vec<_>>(),
                "column": nulls(nf),
            },
            "funcTable": {
                "length": nfu, "name": functions.names, "isJS": vec![false; nfu], "relevantForJS": vec![false; nfu],
                "resource": functions.modules, "fileName": functions.files, "lineNumber": nulls(nfu), "columnNumber": nulls(nfu),
            },
            "resourceTable": {
                "length": nm, "lib": (0..nm).collect::<Vec<_>>(), "name": resource_names,
                "host": nulls(nm), "type": vec![1; nm],
            },
            "nativeSymbols": {"length": 0, "libIndex": [], "address": [], "name": [], "functionSize": []},
            "stringArray": strings.list,
        })
    }
}

/// The processed format of the Firefox profiler.
pub fn firefox(profile: &Profile, weight: &Weight) -> Value {
    let (frames, stacks) = stacks(profile);
    let mut modules: Vec<&str> = frames.iter().map(|f| f.module.as_str()).collect();
    modules.sort_unstable();
    modules.dedup();
    let of = Firefox {
        profile,
        weight,
        frames,
        stacks,
        modules,
        first_ns: profile.slices.iter().map(|s| s.from_ns).min().unwrap_or(0),
    };
    let threads: Vec<Value> = (0..profile.threads.len()).map(|at| of.thread(at)).collect();
    let libs: Vec<Value> = of
        .modules
        .iter()
        .map(|name| json!({"arch": "x86_64", "name": name, "path": name, "debugName": name, "debugPath": name, "breakpadId": "", "codeId": null}))
        .collect();
    json!({
        "meta": {
            "interval": 1.0,
            "startTime": 0,
            "processType": 0,
            "product": profile.command_line(),
            "importedFrom": concat!("mgz ", env!("CARGO_PKG_VERSION")),
            "stackwalk": 0,
            "debug": false,
            "version": 27,
            "preprocessedProfileVersion": 46,
            "symbolicated": true,
            "markerSchema": [],
            "categories": [{"name": "Loads", "color": "blue", "subcategories": ["Other"]}],
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
            "extra": [{"label": "Numbers", "entries": [{"label": "Weight of a sample", "format": "string", "value": weight.name}]}],
        },
        "libs": libs,
        "threads": threads,
        "pages": [],
        "counters": [],
    })
}

/// Stacks in a line each, as flame graphs take them: thread, frames from the outside in, weight.
pub fn collapsed(profile: &Profile, weight: &Weight) -> String {
    let clean = |text: &str| text.replace([';', '\n'], ":");
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for sample in &profile.samples {
        let place = &profile.places[sample.place];
        let mut stack = clean(&thread_name(profile, sample.thread));
        let innermost = &place.frames[0];
        for frame in place.stack().rev() {
            stack.push(';');
            stack.push_str(&clean(&frame.function));
            if std::ptr::eq(frame, innermost) && frame.line > 0 {
                let file = frame.file.rsplit('/').next().unwrap_or("");
                stack.push_str(&clean(&format!(" {file}:{}", frame.line)));
            }
        }
        *lines.entry(stack).or_default() += weight.of(sample.place, sample.loads);
    }
    lines
        .into_iter()
        .map(|(stack, sum)| format!("{stack} {}\n", sum.round()))
        .collect()
}

/// A function of a file in callgrind's format: module and name.
type CostCenter<'a> = (&'a str, &'a str);

/// Costs of a function in callgrind's format.
#[derive(Default)]
struct FunctionCosts<'a> {
    file: &'a str,
    /// By file and line.
    lines: BTreeMap<(&'a str, u32), Vec<u64>>,
    /// Inclusive costs by line of the call, called function and its file.
    calls: BTreeMap<(&'a str, u32, CostCenter<'a>, &'a str), Vec<u64>>,
}

fn add_costs(sums: &mut Vec<u64>, costs: &[u64]) {
    sums.resize(costs.len(), 0);
    for (sum, cost) in sums.iter_mut().zip(costs) {
        *sum += cost;
    }
}

/// Costs by function, and their totals. `kinds`: number of costs.
fn function_costs(
    profile: &Profile,
    kinds: usize,
) -> (BTreeMap<CostCenter<'_>, FunctionCosts<'_>>, Vec<u64>) {
    let mut functions: BTreeMap<CostCenter, FunctionCosts> = BTreeMap::new();
    for place in &profile.places {
        let key = (place.frames[0].module.as_str(), place.function.as_str());
        functions.entry(key).or_default().file = outermost(place);
    }
    let mut totals = vec![0; kinds];
    for sample in &profile.samples {
        let place = &profile.places[sample.place];
        let frame = &place.frames[0];
        let mut costs = vec![sample.loads];
        let of_place = profile.misses.iter().map(|m| m.1[sample.place]);
        let per_load = of_place.chain(profile.load_ns.iter().map(|ns| ns[sample.place]));
        costs.extend(per_load.map(|cost| (cost * sample.loads as f64).round() as u64));
        add_costs(&mut totals, &costs);
        let mut callee: CostCenter = (&frame.module, &place.function);
        let function = functions.entry(callee).or_default();
        let line = function.lines.entry((&frame.file, frame.line));
        add_costs(line.or_default(), &costs);
        let mut callee_file = function.file;
        // Recursive calls count once.
        let mut met = HashSet::new();
        for caller in &place.callers {
            let key: CostCenter = (&caller.module, &caller.function);
            let function = functions.entry(key).or_default();
            if function.file.is_empty() {
                function.file = &caller.file;
            }
            let call = (caller.file.as_str(), caller.line, callee, callee_file);
            (callee, callee_file) = (key, function.file);
            if met.insert(call) {
                add_costs(function.calls.entry(call).or_default(), &costs);
            }
        }
    }
    (functions, totals)
}

/// Callgrind's format, by line: loads, predicted misses if they are known, and nanoseconds if
/// windows are triggered by time. Calls have inclusive costs.
pub fn callgrind(profile: &Profile) -> String {
    let one_line = |text: &str| text.replace('\n', " ");
    let mut out = format!(
        "# callgrind format\nversion: 1\ncreator: mgz {}\ncmd: {}\n",
        env!("CARGO_PKG_VERSION"),
        one_line(&profile.command_line())
    );
    for note in &profile.notes {
        out.push_str(&format!("desc: Note: {}\n", one_line(note)));
    }
    if profile.places.iter().any(|p| !p.callers.is_empty()) {
        out.push_str("desc: Note: the numbers of calls are unknown; each is written as 1\n");
    }
    let mut events = vec!["loads".to_string()];
    events.extend(profile.misses.iter().map(|m| format!("misses_{}", m.0)));
    events.extend(profile.load_ns.iter().map(|_| "ns".to_string()));
    out += &format!("positions: line\nevents: {}\n", events.join(" "));
    let numbers = |costs: &[u64]| {
        let costs: Vec<String> = costs.iter().map(u64::to_string).collect();
        costs.join(" ")
    };
    let known = |file: &str| match file {
        "" => "???".to_string(),
        file => file.to_string(),
    };
    let (functions, totals) = function_costs(profile, events.len());
    let mut module = None;
    for (key, function) in &functions {
        if module != Some(key.0) {
            out.push_str(&format!("\nob={}\n", known(key.0)));
            module = Some(key.0);
        }
        let own = function.file;
        out.push_str(&format!("\nfl={}\nfn={}\n", known(own), one_line(key.1)));
        let mut file = own;
        let mut change_file = |out: &mut String, of| {
            if of != file {
                let word = if of == own { "fe" } else { "fi" };
                out.push_str(&format!("{word}={}\n", known(of)));
                file = of;
            }
        };
        for (&(of, line), costs) in &function.lines {
            change_file(&mut out, of);
            out.push_str(&format!("{line} {}\n", numbers(costs)));
        }
        for (&(of, line, callee, callee_file), costs) in &function.calls {
            change_file(&mut out, of);
            let (object, file) = (known(callee.0), known(callee_file));
            out.push_str(&format!(
                "cob={object}\ncfi={file}\ncfn={}\n",
                one_line(callee.1)
            ));
            out.push_str(&format!("calls=1 0\n{line} {}\n", numbers(costs)));
        }
    }
    out.push_str(&format!("\ntotals: {}\n", numbers(&totals)));
    out
}

/// Source file of the function that is not inlined.
fn outermost(place: &FrameChain) -> &str {
    place.frames.last().map_or("", |f| f.file.as_str())
}
