//! The command line of `mgz-instrument`, and the files that it reads and writes.

mod prefetch;

use crate::common::io;
use crate::common::io::{Content, Refused};
use crate::link::elf_writer::Image;
use crate::link::needed;
use crate::link::runpath;
use crate::link::runpath::{Library, SearchPath};
use crate::pipeline::rewrite::rewrite;
use crate::pipeline::rewritten::Rewritten;
use crate::pipeline::settings::Settings;
use crate::program::InstrumentOptions;
use crate::program::sanitizers::is_runtime_library;
use crate::report;
use crate::report::Report;
use crate::sidecar::Annotations;
use clap::{CommandFactory, Parser, ValueEnum};
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_annotations_schema::replace;
use mgz_annotations_schema::tell;
use mgz_elf::function_names::unnamed;
use mgz_elf::{Elf, Refusal, demangle};
use regex::Regex;
use std::borrow::Cow;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::NamedTempFile;

/// Exit status: all is well.
const DONE: i32 = 0;
/// Exit status: an error.
const ERROR: i32 = 1;
/// Exit status: wrong usage.
const USAGE: i32 = 2;
/// Exit status: the file cannot be instrumented safely.
const DECLINED: i32 = 3;

const EXAMPLES_HELP: &str = "\
Rewrites an x86-64 program so that it can record the addresses that it loads from.

Examples:
  mgz-instrument ./app                        writes ./app.inst and ./app.inst.mgza
  mgz-instrument -o /tmp/gzip /usr/bin/gzip   a stripped program of the system
  mgz-instrument --libs -o xz /usr/bin/xz
      instruments its libraries too, into xz.libs/
  mgz-instrument --functions '^hash_' ./app   only some functions
  mgz-instrument --prefetch plan.json ./app   writes ./app.fixed with prefetches
  mgz-record -o trace -- ./app.inst           then record, and
  mgz-analyze trace                           look at the result

The original code stays in the file. Code that mgz-instrument does not understand is left unchanged, and its \
loads are not recorded.";

const AFTER: &str = "\
Exit status: 0 done, 1 error, 2 wrong usage, 3 declined (the file cannot be instrumented safely; the message \
says why).";

/// Which kind of record the code makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// pt if this machine can record it, else soft
    Auto,
    /// ptwrite instructions, recorded by Intel Processor Trace
    Pt,
    /// stores to a buffer, recorded by mgz's own runtime on every x86-64 CPU
    Soft,
}

/// Modes of recording that the code serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Modes {
    /// full and ring, at the least cost
    Ring,
    /// burst, full and ring: calls and returns are translated, which makes full and ring slower
    Burst,
    /// count alone (mgz-record --count): costs little, but no addresses can be recorded
    Count,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Arguments.
