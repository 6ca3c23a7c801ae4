//! Code that ran, and the part of it that was recorded: as numbers in the manifest, and as
//! sentences that recorder and analyzer share.
//!
//! A correct trace may still mislead because code is missing from it: libraries, code generated at
//! run time, programs without instrumentation. This is not a failure of the recording, so it is not
//! in [`Manifest::problems`], but it is reported.

mod generated;

pub use generated::GeneratedFunction;

use crate::NotRecorded;
use crate::manifest::Manifest;
use serde::{Deserialize, Serialize};

/// Code that ran, and the part of it that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Coverage {
    /// Number of samples of the recorded processes' CPU time in user space: triggers in `burst`,
    /// those of a clock in `full` and `ring`.
    pub time_samples: u64,
    /// Files whose code was mapped into recorded processes.
    pub files: Vec<LoadedFile>,
    /// Bytes of code outside of files, generated at run time: the largest amount seen in one
    /// process.
    pub generated_bytes: u64,
    /// Part of `time_samples` in such code; absent if there are none.
    pub generated_samples: Option<u64>,
    /// Functions of such code that the compiler has named, those with most samples first.
    pub generated_functions: Vec<GeneratedFunction>,
    /// Commands or variables that would make the compilers name the rest.
    pub naming_commands: Vec<String>,
    /// Programs that were executed but not recorded.
    pub programs: Vec<Program>,
}

impl Coverage {
    fn share(&self, samples: Option<u64>) -> Option<f64> {
        samples
            .filter(|_| self.time_samples > 0)
            .map(|n| n as f64 / self.time_samples as f64)
    }

    /// Share of the time in a file's code, if that is known.
    pub fn share_of(&self, file: &LoadedFile) -> Option<f64> {
        self.share(file.samples)
    }

    /// Share of the time in code outside of files, if that is known.
    pub fn generated_share(&self) -> Option<f64> {
        self.share(self.generated_samples)
    }

    /// Share of the time in recorded code; `None` if there are too few samples.
    pub fn recorded_share(&self) -> Option<f64> {
        let rest: f64 = self.unrecorded().iter().map(|(_, share)| share).sum();
        let is_known = self.files.iter().any(|f| f.samples.is_some());
        (is_known && self.time_samples >= MIN_LOOKS).then(|| (1.0 - rest).max(0.0))
    }

    /// Code that is not recorded, by the short name of its file, with its share of the time; the
    /// greatest share first.
    pub fn unrecorded(&self) -> Vec<(String, f64)> {
        let files = self.files.iter().filter(|f| !f.instrumented);
        let mut all: Vec<(String, f64)> = files
            .filter_map(|f| Some((stem(&f.path).to_owned(), self.share_of(f)?)))
            .collect();
        let generated = self.generated_share();
        all.extend(generated.map(|share| ("code generated at run time".to_owned(), share)));
        all.retain(|(_, share)| *share > 0.0);
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    /// Adds the coverage of another trace.
    pub fn add(&mut self, other: Coverage) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        self.time_samples += other.time_samples;
        self.generated_bytes = self.generated_bytes.max(other.generated_bytes);
        self.generated_samples = sum(self.generated_samples, other.generated_samples);
        generated::add(
            (&mut self.generated_functions, &mut self.naming_commands),
            (other.generated_functions, other.naming_commands),
        );
        for file in other.files {
            match self.files.iter_mut().find(|f| f.path == file.path) {
                Some(known) => {
                    known.instrumented |= file.instrumented;
                    known.needed |= file.needed;
                    known.opened_by_name |= file.opened_by_name;
                    known.samples = sum(known.samples, file.samples);
                    known.reads_for.extend(file.reads_for);
                    known.reads_for.sort();
                    known.reads_for.dedup();
                }
                None => self.files.push(file),
            }
        }
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        for program in other.programs {
            let same = |p: &&mut Program| p.path == program.path && p.why == program.why;
            match self.programs.iter_mut().find(same) {
                Some(known) => known.times += program.times,
                None => self.programs.push(program),
            }
        }
        self.programs
            .sort_by(|a, b| (&a.path, &a.why).cmp(&(&b.path, &b.why)));
    }
}

