//! `--verify`: patches are built in a copy of the tree and timed like fixes of finished programs.

use crate::cli::{self, Fix};
use crate::fix::bench::{Bench, Tested};
use crate::fix::clock::BenchClock;
use crate::fix::combine::{Maker, together};
use crate::fix::document::{self, Document, Outcome, PatchedFile, SourceFix, Subject, Tried};
use crate::fix::sequential::Test;
use crate::fix::source::edit::{Edits, Texts};
use crate::fix::source::patch_file::{self, hash};
use crate::fix::source::proposals::{Change, Proposal};
use crate::fix::source::tree::Tree;
use crate::fix::source::{Proposed, make, screen};
use crate::fix::{NOTHING_KEPT, comparison_of, params, records, workload_of};
use crate::program::Program;
use crate::report;
use anyhow::bail;
use mgz_annotations_schema::tell;
use mgz_collector::machine::identity;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Builds the copy with edits.
struct Builds {
    tree: Tree,
    texts: Texts,
}

impl Maker for Builds {
    type Change = Edits;
    type Made = PathBuf;

    fn make(&mut self, edits: &Edits) -> anyhow::Result<Result<PathBuf, String>> {
        self.tree.build(edits, &self.texts)
    }

    fn joined(&self, one: &Edits, other: &Edits) -> Option<Edits> {
        one.joined(other)
    }
}

/// Finds, builds and measures patches.
pub fn verify_patches(
    fix: &Fix,
    (program, given): (&Program, &[OsString]),
    build: &str,
    output: &Path,
) -> anyhow::Result<i32> {
    let proposed = make(fix, (program, given))?;
    let texts = proposed.sources.texts();
    let is_patch = |p: &Proposal| matches!(p.change, Change::Patch(_));
    if !proposed.list.iter().any(is_patch) {
        let none = Default::default();
        let text = screen::proposed(&program.name(), &proposed.list, &none, &proposed.no_finding);
        cli::print(text.as_bytes())?;
        return Ok(NOTHING_KEPT);
    }
    tell!(
        "mgz: building a copy of {} as it is",
        proposed.tree.display()
    );
    let mut builds = Builds {
        tree: Tree::copy(&proposed.tree, &program.file, build)?,
        texts,
    };
    let original = match builds.make(&Edits::default())? {
        Ok(original) => original,
        Err(why) => bail!("{why}"),
    };
    tell!("mgz: running it twice as it is");
    let workload = workload_of(fix, program, given)?;
    let mut bench = Bench::new(
        workload,
        comparison_of(fix),
        Test::new(fix.pairs),
        &original,
    )?;
    bench.clock = BenchClock::of(&proposed.manifest);
    let subject = Subject::read(&program.file)?;
    let own = std::fs::read(&original)
        .map(|bytes| hash(&bytes))
        .unwrap_or_default();
    let (mut tried, changes) = try_all(&proposed, &bench, (&original, &own), &mut builds)?;
    let best = together(&bench, &original, &mut builds, &mut tried, &changes)?;
    if !fix.no_keep {
        records::keep(&subject, &tried);
    }
    let Some((edits, result, made)) = best else {
        let text = format!(
            "{} is left as it is: kept 0 of {}\n",
            program.name(),
            tried.len()
        );
        cli::print((text + &screen::tried(&tried)).as_bytes())?;
        return Ok(NOTHING_KEPT);
    };
    let tree = builds.tree.root().to_path_buf();
    let words = given.iter().map(|w| w.to_string_lossy().into_owned());
    let fixed = Subject {
        path: subject.path.clone(),
        ..Subject::read(&made)?
    };
    let document = Document {
        format: document::FORMAT.into(),
        version: document::FIX_VERSION,
        program: subject,
        cpu: identity::cpu(),
        command: words.collect(),
        clock: bench.clock,
        output: output.display().to_string(),
        predicted: records::predicted_together(&tried),
        result,
        candidates: tried,
        recipe: document::Recipe::default(),
        fixed,
        source: Some(SourceFix {
            tree: tree.display().to_string(),
            build: build.to_owned(),
            patch: output.display().to_string(),
            files: files(&edits, &builds.texts),
        }),
    };
    write(
        fix,
        &document,
        &patch_file::text(&edits, &builds.texts, &tree, &notes(&document)),
        output,
    )?;
    if !fix.no_keep {
        records::keep_whole(&document);
    }
    let text = crate::fix::screen::summary_text(&document)
        + &screen::tried(&document.candidates)
        + &format!(
            "\n{} is written, and no source is changed; mgz fix --apply {} changes them\n",
            output.display(),
            screen::quoted(output)
        );
    cli::print(text.as_bytes())
}

