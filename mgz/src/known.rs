//! Facts stored by a run of a program for its next run: libraries that took much of the time and
//! were not instrumented, and the cost of the log of heap blocks.
//!
//! They are kept in the cache, by the program's bytes and path.

use crate::cache;
use anyhow::Context;
use mgz_annotations_schema::coverage;
use mgz_annotations_schema::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Maximum share of the CPU time for the log of heap blocks.
const HEAP_MOST: f64 = 0.01;
/// Nanoseconds that the log may take in any run.
const HEAP_FIRST: u64 = 4_000_000;
/// Minimum number of logged blocks from which the number of calls is estimated.
const HEAP_FEW: u64 = 100;

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// Libraries to be instrumented too, as arguments of `--libs`, with their shares of the time.
    pub libraries: BTreeMap<String, f64>,
    /// Share of the CPU time that the log of heap blocks took, if that was too much.
    pub heap_cost: Option<f64>,
}

/// The facts about a program, and their file.
pub struct KnownFile {
    file: PathBuf,
    /// The facts.
    pub known: Known,
}

impl KnownFile {
    /// Reads the facts of earlier runs.
    pub fn of(program: &Path) -> anyhow::Result<KnownFile> {
        let path = std::fs::canonicalize(program)?;
        let bytes = std::fs::read(&path)?;
        let name = cache::key(&bytes, [path.as_os_str(), OsStr::new("known")]);
        let file = cache::folder()?.join("known").join(format!("{name}.json"));
        let known = std::fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Ok(KnownFile { file, known })
    }

    /// Adds a run's facts. Returns sentences about the new ones.
    pub fn learn(&mut self, manifest: &Manifest, libraries: bool) -> anyhow::Result<Vec<String>> {
        let before = self.known.clone();
        let mut said = Vec::new();
        if libraries {
            said.extend(self.known.learn_libraries(manifest));
        }
        self.known.learn_heap(manifest);
        if self.known != before {
            self.write()
                .with_context(|| format!("{}: cannot be written", self.file.display()))?;
        }
        Ok(said)
    }

    fn write(&self) -> anyhow::Result<()> {
        let folder = self.file.parent().context("no folder")?;
        std::fs::create_dir_all(folder)?;
        let new = tempfile::NamedTempFile::new_in(folder)?;
        std::fs::write(new.path(), serde_json::to_vec(&self.known)?)?;
        new.persist(&self.file)?;
        Ok(())
    }
}

impl Known {
    fn learn_libraries(&mut self, manifest: &Manifest) -> Option<String> {
        let mut new = coverage::worth_taking_in(manifest);
        new.retain(|library| !self.libraries.contains_key(&library.0));
        let named: Vec<String> = new
            .iter()
            .map(|(name, share)| format!("{} ({:.0} % of the time)", short(name), 100.0 * share))
            .collect();
        self.libraries.extend(new);
        match &named[..] {
            [] => None,
            [one] => Some(format!("{one} is instrumented too in the next run")),
            [first @ .., last] => Some(format!(
                "{} and {last} are instrumented too in the next run",
                first.join(", ")
            )),
        }
    }

    fn learn_heap(&mut self, manifest: &Manifest) {
        let own = manifest.cpu_seconds - manifest.recording_seconds;
        if manifest.heap.logged >= HEAP_FEW && own > 0.0 {
            let cost = manifest.heap.ns.saturating_sub(HEAP_FIRST) as f64 / 1e9 / own;
            self.heap_cost = (cost > HEAP_MOST).then_some(cost);
        }
    }
}

/// A file's name without its folders.
fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::coverage::{Coverage, LoadedFile};
    use mgz_annotations_schema::manifest::HeapLogging;

    fn manifest(files: &[(&str, u64)], cost_ns: u64) -> Manifest {
        let files = files.iter().map(|&(path, samples)| LoadedFile {
            path: path.into(),
            needed: true,
            samples: Some(samples),
            ..LoadedFile::default()
        });
        Manifest {
            coverage: Coverage {
                time_samples: 1000,
                files: files.collect(),
                ..Coverage::default()
            },
            cpu_seconds: 2.0,
            heap: HeapLogging {
                logged: 1000,
                ns: cost_ns,
                ..HeapLogging::default()
            },
            ..Manifest::default()
        }
    }

    #[test]
    fn libraries_are_told_once_and_kept() {
        let mut known = Known::default();
        let run = manifest(&[("/lib/libm.so.6", 40), ("/lib/libz.so.1", 21)], 0);
        assert_eq!(
            known.learn_libraries(&run).as_deref(),
            Some(
                "libm.so.6 (4 % of the time) and libz.so.1 (2 % of the time) are instrumented too in the next run"
            )
        );
        assert_eq!(known.learn_libraries(&run), None);
        assert_eq!(known.learn_libraries(&manifest(&[], 0)), None);
        let names: Vec<&String> = known.libraries.keys().collect();
        assert_eq!(names, ["libm.so.6", "libz.so.1"]);
    }

    #[test]
    fn a_dear_log_of_heap_blocks_is_known() {
        let mut known = Known::default();
        known.learn_heap(&manifest(&[], 20_000_000));
        assert_eq!(known.heap_cost, None);
        known.learn_heap(&manifest(&[], 204_000_000));
        assert_eq!(known.heap_cost, Some(0.1));
        // A run without a log gives no cost.
        known.learn_heap(&Manifest::default());
        assert_eq!(known.heap_cost, Some(0.1));
    }
}
