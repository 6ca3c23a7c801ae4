//! The document of a fix, `NAME.fix.json`. `docs/reference/fix.md` has its definition.

use crate::fix::clock::BenchClock;
use crate::fix::params;
use crate::fix::sequential::{Speedup, Verdict};
use anyhow::{Context, bail};
use mgz_collector::machine::identity;
use mgz_fix_library::Plan;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// Value of `format`.
pub const FORMAT: &str = "mgz-fix";
/// Value of `version`.
pub const FIX_VERSION: u32 = 1;

/// The program that a fix is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// Path, absolute.
    pub path: String,
    /// GNU build id in hex; empty if the file has none.
    pub build_id: String,
    /// XXH3 of the file's bytes, hex.
    pub hash: String,
}

impl Subject {
    /// Reads a program.
    pub fn read(path: &Path) -> anyhow::Result<Subject> {
        let bytes =
            std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let elf = mgz_elf::Elf::parse(&bytes)
            .map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let mut hash = XxHash3_64::with_seed(0);
        hash.write(&bytes);
        Ok(Subject {
            path: std::path::absolute(path)?.display().to_string(),
            build_id: elf.build_id(),
            hash: format!("{:016x}", hash.finish()),
        })
    }

    /// True if both are from one build.
    pub fn is_same_build(&self, other: &Subject) -> bool {
        match self.build_id.is_empty() || other.build_id.is_empty() {
            true => self.hash == other.hash,
            false => self.build_id == other.build_id,
        }
    }
}

/// A load instruction with a prefetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PrefetchedLoad {
    /// Link-time address, hex.
    pub address: String,
    /// Method of computing its next addresses: `gather`, `strided`, `list`, `auto`.
    pub kind: String,
    /// Number of iterations ahead.
    pub distance: u32,
}

/// Changes to be applied to a program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Loads with prefetches.
    pub loads: Vec<PrefetchedLoad>,
    /// Placement of heap blocks and static data.
    #[serde(default)]
    pub library: Plan,
}

impl Recipe {
    /// Combines both recipes. A load that both prefetch gets the distance of the first, and a site
    /// that both place gets the action of the first.
    pub fn joined(&self, other: &Recipe) -> Recipe {
        let mut joined = self.clone();
        for load in &other.loads {
            if joined.loads.iter().all(|l| l.address != load.address) {
                joined.loads.push(load.clone());
            }
        }
        let sites = other.library.sites.iter();
        for site in sites {
            if joined.library.sites.iter().all(|s| s.frames != site.frames) {
                joined.library.sites.push(site.clone());
            }
        }
        joined.library.static_huge |= other.library.static_huge;
        joined
    }

    /// True if the program needs a library.
    pub fn has_library(&self) -> bool {
        self.library != Plan::default()
    }

    /// The recipe with another distance.
    pub fn at_distance(&self, distance: u32) -> Recipe {
        let mut changed = self.clone();
        for load in &mut changed.loads {
            load.distance = distance;
        }
        changed
    }
}

/// The saved share of the time, percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The estimate.
    pub saved_pct: f64,
    /// Lower end of its interval.
    pub saved_pct_lo: f64,
    /// Upper end.
    pub saved_pct_hi: f64,
}

/// Result of timing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Ratio of the times.
    #[serde(flatten)]
    pub speedup: Speedup,
    /// The saved share of the time.
    #[serde(flatten)]
    pub saved: Saved,
    /// Number of pairs of runs.
    pub pairs: usize,
    /// Median time of the original, seconds.
    pub seconds_before: f64,
    /// Median time of the fixed program, seconds.
    pub seconds_after: f64,
}

impl Measured {
    /// The decision on a candidate, and its reason.
    pub fn decision(&self, verdict: Verdict) -> (Outcome, String) {
        if verdict == Verdict::Faster {
            return (Outcome::Kept, "its gain is above 1 %".into());
        }
        let reason = match self.saved.saved_pct_hi > 100.0 * params::MIN_GAIN {
            true => "a gain above 1 % is not certain: its interval begins lower",
            false => "no gain above 1 % was measured",
        };
        (Outcome::Dropped, reason.into())
    }
}

/// Decision on a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The candidate is part of the fix.
    Kept,
    /// The candidate is not part of the fix.
    Dropped,
}

