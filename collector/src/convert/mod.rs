//! Spill files in, `samples/part-*.parquet` out.
//!
//! Three facts make this hard: a trace has hundreds of millions of rows, the output must be sorted
//! by thread, and memory must stay bounded. So one thread decodes and expands (cheap, in order),
//! several encode row groups (dear, independent), and one appends them to the files in order. The
//! number of row groups on the way is bounded.
//!
//! Guarantees: a part appears under its name only when it is whole; on any error all parts are
//! removed and the spill files stay, so that nothing is lost or counted twice; spill files of
//! another version are such an error; damaged or torn spill segments are left out, counted and
//! named.

pub(crate) mod convert_error;
pub(crate) mod early_sidecars;
mod encode;
mod expand;
mod expanded_window;
pub(crate) mod online;
mod pages;
mod release;
pub(crate) mod speed;
mod stretches;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use crate::util::folder::make_dir;

pub use crate::convert::speed::executed::{Executed, ExecutedLoads};
pub use encode::Compression;

use crate::convert::convert_error::{ConvertError, io};
use crate::convert::early_sidecars::SidecarsById;
use crate::convert::online::Carried;
use crate::paths::waiting::LoadLocator;
use mgz_annotations_schema::expand::Counters;
use mgz_annotations_schema::manifest::{Manifest, Module, SAMPLES_DIR, SPILL_DIR};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{self, SPILL_VERSION, SpillError, ThreadKey};
use mgz_annotations_schema::{TraceMode, TriggerEvent};
use mgz_models::statistics::ROUNDED_NORMAL_QUANTILE_OF_95_PCT;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use windows::PerWindow;

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct ConvertOptions {
    /// Codec of the columns.
    pub compression: Compression,
    /// Rows of a part, rounded up to row groups.
    pub part_rows: usize,
    /// Rows of a row group.
    pub group_rows: usize,
    /// Encoding threads.
    pub threads: usize,
    /// Bound on the parts together.
    pub max_bytes: Option<u64>,
    /// Gives the bytes of spill files back to the file system as soon as they are read, so that
    /// records and columns do not lie side by side. What cannot be converted is lost then.
    pub release: bool,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            compression: Compression::Lz4,
            part_rows: 1 << 24,
            group_rows: 1 << 18,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            max_bytes: None,
            release: false,
        }
    }
}

/// Rows and samples of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRows {
    /// Rows written.
    pub rows: u64,
    /// Samples.
    pub samples: u64,
    /// Records read.
    pub records: u64,
}

/// Result of the conversion.
#[derive(Debug, Default)]
pub struct ConvertOutcome {
    /// Counts of the expansion.
    pub counters: Counters,
    /// Number of rows that are stores.
    pub stores: u64,
    /// By thread.
    pub threads: BTreeMap<ThreadKey, ThreadRows>,
    /// Bytes of the parts.
    pub bytes: u64,
    /// Parts.
    pub parts: usize,
    /// Segments that could not be decoded.
    pub damaged_segments: u64,
    /// Files that end inside a segment.
    pub torn_files: u64,
    /// `burst`: loads that were executed in instrumented code, estimated.
    pub loads_executed: ExecutedLoads,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// Samples with rows, but for those of `full` that ended in memory.
    pub samples: Vec<SampleSeen>,
    windows: Option<windows::WindowCollector>,
    /// `burst`: code in which windows begin.
    pub places: Option<LoadLocator>,
}

/// A window that has become a sample, or the last segment of a sample of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleSeen {
    /// Its thread.
    pub thread: ThreadKey,
    /// Its number.
    pub sample: u32,
    /// Number of its first slot among all that the thread has written.
    pub first_slot: u64,
    /// CLOCK_MONOTONIC of its end.
    pub end_ns: u64,
}

/// Further sentences are not kept.
const MAX_PROBLEMS: usize = 20;

impl ConvertOutcome {
    fn problem(&mut self, sentence: String) {
        match self.problems.len() {
            n if n < MAX_PROBLEMS => self.problems.push(sentence),
            MAX_PROBLEMS => self
                .problems
                .push("further damage of this kind is counted in totals.dropped only".into()),
            _ => {}
        }
    }
}

/// Expands all spill files of a trace folder into its `samples/`. The manifest's modules and their
/// sidecars must be there; the manifest is not changed.
pub fn convert(
    trace: &Path,
    manifest: &Manifest,
    options: &ConvertOptions,
) -> Result<ConvertOutcome, ConvertError> {
    convert_rest(trace, manifest, options, Begun::default())
}

/// Work for the conversion that was done while the program ran.
#[derive(Default)]
pub(crate) struct Begun {
    /// The first records of a thread were expanded: the outcome counts these too.
    pub(crate) carried: Option<Carried>,
    /// Some sidecars were read.
    pub(crate) sidecars: SidecarsById,
}

