//! Names of instructions in generated code, which are in no file.
//!
//! Compilers name their code in files ([`mgz_generated_code`]). These are taken from the folder of
//! the recording, or, if this machine made the recording, from the place where the process wrote
//! them. There they must not be older than the recording, because an earlier process may have had
//! the same id.
//!
//! Addresses are used again. Names have times only in jitdump files, and they can be compared with
//! those of samples only if the recording was made by CLOCK_MONOTONIC. Otherwise the last name of
//! an address counts.

use crate::import::paths::file_of;
use mgz_collector::objects::heap::generated_frames::GENERATED;
use mgz_collector::trace::measured::CodeNames;
use mgz_generated_code::naming::ProcessCode;
use mgz_generated_code::process_files::{ProcessFacts, read_map};
use mgz_generated_code::watch::is_dump;
use mgz_generated_code::{GeneratedName, jitdump, perf_map};
use mgz_perf_data::Session;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Process, time and address of an instruction.
type Instruction = (u32, u64, u64);

/// Names of the sampled instructions in generated code.
#[derive(Debug, Default)]
pub struct GeneratedNames {
    names: HashMap<Instruction, Arc<CodeNames>>,
    /// Samples in generated code of processes whose code no file names.
    pub unnamed: u64,
    /// Sentences for the user.
    pub problems: Vec<String>,
}

/// The files of a recording's processes.
struct NameFiles {
    /// Folder of the recording.
    folder: PathBuf,
    /// Begin of the recording, if this machine made it.
    begin: Option<SystemTime>,
    /// Files that exist and are not trusted.
    refused: BTreeSet<PathBuf>,
}

/// Begin of a recording by its file, which was written last at its end.
fn begin_of(session: &Session<'_>, recording: &Path) -> Option<SystemTime> {
    let times = || session.memory.list.iter().filter_map(|sample| sample.time);
    let length = times().max()?.saturating_sub(times().min()?);
    let end = recording.metadata().ok()?.modified().ok()?;
    end.checked_sub(Duration::from_nanos(length))
}

fn is_this_machine(host: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname");
    own.is_ok_and(|own| !host.is_empty() && own.trim_end() == host)
}

impl NameFiles {
    fn new(session: &Session<'_>, recording: &Path) -> NameFiles {
        let folder = recording.parent().unwrap_or(Path::new(""));
        let is_here = is_this_machine(&session.host);
        NameFiles {
            folder: folder.to_path_buf(),
            begin: is_here.then(|| begin_of(session, recording)).flatten(),
            refused: BTreeSet::new(),
        }
    }

    /// Opens a file that a process has written at `path`.
    fn open(&mut self, path: &Path) -> Option<File> {
        let facts = |started: SystemTime| ProcessFacts {
            inner_id: 0,
            // SAFETY: the call cannot fail and touches no memory.
            user: unsafe { libc::geteuid() },
            started,
            own_tmp: None,
            folder: PathBuf::new(),
        };
        let beside = self.folder.join(path.file_name()?);
        if let Ok(file) = facts(SystemTime::UNIX_EPOCH).open(&beside) {
            return Some(file);
        }
        match facts(self.begin?).open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                if error.raw_os_error() == Some(libc::EPERM) {
                    self.refused.insert(path.to_path_buf());
                }
                None
            }
        }
    }

    /// The code of a process.
    fn code(&mut self, session: &Session<'_>, process: u32) -> ProcessCode {
        let mut code = ProcessCode::default();
        let map = PathBuf::from(format!("/tmp/perf-{process}.map"));
        if let Some(text) = self.open(&map).and_then(|file| read_map(file).ok()) {
            code.add_source(perf_map::parse(&text).blocks);
        }
        let mapped = session.spaces.at(process, u64::MAX).into_iter();
        let mappings = session.spaces.mappings();
        let paths = mapped.filter_map(|number| mappings.get(number).map(|m| m.path.as_str()));
        let dumps: BTreeSet<PathBuf> = (paths.filter(|path| is_dump(path)).map(PathBuf::from))
            .chain([PathBuf::from(format!("/tmp/jit-{process}.dump"))])
            .collect();
        for path in dumps {
            let read = |file| jitdump::read(&mut BufReader::new(file));
            let Some(mut dump) = self.open(&path).and_then(read) else {
                continue;
            };
            if !session.is_monotonic {
                for block in &mut dump.blocks {
                    (block.begin_ns, block.end_ns) = (0, u64::MAX);
                }
            }
            code.add_source(dump.blocks);
        }
        code
    }
}