#[derive(Clone, Debug, Parser)]
#[command(name = "mgz-instrument", version, about = "Rewrite a program so that it can record the addresses it loads from", before_help = EXAMPLES_HELP, after_help = AFTER)]
pub struct Args {
    /// Executable or shared library to instrument; it is never changed
    #[arg(value_name = "BINARY", required_unless_present_any = ["completions", "man"])]
    pub binary: Option<PathBuf>,
    /// Instrumented file [default: BINARY.inst]
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Replace OUT even if mgz-instrument did not make it
    #[arg(long)]
    pub force: bool,
    /// Annotation sidecar [default: OUT.mgza]
    #[arg(long, value_name = "FILE")]
    pub annotations: Option<PathBuf>,
    /// Method of recording
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
    /// Instrument also the libraries that BINARY needs: all but the C library, or those in LIST
    /// (names like liblzma.so.5 or liblzma, separated by commas)
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub libs: Option<String>,
    /// Make $ORIGIN in OUT's library search path refer to BINARY's folder, so that OUT finds the
    /// same libraries from another folder
    #[arg(long)]
    pub keep_origin: bool,
    /// Instrument only functions whose name matches (functions without a name are called
    /// fn_ADDRESS, in hex)
    #[arg(long, value_name = "REGEX")]
    pub functions: Option<String>,
    /// Do not instrument functions whose name matches
    #[arg(long, value_name = "REGEX")]
    pub exclude: Option<String>,
    /// Instrument nothing: OUT is BINARY with one more needed library, NAME, before all others
    /// ($ORIGIN in NAME means OUT's folder)
    #[arg(long, value_name = "NAME", requires = "output")]
    pub needed: Option<String>,
    /// Fetch debug information that is not on this machine from the servers in DEBUGINFOD_URLS
    /// (needs debuginfod-find)
    #[arg(long)]
    pub debuginfod: bool,
    /// Record stores as well
    #[arg(long)]
    pub stores: bool,
    /// Record the accesses of memcpy, memmove and memset in the C library at the caller's line: a
    /// read of all bytes, and with --stores a write (soft backend)
    #[arg(long)]
    pub copies: bool,
    /// Modes of mgz-record that the instrumented code supports (soft backend) [default: burst]
    #[arg(long = "for", value_enum, value_name = "MODES")]
    pub modes: Option<Modes>,
    /// Record nothing: insert prefetches for the loads listed in PLAN, a JSON file (all: for every
    /// load where one can be placed), into a program that runs without mgz-record; OUT is then
    /// BINARY.fixed by default
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["annotations", "backend", "libs", "functions", "exclude", "debuginfod", "stores", "copies", "modes", "naive"])]
    pub prefetch: Option<PathBuf>,
    /// Form of the report on stdout
    #[arg(long, value_enum, default_value = "text")]
    pub format: ReportFormat,
    /// Print only errors, no report
    #[arg(short, long, conflicts_with = "format")]
    pub quiet: bool,
    /// One record per load, nothing shared (for tests of mgz itself)
    #[arg(long, hide = true)]
    pub naive: bool,
    /// Print a completion script for this shell and exit
    #[arg(long, value_name = "SHELL")]
    pub completions: Option<clap_complete::Shell>,
    /// Print the manual page and exit
    #[arg(long)]
    pub man: bool,
}

/// Status and message if the command ends early.
#[derive(Debug)]
struct Stop {
    status: i32,
    message: String,
}

impl Stop {
    fn error(message: impl Into<String>) -> Stop {
        Stop {
            status: ERROR,
            message: message.into(),
        }
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Stop {
        match refused {
            Refused::Usage(message) => Stop {
                status: USAGE,
                message,
            },
            Refused::Place(message) => Stop::error(message),
        }
    }
}

fn refused(path: &Path, refusal: &Refusal) -> Stop {
    let status = match refusal {
        Refusal::Declined(_) => DECLINED,
        Refusal::Failed(_) => ERROR,
    };
    Stop {
        status,
        message: format!("{}: {refusal}", path.display()),
    }
}

/// Runs the command. Returns the exit status after everything is written.
pub fn main() -> i32 {
    let args = Args::parse();
    let stdout = std::io::stdout();
    if let Some(shell) = args.completions {
        clap_complete::generate(
            shell,
            &mut Args::command(),
            "mgz-instrument",
            &mut stdout.lock(),
        );
        return status(stdout.lock().flush().is_ok());
    }
    if args.man {
        let written = clap_mangen::Man::new(Args::command()).render(&mut stdout.lock());
        return status(written.and_then(|()| stdout.lock().flush()).is_ok());
    }
    match start_threads().and_then(|()| run(&args)) {
        Ok(text) => {
            // A reader that is gone (a closed pipe) is no error, since the files are written.
            let mut stdout = stdout.lock();
            let _ = stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush());
            DONE
        }
        Err(stop) => {
            tell!("mgz-instrument: {}", stop.message);
            stop.status
        }
    }
}

/// Starts the worker threads. This thread is one of them: if it only woke another one, the kernel
/// might put that on the core of the next.
fn start_threads() -> Result<(), Stop> {
    // If one thread fails to start, all others end, and waiting for them would never return.
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().map_err(|e| {
        Stop::error(format!("cannot start a thread for each processor: {e}; set RAYON_NUM_THREADS to a smaller number, or allow more processes (ulimit -u)"))
    })
}

fn status(is_done: bool) -> i32 {
    if is_done { DONE } else { ERROR }
}

/// True if this machine can record `ptwrite`: the CPU executes it, its Processor Trace records it,
/// and the kernel offers Processor Trace.
fn machine_has_pt() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let highest = __cpuid(0).eax;
    highest >= 0x14
        && __cpuid_count(7, 0).ebx >> 25 & 1 == 1
        && __cpuid_count(0x14, 0).ebx >> 4 & 1 == 1
        && Path::new("/sys/bus/event_source/devices/intel_pt").exists()
}

