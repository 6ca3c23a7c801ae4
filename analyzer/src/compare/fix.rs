//! A fix of `mgz fix` that leads from the base to the new build: its predicted gain next to the
//! measured ones.
//!
//! `mgz fix` notes fixes in `fixes` in the cache folder and in `NAME.fix.json`. Both name the original
//! program and the fixed one by build id and hash, and the files that a patch changes.

use crate::compare::change::Change;
use crate::compare::entries::{EntryKind, Metric, RunEntries};
use crate::compare::original::Original;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// A saved share of the time in percent, with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The estimate.
    pub saved_pct: f64,
    /// Lower end; null if it is unknown.
    pub saved_pct_lo: Option<f64>,
    /// Upper end.
    pub saved_pct_hi: Option<f64>,
}

/// A file that a patch changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct PatchedFile {
    path: String,
    after: String,
}

/// A record of a fix, or a document with one fix.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Record {
    program: Original,
    fixed: Original,
    remedies: Vec<String>,
    candidates: Vec<Candidate>,
    predicted: Option<Saved>,
    /// Set in records.
    measured: Option<Saved>,
    /// Set in documents.
    result: Option<Saved>,
    /// Set in records.
    files: Option<Vec<PatchedFile>>,
    /// In documents.
    source: Option<Source>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Candidate {
    remedy: String,
    outcome: Outcome,
}

/// Decision of `mgz fix` on a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Kept,
    #[default]
    #[serde(other)]
    Dropped,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Source {
    files: Vec<PatchedFile>,
}

/// A fix whose gain is compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KnownFix {
    /// The kept remedies.
    pub remedies: Vec<String>,
    /// Predicted gain; null if it is unknown.
    pub predicted: Option<Saved>,
    /// Gain that `mgz fix` has measured.
    pub measured: Option<Saved>,
    /// Gain in the compared runs, by their CPU time; null if it is unknown.
    pub achieved: Option<Saved>,
}

/// The fix that leads from the base to the new build. None if none is known.
pub fn known(base: &[RunEntries], new: &[RunEntries], changes: &[Change]) -> Option<KnownFix> {
    let programs = |runs: &[RunEntries]| -> BTreeSet<Original> {
        runs.iter()
            .flat_map(|r| r.originals.iter().cloned())
            .collect()
    };
    let (base, new) = (programs(base), programs(new));
    let records = places(base.iter().chain(&new));
    let mut records = records.iter().flat_map(|place| read(place));
    // The last one is the newest.
    let record = records.rfind(|r| r.leads(&base, &new))?;
    Some(record.into_known(changes))
}

impl Record {
    /// True if it leads from a program of `base` to one of `new`.
    fn leads(&self, base: &BTreeSet<Original>, new: &BTreeSet<Original>) -> bool {
        let is_original = |o: &Original| o.is(&self.program, &self.fixed);
        let is_patched = |o: &Original| {
            o.name() == self.program.name() && !is_original(o) && self.is_in_sources()
        };
        base.iter().any(is_original)
            && new
                .iter()
                .any(|o| o.is(&self.fixed, &self.program) || is_patched(o))
    }

    fn files(&self) -> &[PatchedFile] {
        match (&self.files, &self.source) {
            (Some(files), _) => files,
            (None, Some(source)) => &source.files,
            (None, None) => &[],
        }
    }

    /// True if the sources now have the contents after the patch. A build from patched sources has
    /// a different build id than the fixed program.
    fn is_in_sources(&self) -> bool {
        let is_patched = |file: &PatchedFile| {
            let mut hash = XxHash3_64::with_seed(0);
            std::fs::read(&file.path).is_ok_and(|bytes| {
                hash.write(&bytes);
                format!("{:016x}", hash.finish()) == file.after
            })
        };
        !self.files().is_empty() && self.files().iter().all(is_patched)
    }

    fn into_known(self, changes: &[Change]) -> KnownFix {
        let kept = self
            .candidates
            .iter()
            .filter(|c| c.outcome == Outcome::Kept);
        let remedies = match self.remedies.is_empty() {
            true => kept.map(|c| c.remedy.clone()).collect(),
            false => self.remedies,
        };
        KnownFix {
            remedies,
            predicted: self.predicted,
            measured: self.measured.or(self.result),
            achieved: achieved(changes),
        }
    }
}

/// Files that may hold records: the one in the cache, and documents of fixes in the current folder and
/// next to programs. Version 0.1 called them `fix.json`, which is read until version 0.3.
fn places<'a>(programs: impl Iterator<Item = &'a Original>) -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let here = Path::new(".");
    let of_program = |program: &'a Original| {
        let folders = [here].into_iter().chain(Path::new(&program.path).parent());
        let name = program.name().unwrap_or_default().to_string_lossy();
        let names = ["fix.json".to_owned(), format!("{name}.fix.json")];
        folders.flat_map(move |folder| names.clone().map(|name| folder.join(name)))
    };
    let documents: BTreeSet<PathBuf> = programs.flat_map(of_program).collect();
    (documents.into_iter())
        .chain(cache.map(|c| c.join("mgz").join("fixes")))
        .collect()
}