/// Sampled instructions of a process that are in no file.
#[derive(Default)]
struct Samples {
    /// Times and addresses.
    places: Vec<(u64, u64)>,
    /// Number of those in a mapping without a file. The others are in no known mapping.
    mapped: u64,
}

/// Sampled instructions that are in no file, by process.
fn instructions(session: &Session<'_>) -> BTreeMap<u32, Samples> {
    let mut found: BTreeMap<u32, Samples> = BTreeMap::new();
    let mappings = session.spaces.mappings();
    for sample in session.memory.list.iter().filter(|s| !s.in_kernel) {
        let Some(ip) = sample.ip else { continue };
        let (process, time) = (sample.process, sample.time.unwrap_or(u64::MAX));
        let number = session.spaces.find_near(process, time, ip);
        let mapping = number.and_then(|number| mappings.get(number));
        if mapping.is_none_or(|mapping| is_generated(&mapping.path) && file_of(mapping).is_none()) {
            let samples = found.entry(process).or_default();
            samples.places.push((time, ip));
            samples.mapped += u64::from(mapping.is_some());
        }
    }
    found
}

/// True for a mapping of no file that is not the kernel's.
fn is_generated(path: &str) -> bool {
    !path.starts_with("[v")
}

fn code_names(name: &GeneratedName) -> CodeNames {
    CodeNames {
        module: GENERATED.into(),
        function: name.function.clone(),
        file: name.file.clone(),
        line: name.line,
        ..CodeNames::default()
    }
}

impl GeneratedNames {
    /// Looks up all sampled instructions of a recording, whose file is `recording`.
    pub fn read(session: &Session<'_>, recording: &Path) -> GeneratedNames {
        let mut files = NameFiles::new(session, recording);
        let mut all = GeneratedNames::default();
        for (process, found) in instructions(session) {
            let Samples { mut places, mapped } = found;
            places.sort_unstable();
            places.dedup();
            let code = files.code(session, process);
            let mut known: HashMap<&GeneratedName, Arc<CodeNames>> = HashMap::new();
            for (&(time, ip), name) in places.iter().zip(code.names_of(&places)) {
                if let Some(name) = name {
                    let names = known.entry(name).or_insert_with(|| code_names(name).into());
                    all.names.insert((process, time, ip), names.clone());
                }
            }
            all.unnamed += if code.is_empty() { mapped } else { 0 };
        }
        if all.unnamed > 0 {
            let unnamed = all.unnamed;
            all.problems.push(format!(
                "{unnamed} memory samples are in generated code without names: put the perf-PID.map or jit-PID.dump of its compiler beside the recording, and import it again"
            ));
        }
        all.problems.extend(files.refused.iter().map(|path| {
            format!(
                "{} is older than the recording or another user's, and names no code; if it is of this recording, put it beside it",
                path.display()
            )
        }));
        all
    }

    /// The names of an instruction.
    pub fn get(&self, process: u32, time: u64, ip: u64) -> Option<Arc<CodeNames>> {
        self.names.get(&(process, time, ip)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, begin: Option<SystemTime>) -> NameFiles {
        NameFiles {
            folder: folder.to_path_buf(),
            begin,
            refused: BTreeSet::new(),
        }
    }

    #[test]
    fn old_files_are_refused_unless_they_are_beside_the_recording() {
        let (recording, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = other.path().join("perf-7.map");
        std::fs::write(&path, "10 10 f\n").unwrap();
        let hour = Duration::from_secs(3600);
        let now = SystemTime::now();
        let mut of_another_machine = files(recording.path(), None);
        assert!(of_another_machine.open(&path).is_none());
        assert!(of_another_machine.refused.is_empty());
        assert!(
            files(recording.path(), Some(now - hour))
                .open(&path)
                .is_some()
        );
        let mut of_later_recording = files(recording.path(), Some(now + hour));
        assert!(of_later_recording.open(&path).is_none());
        assert!(of_later_recording.refused.contains(&path));
        std::fs::copy(&path, recording.path().join("perf-7.map")).unwrap();
        assert!(of_another_machine.open(&path).is_some());
        assert!(
            files(recording.path(), Some(now + hour))
                .open(&path)
                .is_some()
        );
    }

    #[test]
    fn machines_are_compared_by_name() {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(is_this_machine(own.trim_end()));
        assert!(!is_this_machine("") && !is_this_machine("another"));
    }
}
