//! What runs beside what is recorded: files without instrumentation, generated code, programs.
//!
//! Three sources, none of which the program notices: the recorded processes' mappings, looked at
//! now and then; in `full` and `ring` a clock that samples where they spend their time (`burst` has
//! its triggers for that); and what the runtime tells of programs that it passes through. All of it
//! is a help for reading a trace: what cannot be found out is left out.

pub(crate) mod functions;

use crate::program::modules::linked_closure;
use mgz_abi::shared_memory;
use mgz_annotations_schema::coverage::{Coverage, LoadedFile, Program};
use mgz_annotations_schema::manifest::Manifest;
use mgz_perf::clock_sampler::{Sampler, Shares};
use mgz_perf::proc_maps::{self, MapsLine};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// First and longest time between two looks at a process.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// CPU time from sample to sample, nanoseconds; no divisor of the kernel's tick.
const PERIOD_NS: u64 = 5_003_009;
/// Programs that are kept apart.
const MOST_PROGRAMS: usize = 1000;
/// In place of a path: what the recorder has put there. The time that goes there is no program's.
const OURS: &str = "[mgz]";

/// Code that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Code {
    process: u32,
    start: u64,
    end: u64,
    /// File, or the kernel's name in brackets; empty for code of no file.
    path: String,
}

struct Look {
    last: Instant,
    pause: Duration,
}

/// Collects what there is to say while a program runs.
#[derive(Default)]
pub struct Watch {
    looks: BTreeMap<u32, Look>,
    code: BTreeSet<Code>,
    generated: u64,
    programs: BTreeMap<(String, &'static str), u64>,
    sampler: Option<Sampler>,
    /// A process was looked at while it lived.
    has_looked: bool,
}

impl Watch {
    /// Also samples where the time goes, from the execution of the next program on that this thread
    /// starts. Where the kernel refuses that, nothing is known of time.
    pub fn sample_time(&mut self) {
        self.sampler = Sampler::open(PERIOD_NS).ok();
        if let Some(sampler) = &mut self.sampler {
            sampler.files_only();
        }
    }

    /// A process has loaded a module that is recorded.
    pub fn met(&mut self, pid: u32) {
        self.looks.entry(pid).or_insert_with(|| Look {
            last: Instant::now(),
            pause: FIRST_LOOK,
        });
        self.look(pid);
    }

    /// A program was executed that is not recorded; `result` says why (`shared_memory::MODULE_*`).
    pub fn program(&mut self, path: &Path, result: u32) {
        let why = match result {
            shared_memory::MODULE_PLAIN => "not instrumented",
            shared_memory::MODULE_PRIVILEGED => "privileged",
            shared_memory::MODULE_32_BIT => "32-bit",
            _ => return,
        };
        let mut key = (path.display().to_string(), why);
        if self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(&key) {
            key.0 = "others".into();
        }
        *self.programs.entry(key).or_default() += 1;
    }

    /// Whether any program was executed that was looked at in vain.
    pub fn plain_programs(&self) -> Vec<String> {
        self.programs.keys().map(|k| k.0.clone()).collect()
    }

    /// Some time has passed.
    pub fn tick(&mut self) {
        let due: Vec<u32> = self
            .looks
            .iter()
            .filter(|(_, l)| l.last.elapsed() >= l.pause)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            if let Some(look) = self.looks.get_mut(&pid) {
                look.pause = (look.pause * 2).min(LAST_LOOK);
            }
            self.look(pid);
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.drain();
        }
    }

    fn look(&mut self, pid: u32) {
        if let Some(look) = self.looks.get_mut(&pid) {
            look.last = Instant::now();
        }
        // A process that is gone shows nothing; what was seen of it stays.
        let Ok(text) = proc_maps::read(pid) else {
            return;
        };
        self.has_looked |= text.contains(" r-xp ");
        let (mut generated, mut seen) = (0, 0);
        for code in proc_maps::lines(&text).filter_map(|line| code_of(&line, pid)) {
            if code.path.is_empty() {
                generated += code.end - code.start;
            }
            seen += 1;
            // (A compiler may make and drop such memory all the time.)
            if !code.path.is_empty() || seen < 1 << 12 {
                self.code.insert(code);
            }
        }
        self.generated = self.generated.max(generated);
    }

    /// How many of the addresses lie in which file's code; `""`: in none's.
    pub fn files_of(&self, addresses: &[u64]) -> BTreeMap<String, u64> {
        let mut files = BTreeMap::new();
        for address in addresses {
            let found = self
                .code
                .iter()
                .find(|c| (c.start..c.end).contains(address))
                .map_or("", |c| c.path.as_str());
            if found != OURS {
                *files.entry(found.to_owned()).or_default() += 1;
            }
        }
        files
    }

    /// What there is to say, now that the run is over; the manifest has the modules and the counts
    /// of triggers.
    pub fn finish(self, manifest: &Manifest) -> Coverage {
        let recorded: BTreeSet<u32> = self.looks.keys().copied().collect();
        // Triggers tell of files without instrumentation alone.
        let clocked = self.sampler.is_some();
        let shares = match self.sampler {
            Some(sampler) => sampler.shares(&|pid| recorded.contains(&pid)),
            None => shares_of_triggers(manifest),
        };
        let paths: BTreeSet<&str> = self.code.iter().map(|c| c.path.as_str()).collect();
        Coverage {
            time_samples: shares.samples,
            files: files(
                manifest,
                paths,
                !self.has_looked,
                &|path, is_instrumented| shares.of(path).filter(|_| clocked || !is_instrumented),
            ),
            generated_bytes: self.generated,
            generated_samples: shares.of(""),
            programs: self
                .programs
                .into_iter()
                .map(|((path, why), times)| Program {
                    path,
                    times,
                    why: why.into(),
                })
                .collect(),
        }
    }
}

