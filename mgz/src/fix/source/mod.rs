//! `mgz fix --source`: remedies that need the source, as patches.
//!
//! Findings become [`mod@proposals`]: a patch if it is safe, else a recipe in words with the
//! reason. Sources are read by a small tokenizer ([`token`]) and compared with the debug
//! information of the program ([`debug_info`]). Everything that is not certainly understood is
//! refused. Each kind of patch is a module: [`reorder`], [`split`], [`exchange`], [`prefetch`],
//! [`huge_pages`], [`pad`], [`rows`], [`hints`].
//!
//! `--verify` builds a copy of the tree ([`tree`]) with each patch and times it ([`verify`]). Only
//! `--apply` writes into the user's tree ([`apply`]).

pub mod apply;
pub mod debug_info;
pub mod declaration;
pub mod edit;
pub mod exchange;
pub mod finding;
pub mod hints;
pub mod huge_pages;
pub mod insert;
pub mod loops;
pub mod names;
pub mod pad;
mod params;
pub mod patch_file;
pub mod prefetch;
pub mod proposals;
pub mod reorder;
pub mod rows;
pub mod screen;
pub mod sources;
pub mod split;
pub mod strict;
pub mod token;
pub mod tree;
pub mod uses;
mod verify;

use crate::cli::{self, Fix};
use crate::fix::candidates;
use crate::fix::document::Document;
use crate::fix::{NOTHING_KEPT, check_program, trace, workload_of};
use crate::program::Program;
use crate::{report, signals};
use anyhow::{Context, bail};
use debug_info::DebugInfo;
use edit::Edits;
use finding::Means;
use mgz_annotations_schema::NamedRemedy;
use proposals::{Change, Proposal, proposals};
use serde_json::Value;
use sources::{Sources, is_of_system};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Writes patches, and with `--verify` measures them.
pub fn run_source_fix(fix: &Fix) -> anyhow::Result<i32> {
    signals::note_stop();
    let given = given(fix)?;
    let name = given.first().context("no program given")?;
    let program = Program::find(name)?;
    check_program(&program)?;
    let output = output(fix, &program)?;
    match &fix.verify {
        Some(build) => verify::verify_patches(fix, (&program, &given), build, &output),
        None => propose(fix, (&program, &given), &output),
    }
}

/// The program with its arguments: those of the command line, else those of the trace.
fn given(fix: &Fix) -> anyhow::Result<Vec<OsString>> {
    if !fix.program.is_empty() {
        return Ok(fix.program.clone());
    }
    let given =
        (fix.trace.as_ref()).context("give a program, or the trace of one by --trace DIR")?;
    let told = crate::run::read_command(given);
    if !told.is_empty() {
        return Ok(told.into_iter().map(OsString::from).collect());
    }
    bail!(
        "{}: does not name the original program; give it after --",
        given.display()
    )
}

/// The patch file.
fn output(fix: &Fix, program: &Program) -> anyhow::Result<PathBuf> {
    let output =
        (fix.output.clone()).unwrap_or_else(|| PathBuf::from(format!("{}.patch", program.name())));
    let output = std::path::absolute(output)?;
    let is_program = std::fs::canonicalize(&output)
        .ok()
        .is_some_and(|real| std::fs::canonicalize(&program.file).is_ok_and(|own| own == real));
    if output.is_dir() || is_program {
        bail!(
            "{}: is a folder or the program; name a file with -o",
            output.display()
        );
    }
    let is_other = std::fs::symlink_metadata(&output).is_ok()
        && !std::fs::read_to_string(&output).is_ok_and(|text| patch_file::is_own(&text));
    if is_other {
        bail!(
            "{}: exists, and is no patch of mgz; name another file with -o",
            output.display()
        );
    }
    Ok(output)
}

/// Proposals with all of their inputs.
struct Proposed {
    list: Vec<Proposal>,
    sources: Sources,
    tree: PathBuf,
    no_finding: String,
    manifest: Value,
}

/// Records the program if there is no trace, and makes proposals.
fn make(fix: &Fix, (program, given): (&Program, &[OsString])) -> anyhow::Result<Proposed> {
    let info = DebugInfo::read(&program.file)?;
    let tree = tree_of(fix, program, &info)?;
    let workload = workload_of(fix, program, given)?;
    let is_parallel = match &fix.trace {
        Some(_) => false,
        None => (workload.run(&program.file, None)?).is_some_and(|ran| ran.is_parallel()),
    };
    let (trace, _own) = trace(fix, (program, given), &workload, is_parallel)?;
    let analysis = super::analysis(&trace)?;
    let built = std::fs::metadata(&program.file)
        .and_then(|m| m.modified())
        .ok();
    let mut sources = Sources::new(built);
    let mut means = Means {
        analysis: &analysis,
        info: &info,
        sources: &mut sources,
        tree: &tree,
    };
    let mut list = proposals(&mut means);
    for proposal in list.iter_mut().filter(|p| !p.what_if.is_empty()) {
        proposal.predicted = candidates::predict(&trace, &proposal.what_if)?;
        crate::fix::workload::stop_if_asked()?;
    }
    Ok(Proposed {
        list,
        sources,
        tree,
        no_finding: analysis["no_finding"].as_str().unwrap_or_default().into(),
        manifest: report::manifest(&trace)?,
    })
}

/// The folder of the sources.
fn tree_of(fix: &Fix, program: &Program, info: &DebugInfo) -> anyhow::Result<PathBuf> {
    if let Some(tree) = &fix.tree {
        return std::fs::canonicalize(tree)
            .with_context(|| format!("{}: cannot be read as a tree", tree.display()));
    }
    let own = std::fs::canonicalize(&program.file)?;
    let sources = (info.main_files.iter())
        .filter(|f| f.is_absolute() && !is_of_system(f))
        .map(PathBuf::as_path);
    let own = fix.verify.is_some().then_some(own.as_path());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let common = tree::common_folder(sources.chain(own));
    common
        .filter(|c| Some(c) != home.as_ref())
        .with_context(|| {
            format!(
                "{}: its sources have no common folder; give it by --tree DIR",
                program.file.display()
            )
        })
}

