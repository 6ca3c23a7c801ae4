//! A partial result: the findings of one pass over a trace, kept in a file to be merged with others
//! later.
//!
//! Merging is associative and, up to the order of equal entries in tables, commutative. So traces
//! of many processes or machines can be analysed where they are stored and merged in any grouping.
//! Code is matched by module, name, line and inline chain. Address spaces of different partial
//! results are different. The zoom trees need the rows and are left out.

mod stored;

use crate::data::code_map::CodeMap;
use crate::data::group::Group;
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo, Spot};
use crate::engine::{BucketOutcome, EngineOutcome};
use crate::input::weights::Weights;
use crate::stages::fetches::Fetched;
use crate::stages::footprint::{Entry, GroupCount, Key};
use crate::stages::incidence::{Incidence, Mark, SAMPLE_RANK_PERIOD};
use crate::stages::reuse::ReuseTotals;
use mgz_annotations_schema::TraceState;
use mgz_annotations_schema::manifest::Manifest;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use stored::{PARTIAL_MAGIC, Stored};

/// Why a partial result cannot be written, read or merged.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct PartialError {
    /// The file.
    pub path: String,
    /// The error and the remedy.
    pub cause: String,
}

/// A partial result in memory.
pub struct Partial {
    /// The manifest of the trace; sums for merged ones.
    pub manifest: Manifest,
    /// Names.
    pub code: CodeMap,
    /// Counts.
    pub outcome: EngineOutcome,
    /// Bytes of a block of reuse distance.
    pub block: u64,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

impl Partial {
    /// Writes it. An existing file is replaced only after all was written.
    pub fn write(&self, path: &Path) -> Result<(), PartialError> {
        let fail = |cause: String| PartialError {
            path: path.display().to_string(),
            cause,
        };
        let temporary = path.with_extension(format!("tmp{}", std::process::id()));
        let written = self
            .write_to(&temporary)
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(|e| {
            fail(format!(
                "cannot be written ({e}); choose another place or make room"
            ))
        })
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        file.write_all(PARTIAL_MAGIC)?;
        Stored::of(self)?.write(&mut file)?;
        file.into_inner().map_err(|e| e.into_error())?.sync_data()
    }

    /// True if a file begins like a partial result.
    pub fn is_one(path: &Path) -> bool {
        let mut magic = [0; 8];
        std::fs::File::open(path)
            .and_then(|mut f| f.read_exact(&mut magic))
            .is_ok()
            && magic == *PARTIAL_MAGIC
    }

    /// Reads a file that this version's [`Partial::write`] wrote.
    pub fn read(path: &Path) -> Result<Partial, PartialError> {
        let fail = |cause: String| PartialError {
            path: path.display().to_string(),
            cause: format!("{cause}; give a file that mgz-analyze --partial wrote"),
        };
        let mut file =
            std::io::BufReader::new(std::fs::File::open(path).map_err(|e| fail(e.to_string()))?);
        let mut magic = [0; 8];
        file.read_exact(&mut magic)
            .map_err(|_| fail("not a partial result (too short)".into()))?;
        if magic != *PARTIAL_MAGIC {
            return Err(fail("not a partial result of this version".into()));
        }
        let read = || {
            let stored = Stored::read(file)?;
            stored.check()?;
            stored.into_partial()
        };
        read().map_err(|cause: String| fail(format!("damaged partial result: {cause}")))
    }

