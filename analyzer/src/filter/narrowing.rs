//! Leaves out rows of a piece of the trace.

use crate::data::chunk::Chunk;
use crate::data::object_map::Recent;
use crate::data::rows::{RowColumns, Run};
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo};
use crate::filter::{Filtered, Met, Sum};
use crate::input::weights::UNIT;

/// Checks the rows of a piece.
pub(super) struct Narrowing<'a> {
    filtered: &'a Filtered<'a>,
    chunk: &'a Chunk,
    piece: usize,
    met: Met,
    recent: Recent,
    left: Left,
}

/// Flags of the remaining rows, and their runs.
pub(super) struct Left {
    /// True if kept: by load, and by store.
    kept: [Vec<bool>; 2],
    runs: Vec<(Run, Option<Beginning>)>,
}

/// A row of a run.
struct Row<'a> {
    run: &'a Run,
    is_load: bool,
    at: usize,
    time: u64,
    /// Weight of its sample.
    weight: u64,
}

impl<'a> Narrowing<'a> {
    pub(super) fn new(filtered: &'a Filtered<'a>, chunk: &'a Chunk, piece: usize) -> Narrowing<'a> {
        Narrowing {
            filtered,
            chunk,
            piece,
            met: Met::default(),
            recent: Recent::default(),
            left: Left {
                kept: [
                    vec![false; chunk.loads.group.len()],
                    vec![false; chunk.stores.group.len()],
                ],
                runs: Vec::new(),
            },
        }
    }

    /// Checks the rows of a run.
    pub(super) fn run(&mut self, at: usize) {
        let (filter, run) = (self.filtered.filter, &self.chunk.runs[at]);
        let begin = self.chunk.begin(at).filter(|b| b.first.group != NO_LOAD);
        let begins = begin.is_some_and(|begin| self.filtered.begins(run, begin, &mut self.recent));
        if let Some(begin) = begin {
            let mut window = Vec::new();
            SampleInfo::append(&mut window, run, Some(begin), self.piece, false);
            let window = window.into_iter().map(|sample| (sample, begins));
            self.met.windows.extend(window);
        }
        let wanted = filter.has_thread(run.process, run.thread)
            && run.first_time <= filter.to
            && run.last_time >= filter.from;
        let ends = self.rows(run, wanted);
        // A sample without remaining rows still counts as a sample.
        if wanted {
            let mut run = run.clone();
            if let Some((first, last)) = ends {
                (run.first_time, run.last_time) = (first, last);
            }
            let begin = if begins {
                begin
            } else {
                begin.map(|_| Beginning::NONE)
            };
            self.left.runs.push((run, begin));
        }
    }

    /// Checks each row of a run. Returns the times of the first and the last row that are left.
    fn rows(&mut self, run: &Run, wanted: bool) -> Option<(u64, u64)> {
        // A load's time, if loads are spread evenly.
        let step = run.last_time.saturating_sub(run.first_time) as f64
            / run.loads.len().saturating_sub(1).max(1) as f64;
        let weights = self.filtered.weights.as_ref();
        let weight = weights.map_or(UNIT, |w| w.of(run.sample));
        let mut ends: Option<(u64, u64)> = None;
        for (is_load, range) in [(true, &run.loads), (false, &run.stores)] {
            for at in range.clone() {
                let load = if is_load {
                    at
                } else {
                    self.chunk.loads_before.get(at).map_or(0, |&n| n as usize)
                };
                let ahead = load.saturating_sub(run.loads.start) as f64 * step;
                let time = (run.first_time + ahead as u64).min(run.last_time);
                let row = Row {
                    run,
                    is_load,
                    at,
                    time,
                    weight,
                };
                if self.row(&row, wanted) {
                    let (first, last) = ends.unwrap_or((time, time));
                    ends = Some((first.min(time), last.max(time)));
                }
            }
        }
        ends
    }

    /// Counts a row. Returns true if it is left.
    fn row(&mut self, row: &Row<'_>, wanted: bool) -> bool {
        let (filtered, filter) = (self.filtered, self.filtered.filter);
        let columns = match row.is_load {
            true => &self.chunk.loads,
            false => &self.chunk.stores,
        };
        let (group, address) = (columns.group[row.at], columns.address[row.at]);
        let piece = filtered.code.pieces.get(group.piece() as usize);
        if filter.code.is_some()
            && row.is_load
            && let Some(piece) = piece
        {
            *self.met.functions.entry(piece.function).or_default() += 1;
        }
        let by_object = filter.objects.is_none() || {
            let object = filtered.object(row.run, address, row.time, &mut self.recent);
            if row.is_load {
                *self.met.objects.entry(object).or_default() += 1;
            }
            filter.has_object(object)
        };
        let keep = wanted
            && by_object
            && filter.has_time(row.time)
            && filter.has_group(group)
            && filter.has_address(address);
        self.left.kept[usize::from(!row.is_load)][row.at] = keep;
        let implied = columns.implied.get(row.at).copied().unwrap_or(0);
        let sum = if row.is_load {
            Sum {
                loads: 1,
                implied: implied.into(),
                stores: 0,
                weighted: u128::from(row.weight) * (1 + u128::from(implied)),
            }
        } else {
            Sum {
                stores: 1,
                ..Sum::default()
            }
        };
        self.met.all.add(&sum);
        if keep {
            self.met.kept.add(&sum);
        }
        keep
    }

    /// Counts of the piece, and the rows that are left.
    pub(super) fn finish(self) -> (Met, Left) {
        (self.met, self.left)
    }
}

impl Left {
    /// The piece reduced to these rows.
    pub(super) fn of(self, chunk: Chunk) -> Chunk {
        let before = self.kept.each_ref().map(|k| prefix(k));
        let [loads, stores] = &self.kept;
        let new_range = |range: &std::ops::Range<usize>, before: &[u32]| {
            before[range.start] as usize..before[range.end] as usize
        };
        let loads_before = chunk.loads_before.iter().zip(stores);
        Chunk {
            loads_before: loads_before
                .filter(|(_, keep)| **keep)
                .map(|(&n, _)| before[0].get(n as usize).copied().unwrap_or(0))
                .collect(),
            begins: self.runs.iter().map(|r| r.1).collect(),
            runs: self
                .runs
                .into_iter()
                .map(|(run, _)| Run {
                    loads: new_range(&run.loads, &before[0]),
                    stores: new_range(&run.stores, &before[1]),
                    ..run
                })
                .collect(),
            loads: gather(&chunk.loads, loads),
            stores: gather(&chunk.stores, stores),
            ..chunk
        }
    }
}

/// Number of set flags before each index, and the total at the end.
fn prefix(kept: &[bool]) -> Vec<u32> {
    let mut sum = 0;
    let mut sums = Vec::with_capacity(kept.len() + 1);
    sums.push(0);
    sums.extend(kept.iter().map(|&keep| {
        sum += u32::from(keep);
        sum
    }));
    sums
}

/// Some of the rows.
fn gather(rows: &RowColumns, kept: &[bool]) -> RowColumns {
    fn some<T: Copy>(values: &[T], kept: &[bool]) -> Vec<T> {
        let pairs = values.iter().zip(kept);
        pairs.filter(|(_, keep)| **keep).map(|(&v, _)| v).collect()
    }
    RowColumns {
        address: some(&rows.address, kept).into(),
        size: some(&rows.size, kept).into(),
        group: some(&rows.group, kept),
        implied: some(&rows.implied, kept).into(),
        site: some(&rows.site, kept).into(),
    }
}