fn appended(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn pattern(text: Option<&String>, option: &str) -> Result<Option<Regex>, Stop> {
    let compile = |t: &String| {
        Regex::new(t).map_err(|e| Stop {
            status: USAGE,
            message: format!("{option} is not a regular expression: {e}"),
        })
    };
    text.map(compile).transpose()
}

/// A chosen set of functions: names are matched as they are in the file and in readable form.
fn selection(args: &Args) -> Result<Box<crate::program::Select>, Stop> {
    let (wanted, unwanted) = (
        pattern(args.functions.as_ref(), "--functions")?,
        pattern(args.exclude.as_ref(), "--exclude")?,
    );
    if wanted.is_none() && unwanted.is_none() {
        return Ok(Box::new(|_, _| true));
    }
    Ok(Box::new(move |name, address| {
        let readable = if name.is_empty() {
            unnamed(address)
        } else {
            demangle::readable(name)
        };
        let fits = |r: &Regex| r.is_match(&readable) || (!name.is_empty() && r.is_match(name));
        wanted.as_ref().is_none_or(fits) && !unwanted.as_ref().is_some_and(fits)
    }))
}

/// Settings that all files of one call share.
struct Session {
    options: InstrumentOptions,
    options_text: String,
    debuginfod: bool,
}

impl Session {
    /// Settings that follow from the arguments.
    fn of(args: &Args) -> Result<Session, Stop> {
        let flavour = match args.backend {
            Backend::Pt => FLAVOUR_PT,
            Backend::Soft => FLAVOUR_SOFT,
            Backend::Auto => {
                if machine_has_pt() {
                    FLAVOUR_PT
                } else {
                    FLAVOUR_SOFT
                }
            }
        };
        let modes = args.modes.unwrap_or(Modes::Burst);
        let translated = modes == Modes::Burst && flavour == FLAVOUR_SOFT;
        let counts = modes == Modes::Count;
        if counts && (flavour != FLAVOUR_SOFT || args.stores) {
            return Err(Stop {
                status: USAGE,
                message: "--for count is for the soft backend, and counts loads only; leave --backend pt and --stores out".into(),
            });
        }
        let options = InstrumentOptions {
            flavour,
            stores: args.stores,
            copies: args.copies && flavour == FLAVOUR_SOFT,
            select: selection(args)?,
            translated,
            counts,
            naive: args.naive,
            prefetch: None,
        };
        let translation = match modes {
            _ if translated => " translated",
            Modes::Count => " count",
            _ => "",
        };
        let options_text = format!(
            "{flavour} {} {} {} {:?} {:?} {:?}{translation}",
            args.stores, args.copies, args.naive, args.functions, args.exclude, args.libs
        );
        Ok(Session {
            options,
            options_text,
            debuginfod: args.debuginfod,
        })
    }
}

/// One file to be written.
struct Target {
    input: PathBuf,
    output: PathBuf,
    annotations: PathBuf,
    note_path: Option<Vec<u8>>,
    search_path: Option<SearchPath>,
    id_first: Option<u32>,
    /// True for the last file to be written.
    is_last: bool,
}

/// Instruments a file and the chosen libraries. Returns the text to be printed.
fn run(args: &Args) -> Result<String, Stop> {
    let Some(input) = args.binary.clone() else {
        return Err(Stop {
            status: USAGE,
            message: "no BINARY given".into(),
        });
    };
    if let Some(plan) = &args.prefetch {
        return prefetch::run_prefetch(args, &input, plan);
    }
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| appended(&input, ".inst"));
    let annotations = args
        .annotations
        .clone()
        .unwrap_or_else(|| appended(&output, ".mgza"));
    let data = read(&input)?;
    io::check_both(&input, &output, &annotations)?;
    let elf = Elf::parse(data.bytes()).map_err(|e| refused(&input, &e))?;
    if !args.force {
        check_replaced(&input, &elf, &output)?;
    }
    if let Some(name) = &args.needed {
        return add_library(name, &data, (&input, &elf), (output, annotations));
    }
    let session = Session::of(args)?;
    let note_path = args
        .annotations
        .as_ref()
        .and_then(|a| std::path::absolute(a).ok())
        .map(|p| p.as_os_str().as_bytes().to_vec());

    // If only the report needs the file's libraries, the search for them runs in the background.
    let find = || runpath::find_libraries(&input);
    let needed = args.libs.is_some().then(find);
    let chosen = choose(
        args.libs.as_deref(),
        needed.as_ref().map_or(&[][..], |n| &n.found),
        &input,
    )?;
    let libs_folder = appended(&output, ".libs");
    let search_path = if chosen.is_empty() {
        args.keep_origin
            .then(|| SearchPath::kept(&elf, &input))
            .flatten()
    } else {
        Some(path_to(&libs_folder, &elf, &input))
    };
    let target = Target {
        input: input.clone(),
        output,
        annotations,
        note_path,
        search_path,
        id_first: None,
        is_last: chosen.is_empty(),
    };
    let (done, needed) = rayon::join(
        || instrument(&data, &target, &session),
        || needed.unwrap_or_else(find),
    );
    let (mut report, next_id) = done?;
    report.libraries = Some(libraries(
        &chosen,
        &needed,
        &libs_folder,
        next_id,
        &session,
        &report,
    )?);
    Ok(match args.format {
        _ if args.quiet => String::new(),
        ReportFormat::Text => report.text(),
        ReportFormat::Json => {
            serde_json::to_string_pretty(&report).map_err(|e| Stop::error(e.to_string()))? + "\n"
        }
    })
}