/// Records of a file, which is a document or has a record in each line. Other text is skipped.
fn read(place: &Path) -> Vec<Record> {
    let Ok(text) = std::fs::read_to_string(place) else {
        return Vec::new();
    };
    if let Ok(one) = serde_json::from_str(&text) {
        return vec![one];
    }
    // Records of single remedies name no fixed program.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Saved share of the CPU time of the runs.
fn achieved(changes: &[Change]) -> Option<Saved> {
    let is_cpu = |c: &&Change| c.kind == EntryKind::Run && c.metric == Metric::Cpu;
    let change = changes.iter().find(is_cpu)?;
    Some(Saved {
        saved_pct: -change.change_pct?,
        saved_pct_lo: change.change_hi.map(|x| -x),
        saved_pct_hi: change.change_lo.map(|x| -x),
    })
}

impl KnownFix {
    /// The gains side by side, as a sentence without its full stop.
    pub fn sentence(&self) -> String {
        let gain = |saved: Option<Saved>| saved.map_or_else(|| "an unknown gain".into(), in_words);
        format!(
            "fix ({}): predicted {}; measured by mgz fix {}; achieved in these runs {}",
            self.remedies.join(", "),
            gain(self.predicted),
            gain(self.measured),
            gain(self.achieved)
        )
    }
}

/// For example `38 % (31–44) less time`.
fn in_words(saved: Saved) -> String {
    let (sign, word) = match saved.saved_pct < 0.0 {
        true => (-1.0, "more"),
        false => (1.0, "less"),
    };
    let mut ends = [saved.saved_pct_lo, saved.saved_pct_hi].map(|e| e.map(|e| sign * e));
    if sign < 0.0 {
        ends.reverse();
    }
    let interval = match ends {
        [Some(lo), Some(hi)] => format!(" ({lo:.0}–{hi:.0})"),
        _ => String::new(),
    };
    format!("{:.0} %{interval} {word} time", sign * saved.saved_pct)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(path: &str, build_id: &str, hash: &str) -> Original {
        Original {
            path: path.into(),
            build_id: build_id.into(),
            hash: hash.into(),
        }
    }

    fn sides(base: Original, new: Original) -> [BTreeSet<Original>; 2] {
        [BTreeSet::from([base]), BTreeSet::from([new])]
    }

    #[test]
    fn fixed_files_that_keep_the_build_id_are_told_apart_by_their_bytes() {
        let record = Record {
            program: original("/p/app", "ab", "1"),
            fixed: original("/p/app.fixed", "ab", "2"),
            ..Record::default()
        };
        let leads = |base: &str, new: &str| {
            let side = |hash: &str| original("/p/app", "ab", hash);
            let [base, new] = sides(side(base), side(new));
            record.leads(&base, &new)
        };
        assert!(leads("1", "2"));
        assert!(!leads("2", "1") && !leads("1", "1") && !leads("1", "3"));
    }

    #[test]
    fn a_new_build_of_patched_sources_belongs_to_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.c");
        std::fs::write(&source, "new").unwrap();
        let mut hash = XxHash3_64::with_seed(0);
        hash.write(b"new");
        let record = Record {
            program: original("/p/app", "ab", "1"),
            fixed: original("/p/app", "cd", "2"),
            files: Some(vec![PatchedFile {
                path: source.display().to_string(),
                after: format!("{:016x}", hash.finish()),
            }]),
            ..Record::default()
        };
        let [base, new] = sides(original("/p/app", "ab", "1"), original("/p/app", "ef", "3"));
        assert!(record.leads(&base, &new));
        let [_, other] = sides(Original::default(), original("/p/other", "ef", "3"));
        assert!(!record.leads(&base, &other));
        std::fs::write(&source, "old").unwrap();
        assert!(!record.leads(&base, &new));
    }

    #[test]
    fn documents_and_lines_are_read_and_gains_stand_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let saved = |pct: f64| serde_json::json!({"saved_pct": pct, "saved_pct_lo": pct - 1.0, "saved_pct_hi": pct + 1.0});
        let document = serde_json::json!({
            "format": "mgz-fix", "program": {"path": "/p/app", "build_id": "ab", "hash": "1"},
            "result": saved(-5.0), "predicted": saved(30.0),
            "candidates": [{"remedy": "x", "outcome": "kept"}, {"remedy": "y", "outcome": "dropped"}],
        });
        let place = dir.path().join("fix.json");
        std::fs::write(&place, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
        let [record] = &read(&place)[..] else {
            panic!("no record");
        };
        assert_eq!(
            record.clone().into_known(&[]).sentence(),
            "fix (x): predicted 30 % (29–31) less time; measured by mgz fix 5 % (4–6) more time; achieved in these runs an unknown gain"
        );
        let line = serde_json::json!({"program": "app", "outcome": "kept"});
        let whole = serde_json::json!({"program": {"path": "/p/app"}, "remedies": ["z"]});
        std::fs::write(&place, format!("{line}\n{whole}\ndamaged\n")).unwrap();
        let found = read(&place);
        assert_eq!(
            (found.len(), &found[0].remedies[..]),
            (1, &["z".to_owned()][..])
        );
    }
}