/// A file with code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadedFile {
    /// Its path.
    pub path: String,
    /// True if its loads are recorded.
    pub instrumented: bool,
    /// True if an instrumented file names it as a needed library, so `mgz-instrument --libs` finds
    /// it.
    pub needed: bool,
    /// True if no file needs it but one opens it by name, so `mgz-instrument --libs` accepts its
    /// path.
    pub opened_by_name: bool,
    /// Part of `time_samples` in its code; absent if there are none.
    pub samples: Option<u64>,
    /// Functions in it, if it is not instrumented, that read memory for instrumented files:
    /// `memcpy`, `strlen`, …
    pub reads_for: Vec<String>,
}

impl LoadedFile {
    /// True if `mgz-instrument --libs` can include the file.
    fn is_taken_in(&self) -> bool {
        self.needed || self.opened_by_name
    }

    /// The argument of `--libs` for the file.
    fn as_option(&self) -> String {
        match self.needed {
            true => library(&self.path),
            false => self.path.clone(),
        }
    }
}

/// A program that was executed but not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// Its path.
    pub path: String,
    /// Number of times.
    pub times: u64,
    /// `not instrumented`, `privileged` or `32-bit`; the loader does not load the runtime into the
    /// last two, nor into the programs that they start.
    pub why: NotRecorded,
}

/// Smaller shares are not reported. Source: Chosen.
const MIN_SHARE: f64 = 0.05;
/// A library with a smaller share of the time is not worth recording. Source: Chosen.
const MIN_LIBRARY_SHARE: f64 = 0.02;
/// With fewer samples, shares are unknown. Source: Chosen.
const MIN_LOOKS: u64 = 20;
/// Maximum number of files, functions and programs named in a sentence. Source: Chosen.
const MAX_NAMED: usize = 4;
/// Smaller amounts of generated code are not reported if its share of the time is unknown, bytes.
/// Source: Chosen.
const MIN_GENERATED_CODE_BYTES: u64 = 256 << 10;

/// A file's name without its folders.
fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A file's name without its folders and, of a library, without its version.
fn stem(path: &str) -> &str {
    let name = short(path);
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

/// True if threads spend their time in a library mostly waiting for others, so that its loads are
/// irrelevant.
fn is_for_waiting(path: &str) -> bool {
    const STEMS: [&str; 4] = ["libgomp", "libomp", "libiomp5", "libpthread"];
    STEMS.contains(&stem(path))
}

/// Argument for `--libs`: the name of the library as the program needs it, or its part without a
/// version.
fn library(path: &str) -> String {
    let name = short(path);
    match name.split_once(".so.") {
        Some((_, version)) if version.parse::<u32>().is_ok() => name.to_owned(),
        Some((stem, _)) => stem.to_owned(),
        None => name.strip_suffix(".so").unwrap_or(name).to_owned(),
    }
}

/// Arguments of `--libs` for the libraries that are already instrumented, since it includes only
/// the libraries that it names. Their files have the names by which they are requested, in the folder
/// `PROGRAM.libs`. Libraries of modules that the program opens are not among them.
fn taken<'a>(instrumented: impl Iterator<Item = &'a str>) -> Vec<String> {
    let all: Vec<&str> = instrumented.collect();
    let is_taken = |path: &&&str| {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let of = folder.strip_suffix(".libs");
        is_library(path) && of.is_some_and(|of| !is_library(of) && all.contains(&of))
    };
    let taken = all.iter().filter(is_taken);
    taken.map(|path| short(path).to_owned()).collect()
}

/// Code that the trace lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// The code and its remedy; a sentence without a full stop.
    pub text: String,
    /// The arguments of `--libs` that would include it; empty if there are none.
    pub libraries: Vec<String>,
    /// True for code of libraries that read or copy for the program.
    pub is_reads_for_program: bool,
}

impl From<String> for Lack {
    fn from(text: String) -> Lack {
        Lack {
            text,
            ..Lack::default()
        }
    }
}