/// Writes a copy of a program that needs one more library.
fn add_library(
    name: &str,
    data: &Content,
    (input, elf): (&Path, &Elf),
    (output, annotations): (PathBuf, PathBuf),
) -> Result<String, Stop> {
    let image = needed::with_library(elf, name).map_err(|e| refused(input, &e))?;
    let target = Target {
        input: input.to_path_buf(),
        output,
        annotations,
        note_path: None,
        search_path: None,
        id_first: None,
        is_last: true,
    };
    let (mut file, image) = target.begin(image)?;
    (image.write_behind(file.as_file_mut())).map_err(|e| cannot(&target.output, &e))?;
    target.check_unchanged(data)?;
    replace(&file.into_temp_path(), &target.output).map_err(|e| cannot(&target.output, &e))?;
    Ok(String::new())
}

/// Refuses to replace a file that is not made by this command.
fn check_replaced(input: &Path, elf: &Elf, output: &Path) -> Result<(), Stop> {
    // Problems with the input are reported first.
    elf.check_instrumentable().map_err(|e| refused(input, &e))?;
    let Ok(old) = std::fs::read(output) else {
        return Ok(());
    };
    let is_ours = Elf::parse(&old).is_ok_and(|old| {
        let why = old.check_instrumentable().err();
        why.is_some_and(|why| why.to_string().contains("already instrumented"))
    });
    if old.is_empty() || is_ours {
        return Ok(());
    }
    Err(Stop::error(format!(
        "{}: {} exists and is no instrumented file; choose another -o OUT, or replace it with --force",
        input.display(),
        output.display()
    )))
}

/// The search path that leads to a folder beside the output.
fn path_to(folder: &Path, elf: &Elf, input: &Path) -> SearchPath {
    let name = folder
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let origin = format!("$ORIGIN/{name}");
    SearchPath::inherited(runpath::joined_path(elf, &origin, input))
}

fn read(path: &Path) -> Result<Content, Stop> {
    Content::read(path).map_err(|e| Stop::error(format!("cannot read {}: {e}", path.display())))
}