/// The finding that a candidate comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Mechanism.
    pub kind: String,
    /// Title of the mechanism.
    pub title: String,
    /// Function.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Data object; empty if unknown.
    pub object: String,
}

/// A remedy that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The finding.
    pub finding: Cause,
    /// The remedy in words.
    pub remedy: String,
    /// Predicted gain; null if it is unknown.
    pub predicted: Option<Saved>,
    /// Measured gain; null if it was not measured.
    pub measured: Option<Measured>,
    /// The decision.
    pub outcome: Outcome,
    /// The reason of the decision.
    pub reason: String,
    /// The changes.
    pub recipe: Recipe,
    /// The change of the source, as a unified diff; empty for changes of the finished program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub patch: String,
    /// Recipe for the change of the source in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

/// A source file that a patch changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchedFile {
    /// Path, absolute.
    pub path: String,
    /// Hash of its bytes before, as in [`Subject::hash`].
    pub before: String,
    /// Hash of its bytes afterwards.
    pub after: String,
}

/// The change of the source of a fix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFix {
    /// Folder that paths of the patch are relative to.
    pub tree: String,
    /// The command that builds the program.
    pub build: String,
    /// The patch.
    pub patch: String,
    /// Files that it changes.
    pub files: Vec<PatchedFile>,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: String,
    /// [`FIX_VERSION`].
    pub version: u32,
    /// The program.
    pub program: Subject,
    /// Processor model.
    pub cpu: String,
    /// The program with its arguments.
    pub command: Vec<String>,
    /// The time that was compared.
    #[serde(default)]
    pub clock: BenchClock,
    /// The fixed program.
    pub output: String,
    /// Predicted gain of all kept remedies together; null if that of one is unknown.
    #[serde(default)]
    pub predicted: Option<Saved>,
    /// Gain of all kept remedies together.
    pub result: Measured,
    /// Everything that was tried.
    pub candidates: Vec<Tried>,
    /// Changes of the fixed program.
    pub recipe: Recipe,
    /// The fixed program.
    #[serde(default)]
    pub fixed: Subject,
    /// The change of its source; null for changes of the finished program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFix>,
}

/// End of the name of a document, and the whole name in version 0.1, which is read until version
/// 0.3.
const NAME_ENDS: &str = "fix.json";

/// Name of the document of a program's fix.
pub fn file_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    format!("{name}.{NAME_ENDS}")
}

/// The document in a folder: that of the program if one is given, else the only one.
pub fn find_in(folder: &Path, program: Option<&OsString>) -> anyhow::Result<PathBuf> {
    let old = folder.join(NAME_ENDS);
    if let Some(program) = program {
        let own = folder.join(file_name(&program.to_string_lossy()));
        return Ok(if own.exists() || !old.exists() {
            own
        } else {
            old
        });
    }
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("{}: cannot be read", folder.display()))?;
    let mut found: Vec<PathBuf> = (entries.filter_map(|e| Some(e.ok()?.path())))
        .filter(|path| path.to_string_lossy().ends_with(&format!(".{NAME_ENDS}")))
        .collect();
    found.sort();
    match &found[..] {
        [] if old.exists() => Ok(old),
        [one] => Ok(one.clone()),
        [] => bail!(
            "{}: has no fix; give --apply a document of mgz fix",
            folder.display()
        ),
        [first, ..] => bail!(
            "{}: has several fixes; name one: --apply {}",
            folder.display(),
            first.display()
        ),
    }
}

impl Document {
    /// Reads a document of this version.
    pub fn read(path: &Path) -> anyhow::Result<Document> {
        let text =
            std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let no_fix = || format!("{}: is no document of mgz fix", path.display());
        let value: serde_json::Value = serde_json::from_slice(&text).with_context(no_fix)?;
        if value["format"] != FORMAT {
            bail!(no_fix());
        }
        if value["version"] != FIX_VERSION {
            bail!(
                "{}: is a fix of another version of mgz; run mgz fix again",
                path.display()
            );
        }
        serde_json::from_value(value).with_context(no_fix)
    }