/// A lack of these files, with the remedy that includes them in the recording.
fn lack_of(mut text: String, files: &[&LoadedFile], coverage: &Coverage) -> Lack {
    let names = |taken_in| {
        files
            .iter()
            .filter(|f| f.is_taken_in() == taken_in && is_library(&f.path))
            .take(MAX_NAMED)
            .collect::<Vec<_>>()
    };
    let mut libraries = Vec::new();
    let needed: Vec<String> = names(true)
        .iter()
        .filter(|f| !is_sanitizer(&f.path) && !is_for_waiting(&f.path))
        .map(|f| f.as_option())
        .collect();
    if !needed.is_empty() {
        let instrumented = coverage.files.iter().filter(|f| f.instrumented);
        libraries = taken(instrumented.map(|f| f.path.as_str()));
        libraries.extend(needed);
        text.push_str(&format!("; `--libs={}` records them", libraries.join(",")));
    }
    if let Some(waiting) = files.iter().find(|f| is_for_waiting(&f.path)) {
        text.push_str(&format!(
            "; in {} threads mostly wait for each other",
            short(&waiting.path)
        ));
    }
    if let Some(checker) = files.iter().find(|f| is_sanitizer(&f.path)) {
        text.push_str(&format!(
            "; {} is a sanitizer's runtime, which is never instrumented: build the program without -fsanitize to see what the C library does in its place",
            short(&checker.path)
        ));
    }
    if let Some(opened) = names(false).first() {
        text.push_str(&opened_by_itself(&opened.path));
    }
    Lack {
        text,
        libraries,
        ..Lack::default()
    }
}

/// The remedy for a file that the program opens by its path.
fn opened_by_itself(path: &str) -> String {
    format!(
        "; {} is opened by the program itself: instrument it by itself and let the program open that",
        short(path)
    )
}

/// True if a file is the runtime of a sanitizer.
fn is_sanitizer(path: &str) -> bool {
    const STEMS: [&str; 6] = [
        "libasan.so",
        "libtsan.so",
        "liblsan.so",
        "libubsan.so",
        "libhwasan.so",
        "libclang_rt.",
    ];
    STEMS.iter().any(|stem| short(path).starts_with(stem))
}

fn is_library(path: &str) -> bool {
    let name = short(path);
    (name.ends_with(".so") || name.contains(".so.")) && !name.starts_with("ld-")
}

