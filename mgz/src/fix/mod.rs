//! `mgz fix`: findings become measured speed-ups of a finished program.
//!
//! A recording gives findings, findings give [`candidates`], and each candidate becomes a file
//! ([`builder`]) that is timed against the original in alternating pairs of runs ([`mod@bench`],
//! [`sequential`]). Helpful candidates are combined ([`mod@search`], [`combine`]). The original is
//! never changed. Remedies that need the source are in [`source`].

mod bench;
mod builder;
mod candidate;
mod candidates;
mod clock;
mod combine;
mod compare;
pub mod document;
mod params;
mod progress;
mod records;
mod screen;
mod search;
mod sequential;
mod sites;
pub mod source;
mod workload;

use crate::cli::{self, Fix, Run};
use crate::fix::candidate::Candidate;
use crate::fix::clock::BenchClock;
use crate::html::HtmlOptions;
use crate::program::Program;
use crate::run::{self, Recorded, TRACE};
use crate::{report, signals};
use anyhow::{Context, bail};
use bench::Bench;
use builder::Builder;
use compare::Comparison;
use document::{Document, Recipe, Subject};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::{NamedRemedy, tell};
use mgz_collector::machine::identity;
use search::{Found, Search};
use sequential::Test;
use serde_json::{Value, json};
use sites::Surroundings;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use workload::Workload;

/// Exit status: nothing was kept, and nothing was written.
const NOTHING_KEPT: i32 = 4;
/// The kernel's folder of machine facts.
const SYSTEM: &str = "/sys";

/// Runs the command.
pub fn run_fix(fix: &Fix) -> anyhow::Result<i32> {
    if fix.source || fix.verify.is_some() {
        return source::run_source_fix(fix);
    }
    let named = || fix.program.first().context("no program given");
    let given = match &fix.apply {
        Some(given) if given.is_dir() => Some(document::find_in(given, fix.program.first())?),
        given => given.clone(),
    };
    if let Some(given) = &given
        && let Some(status) = source::apply_given(given, fix.tree.as_deref())?
    {
        return Ok(status);
    }
    let program = Program::find(named()?)?;
    let places = Places::new(fix, &program)?;
    match &given {
        Some(document) => apply(document, &program, &places),
        None => search(fix, &program, &places),
    }
}

/// Paths of the written files.
struct Places {
    output: PathBuf,
    folder: PathBuf,
    document: PathBuf,
}

impl Places {
    /// Checks the paths before anything is run.
    fn new(fix: &Fix, program: &Program) -> anyhow::Result<Places> {
        let output = (fix.output.clone())
            .unwrap_or_else(|| PathBuf::from(format!("{}.fixed", program.name())));
        let output = std::path::absolute(&output)?;
        let is_input = |path: &Path| {
            let real = |p: &Path| std::fs::canonicalize(p).ok();
            real(path).is_some() && real(path) == real(&program.file)
        };
        if is_input(&output) {
            bail!(
                "{}: is the program itself, which is never written; give another file with -o",
                output.display()
            );
        }
        if output.is_dir() {
            bail!("{}: is a folder; name a file with -o", output.display());
        }
        let folder = output
            .parent()
            .map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        let document = match &fix.json {
            Some(file) => std::path::absolute(file)?,
            None => folder.join(document::file_name(&program.name())),
        };
        if let Ok(old) = Document::read(&document)
            && Path::new(&old.output) != output
            && fix.json.is_none()
            && fix.apply.is_none()
        {
            bail!(
                "{}: belongs to {}; give another file with --json",
                document.display(),
                old.output
            );
        }
        Ok(Places {
            output,
            folder,
            document,
        })
    }
}

