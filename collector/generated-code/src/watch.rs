//! Follows the generated code of processes while they run.

use crate::gdb_interface::GdbList;
use crate::naming::ProcessCode;
use crate::process_files::{OtherProcess, ProcessFacts, descriptor_of, read_map};
use crate::runtimes::{self, Runtime};
use crate::{jitdump, perf_map};
use mgz_perf::proc_maps::{self, MapsLine};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Maximum number of processes followed. Source: Chosen.
const MAX_PROCESSES: usize = 4096;
/// Maximum number of processes with their own `/tmp`, whose folder stays open. Source: Chosen, far
/// below the usual limit of 1024 descriptors.
const MAX_OPEN_FOLDERS: usize = 128;
/// Maximum number of files that stay open. Source: Chosen.
const MAX_OPEN_FILES: usize = 64;

/// Follows the files and GDB's lists of processes.
#[derive(Default)]
pub struct GeneratedCodeWatch {
    processes: BTreeMap<u32, FollowedProcess>,
    /// Location of GDB's list in each examined file, from [`descriptor_of`].
    descriptors: HashMap<PathBuf, Option<(u64, u64, u64)>>,
    open_folders: usize,
    open_files: usize,
}

struct FollowedProcess {
    facts: ProcessFacts,
    /// The perf map, opened as soon as it exists, since the process may remove it.
    map: Option<File>,
    dumps: BTreeMap<PathBuf, Option<File>>,
    gdb: GdbList,
    runtime: Option<&'static Runtime>,
}

/// The names of the code of all followed processes.
#[derive(Debug, Default)]
pub struct NamedProcesses {
    /// Code of each process, by process id.
    pub processes: BTreeMap<u32, ProcessCode>,
    /// Commands that would name the code of processes without names.
    pub commands: BTreeSet<&'static str>,
}

/// True if a line of the list of mappings is code without a file.
pub fn is_generated(line: &MapsLine<'_>) -> bool {
    let is_unnamed = |name: &str| {
        name.is_empty()
            || name.starts_with("[anon")
            || name.starts_with("//")
            || name.starts_with("/memfd:") && !name.starts_with("/memfd:mgz-")
            || name.starts_with("/dev/zero")
            || name.starts_with("/SYSV")
    };
    line.is_executable() && is_unnamed(line.name)
}

impl GeneratedCodeWatch {
    /// Examines a process. `maps`: the kernel's list of its mappings. Does nothing for processes
    /// without generated code.
    pub fn look(&mut self, process: u32, maps: &str, now_ns: u64) {
        let known = self.processes.contains_key(&process);
        let mut lines = proc_maps::lines(maps);
        let begins = !known && lines.any(|line| is_generated(&line) || is_dump(line.name));
        if begins && self.processes.len() < MAX_PROCESSES {
            self.begin(process);
        }
        let Some(followed) = self.processes.get_mut(&process) else {
            return;
        };
        let names = || proc_maps::lines(maps).map(|line| line.name);
        followed.runtime = followed.runtime.or_else(|| runtimes::find(names()));
        if followed.map.is_none() && self.open_files < MAX_OPEN_FILES {
            let path = followed.facts.perf_map_path();
            followed.map = followed.facts.open(&path).ok();
            self.open_files += usize::from(followed.map.is_some());
        }
        for name in names().filter(|name| is_dump(name)) {
            let path = PathBuf::from(format!("/proc/{process}/root{name}"));
            if !followed.dumps.contains_key(Path::new(name)) && self.open_files < MAX_OPEN_FILES {
                let file = followed.facts.open(&path).ok();
                self.open_files += usize::from(file.is_some());
                followed.dumps.insert(PathBuf::from(name), file);
            }
        }
        let descriptors = descriptors(&mut self.descriptors, process, maps);
        for descriptor in descriptors {
            followed
                .gdb
                .look(&OtherProcess(process), descriptor, now_ns);
        }
    }

    fn begin(&mut self, process: u32) {
        // A process that has ended cannot be examined.
        let Ok(mut facts) = ProcessFacts::read(process) else {
            return;
        };
        if facts.own_tmp.is_some() {
            self.open_folders += 1;
            if self.open_folders > MAX_OPEN_FOLDERS {
                facts.own_tmp = None;
            }
        }
        let followed = FollowedProcess {
            facts,
            map: None,
            dumps: BTreeMap::new(),
            gdb: GdbList::default(),
            runtime: None,
        };
        self.processes.insert(process, followed);
    }