/// The libraries to be instrumented.
fn choose(list: Option<&str>, found: &[Library], input: &Path) -> Result<Vec<Library>, Stop> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let names: Vec<&str> = list
        .split(',')
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .collect();
    if names.is_empty() {
        let chosen = |l: &&Library| !l.is_c_library && !is_runtime_library(&l.name);
        return Ok(found.iter().filter(chosen).cloned().collect());
    }
    let fits = |l: &Library, n: &str| {
        l.name == n
            || l.name
                .strip_prefix(n)
                .is_some_and(|rest| rest.starts_with(".so"))
    };
    let is_needed = |n: &str| found.iter().any(|l| fits(l, n));
    let mut chosen: Vec<Library> = found
        .iter()
        .filter(|l| names.iter().any(|n| fits(l, n)))
        .cloned()
        .collect();
    let mut others: Vec<&str> = names.iter().copied().filter(|n| !is_needed(n)).collect();
    // A library that is opened may open another.
    while !others.is_empty() {
        let before = others.len();
        let mut why_not = None;
        others.retain(|name| match opened(name, found, &chosen, input) {
            Ok(library) => {
                if !chosen.iter().any(|l| l.name == library.name) {
                    chosen.push(library);
                }
                false
            }
            Err(why) => {
                why_not.get_or_insert((*name, why));
                true
            }
        });
        if others.len() == before
            && let Some((name, why)) = why_not
        {
            let known: Vec<&str> = found.iter().map(|l| l.name.as_str()).collect();
            return Err(Stop::error(format!(
                "{} does not need a library {name}, and {why}; it needs {}",
                input.display(),
                known.join(", ")
            )));
        }
    }
    take_in_searchers(&mut chosen, found);
    Ok(chosen)
}

/// A library that is given by its path, or is opened by the program, one of its libraries, or a
/// chosen one.
fn opened(
    name: &str,
    found: &[Library],
    chosen: &[Library],
    input: &Path,
) -> Result<Library, String> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let path = real(Path::new(name)).filter(|_| name.contains('/'));
    let same = |l: &&Library| path.is_some() && real(&l.path) == path;
    if let Some(library) = found.iter().find(same) {
        return Ok(library.clone());
    }
    let openers = std::iter::once(input).chain(chosen.iter().map(|l| l.path.as_path()));
    let mut first_why = None;
    for opener in openers {
        match runpath::find_opened(name, opener) {
            Ok(library) => return Ok(library),
            Err(why) => first_why.get_or_insert(why),
        };
    }
    Err(first_why.unwrap_or_default())
}

/// Adds the libraries that find chosen ones by a search path of their own: they find the rewritten
/// ones only with a changed path.
fn take_in_searchers(chosen: &mut Vec<Library>, found: &[Library]) {
    let mut n = 0;
    while let Some(library) = chosen.get(n) {
        let is_searcher = |l: &&Library| library.searched_by.contains(&l.name);
        let more: Vec<Library> = found
            .iter()
            .filter(is_searcher)
            .filter(|l| !chosen.iter().any(|c| c.name == l.name))
            .cloned()
            .collect();
        chosen.extend(more);
        n += 1;
    }
}