/// Finds and measures fixes.
fn search(fix: &Fix, program: &Program, places: &Places) -> anyhow::Result<i32> {
    signals::note_stop();
    check_program(program)?;
    let subject = Subject::read(&program.file)?;
    let workload = workload_of(fix, program, &fix.program)?;
    tell!("mgz: running {} twice as it is", program.file.display());
    let test = Test::new(fix.pairs);
    let mut bench = Bench::new(workload, comparison_of(fix), test, &program.file)?;
    let (trace, _own) = trace(
        fix,
        (program, &fix.program),
        &bench.workload,
        bench.is_parallel,
    )?;
    let manifest = report::manifest(&trace)?;
    bench.clock = BenchClock::of(&manifest);
    let analysis = analysis(&trace)?;
    let module = program.file.file_name().unwrap_or_default();
    let (candidates, left) = candidates::candidates(
        &analysis,
        &module.to_string_lossy(),
        Surroundings::of(&manifest, Path::new(SYSTEM)),
    );
    let candidates = with_predictions(candidates, &trace)?;
    let builder = Builder {
        program: program.file.clone(),
        build_id: subject.build_id.clone(),
        folder: places.folder.clone(),
    };
    let searched = Search {
        bench: &bench,
        builder: &builder,
        program: &program.file,
    };
    let Found { tried, best } = searched.run(candidates)?;
    if !fix.no_keep {
        records::keep(&subject, &tried);
    }
    let Some((recipe, result)) = best else {
        let none = analysis["no_finding"].as_str().unwrap_or_default();
        let text = screen::nothing(&program.name(), &tried, &left, none);
        cli::print(text.as_bytes())?;
        return Ok(NOTHING_KEPT);
    };
    let mut document = Document {
        format: document::FORMAT.into(),
        version: document::FIX_VERSION,
        program: subject,
        cpu: identity::cpu(),
        command: words(fix),
        clock: bench.clock,
        output: places.output.display().to_string(),
        predicted: records::predicted_together(&tried),
        result,
        candidates: tried,
        recipe,
        fixed: Subject::default(),
        source: None,
    };
    write(&builder, &mut document, places)?;
    if !fix.no_keep {
        records::keep_whole(&document);
    }
    let library = builder::library_of(&places.output);
    let mut paths = vec![&*places.output, &*places.document];
    if document.recipe.has_library() {
        paths.push(&library);
    }
    cli::print(screen::result(&document, &paths).as_bytes())
}

/// Runs of a program with its arguments.
fn workload_of(fix: &Fix, program: &Program, given: &[OsString]) -> anyhow::Result<Workload> {
    let (name, arguments) = given.split_first().context("no program given")?;
    Workload::new(
        run::shown_name(program, name),
        arguments,
        fix.stdin.as_deref(),
        &fix.files,
    )
}

/// The method of comparing outputs.
fn comparison_of(fix: &Fix) -> Comparison {
    match &fix.check {
        Some(command) => Comparison::Command(command.clone()),
        None => Comparison::Exact,
    }
}

fn words(fix: &Fix) -> Vec<String> {
    let words = fix.program.iter();
    words.map(|w| w.to_string_lossy().into_owned()).collect()
}

/// The command that tries remedies of a program's findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixCommand {
    /// No remedy can be tried.
    Nothing,
    /// `mgz fix`: remedies for the finished program.
    Program,
    /// `mgz fix --source`: the remedies need the source.
    Source,
}

/// Remedies of findings, as `mgz what-if` names them, that change the source and for which
/// `mgz fix --source` makes patches.
const SOURCE_REMEDIES: [&str; 2] = ["split", "exchange-loops"];

/// The command for the findings of an analysis. `manifest` is that of the trace.
pub fn fix_command(program: &Program, analysis: &Value, manifest: &Value) -> FixCommand {
    // An interpreter's time depends on its script.
    let is_interpreter = !analysis["python"].is_null();
    if is_interpreter || check_program(program).is_err() {
        return FixCommand::Nothing;
    }
    let findings = analysis["findings"].as_array().into_iter().flatten();
    let (of_source, others): (Vec<&Value>, Vec<&Value>) = findings.partition(|finding| {
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        let has_line = finding["line"].as_u64().unwrap_or(0) > 0;
        let is_of = |kind: &&str| NamedRemedy::is_of_kind(remedy, kind);
        has_line && SOURCE_REMEDIES.iter().any(is_of)
    });
    let module = program.file.file_name().unwrap_or_default();
    let surroundings = Surroundings::of(manifest, Path::new(SYSTEM));
    let of_others = json!({ "findings": others });
    let (found, _) = candidates::candidates(&of_others, &module.to_string_lossy(), surroundings);
    match (found.is_empty(), of_source.is_empty()) {
        (false, _) => FixCommand::Program,
        (true, false) => FixCommand::Source,
        (true, true) => FixCommand::Nothing,
    }
}

