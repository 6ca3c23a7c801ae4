//! Code that runs but is not recorded: files without instrumentation, generated code, programs.
//!
//! There are three sources, and the program notices none of them. The first is the mappings of the
//! recorded processes, which are read now and then. The second is a clock in `full` and `ring` that
//! samples the code that the processes run (`burst` has its triggers for that). The third is the
//! runtime's report of executed programs. All of it only helps to read a trace, so unknown facts
//! are left out.

mod code;
mod code_index;
pub(crate) mod functions;
pub(crate) mod generated;

use self::code_index::CodeIndex;
use self::generated::FunctionTimes;
use crate::program::linked_files::linked_closure;
use crate::soft::shared_memory::Outside;
use crate::trace::coverage::code::Code;
use crate::util::clock::monotonic_ns;
use mgz_abi::shared_memory;
use mgz_annotations_schema::NotRecorded;
use mgz_annotations_schema::coverage::{Coverage, GeneratedFunction, LoadedFile, Program};
use mgz_annotations_schema::manifest::Manifest;
use mgz_elf::library_search::Search;
use mgz_generated_code::watch::{GeneratedCodeWatch, NamedProcesses};
use mgz_perf::clock_sampler::{Sampler, Shares};
use mgz_perf::code_samples::CodeSample;
use mgz_perf::proc_maps::{self, MapsLine};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// First and longest time between two looks at a process.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// CPU time between samples, nanoseconds; no divisor of the kernel's tick.
const PERIOD_NS: u64 = 5_003_009;
/// Maximum number of programs listed separately.
const MAX_PROGRAMS: usize = 1000;
/// Name for code of the recorder. The time spent there does not count as the program's.
const OURS: &str = "[mgz]";

struct Look {
    last: Instant,
    pause: Duration,
    /// True if the process was looked at while it lived.
    seen: bool,
}

/// Collects facts about coverage while a program runs.
#[derive(Default)]
pub struct CoverageWatch {
    looks: BTreeMap<u32, Look>,
    code: BTreeSet<Code>,
    generated: u64,
    programs: BTreeMap<(String, NotRecorded), u64>,
    sampler: Option<Sampler>,
    /// `burst`: times of triggers.
    times: TriggerTimes,
    generated_code: GeneratedCodeWatch,
    /// The names of generated code, once they were read.
    names: Option<NamedProcesses>,
}

/// Times by trigger periods, since triggers come more often in the first half second of a run.
#[derive(Default)]
struct TriggerTimes {
    /// Time of all triggers.
    all: u64,
    /// Time of triggers where no window can begin.
    outside: u64,
    /// Time of seen triggers outside, by file.
    seen: BTreeMap<String, u64>,
    /// Time of seen triggers outside, by function of generated code.
    functions: FunctionTimes,
}

impl CoverageWatch {
    /// Also samples the time by code, from the next program on that this thread executes. If the
    /// kernel refuses that, times are unknown.
    pub fn sample_time(&mut self) {
        self.sampler = Sampler::open(PERIOD_NS).ok();
        if let Some(sampler) = &mut self.sampler {
            sampler.files_only();
        }
    }

    /// A process has loaded a recorded module.
    pub fn met(&mut self, pid: u32) {
        self.looks.entry(pid).or_insert_with(|| Look {
            last: Instant::now(),
            pause: FIRST_LOOK,
            seen: false,
        });
        self.look(pid);
    }

    /// A program was executed that is not recorded; `result` is the reason
    /// (`shared_memory::MODULE_*`).
    pub fn program(&mut self, path: &Path, result: u32) {
        let why = match result {
            shared_memory::MODULE_PLAIN => NotRecorded::Plain,
            shared_memory::MODULE_PRIVILEGED => NotRecorded::Privileged,
            shared_memory::MODULE_32_BIT => NotRecorded::Bits32,
            _ => return,
        };
        let mut key = (path.display().to_string(), why);
        if self.programs.len() >= MAX_PROGRAMS && !self.programs.contains_key(&key) {
            key.0 = "others".into();
        }
        *self.programs.entry(key).or_default() += 1;
    }

