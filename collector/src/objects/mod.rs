//! Data objects of the traced processes, for `objects.parquet`.
//!
//! No process reports its objects. Global variables follow from the symbols of the files that are
//! mapped, and their types from debug information. Stacks, the heap and files follow from
//! `/proc/PID/maps`, which is read now and then while the program runs. So the life of a mapping is
//! known to within the interval of two looks, and a mapping that came and went in between is not
//! seen.
//!
//! * [`ranges`]: the findings of one look; [`extent`]: sizes of images.
//! * [`globals`]: variables of a file.
//! * [`lives`]: mappings over time.
//! * [`stacks`]: threads' stacks over time.
//! * [`mod@thread_local`]: thread-local storage of first threads.
//! * [`mod@write`] makes rows of them.
//!
//! Objects are a help for reading a report: no failure here may end a recording, so objects that
//! cannot be read are left out and reported.

pub mod extent;
pub mod globals;
pub mod heap;
pub mod lives;
pub mod ranges;
pub mod stacks;
pub mod thread_local;
pub mod types;
pub mod write;

use crate::util::clock::monotonic_ns;
use extent::Extents;
use lives::Lives;
use mgz_annotations_schema::ObjectKind;
use mgz_perf::proc_maps;
use ranges::ObjectRange;
use stacks::{StackSeen, Stacks};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::Layout;

/// Name of the file in a trace folder.
pub const OBJECTS: &str = "objects.parquet";

/// First and longest time between two looks at a process.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Values that the rows of one object share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Variable, file, or the kernel's name for it.
    pub name: String,
    /// Type of a variable, where debug information gives it.
    pub of_type: String,
    /// Module of a variable.
    pub module: String,
    /// Layout of its elements, if debug information gives it.
    pub layout: Layout,
}

/// A range of addresses that was an object for some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Process.
    pub process: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// CLOCK_MONOTONIC when it began; 0: before the first look.
    pub begin_ns: u64,
    /// When it ended; `u64::MAX`: not before the last look.
    pub end_ns: u64,
    /// The object.
    pub object: Object,
}

struct Process {
    lives: Lives,
    looked: Instant,
    pause: Duration,
}

/// Collects objects while a program runs.
#[derive(Default)]
pub struct Objects {
    processes: BTreeMap<u32, Process>,
    extents: Extents,
    stacks: Stacks,
    problems: Vec<String>,
}

impl Objects {
    /// A process has loaded a module, or has begun.
    pub fn met(&mut self, pid: u32) {
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            lives: Lives::default(),
            looked: Instant::now(),
            pause: FIRST_LOOK,
        });
        look(pid, process, &mut self.extents);
    }

    /// A thread has begun.
    pub fn thread(&mut self, seen: &StackSeen) {
        let process = self.processes.get_mut(&seen.pid);
        let range = stacks::range(seen, || {
            process.map_or_else(Vec::new, |p| look(seen.pid, p, &mut self.extents))
        });
        self.stacks.begin(*seen, range);
    }

    /// Reports the threads that exist now.
    pub fn living(&mut self, threads: &HashSet<(u32, u32)>) {
        self.stacks.look(monotonic_ns(), threads);
    }

    /// Called at intervals: looks at the processes that are due.
    pub fn tick(&mut self) {
        for (pid, process) in &mut self.processes {
            if process.looked.elapsed() >= process.pause {
                process.pause = (process.pause * 2).min(LAST_LOOK);
                look(*pid, process, &mut self.extents);
            }
        }
    }

    /// All objects seen, including those of the modules (path and bias by process), and sentences
    /// about errors.
    pub fn finish(mut self, modules: &[(u32, PathBuf, u64)]) -> (Vec<Instance>, Vec<String>) {
        let mut list = Vec::new();
        let mut known: BTreeMap<&Path, Vec<globals::Variable>> = BTreeMap::new();
        for (pid, path, bias) in modules {
            let variables = known
                .entry(path)
                .or_insert_with(|| match globals::variables(path) {
                    Ok(variables) => variables,
                    Err(error) => {
                        self.problems.push(format!(
                            "{}: its variables cannot be named: {error}",
                            path.display()
                        ));
                        Vec::new()
                    }
                });
            let module = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            list.extend(variables.iter().map(|v| Instance {
                process: *pid,
                start: v.address.wrapping_add(*bias),
                bytes: v.bytes,
                begin_ns: 0,
                end_ns: u64::MAX,
                object: Object {
                    kind: ObjectKind::Global,
                    name: v.name.clone(),
                    of_type: v.of_type.clone(),
                    module: module.clone(),
                    layout: v.layout.clone(),
                },
            }));
        }
        let mut mapped = Vec::new();
        for (pid, process) in self.processes {
            mapped.extend(process.lives.instances(pid));
        }
        let loaded = modules.iter().map(|m| (m.0, m.1.as_path()));
        let first = self.stacks.first_threads();
        list.extend(thread_local::instances(&first, loaded, &mapped));
        list.extend(self.stacks.instances(&mapped));
        list.extend(mapped);
        list.sort();
        self.problems.extend(beyond_records(&list));
        (list, self.problems)
    }
}

/// Sentence about memory whose addresses do not fit into half a slot
/// ([`PAIR_BITS`](mgz_abi::slot::PAIR_BITS), one of which is a sign), if there is any.
fn beyond_records(list: &[Instance]) -> Option<String> {
    let far = list
        .iter()
        .find(|i| i.start >> (mgz_abi::slot::PAIR_BITS - 1) != 0)?;
    Some(format!(
        "process {} has memory at {:#x}, beyond 47 bits: addresses of loads there are in the trace without their upper bits where two records shared a slot",
        far.process, far.start
    ))
}

/// Looks at a process; returns its present mappings.
fn look(pid: u32, process: &mut Process, extents: &mut Extents) -> Vec<ObjectRange> {
    process.looked = Instant::now();
    // A process that is gone shows nothing; its known mappings stay.
    let Ok(text) = proc_maps::read_process_maps(pid) else {
        return Vec::new();
    };
    let seen = ranges::parse_mappings(&text, &mut |file| extents.of(pid, file));
    if !seen.is_empty() {
        process.lives.look(monotonic_ns(), seen.clone());
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_what_half_a_slot_holds_is_told_of() {
        let at = |start| Instance {
            process: 7,
            start,
            bytes: 0x1000,
            begin_ns: 0,
            end_ns: u64::MAX,
            object: Object {
                kind: ObjectKind::Anonymous,
                name: String::new(),
                of_type: String::new(),
                module: String::new(),
                layout: Layout::default(),
            },
        };
        assert_eq!(beyond_records(&[at(0x1000), at(0x7fff_ffff_e000)]), None);
        let told = beyond_records(&[at(0x1000), at(1 << 47)]).unwrap();
        assert!(
            told.contains("process 7") && told.contains("0x800000000000"),
            "{told}"
        );
    }
}