/// Writes a patch of the compatible changes, and prints recipes.
fn propose(
    fix: &Fix,
    (program, given): (&Program, &[OsString]),
    output: &Path,
) -> anyhow::Result<i32> {
    let proposed = make(fix, (program, given))?;
    let (joined, taken) = joined(&proposed.list);
    let text = screen::proposed(
        &program.name(),
        &proposed.list,
        &taken,
        &proposed.no_finding,
    );
    if joined.is_empty() {
        cli::print(text.as_bytes())?;
        return Ok(NOTHING_KEPT);
    }
    let notes = proposed
        .list
        .iter()
        .zip(0..)
        .filter(|(_, n)| taken.contains(n));
    let notes: Vec<String> = notes
        .map(|(p, _)| match p.change {
            Change::Comment(_) => format!("{}: a hint, no change of the code", p.remedy),
            Change::Patch(_) | Change::Words => format!("{}, not measured", p.remedy),
        })
        .collect();
    let patch = patch_file::text(&joined, &proposed.sources.texts(), &proposed.tree, &notes);
    report::write_private(output, patch.as_bytes())?;
    let text = text + &screen::how_to_apply(output);
    cli::print(text.as_bytes())
}

/// All edits that do not exclude each other, and the numbers of their proposals. Those with the
/// largest gain take precedence.
fn joined(list: &[Proposal]) -> (Edits, BTreeSet<usize>) {
    let gain = |p: &Proposal| p.predicted.map_or(0.0, |s| s.saved_pct);
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by(|&a, &b| gain(&list[b]).total_cmp(&gain(&list[a])).then(a.cmp(&b)));
    let (mut all, mut taken) = (Edits::default(), BTreeSet::new());
    for number in order {
        let (Change::Patch(edits) | Change::Comment(edits)) = &list[number].change else {
            continue;
        };
        // The loads change when loops are exchanged, so it is unknown if they still need
        // prefetches.
        let is_again = taken
            .iter()
            .any(|&n: &usize| is_of_same_loads(&list[n], &list[number]));
        if is_again {
            continue;
        }
        if let Some(joined) = all.joined(edits) {
            all = joined;
            taken.insert(number);
        }
    }
    (all, taken)
}

/// True if two remedies change the same loads: `prefetch of a.c:3` and `exchange-loops of a.c:3`.
fn is_of_same_loads(one: &Proposal, other: &Proposal) -> bool {
    let loads = |p: &Proposal| {
        let NamedRemedy { kind, target } = NamedRemedy::read(&p.remedy)?;
        matches!(kind, "prefetch" | "exchange-loops").then(|| target.to_owned())
    };
    loads(one).is_some() && loads(one) == loads(other)
}

/// Applies a patch, or that of a document, to the user's tree. `None` if the file is a document of
/// a fix of the finished program.
pub fn apply_given(given: &Path, tree: Option<&Path>) -> anyhow::Result<Option<i32>> {
    let (patch, tree) = match Document::read(given) {
        Ok(Document { source: None, .. }) => return Ok(None),
        Ok(Document {
            source: Some(source),
            ..
        }) => {
            let beside = given.parent().unwrap_or(Path::new("."));
            let own = tree.map_or_else(|| PathBuf::from(&source.tree), Path::to_path_buf);
            (beside.join(source.patch), Some(own))
        }
        Err(error) => {
            let bytes = std::fs::read(given)
                .with_context(|| format!("{}: cannot be read", given.display()))?;
            if bytes.first() == Some(&b'{') {
                return Err(error);
            }
            (given.to_path_buf(), tree.map(Path::to_path_buf))
        }
    };
    let changed = apply::apply(&patch, tree.as_deref())?;
    let lines: String = changed
        .iter()
        .map(|f| format!("{} is changed\n", f.display()))
        .collect();
    let undo = format!(
        "to undo it, run patch -R -p1 < {}\n",
        screen::quoted(&patch)
    );
    cli::print((lines + &undo).as_bytes()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::document::{Cause, Saved};
    use crate::fix::source::edit::Edit;

    fn proposal(start: usize, saved_pct: f64) -> Proposal {
        let edit = Edit {
            file: "/s/a.c".into(),
            start,
            end: start + 2,
            text: "x".into(),
        };
        Proposal {
            finding: Cause::default(),
            remedy: String::new(),
            what_if: String::new(),
            predicted: Some(Saved {
                saved_pct,
                saved_pct_lo: 0.0,
                saved_pct_hi: 90.0,
            }),
            change: Change::Patch(Edits::new([edit]).unwrap()),
            words: String::new(),
        }
    }

    #[test]
    fn of_patches_that_exclude_each_other_the_better_one_is_taken() {
        let list = [proposal(0, 5.0), proposal(1, 20.0), proposal(7, 1.0)];
        let (all, taken) = joined(&list);
        assert_eq!(taken, BTreeSet::from([1, 2]));
        assert_eq!(all.apply(Path::new("/s/a.c"), "0123456789"), "0x3456x9");
        let mut list = [proposal(0, 5.0), proposal(4, 20.0), proposal(7, 1.0)];
        list[0].remedy = "prefetch of a.c:3".into();
        list[1].remedy = "exchange-loops of a.c:3".into();
        list[2].remedy = "prefetch of a.c:4".into();
        assert_eq!(joined(&list).1, BTreeSet::from([1, 2]));
    }
}