fn list(names: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = names.into_iter().collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    let mut text = all[..all.len().min(MAX_NAMED)].join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// Code that the trace lacks, the most important first.
pub fn lacks(manifest: &Manifest) -> Vec<Lack> {
    let coverage = &manifest.coverage;
    let mut all: Vec<Lack> = outside(manifest).into_iter().collect();
    if all.is_empty() {
        all.extend(time_elsewhere(coverage));
    }
    let in_generated = generated(coverage).map(Lack::from);
    // The greatest part comes first.
    match coverage.generated_share() {
        Some(share) if share > 0.5 => all.splice(0..0, in_generated).for_each(drop),
        _ => all.extend(in_generated),
    }
    all.extend(reading_functions(coverage));
    all.extend(programs(coverage).map(Lack::from));
    all.extend(not_instrumented(manifest).map(Lack::from));
    all
}

/// The libraries of the first lack that has a remedy by libraries.
pub fn missing_libraries(lacks: &[Lack]) -> &[String] {
    lacks
        .iter()
        .map(|lack| &lack.libraries[..])
        .find(|libraries| !libraries.is_empty())
        .unwrap_or_default()
}

/// Arguments of `--libs` for libraries that the next run should record as well, with their shares
/// of the time. The C library is never among them, nor is a library in which threads may only have
/// waited for others.
pub fn worth_taking_in(manifest: &Manifest) -> Vec<(String, f64)> {
    /// Source: Chosen.
    const MIN_LIBRARY_LOOKS: u64 = 2;
    let coverage = &manifest.coverage;
    if coverage.time_samples < MIN_LOOKS {
        return Vec::new();
    }
    let alone = manifest.threads.len() == 1;
    coverage
        .files
        .iter()
        .filter(|f| !f.instrumented && f.is_taken_in() && is_library(&f.path))
        .filter(|f| !is_c_library(&f.path) && !is_sanitizer(&f.path))
        .filter(|f| alone || !is_for_waiting(&f.path))
        .filter(|f| f.samples.is_some_and(|n| n >= MIN_LIBRARY_LOOKS))
        .filter_map(|f| Some((f.as_option(), coverage.share_of(f)?)))
        .filter(|(_, share)| *share >= MIN_LIBRARY_SHARE)
        .collect()
}

/// True if a file is the C library or one of the libraries into which older versions were split.
fn is_c_library(path: &str) -> bool {
    const STEMS: [&str; 5] = ["libc", "libc.musl-x86_64", "libpthread", "libdl", "librt"];
    STEMS.contains(&stem(path))
}

/// The sentences of [`lacks`].
pub fn sentences(manifest: &Manifest) -> Vec<String> {
    lacks(manifest).into_iter().map(|lack| lack.text).collect()
}

/// A sentence for each code that is missing from the trace and has no known share of the time. It
/// is for a screen that shows the shares as numbers.
pub fn without_share(manifest: &Manifest) -> Vec<String> {
    let coverage = &manifest.coverage;
    let generated = match coverage.generated_share() {
        Some(_) if coverage.time_samples >= MIN_LOOKS => None,
        _ => generated(coverage),
    };
    generated.into_iter().chain(programs(coverage)).collect()
}

/// Code of instrumented files that is not instrumented. (Linkage tables are not mentioned, since
/// all files have them: see the documentation.)
fn not_instrumented(manifest: &Manifest) -> Option<String> {
    let count = |n: u64, one: &str, many: &str| match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    };
    let mut said: Vec<String> = Vec::new();
    for module in &manifest.modules {
        let n = &module.not_instrumented;
        let parts: Vec<String> = [
            count(n.functions, "function", "functions"),
            count(
                n.stray_bytes,
                "byte in no known function",
                "bytes in no known function",
            ),
            count(
                n.before_start,
                "function that the loader calls before recording begins",
                "functions that the loader calls before recording begins",
            ),
            count(
                // In the other modes a window can begin in the clone at any point, so late entries
                // do not matter.
                n.entered_late * u64::from(manifest.mode != crate::TraceMode::Burst),
                "function where calls from other code execute loads before the first entry jump",
                "functions where calls from other code execute loads before the first entry jump",
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        let text = format!("{} of {}", parts.join(", "), short(&module.path));
        if !parts.is_empty() && !said.contains(&text) {
            said.push(text);
        }
    }
    (!said.is_empty()).then(|| {
        format!(
            "code of instrumented files whose loads are neither recorded nor counted: {}",
            list(said)
        )
    })
}

/// Files without instrumentation with a large share of the time.
fn time_elsewhere(coverage: &Coverage) -> Option<Lack> {
    if coverage.time_samples < MIN_LOOKS {
        return None;
    }
    let share = |f: &LoadedFile| coverage.share_of(f).unwrap_or(0.0);
    let mut files: Vec<&LoadedFile> = coverage
        .files
        .iter()
        .filter(|f| !f.instrumented && share(f) > 0.0)
        .collect();
    files.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.path.cmp(&b.path)));
    let all: f64 = files.iter().map(|f| share(f)).sum();
    if all < MIN_SHARE {
        return None;
    }
    files.retain(|f| share(f) >= MIN_SHARE / 5.0);
    let named = files
        .iter()
        .map(|f| format!("{} {}", short(&f.path), percent(share(f))));
    let text = format!(
        "{} of the time was in files that are not instrumented ({}), whose loads are not in this trace",
        percent(all),
        list(named)
    );
    files.retain(|f| share(f) >= MIN_SHARE);
    Some(lack_of(text, &files, coverage))
}

fn generated(coverage: &Coverage) -> Option<String> {
    let size = mebibytes(coverage.generated_bytes);
    const REMEDY: &str =
        "`mgz-record --mode watch` samples the reuses of any code, without instrumentation";
    match coverage
        .generated_share()
        .filter(|_| coverage.time_samples >= MIN_LOOKS)
    {
        Some(share) if share >= MIN_SHARE => Some(format!(
            "{} of the time was in code of no file{size}, generated at run time (a just-in-time compiler, say): its loads are not in this trace{}; {REMEDY}",
            percent(share),
            coverage.names_of_generated()
        )),
        None if coverage.generated_bytes >= MIN_GENERATED_CODE_BYTES => Some(format!(
            "a process has code of no file{size}, generated at run time (a just-in-time compiler, say): its loads are not in this trace; {REMEDY}"
        )),
        _ => None,
    }
}