/// Refuses programs whose file is not the executed code, or whose copy would behave differently.
fn check_program(program: &Program) -> anyhow::Result<()> {
    if let Some(script) = &program.script {
        bail!(
            "{}: is a script; give mgz fix the program that it runs",
            script.display()
        );
    }
    let mode = std::fs::metadata(&program.file)
        .with_context(|| format!("{}: cannot be read", program.file.display()))?
        .permissions()
        .mode();
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        bail!(
            "{}: runs with the rights of its owner (setuid), which a fixed copy would not have",
            program.file.display()
        );
    }
    Ok(())
}

/// The trace of an earlier run, or a new one in a temporary folder.
fn trace(
    fix: &Fix,
    (program, given): (&Program, &[OsString]),
    workload: &Workload,
    is_parallel: bool,
) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    if let Some(given) = &fix.trace {
        let trace = report::locate_report(given).0;
        let manifest = report::manifest(&trace)?;
        if !is_of(&trace, &manifest, &Subject::read(&program.file)?) {
            bail!(
                "{}: is no recording of this build of {}; record this build, or leave --trace out",
                trace.display(),
                program.file.display()
            );
        }
        return Ok((trace, None));
    }
    let folder = tempfile::Builder::new()
        .prefix("mgz-fix-")
        .tempdir()
        .context("cannot make a temporary folder")?;
    let asked = Run {
        program: given.to_vec(),
        // Parallel threads may take lines from each other.
        stores: is_parallel,
        ..Run::default()
    };
    tell!("mgz: recording its loads");
    let mut wait = |command: &mut std::process::Command| {
        (workload.redirect(command, folder.path())).map_err(std::io::Error::other)?;
        let ended = signals::wait_in_session(command, None)?;
        ended.map_or_else(
            || Err(std::io::ErrorKind::TimedOut.into()),
            |e| Ok(e.status),
        )
    };
    let recorded = run::record(&asked, program, folder.path(), &mut wait)?;
    workload::stop_if_asked()?;
    let said = folder.path();
    let (why, last) = match recorded {
        Recorded::Trace(0) => return Ok((folder.path().join(TRACE), Some(folder))),
        Recorded::Refused(_) => bail!(
            "{}: cannot be recorded, so nothing is known of its loads",
            program.file.display()
        ),
        Recorded::Trace(status) => (
            format!("ends with status {status} while it is recorded"),
            workload::last_line_of_program(said),
        ),
        Recorded::Nothing(_) => ("was not recorded".to_owned(), workload::last_line(said)),
    };
    bail!("{}: {why}: {last}", program.file.display())
}

/// True if a program is among the recorded files of a trace: addresses and lines of another build are
/// those of other code.
fn is_of(trace: &Path, manifest: &Value, program: &Subject) -> bool {
    let modules = manifest["modules"].as_array().into_iter().flatten();
    let sidecars = modules.filter_map(|module| module["sidecar"].as_str());
    let mut headers = sidecars.filter_map(|name| Sidecar::read_header(&trace.join(name)).ok());
    headers.any(|(_, header)| {
        let recorded = Subject {
            path: header.input.path,
            build_id: header.input.build_id,
            hash: header.input.hash,
        };
        recorded.is_same_build(program)
    })
}

/// Analyses a trace.
fn analysis(trace: &Path) -> anyhow::Result<Value> {
    report::manifest(trace)?;
    let data = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let options = HtmlOptions {
        source: false,
        trace: Some(trace.to_path_buf()),
        command: Vec::new(),
        measured: None,
    };
    report::analysis(trace, &options, data.path())?
        .stdout(Stdio::null())
        .status()
        .context("mgz-analyze cannot be executed")?;
    workload::stop_if_asked()?;
    report::read_report_data(trace, data.path())
}

/// Predicts the gains that the analysis has not predicted.
fn with_predictions(
    mut candidates: Vec<Candidate>,
    trace: &Path,
) -> anyhow::Result<Vec<Candidate>> {
    for candidate in candidates
        .iter_mut()
        .filter(|c| c.predicted.is_none() && !c.recipe.loads.is_empty())
    {
        candidate.predicted = candidates::predict(trace, &candidate.remedy)?;
        workload::stop_if_asked()?;
    }
    Ok(candidates)
}

