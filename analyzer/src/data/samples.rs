//! Facts of a sample.

use crate::data::group::Group;
use crate::data::rows::{RowColumns, Run};
use std::collections::HashMap;
use std::sync::Arc;

/// Group of a sample's begin if it has no loads.
pub const NO_LOAD: Group = Group::from_raw(u32::MAX);

/// A load: its code and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spot {
    /// Code and class ([`crate::data::code_map`]); [`NO_LOAD`] if there is none.
    pub group: Group,
    /// Address. Partial results leave it out, because rows are available only while they are read.
    #[serde(skip)]
    pub address: u64,
}

impl Spot {
    /// No load.
    pub const NONE: Spot = Spot {
        group: NO_LOAD,
        address: 0,
    };

    fn of(rows: &RowColumns, at: usize) -> Spot {
        match (rows.group.get(at), rows.address.get(at)) {
            (Some(&group), Some(&address)) => Spot { group, address },
            _ => Spot::NONE,
        }
    }
}

/// The load instruction at which each sample's thread was when the sample began
/// ([`crate::data::code_map::CodeMap::site`]).
#[derive(Clone, Default)]
pub struct Waited(Arc<Places>);

#[derive(Default)]
struct Places {
    /// By sample: the load that the thread had waited for.
    loads: HashMap<u32, u32>,
    /// By sample: a load of the function that the thread was in.
    within: HashMap<u32, u32>,
    /// Functions of pieces of code.
    functions: Vec<u32>,
}

impl Waited {
    /// From both maps, by sample, and the functions of pieces of code.
    pub(crate) fn new(
        loads: HashMap<u32, u32>,
        within: HashMap<u32, u32>,
        functions: Vec<u32>,
    ) -> Waited {
        Waited(Arc::new(Places {
            loads,
            within,
            functions,
        }))
    }

    /// True if the load is known for any sample.
    pub(crate) fn has_loads(&self) -> bool {
        !self.0.loads.is_empty()
    }

    /// The load that a sample's thread had waited for, if it is known.
    pub(crate) fn load(&self, sample: u32) -> Option<u32> {
        self.0.loads.get(&sample).copied()
    }

    /// A load of the function in which the sample's thread was, if that is known.
    fn within(&self, sample: u32) -> Option<u32> {
        self.0.within.get(&sample).copied()
    }

    fn function(&self, spot: Spot) -> Option<u32> {
        self.0.functions.get(spot.group.piece() as usize).copied()
    }
}

/// Begin of a sample.
///
/// A timer's interrupt waits until the oldest instruction in progress is done. So a slow load is
/// complete when a window begins, and the first load of the window is the one *after* it. Earlier
/// loads are not recorded. If the recorder knows the load instruction that was waited for, its next
/// execution represents it. Otherwise code is assumed to repeat: the load before the next execution
/// of the window's first instruction most likely also ran before the window. If that is in another
/// function than the interrupt, a load of the right function is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Beginning {
    /// The first load; if known, the one that the thread had waited for.
    pub first: Spot,
    /// The load before the next execution of the first instruction, if there is one. If the load
    /// that the thread had waited for is known, it is that one.
    pub before: Spot,
}

/// Number of loads searched for the next execution of a sample's first instruction. Source: Chosen.
const MAX_LOADS_TO_REPEAT: usize = 4096;

impl Beginning {
    /// No begin.
    pub const NONE: Beginning = Beginning {
        first: Spot::NONE,
        before: Spot::NONE,
    };

    /// Begin of some rows of a sample; none if there are no rows.
    pub(crate) fn of(
        rows: &RowColumns,
        range: std::ops::Range<usize>,
        (places, sample): (&Waited, u32),
    ) -> Option<Beginning> {
        if range.is_empty() {
            return None;
        }
        let sites = rows.sites(range.start..range.end.min(range.start + MAX_LOADS_TO_REPEAT));
        let next = |load: u32| {
            let at = sites.iter().position(|&s| s == load)?;
            Some(Beginning::at(Spot::of(rows, range.start + at)))
        };
        if let Some(begin) = places.load(sample).and_then(next) {
            return Some(begin);
        }
        let again = sites.split_first().and_then(|(first, rest)| {
            let known = *first != u32::MAX;
            rest.iter().position(|s| s == first).filter(|_| known)
        });
        let begin = Beginning {
            first: Spot::of(rows, range.start),
            before: again.map_or(Spot::NONE, |at| Spot::of(rows, range.start + at)),
        };
        let within = places.within(sample).and_then(next);
        let is_elsewhere = |within: &Beginning| {
            let of = |spot| places.function(spot);
            of(begin.chosen(of)) != of(within.first)
        };
        Some(within.filter(is_elsewhere).unwrap_or(begin))
    }