    /// The reason why the document does not fit a program on this machine; `None` if it does.
    pub fn mismatch(&self, program: &Subject) -> Option<String> {
        let here = identity::cpu();
        if !self.program.is_same_build(program) {
            return Some(format!(
                "the fix is made for another build of the program ({}, build id {}); run mgz fix again",
                self.program.path,
                named(&self.program.build_id)
            ));
        }
        (self.cpu != here).then(|| {
            format!(
                "the fix was measured on another processor ({}, and this is {}), where other distances are best; run mgz fix again",
                named(&self.cpu),
                named(&here)
            )
        })
    }
}

fn named(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_fix_library::{Action, Frame, SitePolicy};

    #[test]
    fn a_gain_is_dropped_if_its_interval_begins_too_low() {
        let of = |lo: f64, value: f64, hi: f64, verdict| {
            let measured = Measured {
                speedup: Speedup {
                    value: 1.0,
                    lo: 1.0,
                    hi: 1.0,
                },
                saved: Saved {
                    saved_pct: value,
                    saved_pct_lo: lo,
                    saved_pct_hi: hi,
                },
                pairs: 20,
                seconds_before: 1.0,
                seconds_after: 1.0,
            };
            measured.decision(verdict)
        };
        let (outcome, reason) = of(0.8, 5.0, 9.0, Verdict::NotFaster);
        assert_eq!(outcome, Outcome::Dropped);
        assert_eq!(
            reason,
            "a gain above 1 % is not certain: its interval begins lower"
        );
        let (_, reason) = of(-3.0, -1.0, 0.5, Verdict::NotFaster);
        assert_eq!(reason, "no gain above 1 % was measured");
        assert_eq!(of(2.0, 5.0, 9.0, Verdict::Faster).0, Outcome::Kept);
    }

    #[test]
    fn a_folder_has_a_document_per_program() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), "{}").unwrap();
        let found = |program: Option<&str>| {
            let path = find_in(dir.path(), program.map(OsString::from).as_ref())?;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            anyhow::Ok(name)
        };
        assert!(found(None).is_err());
        write("fix.json");
        assert_eq!(found(None).unwrap(), "fix.json");
        assert_eq!(found(Some("./app")).unwrap(), "fix.json");
        write("app.fix.json");
        assert_eq!(found(None).unwrap(), "app.fix.json");
        write("other.fix.json");
        assert_eq!(found(Some("./app")).unwrap(), "app.fix.json");
        let several = found(None).unwrap_err().to_string();
        assert!(several.contains("app.fix.json"), "{several}");
    }

    fn load(address: &str, distance: u32) -> PrefetchedLoad {
        PrefetchedLoad {
            address: address.into(),
            kind: "gather".into(),
            distance,
        }
    }

    #[test]
    fn recipes_join_without_repeating_a_load() {
        let recipe = |loads: &[PrefetchedLoad]| Recipe {
            loads: loads.to_vec(),
            ..Recipe::default()
        };
        let one = recipe(&[load("0x10", 4)]);
        let other = recipe(&[load("0x10", 8), load("0x20", 8)]);
        assert_eq!(
            one.joined(&other),
            recipe(&[load("0x10", 4), load("0x20", 8)])
        );
        assert_eq!(one.at_distance(64), recipe(&[load("0x10", 64)]));
    }

    #[test]
    fn a_site_has_one_action_in_a_joined_recipe() {
        let recipe = |offset: u64, action| Recipe {
            library: Plan {
                sites: vec![SitePolicy {
                    frames: vec![Frame {
                        module: String::new(),
                        offset,
                    }],
                    action,
                }],
                static_huge: false,
            },
            ..Recipe::default()
        };
        let one = recipe(0x11, Action::Pool(1));
        let joined = one.joined(&recipe(0x11, Action::HugePages));
        assert_eq!(joined, one);
        assert_eq!(
            one.joined(&recipe(0x22, Action::Pool(2)))
                .library
                .sites
                .len(),
            2
        );
    }

    #[test]
    fn builds_are_told_apart_by_build_id_or_by_bytes() {
        let subject = |build_id: &str, hash: &str| Subject {
            path: "app".into(),
            build_id: build_id.into(),
            hash: hash.into(),
        };
        // A stripped copy has the same code.
        assert!(subject("ab", "1").is_same_build(&subject("ab", "2")));
        assert!(!subject("ab", "1").is_same_build(&subject("cd", "1")));
        assert!(subject("", "1").is_same_build(&subject("", "1")));
        assert!(!subject("", "1").is_same_build(&subject("ab", "2")));
    }
}