    /// Paths of the programs that were executed but not recorded.
    pub fn plain_programs(&self) -> Vec<String> {
        self.programs.keys().map(|k| k.0.clone()).collect()
    }

    /// Called at intervals: looks at the processes that are due.
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
        // The mappings of a process that is gone cannot be read; the code seen in it stays.
        let Ok(text) = proc_maps::read_process_maps(pid) else {
            return;
        };
        if let Some(look) = self.looks.get_mut(&pid) {
            look.seen |= text.contains(" r-xp ");
        }
        self.generated_code.look(pid, &text, monotonic_ns());
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

    /// The names of generated code, read once, after the processes that write the files or the
    /// recording have ended.
    fn names(&mut self) -> &NamedProcesses {
        let watch = &mut self.generated_code;
        self.names
            .get_or_insert_with(|| std::mem::take(watch).finish())
    }

    /// Adds the triggers in code without a clone. Returns the number of those seen in each file.
    pub fn place_outside(&mut self, outside: &Outside) -> BTreeMap<String, u64> {
        let samples = outside.seen.list();
        let (files, functions) = self.files_of(samples);
        self.times = TriggerTimes {
            all: outside.periods,
            outside: outside.periods_outside,
            seen: files.iter().map(|(f, n)| (f.clone(), n.1)).collect(),
            functions,
        };
        files.into_iter().map(|(file, n)| (file, n.0)).collect()
    }

    /// Number of triggers in each file's code, and the sum of their periods. The key `""` counts
    /// addresses in no file; code with a name is also counted by function. If a process ended
    /// before its mappings were read, an unknown address without a name may be in a file, and is
    /// left out.
    fn files_of(
        &mut self,
        triggers: &[CodeSample],
    ) -> (BTreeMap<String, (u64, u64)>, FunctionTimes) {
        self.names();
        let names = self.names.as_ref();
        let mut files: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut functions = FunctionTimes::default();
        let all_seen = self.looks.values().all(|look| look.seen);
        let is_seen = |process| match self.looks.get(&process) {
            Some(look) => look.seen,
            None => all_seen,
        };
        let index = CodeIndex::new(&self.code);
        let mut count = |path: &str, trigger: &CodeSample| {
            let file = files.entry(path.to_owned()).or_default();
            *file = (file.0 + 1, file.1 + trigger.weight);
        };
        let (mut unknown, mut generated) = (Vec::new(), Vec::new());
        for trigger in triggers {
            match index.path(trigger.process, trigger.address) {
                Some(OURS) => {}
                Some("") => generated.push(*trigger),
                Some(path) => count(path, trigger),
                None if is_seen(trigger.process) => generated.push(*trigger),
                None => unknown.push(*trigger),
            }
        }
        generated.iter().for_each(|trigger| count("", trigger));
        if let Some(names) = names {
            functions.add(&generated, names);
            let named = functions.add(&unknown, names);
            named.iter().for_each(|trigger| count("", trigger));
        }
        (files, functions)
    }

    /// The final result, once the run is over. The manifest gives the modules and the counts of
    /// triggers. Beside it are the names of generated code.
    pub fn finish(mut self, manifest: &Manifest) -> (Coverage, NamedProcesses) {
        self.names();
        let names = self.names.take().unwrap_or_default();
        let recorded: BTreeSet<u32> = self.looks.keys().copied().collect();
        // Triggers concern only files without instrumentation.
        let clocked = self.sampler.is_some();
        let (shares, functions) = match self.sampler {
            Some(sampler) => {
                shares_of_clock(sampler.shares(&|pid| recorded.contains(&pid)), &names)
            }
            None => {
                let shares = shares_of_triggers(manifest, &self.times);
                let time = self.times.seen.get("").copied().unwrap_or(0);
                let samples = shares.of("").unwrap_or(0) as f64;
                let functions = self.times.functions.functions(samples / time.max(1) as f64);
                (shares, functions)
            }
        };
        let paths: BTreeSet<&str> = self.code.iter().map(|c| c.path.as_str()).collect();
        let is_all_named =
            functions.iter().map(|f| f.samples).sum::<u64>() >= shares.of("").unwrap_or(0);
        let commands = names.commands.iter().filter(|_| !is_all_named);
        let mut coverage = Coverage {
            time_samples: shares.samples,
            naming_commands: commands.map(|c| (*c).to_owned()).collect(),
            files: files(
                manifest,
                paths,
                !self.looks.values().any(|look| look.seen),
                &|path, is_instrumented| shares.of(path).filter(|_| clocked || !is_instrumented),
            ),
            generated_bytes: self.generated,
            generated_samples: shares.of(""),
            programs: self
                .programs
                .into_iter()
                .map(|((path, why), times)| Program { path, times, why })
                .collect(),
            ..Coverage::default()
        };
        coverage.set_functions(functions);
        (coverage, names)
    }
}