fn instrument(data: &Content, target: &Target, session: &Session) -> Result<(Report, u32), Stop> {
    let start = Instant::now();
    let settings = Settings {
        input: target.input.display().to_string(),
        output: target.output.display().to_string(),
        sidecar_path: target.note_path.clone(),
        search_path: target.search_path.clone(),
        before_runtime: runpath::before_runtime(data.bytes(), &target.input),
        id_first: target.id_first,
        options_text: session.options_text.clone(),
        debuginfod: session.debuginfod,
    };
    let rewritten = rewrite(data.bytes(), &session.options, &settings, |image| {
        target.begin(image)
    });
    let Rewritten {
        begun,
        mut annotations,
        mut report,
        leftovers,
        ..
    } = rewritten.map_err(|e| refused(&target.input, &e))?;
    report.input = settings.input;
    report.output = settings.output;
    report.annotations = target.annotations.display().to_string();
    // The same input and options must give the same bytes, so the sidecar has no times.
    annotations.header.report = serde_json::to_value(&report).unwrap_or_default();
    let next_id = annotations
        .header
        .id_first
        .wrapping_add(annotations.header.id_count);
    let Image {
        changes, pieces, ..
    } = target.finish(begun?, data, &annotations)?;
    let used = (changes, pieces, annotations, leftovers);
    if target.is_last {
        // The process ends, so freeing this much memory would waste time.
        std::mem::forget(used);
    } else {
        // (The payload belongs to the input, so it is not freed here.)
        let (changes, pieces, annotations, leftovers) = used;
        let pieces: Vec<Vec<u8>> = pieces
            .into_iter()
            .filter_map(|(_, bytes)| match bytes {
                Cow::Owned(bytes) => Some(bytes),
                Cow::Borrowed(_) => None,
            })
            .collect();
        rayon::spawn(move || drop((changes, pieces, annotations, leftovers)));
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok((report, next_id))
}

fn cannot(what: &Path, e: &dyn std::fmt::Display) -> Stop {
    Stop::error(format!(
        "cannot write {}: {e}; choose a place that you may write to with -o OUT",
        what.display()
    ))
}

impl Target {
    /// Begins to write the program under a temporary name.
    fn begin<'a>(&self, image: Image<'a>) -> Result<(NamedTempFile, Image<'a>), Stop> {
        let folder = self
            .output
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".mgz-")
            .tempfile_in(folder)
            .map_err(|e| cannot(&self.output, &e.kind()))?;
        image
            .write_front(file.as_file_mut())
            .map_err(|e| cannot(&self.output, &e))?;
        let mode = std::fs::metadata(&self.input).map_or(0o755, |m| m.permissions().mode() & 0o777);
        file.as_file()
            .set_permissions(Permissions::from_mode(mode))
            .map_err(|e| cannot(&self.output, &e))?;
        Ok((file, image))
    }

    fn check_unchanged(&self, data: &Content) -> Result<(), Stop> {
        if data.is_unchanged() {
            return Ok(());
        }
        Err(Stop::error(format!(
            "{} was written to while it was read; run the command again",
            self.input.display()
        )))
    }

    /// Writes the rest of the file and renames it. It has no sidecar.
    fn finish_alone(
        &self,
        (mut program, image): (NamedTempFile, Image),
        data: &Content,
    ) -> Result<(), Stop> {
        let written = image.write_behind(program.as_file_mut());
        written.map_err(|e| cannot(&self.output, &e))?;
        self.check_unchanged(data)?;
        replace(&program.into_temp_path(), &self.output).map_err(|e| cannot(&self.output, &e))?;
        Ok(())
    }

    /// Writes the rest of the program and the sidecar, and renames both. The program is renamed
    /// last, so that it never exists without its sidecar.
    fn finish<'a>(
        &self,
        (mut program, image): (NamedTempFile, Image<'a>),
        data: &Content,
        annotations: &Annotations,
    ) -> Result<Image<'a>, Stop> {
        let (behind, sidecar) = rayon::join(
            || image.write_behind(program.as_file_mut()),
            || annotations.parts().write_beside(&self.annotations),
        );
        behind.map_err(|e| cannot(&self.output, &e))?;
        let sidecar = sidecar.map_err(|e| cannot(&self.annotations, &e))?;
        self.check_unchanged(data)?;
        sidecar
            .persist()
            .map_err(|e| cannot(&self.annotations, &e))?;
        replace(&program.into_temp_path(), &self.output).map_err(|e| cannot(&self.output, &e))?;
        Ok(image)
    }
}