/// Tries each patch alone. `original`: the unpatched program and the hash of its bytes.
fn try_all(
    proposed: &Proposed,
    bench: &Bench,
    (original, own): (&Path, &str),
    builds: &mut Builds,
) -> anyhow::Result<(Vec<Tried>, Vec<Edits>)> {
    let (mut all, mut changes) = (Vec::new(), Vec::new());
    for proposal in &proposed.list {
        let mut tried = untried(proposal);
        let edits = match &proposal.change {
            Change::Patch(edits) => edits.clone(),
            _ => Edits::default(),
        };
        if !edits.is_empty() {
            let shown = edits.diff(&builds.texts, builds.tree.root());
            tried.patch = shown;
            screen::tell_proposal(proposal);
            try_one(&mut tried, &edits, bench, (original, own), builds)?;
            crate::fix::screen::tell_result(&tried);
        }
        all.push(tried);
        changes.push(edits);
    }
    Ok((all, changes))
}

fn untried(proposal: &Proposal) -> Tried {
    let reason = match &proposal.change {
        Change::Patch(_) => "",
        Change::Comment(_) => "it is a comment, which saves no time",
        Change::Words => "there is no patch that is safe by itself",
    };
    Tried {
        finding: proposal.finding.clone(),
        remedy: proposal.remedy.clone(),
        predicted: proposal.predicted,
        measured: None,
        outcome: Outcome::Dropped,
        reason: reason.into(),
        recipe: document::Recipe::default(),
        patch: String::new(),
        words: proposal.words.clone(),
    }
}

fn try_one(
    tried: &mut Tried,
    edits: &Edits,
    bench: &Bench,
    (original, own): (&Path, &str),
    builds: &mut Builds,
) -> anyhow::Result<()> {
    let least = 100.0 * params::MIN_GAIN;
    if tried.predicted.is_some_and(|p| p.saved_pct_hi < least) {
        tried.reason = "its predicted gain is below 1 %, so it was not tried".into();
        return Ok(());
    }
    let made = match builds.make(edits)? {
        Ok(made) => made,
        Err(why) => {
            tried.reason = why;
            return Ok(());
        }
    };
    let bytes = std::fs::read(&made)?;
    if hash(&bytes) == own {
        tried.reason = "the built program is the same with it: the build command may compile other files than those of the copy".into();
        return Ok(());
    }
    match bench.test(original, &made)? {
        Tested::Different(why) => tried.reason = why,
        Tested::Timed(verdict, measured) => {
            tried.measured = Some(measured);
            (tried.outcome, tried.reason) = measured.decision(verdict);
        }
    }
    Ok(())
}

/// Lines before the patch.
fn notes(document: &Document) -> Vec<String> {
    let kept = (document.candidates.iter()).filter(|t| t.outcome == Outcome::Kept);
    let saved = document.result.saved;
    let mut notes: Vec<String> = kept.map(|t| t.remedy.clone()).collect();
    notes.push(format!(
        "measured together: {:.1} % ({:.1}-{:.1}) less time",
        saved.saved_pct, saved.saved_pct_lo, saved.saved_pct_hi
    ));
    notes
}

/// Hashes of the changed files.
fn files(edits: &Edits, texts: &Texts) -> Vec<PatchedFile> {
    let file = |path: &Path| {
        let text = texts.get(path)?;
        Some(PatchedFile {
            path: path.display().to_string(),
            before: hash(text.as_bytes()),
            after: hash(edits.apply(path, text).as_bytes()),
        })
    };
    edits.files().into_iter().filter_map(file).collect()
}

/// Writes the patch and the document.
fn write(fix: &Fix, document: &Document, patch: &str, output: &Path) -> anyhow::Result<()> {
    let file = match &fix.json {
        Some(file) => std::path::absolute(file)?,
        None => output.with_file_name(document::file_name(&document.program.path)),
    };
    crate::fix::workload::stop_if_asked()?;
    report::write_private(output, patch.as_bytes())?;
    report::write_private(&file, &serde_json::to_vec_pretty(document)?)
}