/// Shares by the clock, and functions of generated code. A sample outside of known mappings is in
/// generated code if that has a name.
pub(crate) fn shares_of_clock(
    mut shares: Shares,
    names: &NamedProcesses,
) -> (Shares, Vec<GeneratedFunction>) {
    let mut functions = FunctionTimes::default();
    let named = functions.add(shares.unnamed.list(), names);
    let is_elsewhere = |sample: &&CodeSample| !sample.in_mapping;
    let found = named.iter().filter(is_elsewhere).count() as u64 * shares.unnamed.stride();
    if found > 0 {
        *shares.by_file.entry(String::new()).or_default() += found;
        shares.unknown = shares.unknown.saturating_sub(found);
    }
    let functions = functions.functions(shares.unnamed.stride() as f64);
    (shares, functions)
}

/// The coverage of an imported recording, from path and size of all code that its processes had
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

/// The files among `paths`, and the instrumented ones. `unseen`: also the files that these need,
/// since some processes ended before any look. `samples` gives the number of samples in a file.
fn files<'a>(
    manifest: &'a Manifest,
    mut paths: BTreeSet<&'a str>,
    unseen: bool,
    samples: &dyn Fn(&str, bool) -> Option<u64>,
) -> Vec<LoadedFile> {
    let instrumented: BTreeSet<&str> = manifest.modules.iter().map(|m| m.path.as_str()).collect();
    paths.retain(|p| p.starts_with('/') && !p.starts_with("//") && !p.starts_with("/memfd:"));
    paths.extend(&instrumented);
    let needed: BTreeSet<String> = rewritten(&instrumented)
        .into_iter()
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
                opened_by_name: false,
                samples: samples(&path, is_instrumented),
                path,
                reads_for: Vec::new(),
            }
        })
        .collect();
    functions::enter_functions(&mut files);
    find_by_name(&mut files);
    files
}

/// The files whose libraries `mgz-instrument --libs` finds: instrumented programs, or libraries if the
/// program is not instrumented. Modules that a program opens are instrumented by themselves.
fn rewritten<'a>(instrumented: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let is_program = |path: &&&str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        !name.ends_with(".so") && !name.contains(".so.")
    };
    let programs: Vec<&str> = instrumented.iter().filter(is_program).copied().collect();
    match programs.is_empty() {
        true => instrumented.iter().copied().collect(),
        false => programs,
    }
}

/// Marks the files that are of interest, and that an instrumented file opens by name.
fn find_by_name(files: &mut [LoadedFile]) {
    let search = Search::from_environment();
    let instrumented = files.iter().filter(|f| f.instrumented);
    let openers: Vec<PathBuf> = instrumented.map(|f| PathBuf::from(&f.path)).collect();
    let is_of_interest = |f: &&mut LoadedFile| {
        let is_missed = f.samples.is_some_and(|n| n > 0) || !f.reads_for.is_empty();
        !f.instrumented && !f.needed && is_missed
    };
    for file in files.iter_mut().filter(is_of_interest) {
        let is_found = |by: &PathBuf| search.openable(Path::new(&file.path), by).is_some();
        file.opened_by_name = openers.iter().any(is_found);
    }
}