    /// Merges another one into it.
    pub fn merge(&mut self, other: Partial) -> Result<(), String> {
        self.can_merge(&other)?;
        let first_sample = self.first_free_sample(&other)?;
        let renumbering = Renumbering {
            pieces: self.code.adopt(&other.code),
            first_space: self.outcome.spaces.len() as u32,
            first_sample,
        };
        let (mine, mut theirs) = (&mut self.outcome, other.outcome);
        if theirs.buckets.is_empty() {
            return Ok(());
        }
        let groups = self.code.groups();
        renumbering.merge_bucket(&mut mine.buckets[0], theirs.buckets.swap_remove(0), groups);
        renumbering.merge_fetches(&mut mine.fetches, &theirs.fetches);
        mine.windows.merge(&theirs.windows);
        renumbering.merge_weights(mine, &mut theirs);
        let strides = theirs.strides.iter();
        mine.strides
            .extend(strides.map(|&(piece, bin, n)| (renumbering.pieces[piece as usize], bin, n)));
        renumbering.merge_marks(&mut mine.incidence, &theirs.incidence);
        let samples = theirs.samples.into_iter();
        mine.samples.extend(samples.map(|s| renumbering.sample(s)));
        mine.spaces.extend(theirs.spaces);
        mine.damage.extend(theirs.damage);
        mine.census.merge(&theirs.census);
        self.warnings.extend(other.warnings);
        add_totals(&mut self.manifest, other.manifest);
        Ok(())
    }

    fn can_merge(&self, other: &Partial) -> Result<(), String> {
        if self.block != other.block {
            return Err(format!(
                "it was made with --block {}, the ones before with {}; make it again with the same",
                other.block, self.block
            ));
        }
        if self.manifest.mode != other.manifest.mode {
            return Err(format!(
                "it is of a trace of mode {}, the ones before of mode {}; merge traces of one mode",
                other.manifest.mode, self.manifest.mode
            ));
        }
        Ok(())
    }

    /// The number here of sample 0 of `other`.
    fn first_free_sample(&self, other: &Partial) -> Result<u32, String> {
        let numbers = |outcome: &EngineOutcome| outcome.samples.iter().map(|s| s.sample).max();
        let end = numbers(&self.outcome).map_or(0, |last| last + 1);
        let end = end.max(self.outcome.incidence.samples_end());
        // A sample's number decides if its marks are kept, so numbers shift by multiples of
        // SAMPLE_RANK_PERIOD.
        let last = numbers(&other.outcome).unwrap_or(0);
        let last = last.max(other.outcome.incidence.samples_end());
        end.checked_next_multiple_of(SAMPLE_RANK_PERIOD)
            .filter(|first| first.checked_add(last).is_some())
            .ok_or_else(|| {
                "there are more samples than numbers for them; merge fewer partial results".into()
            })
    }
}

/// Renumbering from one partial result to another.
struct Renumbering {
    /// New line piece by old one.
    pieces: Vec<u32>,
    /// New number of address space 0.
    first_space: u32,
    /// New number of sample 0.
    first_sample: u32,
}

impl Renumbering {
    fn group(&self, group: Group) -> Group {
        Group::new(self.pieces[group.piece() as usize], group.class())
    }

    fn merge_bucket(&self, mine: &mut BucketOutcome, theirs: BucketOutcome, groups: usize) {
        for entry in theirs.footprint.entries() {
            let key = entry.key();
            let key = Key {
                space: key.space + self.first_space,
                line: key.line,
                group: self.group(key.group),
            };
            mine.footprint.add(Entry::new(key, *entry.maps()));
        }
        for (at, count) in theirs.counts.iter().enumerate() {
            let at = self.group(Group::from_index(at)).index();
            if mine.counts.len() <= at {
                mine.counts.resize(at + 1, GroupCount::default());
            }
            mine.counts[at].rows += count.rows;
            mine.counts[at].implied += count.implied;
        }
        mine.reuse.merge(self.reuse(theirs.reuse, groups));
    }

    fn reuse(&self, theirs: ReuseTotals, groups: usize) -> ReuseTotals {
        let mut renumbered = ReuseTotals::new(None);
        renumbered.reserve(groups);
        for at in 0..theirs.groups.len() {
            let to = self.group(Group::from_index(at)).index();
            renumbered.groups[to].merge(&theirs.groups[at]);
            renumbered.distances[to].merge(&theirs.distances[at]);
            if let Some(sums) = &theirs.replicates[at] {
                let into = renumbered.replicates[to].get_or_insert_default();
                into.iter_mut()
                    .zip(sums.iter())
                    .for_each(|(a, b)| a.merge(b));
            }
        }
        renumbered.samples = theirs.samples;
        renumbered.intervals = theirs.intervals;
        renumbered.levels = theirs.levels;
        renumbered
    }