/// As [`convert`], for the rest of the work.
pub(crate) fn convert_rest(
    trace: &Path,
    manifest: &Manifest,
    options: &ConvertOptions,
    begun: Begun,
) -> Result<ConvertOutcome, ConvertError> {
    let spill_dir = trace.join(SPILL_DIR);
    let files = spill::list(&spill_dir).map_err(io(&spill_dir))?;
    for (_, path) in &files {
        // A file that cannot be read at all is damage like any other.
        if let Some(found) = spill::version(path)
            .ok()
            .flatten()
            .filter(|&found| found != SPILL_VERSION)
        {
            return Err(ConvertError::OtherVersion {
                path: path.clone(),
                error: SpillError::Version { found },
            });
        }
    }
    let sidecars = sidecars(trace, manifest, begun.sidecars)?;
    let samples = trace.join(SAMPLES_DIR);
    make_dir(&samples).map_err(io(&samples))?;
    remove_parts(&samples);
    let is_burst = manifest.mode == TraceMode::Burst;
    let (source, places) = rayon::join(
        || expand::ExpansionSource::new(manifest, &sidecars, files, begun.carried),
        || is_burst.then(|| LoadLocator::new(&manifest.modules, &sidecars)),
    );
    let mut source = source?;
    source.release = options.release;
    drop(sidecars);
    let done = encode::convert_source(source, &samples, options).and_then(|mut outcome| {
        if let Some(windows) = outcome.windows.take() {
            outcome.places = places;
            outcome.loads_executed =
                windows::write_windows(trace, &windows.list, per_window(manifest))?;
        }
        Ok(outcome)
    });
    if done.is_err() {
        remove_parts(&samples);
    }
    done
}

/// `burst`: the time or loads per window: the distance of triggers, plus a share for triggers in
/// instrumented code that could not begin a window.
fn per_window(manifest: &Manifest) -> Option<PerWindow> {
    let count = |what: &str| manifest.totals.triggers.get(what).copied().unwrap_or(0) as f64;
    let (came, windows) = (count("came"), count("windows") - count("empty"));
    if windows < 1.0 {
        return None;
    }
    let begun = windows + count("busy") + count("no_room") + count("empty");
    let each = begun / windows;
    let event = manifest.trigger_event();
    if event.is_loads() {
        // Triggers hit instrumented code by chance, and threads end between two triggers.
        let chance =
            ROUNDED_NORMAL_QUANTILE_OF_95_PCT * ((1.0 - begun / came.max(begun)) / begun).sqrt();
        // For software events, the kernel lets the first event after a change of the period
        // trigger. One trigger in eight follows such a change.
        let early = if event == TriggerEvent::SoftwareLoads {
            1.0 / 7.0
        } else {
            0.0
        };
        let periods = match manifest.totals.trigger_periods {
            0 => manifest.period as f64 * begun,
            sum => sum as f64,
        };
        return Some(PerWindow::Loads {
            loads: periods,
            asked: manifest.period,
            error: chance + early + manifest.threads.len() as f64 / begun,
        });
    }
    let asked = if manifest.rate > 0.0 {
        1e9 / manifest.rate
    } else {
        0.0
    };
    // A timer with a period below the tick comes only at the tick.
    let late = asked > 0.0 && event == TriggerEvent::CpuTimeByTimers;
    let slower = if late {
        (manifest.recorded_cpu_seconds() * 1e9 / came.max(1.0) / asked).max(1.0)
    } else {
        1.0
    };
    Some(PerWindow::Time {
        each,
        asked,
        slower,
        toll: manifest.trigger_ns as f64,
        outside: count("outside") / begun.max(1.0),
    })
}

/// The sidecars of the manifest's modules by identity. `early`: those that were read.
fn sidecars(
    trace: &Path,
    manifest: &Manifest,
    mut early: SidecarsById,
) -> Result<SidecarsById, ConvertError> {
    let mut wanted: BTreeMap<&str, &Module> = BTreeMap::new();
    for module in manifest.modules.iter().filter(|m| !m.sidecar.is_empty()) {
        wanted.entry(&module.sidecar_id).or_insert(module);
    }
    early.retain(|id, sidecar| sidecar.id_hex() == *id && wanted.remove(id.as_str()).is_some());
    let read = |(id, module): (&str, &Module)| {
        let path = trace.join(&module.sidecar);
        let sidecar = Sidecar::read(&path).map_err(|error| ConvertError::Sidecar {
            path: path.clone(),
            error,
        })?;
        if sidecar.id_hex() != id {
            return Err(ConvertError::OtherSidecar {
                path,
                found: sidecar.id_hex(),
                expected: id.to_owned(),
            });
        }
        Ok((id.to_owned(), sidecar))
    };
    let read: Result<SidecarsById, ConvertError> = wanted.into_par_iter().map(read).collect();
    early.extend(read?);
    Ok(early)
}

/// Removes parts, finished or not.
fn remove_parts(samples: &Path) {
    let Ok(entries) = std::fs::read_dir(samples) else {
        return;
    };
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if name.starts_with("part-")
            && (name.ends_with(".parquet") || name.ends_with(".parquet.tmp"))
        {
            // The next step overwrites or reports a file that cannot be removed.
            let _ = std::fs::remove_file(&path);
        }
    }
}