    /// Reads all files, after the processes' end or at the end of the recording.
    pub fn finish(self) -> NamedProcesses {
        let mut all = NamedProcesses::default();
        for (process, followed) in self.processes {
            let runtime = followed.runtime;
            let code = followed.finish();
            if let (Some(runtime), true) = (runtime, code.is_empty()) {
                all.commands.insert(runtime.command);
            }
            all.processes.insert(process, code);
        }
        all
    }
}

impl FollowedProcess {
    fn finish(mut self) -> ProcessCode {
        let mut code = ProcessCode::default();
        // A runtime may write the file at its end, or replace it.
        let path = self.facts.perf_map_path();
        let file = self.facts.open(&path).ok().or(self.map.take());
        if let Some(text) = file.and_then(|file| read_map(file).ok()) {
            code.add_source(perf_map::parse(&text).blocks);
        }
        code.add_source(self.gdb.blocks());
        if self.dumps.is_empty() {
            // The process may have ended before its mapping of the file was seen.
            let name = format!("jit-{}.dump", self.facts.inner_id);
            let path = self.facts.folder.join(name);
            let file = self.facts.open(&path).ok();
            self.dumps.insert(path, file);
        }
        for file in self.dumps.into_values().flatten() {
            // A file without a header is ignored, since nothing was written yet.
            if let Some(dump) = jitdump::read(&mut BufReader::new(file)) {
                code.add_source(dump.blocks);
            }
        }
        code
    }
}

/// True for the path of a jitdump file.
pub fn is_dump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let id = name
        .strip_prefix("jit-")
        .and_then(|rest| rest.strip_suffix(".dump"));
    path.starts_with('/')
        && id.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

/// Addresses of GDB's lists in a process's memory.
fn descriptors(
    known: &mut HashMap<PathBuf, Option<(u64, u64, u64)>>,
    process: u32,
    maps: &str,
) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for line in proc_maps::lines(maps).filter(|line| line.name.starts_with('/') && line.inode != 0)
    {
        let is_file = !line.name.starts_with("/memfd:") && !line.name.starts_with("/dev/");
        if !is_file || is_dump(line.name) {
            continue;
        }
        let path = PathBuf::from(format!("/proc/{process}/root{}", line.name));
        // Only files with code have the list; their first mapping may be without code.
        let place = match known.get(Path::new(line.name)) {
            Some(place) => *place,
            None if line.offset == 0 => {
                let place = descriptor_of(&path);
                known.insert(PathBuf::from(line.name), place);
                place
            }
            None => continue,
        };
        if let Some((address, first, offset)) = place
            && line.offset == offset
        {
            found.insert(line.start.wrapping_sub(first).wrapping_add(address));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn dumps_are_known_by_their_name() {
        assert!(is_dump("/tmp/a folder/jit-12.dump"));
        for other in [
            "/tmp/jit-.dump",
            "/tmp/jit-1x.dump",
            "jit-12.dump",
            "/jit-12.dump.old",
        ] {
            assert!(!is_dump(other), "{other}");
        }
    }

    #[test]
    fn the_perf_map_of_this_process_is_read() {
        let process = std::process::id();
        let path = format!("/tmp/perf-{process}.map");
        let mut watch = GeneratedCodeWatch::default();
        let generated =
            "7f00-7f80 rwxp 00000000 00:00 0 \n1-2 r-xp 00000000 00:01 7 /usr/bin/node\n";
        watch.look(process, "1-2 r-xp 00000000 00:01 7 /usr/bin/node\n", 1);
        assert!(watch.processes.is_empty());
        watch.look(process, generated, 1);
        let mut file = File::create(&path).unwrap();
        writeln!(file, "7f00 10 made").unwrap();
        let named = watch.finish();
        std::fs::remove_file(&path).unwrap();
        let names = named.processes[&process].names_of(&[(5, 0x7f08), (5, 0x7f10)]);
        assert_eq!(names[0].map(|n| n.function.as_str()), Some("made"));
        assert_eq!(names[1], None);
        assert!(named.commands.is_empty());
        // Without a file, the command is named that would write one.
        let mut watch = GeneratedCodeWatch::default();
        watch.look(process, generated, 1);
        assert_eq!(watch.finish().commands, ["node --perf-basic-prof"].into());
    }
}