fn mebibytes(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        1..0x10_0000 => format!(" ({} KiB)", bytes.div_ceil(1024)),
        _ => format!(" ({:.1} MiB)", bytes as f64 / f64::from(1 << 20)),
    }
}

fn reading_functions(coverage: &Coverage) -> Option<Lack> {
    let files: Vec<&LoadedFile> = coverage
        .files
        .iter()
        .filter(|f| !f.instrumented && !f.reads_for.is_empty())
        // Code with a negligible share of the time reads little.
        .filter(|f| {
            coverage.time_samples < MIN_LOOKS
                || coverage.share_of(f).is_none_or(|s| s >= MIN_LIBRARY_SHARE)
        })
        .collect();
    if files.is_empty() {
        return None;
    }
    let functions = files.iter().flat_map(|f| f.reads_for.iter().cloned());
    let names: Vec<&str> = files.iter().map(|f| short(&f.path)).collect();
    let text = format!(
        "data that the program lets {} read and copy ({}) are not in this trace",
        names.join(", "),
        list(functions)
    );
    Some(Lack {
        is_reads_for_program: true,
        ..lack_of(text, &files, coverage)
    })
}

fn programs(coverage: &Coverage) -> Option<String> {
    let times = |p: &Program| match p.times {
        0 | 1 => String::new(),
        n => format!(" ({n} times)"),
    };
    let of = |why: NotRecorded| {
        let mut some: Vec<&Program> = coverage.programs.iter().filter(|p| p.why == why).collect();
        some.sort_by_key(|p| (std::cmp::Reverse(p.times), &p.path));
        (!some.is_empty()).then(|| list(some.iter().map(|p| format!("{}{}", p.path, times(p)))))
    };
    let parts = [
        of(NotRecorded::Plain).map(|names| format!("without instrumentation: {names}")),
        of(NotRecorded::Privileged)
            .map(|names| format!("nor what they start, since they gain rights: {names}")),
        of(NotRecorded::Bits32)
            .map(|names| format!("nor what they start, since they are 32-bit: {names}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "programs that ran and were not recorded, {}",
            parts.join("; ")
        )
    })
}

