//! Many traces of one job: a short result for each rank, and merged results for many ranks.
//!
//! A result has one short row per rank. For each function, line, object and finding, it has the
//! spread of a few metrics over the ranks ([`spread::RankSpread`]). Heat maps share one grid of
//! time, in parts of each rank's run, and names of objects, because addresses of different ranks
//! are unrelated. All values are whole numbers, sorted by name. So merging is associative and
//! commutative to the byte, and a result grows only by one row per rank.

pub mod file;
pub(crate) mod groups;
pub mod input_key;
pub mod of_trace;
pub mod spread;
pub mod view;

use serde::{Deserialize, Serialize};
use spread::RankSpread;
use std::collections::BTreeMap;

/// Columns of the common grid of time.
pub const COLUMNS: usize = 32;
/// Numbers of a rank's profile, see [`RankRow::profile`].
pub const PROFILE: usize = 16;

/// A metric of a whole rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Executed loads; recorded and implied ones if no estimate is known.
    Loads,
    /// Distinct addresses, of the whole run if that is estimated.
    Footprint,
    /// Mean reuse distance, thousandths of a block.
    Distance,
    /// Misses of the last cache level per million loads.
    Misses,
    /// CPU time, microseconds.
    Cpu,
    /// Wall-clock time, microseconds.
    Wall,
}

/// The metrics of a rank, in the order of the tables.
pub const METRICS: [(Metric, &str, f64); 6] = [
    (Metric::Loads, "loads", 1.0),
    (Metric::Footprint, "footprint", 1.0),
    (Metric::Distance, "distance_mean", 1e-3),
    (Metric::Misses, "miss_ratio", 1e-6),
    (Metric::Cpu, "cpu_seconds", 1e-6),
    (Metric::Wall, "wall_seconds", 1e-6),
];

/// Identity of a rank. The order of the fields is that of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankName {
    /// Its number in the job; none if no launcher set it.
    pub rank: Option<u32>,
    /// Host.
    pub host: String,
    /// Name of the trace's folder.
    pub trace: String,
}

impl RankName {
    /// Its name in sentences.
    pub fn shown(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => self.trace.clone(),
        }
    }
}

/// A rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankRow {
    /// Which one.
    pub name: RankName,
    /// Hash of the result's input, see [`input_key`].
    pub key: String,
    /// Number of ranks of the job, if the launcher set it.
    pub world_size: Option<u32>,
    /// Number among the ranks of its host.
    pub local_rank: Option<u32>,
    /// State of the trace.
    pub state: String,
    /// End of the program.
    pub program_status: String,
    /// In the order of [`METRICS`]; none if unknown.
    pub metrics: Vec<Option<u64>>,
    /// Shares of the loads, in thousandths, of functions that are assigned to [`PROFILE`] slots by
    /// their names. Ranks with the same work have the same profile.
    pub profile: Vec<u16>,
}

/// An input without a result: a rank that died, or a trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gap {
    /// The missing input.
    pub input: String,
    /// Why there is none.
    pub why: String,
}

/// Spread of the loads of a piece of code or of an object over ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spreads {
    /// As [`Metric::Loads`].
    pub loads: RankSpread,
    /// As [`Metric::Footprint`].
    pub footprint: RankSpread,
    /// As [`Metric::Distance`].
    pub distance: RankSpread,
}

impl Spreads {
    fn merge(&mut self, other: Spreads) {
        self.loads.merge(other.loads);
        self.footprint.merge(other.footprint);
        self.distance.merge(other.distance);
    }
}

impl Spreads {
    /// Adds another row of the same rank: tables may have several rows with one name. A rank
    /// contributes only one value.
    fn add(&mut self, other: Spreads) {
        self.loads.add(other.loads);
        self.footprint.add(other.footprint);
        self.distance.raise(other.distance);
    }
}

/// A function, line or object: its names, in the order of the tables.
pub type RowNames = Vec<String>;