/// The same of a recording that was imported: path and bytes of all code that its processes had
/// mapped.
pub fn of_mappings<'a>(
    manifest: &'a Manifest,
    mappings: impl Iterator<Item = (&'a str, u64)>,
) -> Coverage {
    let mut paths = BTreeSet::new();
    let mut generated = 0;
    for (path, bytes) in mappings {
        if path.starts_with("//") || path.starts_with("[anon") || path.is_empty() {
            generated += bytes;
        } else {
            paths.insert(path);
        }
    }
    Coverage {
        files: files(manifest, paths, false, &|_, _| None),
        generated_bytes: generated,
        ..Coverage::default()
    }
}

/// The files among `paths`, and the instrumented ones; `unseen`: and those that these need, since
/// nothing was seen of processes that were over too soon. `samples` tells of a file how many there
/// are in it.
fn files<'a>(
    manifest: &'a Manifest,
    mut paths: BTreeSet<&'a str>,
    unseen: bool,
    samples: &dyn Fn(&str, bool) -> Option<u64>,
) -> Vec<LoadedFile> {
    let instrumented: BTreeSet<&str> = manifest.modules.iter().map(|m| m.path.as_str()).collect();
    paths.retain(|p| p.starts_with('/') && !p.starts_with("//") && !p.starts_with("/memfd:"));
    paths.extend(&instrumented);
    let needed: BTreeSet<String> = instrumented
        .iter()
        .flat_map(|path| linked_closure(Path::new(path)))
        .map(|path| path.display().to_string())
        .collect();
    let mut paths: BTreeSet<String> = paths.into_iter().map(str::to_owned).collect();
    if unseen {
        paths.extend(needed.iter().cloned());
    }
    let mut files: Vec<LoadedFile> = paths
        .into_iter()
        .map(|path| {
            let is_instrumented = instrumented.contains(path.as_str());
            LoadedFile {
                instrumented: is_instrumented,
                needed: needed.contains(&path),
                samples: samples(&path, is_instrumented),
                path,
                reads_for: Vec::new(),
            }
        })
        .collect();
    functions::enter(&mut files);
    files
}

/// `burst`: triggers by CPU time say where that went. The files of those that came where no window
/// can begin are known of the last ones.
fn shares_of_triggers(manifest: &Manifest) -> Shares {
    let t = &manifest.totals;
    let of = |what: &str| t.triggers.get(what).copied().unwrap_or(0);
    let (came, outside) = (of("came"), of("outside"));
    let known: u64 = t.outside.values().sum();
    let mut shares = Shares {
        samples: came,
        ..Shares::default()
    };
    if known > 0 {
        let weight = outside as f64 / known as f64;
        for (path, n) in &t.outside {
            let samples = (*n as f64 * weight).round() as u64;
            shares.by_file.insert(path.clone(), samples);
        }
    }
    shares
}

/// Executable memory in the list of a process's mappings.
fn code_of(line: &MapsLine, process: u32) -> Option<Code> {
    // Memory with a name that somebody has given it is code of no file all the same.
    let path = match line.name {
        p if p.starts_with("/memfd:mgz-") => OURS,
        p if p.starts_with("[anon") || p.starts_with("/memfd:") || p.starts_with("//") => "",
        p => p.strip_suffix(" (deleted)").unwrap_or(p),
    };
    (line.is_executable() && path != "[vsyscall]").then(|| Code {
        process,
        start: line.start,
        end: line.end,
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_from_the_kernels_lines() {
        let code =
            |line: &str| code_of(&MapsLine::parse(line)?, 7).map(|c| (c.start, c.end, c.path));
        let libc = "7f00-8f00 r-xp 00026000 fe:01 5181 /usr/lib/libc.so.6";
        assert_eq!(
            code(libc),
            Some((0x7f00, 0x8f00, "/usr/lib/libc.so.6".into()))
        );
        assert_eq!(
            code("1000-2000 rwxp 00000000 00:00 0 "),
            Some((0x1000, 0x2000, String::new()))
        );
        assert_eq!(
            code("1000-2000 r-xp 00000000 00:00 0 [anon:v8]"),
            Some((0x1000, 0x2000, String::new()))
        );
        assert_eq!(
            code("1000-2000 r-xp 00000000 00:01 9 /memfd:mgz-runtime (deleted)"),
            Some((0x1000, 0x2000, OURS.into()))
        );
        for other in [
            "1000-2000 rw-p 00000000 00:00 0 [heap]",
            "f000-ff00 --xp 00000000 00:00 0 [vsyscall]",
            "nonsense",
            "",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }

    #[test]
    fn triggers_are_shares_of_the_time() {
        let mut m = Manifest::default();
        m.totals.triggers = [("came".to_owned(), 1000), ("outside".to_owned(), 500)].into();
        m.totals.outside = [(String::new(), 128), ("/lib/libz.so".to_owned(), 128)].into();
        let shares = shares_of_triggers(&m);
        assert_eq!(
            (
                shares.of(""),
                shares.of("/lib/libz.so"),
                shares.of("/bin/app")
            ),
            (Some(250), Some(250), Some(0))
        );
        assert_eq!(shares_of_triggers(&Manifest::default()).of(""), None);
    }
}