/// `burst`: the code that the program executed instead, if at most triggers no window could begin.
fn outside(manifest: &Manifest) -> Option<Lack> {
    /// With fewer triggers nothing is reported. Source: Chosen.
    const MIN_TRIGGERS: u64 = 10;
    /// Source: Chosen.
    const MAX_NAMED_FILES: usize = 3;
    let t = &manifest.totals;
    let of = |what| t.triggers.get(what).copied().unwrap_or(0);
    let (came, outside, known) = (of("came"), of("outside"), t.outside.values().sum::<u64>());
    // Triggers are more frequent at the start of a run than later, so times are the better measure.
    let part = match manifest.coverage.recorded_share() {
        Some(share) => 1.0 - share,
        None => outside as f64 / came.max(1) as f64,
    };
    if came < MIN_TRIGGERS || outside == 0 || part <= 0.5 {
        return None;
    }
    let mut text = format!(
        "{} of {} triggers came where no window can begin",
        thousands(outside),
        thousands(came)
    );
    let own = |path: &str| manifest.modules.iter().any(|m| m.path == path);
    let mut files: Vec<(u64, &str)> = t
        .outside
        .iter()
        .map(|(path, &n)| (n, path.as_str()))
        .collect();
    files.sort_by_key(|&(n, path)| (std::cmp::Reverse(n), path));
    let named: Vec<String> = files
        .iter()
        .filter(|f| !f.1.is_empty())
        .take(MAX_NAMED_FILES)
        .map(|(n, path)| format!("{path} {:.0}%", 100.0 * *n as f64 / known as f64))
        .collect();
    if !named.is_empty() {
        text.push_str(&format!(
            " (of {known} that were seen: {})",
            named.join(", ")
        ));
    }
    // A library is named if much of the time is spent there.
    let library = files
        .iter()
        .find(|(n, path)| *n * 10 >= known && path.contains(".so") && !own(path))
        .filter(|(_, path)| !is_sanitizer(path) && !is_for_waiting(path));
    let mut libraries = Vec::new();
    if let Some(path) = library.map(|(_, path)| *path) {
        let known = manifest.coverage.files.iter().find(|f| f.path == path);
        if known.is_some_and(|f| !f.is_taken_in()) {
            return Some(Lack::from(text + &opened_by_itself(path)));
        }
        // A version behind `.so.N` belongs to the target of the symbolic link.
        let name = short(path);
        let name = name.split_once(".so").map_or(name, |(stem, _)| stem);
        libraries = taken(manifest.modules.iter().map(|m| m.path.as_str()));
        libraries.push(match known {
            Some(file) if !file.needed => file.as_option(),
            _ => name.to_owned(),
        });
        text.push_str(&format!(
            "; `--libs={}` instruments that library too",
            libraries.join(",")
        ));
    }
    Some(Lack {
        text,
        libraries,
        ..Lack::default()
    })
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, samples: Option<u64>) -> LoadedFile {
        LoadedFile {
            path: path.into(),
            needed: true,
            samples,
            ..LoadedFile::default()
        }
    }

    fn said(coverage: Coverage) -> Vec<String> {
        sentences(&Manifest {
            coverage: Coverage {
                time_samples: 1000,
                ..coverage
            },
            ..Manifest::default()
        })
    }

    #[test]
    fn nothing_is_said_of_a_trace_that_holds_what_ran() {
        assert!(said(Coverage::default()).is_empty());
        let own = LoadedFile {
            instrumented: true,
            ..file("/bin/app", Some(990))
        };
        let little = Coverage {
            files: vec![own, file("/lib/libc.so.6", Some(10))],
            generated_bytes: 4096,
            ..Coverage::default()
        };
        assert!(said(little).is_empty());
    }

    #[test]
    fn libraries_that_took_the_time_are_named_with_the_remedy() {
        let coverage = Coverage {
            files: vec![
                file("/usr/lib/libm.so.6", Some(140)),
                file("/usr/lib/liblzma.so.5.4.1", Some(400)),
                file("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", Some(60)),
                LoadedFile {
                    instrumented: true,
                    ..file("/bin/app", Some(400))
                },
            ],
            ..Coverage::default()
        };
        assert_eq!(
            said(coverage),
            [
                "60% of the time was in files that are not instrumented (liblzma.so.5.4.1 40%, libm.so.6 14%, ld-linux-x86-64.so.2 6%), whose loads are not in this trace; `--libs=liblzma,libm.so.6` records them"
            ]
        );
    }

    #[test]
    fn nobody_is_told_to_record_how_threads_wait() {
        let coverage = Coverage {
            files: vec![file("/usr/lib/libgomp.so.1.0.0", Some(140))],
            ..Coverage::default()
        };
        assert_eq!(
            said(coverage),
            [
                "14% of the time was in files that are not instrumented (libgomp.so.1.0.0 14%), whose loads are not in this trace; in libgomp.so.1.0.0 threads mostly wait for each other"
            ]
        );
    }

    #[test]
    fn shares_of_the_time_add_up() {
        let coverage = Coverage {
            time_samples: 200,
            files: vec![
                file("/usr/lib/libm.so.6", Some(20)),
                file("/usr/lib/libstdc++.so.6.0.30", Some(30)),
                LoadedFile {
                    instrumented: true,
                    ..file("/bin/app", None)
                },
            ],
            generated_samples: Some(10),
            ..Coverage::default()
        };
        let rest = coverage.unrecorded();
        let names: Vec<&str> = rest.iter().map(|r| r.0.as_str()).collect();
        assert_eq!(names, ["libstdc++", "libm", "code generated at run time"]);
        assert!((coverage.recorded_share().unwrap() - 0.7).abs() < 1e-12);
        assert_eq!(Coverage::default().recorded_share(), None);
    }

    #[test]
    fn generated_code_is_told_by_its_time_or_by_its_size() {
        let with = |generated_bytes, generated_samples| {
            said(Coverage {
                generated_bytes,
                generated_samples,
                ..Coverage::default()
            })
            .concat()
        };
        assert!(
            with(12 << 20, Some(890))
                .starts_with("89% of the time was in code of no file (12.0 MiB), generated")
        );
        assert!(with(12 << 20, None).starts_with("a process has code of no file (12.0 MiB)"));
        assert_eq!(with(12 << 20, Some(10)), "");
        assert_eq!(with(64 << 10, None), "");
    }

    #[test]
    fn sums_do_not_depend_on_their_order() {
        let part = |samples, path: &str, times| Coverage {
            time_samples: 10,
            files: vec![file(path, samples), file("/lib/libc.so.6", Some(1))],
            generated_bytes: times,
            generated_samples: samples,
            generated_functions: vec![GeneratedFunction {
                function: path.into(),
                samples: times,
                ..GeneratedFunction::default()
            }],
            naming_commands: vec![path.into(), "node --perf-basic-prof".into()],
            programs: vec![Program {
                path: "/bin/sh".into(),
                times,
                why: "not instrumented".into(),
            }],
        };
        let parts = [
            part(Some(4), "/b", 1),
            part(None, "/a", 2),
            part(Some(3), "/b", 5),
        ];
        let sum = |order: [usize; 3]| {
            let mut all = Coverage::default();
            order.iter().for_each(|&i| all.add(parts[i].clone()));
            all
        };
        let whole = sum([0, 1, 2]);
        assert_eq!(whole, sum([2, 1, 0]));
        assert_eq!(whole, sum([1, 0, 2]));
        assert_eq!(
            (
                whole.time_samples,
                whole.generated_samples,
                whole.generated_bytes
            ),
            (30, Some(7), 5)
        );
        assert_eq!(whole.programs[0].times, 8);
        let generated: Vec<(&str, u64)> = (whole.generated_functions.iter())
            .map(|f| (f.function.as_str(), f.samples))
            .collect();
        assert_eq!(generated, [("/b", 6), ("/a", 2)]);
        assert_eq!(
            whole.naming_commands,
            ["/a", "/b", "node --perf-basic-prof"]
        );
        let samples: Vec<Option<u64>> = whole.files.iter().map(|f| f.samples).collect();
        assert_eq!(samples, [None, Some(7), Some(3)]);
    }

    #[test]
    fn a_few_looks_tell_no_shares() {
        let coverage = Coverage {
            time_samples: 3,
            files: vec![file("/lib/libm.so.6", Some(3))],
            generated_bytes: 1 << 20,
            generated_samples: Some(0),
            ..Coverage::default()
        };
        let said = sentences(&Manifest {
            coverage,
            ..Manifest::default()
        });
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("a process has code of no file (1.0 MiB)"),
            "{said:?}"
        );
    }

    #[test]
    fn nobody_is_told_to_instrument_a_sanitizer() {
        let runtime = LoadedFile {
            reads_for: vec!["strcmp".into()],
            ..file("/lib/libasan.so.8.0.0", None)
        };
        let coverage = Coverage {
            files: vec![runtime],
            ..Coverage::default()
        };
        assert_eq!(
            said(coverage),
            [
                "data that the program lets libasan.so.8.0.0 read and copy (strcmp) are not in this trace; libasan.so.8.0.0 is a sanitizer's runtime, which is never instrumented: build the program without -fsanitize to see what the C library does in its place"
            ]
        );
    }

    #[test]
    fn functions_that_read_for_the_program_are_named() {
        let libc = LoadedFile {
            reads_for: ["memcmp", "memcpy", "strchr", "strcmp", "strlen"]
                .map(String::from)
                .to_vec(),
            ..file("/lib/libc.so.6", None)
        };
        let coverage = Coverage {
            files: vec![libc],
            ..Coverage::default()
        };
        assert_eq!(
            said(coverage),
            [
                "data that the program lets libc.so.6 read and copy (memcmp, memcpy, strchr, strcmp and 1 more) are not in this trace; `--libs=libc.so.6` records them"
            ]
        );
    }

    #[test]
    fn functions_that_take_no_time_are_not_worth_a_sentence() {
        let of = |samples| {
            let libc = LoadedFile {
                reads_for: vec!["strcmp".into()],
                ..file("/lib/libc.so.6", Some(samples))
            };
            said(Coverage {
                files: vec![libc],
                ..Coverage::default()
            })
        };
        assert_eq!(of(19), Vec::<String>::new());
        assert_eq!(of(20).len(), 1);
    }

    #[test]
    fn the_remedy_keeps_what_was_taken_in() {
        let taken = LoadedFile {
            instrumented: true,
            ..file("/tmp/xz.inst.libs/liblzma.so.5", None)
        };
        let program = LoadedFile {
            instrumented: true,
            ..file("/tmp/xz.inst", None)
        };
        let libc = LoadedFile {
            reads_for: vec!["memcpy".into()],
            ..file("/lib/libc.so.6", None)
        };
        let coverage = Coverage {
            files: vec![program, taken, libc],
            ..Coverage::default()
        };
        let said = said(coverage);
        assert!(
            said[0].contains("`--libs=liblzma.so.5,libc.so.6` records them"),
            "{said:?}"
        );
    }

    #[test]
    fn libraries_of_opened_modules_are_not_the_remedys() {
        let instrumented = |path: &str| LoadedFile {
            instrumented: true,
            ..file(path, None)
        };
        let libc = LoadedFile {
            reads_for: vec!["memcpy".into()],
            ..file("/lib/libc.so.6", Some(30))
        };
        let manifest = Manifest {
            coverage: Coverage {
                time_samples: 1000,
                files: vec![
                    instrumented("/c/python3.11"),
                    instrumented("/c/_core.cpython-311.so"),
                    instrumented("/c/_core.cpython-311.so.libs/libopenblas.so"),
                    instrumented("/site-packages/numpy.libs/libgfortran.so.5"),
                    libc,
                ],
                ..Coverage::default()
            },
            ..Manifest::default()
        };
        assert_eq!(missing_libraries(&lacks(&manifest)), ["libc.so.6"]);
    }

    #[test]
    fn programs_that_were_not_recorded_are_named_with_the_reason() {
        let program = |path: &str, times, why: &str| Program {
            path: path.into(),
            times,
            why: why.into(),
        };
        let coverage = Coverage {
            programs: vec![
                program("/bin/env", 1, "not instrumented"),
                program("/bin/sh", 3, "not instrumented"),
                program("/bin/sudo", 1, "privileged"),
            ],
            ..Coverage::default()
        };
        assert_eq!(
            said(coverage),
            [
                "programs that ran and were not recorded, without instrumentation: /bin/sh (3 times), /bin/env; nor what they start, since they gain rights: /bin/sudo"
            ]
        );
    }

    #[test]
    fn where_triggers_came_in_vain_is_said_if_most_did() {
        let mut m = Manifest {
            mode: "burst".into(),
            ..Manifest::default()
        };
        let mut with = |came, outside, files: &[(&str, u64)]| {
            m.totals.triggers = [("came".to_owned(), came), ("outside".to_owned(), outside)].into();
            m.totals.outside = files.iter().map(|(f, n)| ((*f).to_owned(), *n)).collect();
            super::outside(&m).map(|lack| lack.text)
        };
        assert_eq!(with(1000, 500, &[("/lib/libc.so.6", 256)]), None);
        assert_eq!(with(9, 9, &[("/lib/libc.so.6", 9)]), None);
        assert_eq!(
            with(
                1000,
                900,
                &[
                    ("/usr/lib/liblzma.so.5.4.1", 192),
                    ("", 60),
                    ("/usr/bin/xz", 4)
                ]
            )
            .unwrap(),
            "900 of 1,000 triggers came where no window can begin (of 256 that were seen: /usr/lib/liblzma.so.5.4.1 75%, /usr/bin/xz 2%); `--libs=liblzma` instruments that library too"
        );
        assert_eq!(
            with(20, 20, &[]).unwrap(),
            "20 of 20 triggers came where no window can begin"
        );
    }

    #[test]
    fn libraries_have_the_names_that_the_rewriter_takes() {
        assert_eq!(library("/lib/libz.so.1.2.13"), "libz");
        assert_eq!(library("/lib/libz.so.1"), "libz.so.1");
        assert_eq!(library("/lib/libc.so.6"), "libc.so.6");
        assert_eq!(library("/lib/libc-2.31.so"), "libc-2.31");
        assert_eq!(library("/opt/plugin.so"), "plugin");
    }
}
