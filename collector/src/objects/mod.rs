//! Data objects of the traced processes, for `objects.parquet`.
//!
//! What makes this hard: nobody tells. Global variables follow from the symbols of the files that are mapped, and their types from
//! debug information; stacks, the heap and files follow from `/proc/PID/maps`, which is looked at now and then while the program runs,
//! so that the life of a mapping is known to the distance of two looks, and one that came and went in between is not seen.
//!
//! * [`maps`]: what one look shows.
//! * [`globals`]: variables of a file.
//! * [`lives`]: mappings over time.
//! * [`write`] makes rows of them.
//!
//! Objects are a help for reading a report: nothing here may end a recording, so what cannot be read is left out and told.

pub mod globals;
pub mod heap;
pub mod lives;
pub mod maps;
pub mod write;

use crate::trace::dir::monotonic_ns;
use lives::Lives;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the file in a trace folder.
pub const OBJECTS: &str = "objects.parquet";

/// First and longest time between two looks at a process.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// What an object is, as the column `kind` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A variable of a module.
    Global,
    /// Memory that the program took with `brk`.
    Heap,
    /// A thread's stack.
    Stack,
    /// A file, or a part of a module that no variable names.
    File,
    /// Other memory.
    Anonymous,
}

impl Kind {
    /// The column's text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Global => "global",
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::File => "file",
            Kind::Anonymous => "anonymous",
        }
    }
}

/// What rows of one object share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Variable, file, or what the kernel calls it.
    pub name: String,
    /// Type of a variable, where debug information tells it.
    pub of_type: String,
    /// Module of a variable.
    pub module: String,
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
    /// Process, thread, an address in its stack.
    threads: Vec<(u32, u32, u64)>,
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
        look(pid, process);
    }

    /// A thread has begun; `stack` is an address in its stack.
    pub fn thread(&mut self, pid: u32, tid: u32, stack: u64) {
        self.threads.push((pid, tid, stack));
        // Its stack may be gone before the next look.
        if let Some(process) = self.processes.get_mut(&pid)
            && !process.lives.holds(stack)
        {
            look(pid, process);
        }
    }

    /// Some time has passed: looks at the processes whose turn it is.
    pub fn tick(&mut self) {
        for (pid, process) in &mut self.processes {
            if process.looked.elapsed() >= process.pause {
                process.pause = (process.pause * 2).min(LAST_LOOK);
                look(*pid, process);
            }
        }
    }

    /// All objects that were seen, those of the modules (path and bias by process) included, and what could not be found out.
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
                    kind: Kind::Global,
                    name: v.name.clone(),
                    of_type: v.of_type.clone(),
                    module: module.clone(),
                },
            }));
        }
        for (pid, process) in self.processes {
            list.extend(process.lives.instances(pid));
        }
        name_stacks(&mut list, &self.threads);
        list.sort();
        self.problems.extend(beyond_records(&list));
        (list, self.problems)
    }
}

/// What to tell where there is memory whose addresses do not fit into half a slot ([`abi::PAIR_BITS`], one of which is a sign).
fn beyond_records(list: &[Instance]) -> Option<String> {
    let far = list
        .iter()
        .find(|i| i.start >> (mgz_abi::slot::PAIR_BITS - 1) != 0)?;
    Some(format!(
        "process {} has memory at {:#x}, beyond 47 bits: addresses of loads there are in the trace without their upper bits where two records shared a slot",
        far.process, far.start
    ))
}

/// Mappings without a name that hold the stacks of threads are named after these: after the first one, if several used it one after the other.
fn name_stacks(list: &mut [Instance], threads: &[(u32, u32, u64)]) {
    for instance in list.iter_mut().filter(|i| i.object.kind == Kind::Anonymous) {
        let range = instance.start..instance.start.saturating_add(instance.bytes);
        let mut there: Vec<u32> = threads
            .iter()
            .filter(|t| t.0 == instance.process && range.contains(&t.2))
            .map(|t| t.1)
            .collect();
        there.dedup();
        if let Some(first) = there.first() {
            let others = if there.len() > 1 {
                format!(" and {} more", there.len() - 1)
            } else {
                String::new()
            };
            instance.object = Object {
                kind: Kind::Stack,
                name: format!("[stack of thread {first}{others}]"),
                ..instance.object.clone()
            };
        }
    }
}

fn look(pid: u32, process: &mut Process) {
    process.looked = Instant::now();
    // A process that is gone shows nothing; what was seen of it stays.
    if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/maps")) {
        let seen = maps::parse(&text);
        if !seen.is_empty() {
            process.lives.look(monotonic_ns(), seen);
        }
    }
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
                kind: Kind::Anonymous,
                name: String::new(),
                of_type: String::new(),
                module: String::new(),
            },
        };
        assert_eq!(beyond_records(&[at(0x1000), at(0x7fff_ffff_e000)]), None);
        let told = beyond_records(&[at(0x1000), at(1 << 47)]).unwrap();
        assert!(
            told.contains("process 7") && told.contains("0x800000000000"),
            "{told}"
        );
    }

    #[test]
    fn stacks_are_named_after_their_threads() {
        let anonymous = |start, process| Instance {
            process,
            start,
            bytes: 0x1000,
            begin_ns: 0,
            end_ns: u64::MAX,
            object: Object {
                kind: Kind::Anonymous,
                name: "x".into(),
                of_type: String::new(),
                module: String::new(),
            },
        };
        let mut list = vec![
            anonymous(0x1000, 1),
            anonymous(0x3000, 1),
            anonymous(0x1000, 2),
            anonymous(0x5000, 1),
        ];
        name_stacks(
            &mut list,
            &[
                (1, 7, 0x1800),
                (1, 8, 0x3fff),
                (1, 9, 0x3000),
                (1, 10, 0x2000),
            ],
        );
        let names: Vec<&str> = list.iter().map(|i| i.object.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "[stack of thread 7]",
                "[stack of thread 8 and 1 more]",
                "x",
                "x"
            ]
        );
        assert_eq!(list[0].object.kind, Kind::Stack);
    }
}