/// Instruments the chosen libraries and sums up the others.
fn libraries(
    chosen: &[Library],
    needed: &runpath::Libraries,
    folder: &Path,
    mut next_id: u32,
    session: &Session,
    main: &Report,
) -> Result<report::Libraries, Stop> {
    let mut all = report::Libraries {
        missing: needed.missing.clone(),
        ..report::Libraries::default()
    };
    if !chosen.is_empty() {
        std::fs::create_dir_all(folder).map_err(|e| {
            Stop::error(format!("cannot make the folder {}: {e}", folder.display()))
        })?;
    }
    for (n, library) in chosen.iter().enumerate() {
        if library.name.contains('/') {
            let why = format!(
                "it is needed by its path ({}), so that the loader ignores the search path and does not find a rewritten one; link the program with -l and a search path instead (or give the library a DT_SONAME and link again), or instrument it by itself and put it there",
                library.name
            );
            all.declined.insert(library.name.clone(), why);
            continue;
        }
        let data = read(&library.path)?;
        let output = folder.join(&library.name);
        let annotations = appended(&output, ".mgza");
        io::check_both(&library.path, &output, &annotations)?;
        let elf = Elf::parse(data.bytes()).map_err(|e| refused(&library.path, &e))?;
        // A search path of its own would keep the loader from looking beside OUT, or make it look
        // there last. It may also depend on the library's folder.
        let has_path = |tag| elf.dynamic_value(mgz_elf::image::dt(tag)).is_some();
        let own_path = has_path(object::elf::DT_RUNPATH) || has_path(object::elf::DT_RPATH);
        let target = Target {
            input: library.path.clone(),
            annotations,
            output,
            note_path: None,
            search_path: own_path.then(|| {
                SearchPath::inherited(runpath::joined_path(&elf, "$ORIGIN", &library.path))
            }),
            id_first: Some(next_id),
            is_last: n + 1 == chosen.len(),
        };
        match instrument(&data, &target, session) {
            Ok((report, next)) => {
                next_id = next;
                link_names(folder, library)?;
                all.instrumented.push(report);
            }
            Err(stop) if stop.status == DECLINED => {
                all.declined.insert(library.name.clone(), stop.message);
            }
            Err(stop) => return Err(stop),
        }
    }
    if !chosen.is_empty() {
        forget_earlier(folder, &all.instrumented)?;
    }
    let done =
        |name: &str| chosen.iter().any(|c| c.name == name) && !all.declined.contains_key(name);
    let rest: Vec<&Library> = needed.found.iter().filter(|l| !done(&l.name)).collect();
    all.left_out = rest
        .iter()
        .map(|l| (l.name.clone(), l.text_bytes))
        .collect();
    all.left_out_text_bytes = rest.iter().map(|l| l.text_bytes).sum();
    let inside = main.text_bytes + all.instrumented.iter().map(|r| r.text_bytes).sum::<u64>();
    all.instrumented_text_pct =
        100.0 * inside as f64 / (inside + all.left_out_text_bytes).max(1) as f64;
    Ok(all)
}

/// Links a library under its other names, so that it can be opened by them.
fn link_names(folder: &Path, library: &Library) -> Result<(), Stop> {
    for name in &library.other_names {
        let link = folder.join(name);
        // (It is from an earlier call.)
        if link.is_symlink() {
            std::fs::remove_file(&link).map_err(|e| cannot(&link, &e))?;
        }
        match std::os::unix::fs::symlink(&library.name, &link) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(cannot(&link, &e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes libraries that an earlier call has put into the folder, where the loader would still
/// find them. Only libraries with a sidecar are removed.
fn forget_earlier(folder: &Path, written: &[Report]) -> Result<(), Stop> {
    let error = |path: &Path, e: std::io::Error| {
        Stop::error(format!(
            "cannot remove {}, which an earlier call has written: {e}",
            path.display()
        ))
    };
    for entry in std::fs::read_dir(folder).map_err(|e| error(folder, e))? {
        let sidecar = entry.map_err(|e| error(folder, e))?.path();
        if sidecar.extension() != Some("mgza".as_ref()) {
            continue;
        }
        let library = sidecar.with_extension("");
        if written.iter().any(|r| Path::new(&r.output) == library) {
            continue;
        }
        for path in [&library, &sidecar] {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(error(path, e)),
                _ => {}
            }
        }
    }
    // Other names of removed libraries are removed too.
    for entry in std::fs::read_dir(folder).map_err(|e| error(folder, e))? {
        let link = entry.map_err(|e| error(folder, e))?.path();
        let leads_beside = |to: PathBuf| to.components().count() == 1;
        if std::fs::read_link(&link).is_ok_and(leads_beside) && !link.exists() {
            std::fs::remove_file(&link).map_err(|e| error(&link, e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_earlier_calls_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for name in [
            "old.so.5",
            "old.so.5.mgza",
            "new.so.6",
            "new.so.6.mgza",
            "notes",
            "gone.mgza",
        ] {
            std::fs::write(file(name), name).unwrap();
        }
        let written = Report {
            output: file("new.so.6").display().to_string(),
            ..Report::default()
        };
        forget_earlier(dir.path(), &[written]).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["new.so.6", "new.so.6.mgza", "notes"]);
    }

    #[test]
    fn threads_that_do_not_start_are_an_error() {
        // The threads exist already, which makes the start fail on every machine.
        rayon::join(|| (), || ());
        let stop = start_threads().unwrap_err();
        assert_eq!(stop.status, ERROR);
        assert!(
            stop.message.contains("RAYON_NUM_THREADS"),
            "{}",
            stop.message
        );
    }
}