/// A finding that some ranks have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFinding {
    /// Cost in hundredths of a percent, over the ranks that have it.
    pub score: RankSpread,
    /// Title, from the rank with the greatest cost.
    pub title: String,
    /// Finding.
    pub finding: String,
    /// Advice.
    pub advice: String,
}

/// A row of the common heat map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatRow {
    /// Recorded loads by column.
    pub loads: Vec<u64>,
    /// Sums of reuse distances over them, rounded.
    pub distances: Vec<u64>,
}

/// Results of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    /// Bytes of a block of reuse distance.
    pub block: u64,
    /// Sorted.
    pub ranks: Vec<RankRow>,
    /// Sorted.
    pub gaps: Vec<Gap>,
    /// By function and module.
    #[serde(with = "file::pairs")]
    pub functions: BTreeMap<RowNames, Spreads>,
    /// By function, module, file and line.
    #[serde(with = "file::pairs")]
    pub lines: BTreeMap<RowNames, Spreads>,
    /// By name and kind.
    #[serde(with = "file::pairs")]
    pub objects: BTreeMap<RowNames, Spreads>,
    /// By mechanism, function, file, line and object. (Files of version 0.1 call them verdicts.)
    #[serde(with = "file::pairs", alias = "verdicts")]
    pub findings: BTreeMap<RowNames, RankFinding>,
    /// By object or function, against [`COLUMNS`] equal parts of each rank's run.
    pub heat: BTreeMap<String, HeatRow>,
    /// Sentences, and the number of ranks for which they hold.
    pub warnings: BTreeMap<String, u64>,
}

impl Ranks {
    /// Merges another result into it.
    ///
    /// # Errors
    ///
    /// A trace that is in both, block sizes that differ.
    pub fn merge(&mut self, other: Ranks) -> Result<(), String> {
        if !self.ranks.is_empty() && !other.ranks.is_empty() && self.block != other.block {
            return Err(format!(
                "it was made with --block {}, the ones before with {}; make it again with the same",
                other.block, self.block
            ));
        }
        self.block = self.block.max(other.block);
        let mine: std::collections::HashSet<&str> =
            self.ranks.iter().map(|r| r.key.as_str()).collect();
        if let Some(twice) = other.ranks.iter().find(|r| mine.contains(r.key.as_str())) {
            return Err(format!(
                "the trace {} is in it and in one before; give each trace once",
                twice.name.trace
            ));
        }
        self.ranks.extend(other.ranks);
        self.ranks.sort();
        self.gaps.extend(other.gaps);
        self.gaps.sort();
        self.gaps.dedup();
        for (into, from) in [
            (&mut self.functions, other.functions),
            (&mut self.lines, other.lines),
            (&mut self.objects, other.objects),
        ] {
            for (names, spreads) in from {
                into.entry(names).or_default().merge(spreads);
            }
        }
        for (names, finding) in other.findings {
            match self.findings.entry(names) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(finding);
                }
                std::collections::btree_map::Entry::Occupied(mut place) => {
                    place.get_mut().merge(finding);
                }
            }
        }
        for (label, row) in other.heat {
            let into = self.heat.entry(label).or_default();
            add(&mut into.loads, &row.loads);
            add(&mut into.distances, &row.distances);
        }
        for (sentence, ranks) in other.warnings {
            *self.warnings.entry(sentence).or_default() += ranks;
        }
        Ok(())
    }
}

impl RankFinding {
    fn merge(&mut self, other: RankFinding) {
        // The words come from the greatest score; among equal scores, from the smaller rank.
        if other.score.is_headed_before(&self.score) {
            self.title = other.title;
            self.finding = other.finding;
            self.advice = other.advice;
        }
        self.score.merge(other.score);
    }
}

fn add(into: &mut Vec<u64>, from: &[u64]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = a.saturating_add(*b);
    }
}

#[cfg(test)]
mod tests;