/// Writes the fixed program and its document.
fn write(builder: &Builder, document: &mut Document, places: &Places) -> anyhow::Result<()> {
    let library = builder::library_of(&places.output);
    let built = match builder.build(&document.recipe, library.file_name())? {
        Ok(built) => built,
        Err(why) => bail!("{}: cannot be made: {why}", places.output.display()),
    };
    document.fixed = Subject {
        path: document.output.clone(),
        ..Subject::read(built.as_ref())?
    };
    let text = serde_json::to_vec_pretty(document)?;
    workload::stop_if_asked()?;
    report::write_private(&places.document, &text)?;
    builder::place(built, &places.output)
}

/// Applies a fix without measuring it.
fn apply(document: &Path, program: &Program, places: &Places) -> anyhow::Result<i32> {
    check_program(program)?;
    let fix = Document::read(document)?;
    let subject = Subject::read(&program.file)?;
    if let Some(why) = fix.mismatch(&subject) {
        bail!("{}: {why}", document.display());
    }
    if fix.recipe == Recipe::default() {
        bail!("{}: has no changes of the program", document.display());
    }
    let builder = Builder {
        program: program.file.clone(),
        build_id: subject.build_id,
        folder: places.folder.clone(),
    };
    let library = builder::library_of(&places.output);
    match builder.build(&fix.recipe, library.file_name())? {
        Ok(built) => builder::place(built, &places.output)?,
        Err(why) => bail!("{}: cannot be made: {why}", places.output.display()),
    }
    let text = format!(
        "{} is written; it was not measured again\n",
        places.output.display()
    );
    cli::print(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis(kind: &str, changes: &[&str], remedy: &str, module: &str) -> Value {
        json!({"findings": [{
            "kind": kind, "module": module, "function": "main", "load_addresses": ["0x401234"],
            "program_changes": changes, "remedy": remedy, "line": 7,
        }]})
    }

    /// Only finished programs with an applicable remedy have candidates.
    #[test]
    fn programs_with_a_remedy_have_a_command_that_tries_it() {
        let program = Program::find("true".as_ref()).unwrap();
        let module = program.file.file_name().unwrap().to_string_lossy();
        let of = |analysis: &Value| fix_command(&program, analysis, &json!({}));
        let gather = analysis(
            "gather",
            &["prefetch-gather"],
            "prefetch of /s/a.c:7",
            &module,
        );
        assert_eq!(of(&gather), FixCommand::Program);
        let mut in_python = gather.clone();
        in_python["python"] = json!({"functions": []});
        assert_eq!(of(&in_python), FixCommand::Nothing);
        // Without a known allocation site there is nothing to pad.
        let sharing = analysis("false_sharing", &["pad-blocks"], "", &module);
        assert_eq!(of(&sharing), FixCommand::Nothing);
        assert_eq!(of(&json!({ "findings": [] })), FixCommand::Nothing);
        let script = Program {
            script: Some("script".into()),
            ..program.clone()
        };
        let nothing = fix_command(&script, &gather, &json!({}));
        assert_eq!(nothing, FixCommand::Nothing);
    }

    #[test]
    fn remedies_of_the_source_have_the_command_for_the_source() {
        let program = Program::find("true".as_ref()).unwrap();
        let module = program.file.file_name().unwrap().to_string_lossy();
        let of = |changes: &[&str], remedy: &str| {
            let analysis = analysis("strided", changes, remedy, &module);
            fix_command(&program, &analysis, &json!({}))
        };
        let prefetch = ["prefetch-strided"];
        assert_eq!(of(&prefetch, "split of bodies"), FixCommand::Source);
        assert_eq!(of(&[], "exchange-loops of a.c:7"), FixCommand::Source);
        assert_eq!(of(&prefetch, "prefetch of a.c:7"), FixCommand::Program);
        assert_eq!(of(&["huge-pages"], ""), FixCommand::Program);
        assert_eq!(of(&[], ""), FixCommand::Nothing);
        // One of two findings needs no source.
        let mut both = analysis("strided", &prefetch, "split of bodies", &module);
        let gather = analysis("gather", &["prefetch-gather"], "prefetch of a.c:9", &module);
        let findings = both["findings"].as_array_mut().unwrap();
        findings.push(gather["findings"][0].clone());
        assert_eq!(
            fix_command(&program, &both, &json!({})),
            FixCommand::Program
        );
    }
}