    fn merge_fetches(&self, mine: &mut Vec<Fetched>, theirs: &[Fetched]) {
        for (at, &fetched) in theirs.iter().enumerate() {
            let at = self.group(Group::from_index(at)).index();
            if mine.len() <= at {
                mine.resize(at + 1, Fetched::default());
            }
            mine[at].merge(fetched);
        }
    }

    /// The sum has weights only if both have them.
    fn merge_weights(&self, mine: &mut EngineOutcome, theirs: &mut EngineOutcome) {
        if theirs.samples.is_empty() {
            return;
        }
        let known = mine.weights.is_some() || mine.samples.is_empty();
        mine.weights = match (mine.weights.take(), theirs.weights.take()) {
            (weights, Some(theirs)) if known => {
                let mut weights: Arc<Weights> = weights.unwrap_or_default();
                Arc::make_mut(&mut weights).append(&theirs, self.first_sample);
                Some(weights)
            }
            _ => {
                mine.windows.forget_weights();
                None
            }
        };
    }

    fn merge_marks(&self, mine: &mut Incidence, theirs: &Incidence) {
        let mark = |m: &Mark| Mark {
            address: m.address,
            group: self.group(m.group),
            sample: m.sample + self.first_sample,
        };
        let mut spaces: Vec<Vec<Mark>> = vec![Vec::new(); self.first_space as usize];
        let marks_of = |space: &Vec<Mark>| space.iter().map(mark).collect();
        spaces.extend(theirs.spaces().iter().map(marks_of));
        let theirs = Incidence::from_parts(spaces, theirs.gathered());
        *mine = Incidence::gather(vec![std::mem::take(mine), theirs]);
    }

    fn sample(&self, sample: SampleInfo) -> SampleInfo {
        let spot = |spot: Spot| match spot.group {
            NO_LOAD => spot,
            group => Spot {
                group: self.group(group),
                ..spot
            },
        };
        SampleInfo {
            sample: sample.sample + self.first_sample,
            begin: sample.begin.map(|b| Beginning {
                first: spot(b.first),
                before: spot(b.before),
            }),
            ..sample
        }
    }
}

/// Adds the totals of another trace.
fn add_totals(mine: &mut Manifest, other: Manifest) {
    let (a, b) = (&mut mine.totals, other.totals);
    a.records_executed += b.records_executed;
    a.records_kept += b.records_kept;
    a.rows += b.rows;
    a.stores = a.stores.zip(b.stores).map(|(a, b)| a + b);
    a.implied_const += b.implied_const;
    a.samples += b.samples;
    // The sum is known only if both parts are.
    let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
    let greater = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
    a.loads_executed = a.loads_executed.zip(b.loads_executed).map(|(a, b)| a + b);
    a.loads_executed_error = greater(a.loads_executed_error, b.loads_executed_error);
    a.loads_executed_estimate = sum(a.loads_executed_estimate, b.loads_executed_estimate);
    a.loads_executed_assumed_error = greater(
        a.loads_executed_assumed_error,
        b.loads_executed_assumed_error,
    );
    a.loads_executed_assumed = sum(a.loads_executed_assumed, b.loads_executed_assumed);
    for (into, from) in [
        (&mut a.dropped, b.dropped),
        (&mut a.truncated_windows, b.truncated_windows),
    ] {
        from.into_iter()
            .for_each(|(cause, n)| *into.entry(cause).or_default() += n);
    }
    mine.wall_seconds = mine.wall_seconds.max(other.wall_seconds);
    if mine.state != other.state {
        mine.state = TraceState::Partial;
    }
    mine.threads.extend(other.threads);
    mine.problems.extend(other.problems);
    mine.coverage.add(other.coverage);
    if other.no_samples.is_empty() {
        mine.no_samples.clear();
    }
}