/// `burst`: shares of the time by triggers by CPU time. Triggers where no window can begin are
/// distributed over files like those that were seen.
fn shares_of_triggers(manifest: &Manifest, times: &TriggerTimes) -> Shares {
    let t = &manifest.totals;
    let of = |what: &str| t.triggers.get(what).copied().unwrap_or(0);
    let (came, outside) = (of("came"), of("outside"));
    let known: u64 = t.outside.values().sum();
    if known == 0 && outside > 0 {
        return Shares::default();
    }
    let mut shares = Shares {
        samples: came,
        ..Shares::default()
    };
    let known_time: u64 = times.seen.values().sum();
    if times.all > 0 && known_time > 0 {
        let weight = times.outside as f64 / times.all as f64 * came as f64 / known_time as f64;
        for (path, time) in &times.seen {
            let samples = (*time as f64 * weight).round() as u64;
            shares.by_file.insert(path.clone(), samples);
        }
    } else if known > 0 {
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
    // Memory that the program has named still counts as code of no file.
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
    fn libraries_are_those_of_the_program_if_it_is_instrumented() {
        let module = "/c/core.cpython-311.so";
        let of = |paths: &[&'static str]| rewritten(&paths.iter().copied().collect());
        assert_eq!(of(&["/c/python.soft", module]), ["/c/python.soft"]);
        assert_eq!(of(&[module]), [module]);
    }

    #[test]
    fn addresses_of_a_process_that_nobody_looked_at_are_unknown() {
        let mut watch = CoverageWatch::default();
        let libc = Code {
            process: 1,
            start: 0x1000,
            end: 0x2000,
            path: "/lib/libc.so.6".into(),
        };
        watch.code.insert(libc);
        let look = |seen| Look {
            last: Instant::now(),
            pause: FIRST_LOOK,
            seen,
        };
        watch.looks = [(1, look(true))].into();
        let both = [("", (1, 3)), ("/lib/libc.so.6", (2, 12))];
        let both = both.map(|(file, n)| (file.to_owned(), n));
        let trigger = |process, (address, weight)| CodeSample {
            process,
            address,
            weight,
            ..CodeSample::default()
        };
        let places = [(0x1000, 5), (0x9000, 3), (0x1fff, 7)];
        let triggers = places.map(|place| trigger(1, place));
        assert_eq!(watch.files_of(&triggers).0, both.clone().into());
        // A child has its parent's code.
        let triggers = places.map(|place| trigger(3, place));
        assert_eq!(watch.files_of(&triggers).0, both.clone().into());
        watch.looks.insert(2, look(false));
        assert_eq!(watch.files_of(&triggers).0, [both[1].clone()].into());
        let mut m = Manifest::default();
        m.totals.triggers = [("came".to_owned(), 20), ("outside".to_owned(), 20)].into();
        let times = TriggerTimes::default();
        assert_eq!(shares_of_triggers(&m, &times).of("/lib/libc.so.6"), None);
    }

    #[test]
    fn triggers_are_shares_of_the_time() {
        let mut m = Manifest::default();
        m.totals.triggers = [("came".to_owned(), 1000), ("outside".to_owned(), 500)].into();
        m.totals.outside = [(String::new(), 128), ("/lib/libz.so".to_owned(), 128)].into();
        let shares = shares_of_triggers(&m, &TriggerTimes::default());
        assert_eq!(
            (
                shares.of(""),
                shares.of("/lib/libz.so"),
                shares.of("/bin/app")
            ),
            (Some(250), Some(250), Some(0))
        );
        let none = TriggerTimes::default();
        assert_eq!(shares_of_triggers(&Manifest::default(), &none).of(""), None);
        // The triggers outside came in the first, dense part: 5 % of the time.
        let times = TriggerTimes {
            all: 4000,
            outside: 200,
            seen: [(String::new(), 50), ("/lib/libz.so".to_owned(), 150)].into(),
            ..TriggerTimes::default()
        };
        let shares = shares_of_triggers(&m, &times);
        assert_eq!(
            (shares.samples, shares.of(""), shares.of("/lib/libz.so")),
            (1000, Some(13), Some(38))
        );
    }
}