    fn at(spot: Spot) -> Beginning {
        Beginning {
            first: spot,
            before: spot,
        }
    }

    /// The load that represents the sample. `function` returns the function of a load.
    pub(crate) fn chosen<F: PartialEq>(self, function: impl Fn(Spot) -> F) -> Spot {
        let same = self.before.group != NO_LOAD && function(self.before) == function(self.first);
        if same { self.before } else { self.first }
    }
}

/// One entry of the list of samples.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SampleInfo {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Sample number.
    pub sample: u32,
    /// Load rows.
    pub loads: u64,
    /// Begin of the sample. `None` before its first load, or if that was left out.
    pub begin: Option<Beginning>,
    /// `time_ns` of the first row.
    pub first_time: u64,
    /// `time_ns` of the last row.
    pub last_time: u64,
    /// Pieces that contain it, and its load rows in each.
    #[serde(skip)]
    pub parts: Vec<(usize, u64)>,
}

impl SampleInfo {
    /// Adds a run in `piece` to a list of samples; it may continue the last one. `begin` is the
    /// begin of the run, if it has loads.
    pub(crate) fn append(
        samples: &mut Vec<SampleInfo>,
        run: &Run,
        begin: Option<Beginning>,
        piece: usize,
        continues: bool,
    ) {
        let loads = run.loads.len() as u64;
        match samples.last_mut().filter(|_| continues) {
            Some(sample) => {
                sample.begin = sample.begin.or(begin);
                sample.loads += loads;
                sample.last_time = run.last_time;
                match sample.parts.last_mut().filter(|p| p.0 == piece) {
                    // The run continues the sample in the same piece.
                    Some(part) => part.1 += loads,
                    None => sample.parts.push((piece, loads)),
                }
            }
            None => samples.push(SampleInfo {
                process: run.process,
                thread: run.thread,
                sample: run.sample,
                loads,
                begin,
                first_time: run.first_time,
                last_time: run.last_time,
                parts: vec![(piece, loads)],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample's time belongs to the load before the first instruction's next execution.
    #[test]
    fn a_sample_begins_behind_the_load_that_came_before_its_first() {
        let rows = RowColumns {
            address: vec![100u64, 200, 300, 104, 204].into(),
            group: [4, 8, 12, 4, 8].map(Group::from_raw).to_vec(),
            site: vec![1u32, 2, 3, 1, 2].into(),
            ..RowColumns::default()
        };
        let nowhere = Waited::default();
        let begin = Beginning::of(&rows, 0..5, (&nowhere, 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.first.address), (4, 100));
        assert_eq!((begin.before.group.raw(), begin.before.address), (12, 300));
        // An instruction that is not executed again gives no previous load.
        let begin = Beginning::of(&rows, 2..5, (&nowhere, 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.before), (12, Spot::NONE));
        assert_eq!(Beginning::of(&rows, 3..3, (&nowhere, 0)), None);
        // The load that the thread had waited for is known. In the second case it does not occur
        // again.
        let waited = |load| Waited::new([(0, load)].into(), HashMap::new(), Vec::new());
        let begin = Beginning::of(&rows, 0..5, (&waited(2), 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.first.address), (8, 200));
        assert_eq!(begin.first, begin.before);
        let begin = Beginning::of(&rows, 0..5, (&waited(7), 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.before.group.raw()), (4, 12));
        // The thread was in the function of instructions 1 and 3, or in the other one, whatever the
        // next load is.
        let within = |load| Waited::new(HashMap::new(), [(0, load)].into(), vec![0, 8, 9, 8]);
        let begin = Beginning::of(&rows, 0..5, (&within(1), 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.before.group.raw()), (4, 12));
        let begin = Beginning::of(&rows, 0..5, (&within(2), 0)).unwrap();
        assert_eq!((begin.first.group.raw(), begin.before.group.raw()), (8, 8));
    }
}
