//! The history of mapped files, by process and time.
//!
//! Mappings are kept as a history, not as a state, since PT data is read after all records. The
//! address space of a forked child is its parent's up to the fork; an exec empties it.

use std::collections::HashMap;

/// A mapping of executable bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Path from the kernel.
    pub path: String,
    /// Build id, hex, if the record contains it.
    pub build_id: Option<String>,
}

#[derive(Clone, Debug)]
enum Change {
    Map(usize),
    Fork { parent: u32 },
    Exec,
}

/// The history of all address spaces.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    mappings: Vec<Mapping>,
    /// Time of each mapping.
    times: Vec<u64>,
    /// Changes by process, in order of time after [`Spaces::finish`].
    changes: HashMap<u32, Vec<(u64, Change)>>,
}

/// Maximum number of forks that a lookup follows back.
const MAX_FORKS: usize = 64;

impl Spaces {
    /// Adds a mapping.
    pub fn map(&mut self, pid: u32, time: u64, mapping: Mapping) {
        self.mappings.push(mapping);
        self.times.push(time);
        self.change(pid, time, Change::Map(self.mappings.len() - 1));
    }

    /// Adds a fork: a process began as the copy of another.
    pub fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        if pid != parent {
            self.change(pid, time, Change::Fork { parent });
        }
    }

    /// Adds an exec: a process executed another program.
    pub fn exec(&mut self, pid: u32, time: u64) {
        self.change(pid, time, Change::Exec);
    }

    fn change(&mut self, pid: u32, time: u64, change: Change) {
        self.changes.entry(pid).or_default().push((time, change));
    }

    /// Sorts the history, since the file has the records of several CPUs one CPU after the other.
    pub fn finish(&mut self) {
        for list in self.changes.values_mut() {
            list.sort_by_key(|(time, _)| *time);
        }
    }

    /// All mappings that were seen.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The time at which the mapping with this number appeared.
    pub fn appeared(&self, number: usize) -> Option<u64> {
        self.times.get(number).copied()
    }

    /// Time until which (exclusive) the results of [`Spaces::find`] for a process and time stay
    /// valid.
    pub fn next_change(&self, pid: u32, time: u64) -> u64 {
        let list = self.changes.get(&pid).map_or(&[][..], Vec::as_slice);
        list.get(list.partition_point(|(at, _)| *at <= time))
            .map_or(u64::MAX, |(at, _)| *at)
    }

    /// As [`Spaces::find`]; if there was no mapping at that time, the first later one. The times of
    /// `ptwrite`s are those of the last timing packet, which may be older than their mapping.
    pub fn find_near(&self, pid: u32, time: u64, address: u64) -> Option<usize> {
        self.find(pid, time, address).or_else(|| {
            let list = self.changes.get(&pid)?;
            let later = &list[list.partition_point(|(at, _)| *at <= time)..];
            later.iter().find_map(|(_, change)| match *change {
                Change::Map(number) => {
                    let mapping = &self.mappings[number];
                    (mapping.start..mapping.end)
                        .contains(&address)
                        .then_some(number)
                }
                _ => None,
            })
        })
    }

    /// The numbers of all mappings of a process at a time, except those covered by later ones.
    pub fn at(&self, pid: u32, time: u64) -> Vec<usize> {
        let (mut pid, mut time) = (pid, time);
        let mut found: Vec<usize> = Vec::new();
        'process: for _ in 0..MAX_FORKS {
            let Some(list) = self.changes.get(&pid) else {
                break;
            };
            let until = list.partition_point(|(at, _)| *at <= time);
            for (at, change) in list[..until].iter().rev() {
                match *change {
                    Change::Map(number) => {
                        let this = &self.mappings[number];
                        let covers = |&n: &usize| {
                            let other = &self.mappings[n];
                            other.start < this.end && this.start < other.end
                        };
                        if !found.iter().any(covers) {
                            found.push(number);
                        }
                    }
                    Change::Exec => return found,
                    Change::Fork { parent } => {
                        pid = parent;
                        time = *at;
                        continue 'process;
                    }
                }
            }
            break;
        }
        found
    }

    /// The numbers of all mappings that a process has made since it began to run its last program,
    /// the latest first.
    pub fn of_last_program(&self, pid: u32) -> Vec<usize> {
        let (mut pid, mut time) = (pid, u64::MAX);
        let mut found = Vec::new();
        'process: for _ in 0..MAX_FORKS {
            let Some(list) = self.changes.get(&pid) else {
                break;
            };
            let until = list.partition_point(|(at, _)| *at <= time);
            for (at, change) in list[..until].iter().rev() {
                match *change {
                    Change::Map(number) => found.push(number),
                    Change::Exec => return found,
                    Change::Fork { parent } => {
                        (pid, time) = (parent, *at);
                        continue 'process;
                    }
                }
            }
            break;
        }
        found
    }

    /// The number of the mapping that held `address`. `time` is inclusive.
    pub fn find(&self, pid: u32, time: u64, address: u64) -> Option<usize> {
        let (mut pid, mut time) = (pid, time);
        'process: for _ in 0..MAX_FORKS {
            let list = self.changes.get(&pid)?;
            let until = list.partition_point(|(at, _)| *at <= time);
            for (at, change) in list[..until].iter().rev() {
                match *change {
                    Change::Map(number) => {
                        let mapping = &self.mappings[number];
                        if (mapping.start..mapping.end).contains(&address) {
                            return Some(number);
                        }
                    }
                    Change::Exec => return None,
                    Change::Fork { parent } => {
                        pid = parent;
                        time = *at;
                        continue 'process;
                    }
                }
            }
            return None;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, path: &str) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            path: path.into(),
            ..Mapping::default()
        }
    }

    #[test]
    fn the_latest_mapping_before_the_moment_counts() {
        let mut spaces = Spaces::default();
        spaces.map(1, 20, mapping(0x1000, "new"));
        spaces.map(1, 10, mapping(0x1000, "old"));
        spaces.finish();
        let path = |time, address| {
            spaces
                .find(1, time, address)
                .map(|n| spaces.mappings()[n].path.as_str())
        };
        assert_eq!(spaces.at(1, 5), []);
        assert_eq!((spaces.at(1, 10), spaces.at(1, 20)), (vec![1], vec![0]));
        assert_eq!(path(5, 0x1000), None);
        assert_eq!(path(10, 0x1fff), Some("old"));
        assert_eq!(path(25, 0x1000), Some("new"));
        assert_eq!(path(25, 0x2000), None);
        assert_eq!(
            spaces
                .find_near(1, 5, 0x1000)
                .map(|n| spaces.mappings()[n].path.as_str()),
            Some("old"),
            "it came later"
        );
        assert_eq!(
            (
                spaces.next_change(1, 5),
                spaces.next_change(1, 10),
                spaces.next_change(1, 20)
            ),
            (10, 20, u64::MAX)
        );
        assert_eq!(spaces.appeared(0), Some(20));
        assert_eq!(spaces.find(2, 25, 0x1000), None);
    }

    #[test]
    fn a_child_has_its_parents_mappings_until_it_runs_a_program() {
        let mut spaces = Spaces::default();
        spaces.map(1, 10, mapping(0x1000, "parent"));
        spaces.fork(2, 1, 20);
        spaces.map(1, 30, mapping(0x5000, "later"));
        spaces.exec(2, 40);
        spaces.map(2, 41, mapping(0x1000, "program"));
        spaces.finish();
        let path = |time, address| {
            spaces
                .find(2, time, address)
                .map(|n| spaces.mappings()[n].path.as_str())
        };
        assert_eq!(path(25, 0x1000), Some("parent"));
        assert_eq!((spaces.at(2, 35), spaces.at(2, 41)), (vec![0], vec![2]));
        assert_eq!(spaces.of_last_program(2), [2]);
        assert_eq!(spaces.of_last_program(1), [1, 0]);
        assert_eq!(spaces.at(1, 35), [1, 0]);
        assert_eq!(path(35, 0x5000), None);
        assert_eq!(path(40, 0x1000), None);
        assert_eq!(path(41, 0x1000), Some("program"));
    }

    #[test]
    fn a_circle_of_forks_ends() {
        let mut spaces = Spaces::default();
        spaces.fork(1, 2, 10);
        spaces.fork(2, 1, 10);
        spaces.finish();
        assert_eq!(spaces.find(1, 20, 0x1000), None);
        assert_eq!(spaces.at(1, 20), []);
    }
}
