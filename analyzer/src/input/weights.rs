//! Weights of samples: the part of the run that each recorded load represents, from
//! `windows.parquet`.
//!
//! Samples of `ring` represent the same number of records each, and have no weights. Windows of
//! `burst` that begin after a fixed number of loads represent equal numbers of loads. Windows that
//! begin at ticks of CPU time represent equal times: each has one unit for a mean time, which its
//! rows share. The number of loads executed in that time is known if the recorder measured the
//! speed of the window's own code.

use crate::data::frame::{self, Frame};
use crate::input::counted::Counted;
use crate::input::quietly;
use mgz_annotations_schema::manifest::WINDOWS;
use mgz_annotations_schema::window_loads::is_own;
use std::path::Path;

/// Weights by sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// In units of 1/[`UNIT`]; 0 if unknown.
    by_sample: Vec<u64>,
    /// Executed loads that the sample represents, and the error of their logarithm's 95 % interval
    /// (as in the manifest). Known only if the speed was measured in its own code, or in enough
    /// other functions.
    executed: Vec<Option<(f64, f64)>>,
    /// Nanoseconds of its thread's time that the sample represents; 0 if unknown.
    times: Vec<u64>,
    /// Nanoseconds from a sample's begin to its end; 0 if unknown.
    durations: Vec<u64>,
    /// Executed loads that each load of a sample represents, in units of 1/[`UNIT`], if another run
    /// has counted them. Otherwise empty, and `by_sample` is used.
    loads: Vec<u64>,
    /// Counts of that other run.
    counted: Option<Counted>,
}

/// A weight of one.
pub const UNIT: u64 = 16;
/// Weight of a window by time, for all its loads together.
const WINDOW: f64 = (1u64 << 20) as f64;

impl Weights {
    /// Weights that were stored before, by sample.
    pub fn from_parts(
        by_sample: Vec<u64>,
        executed: Vec<Option<(f64, f64)>>,
        times: Vec<u64>,
        durations: Vec<u64>,
    ) -> Weights {
        Weights {
            by_sample,
            executed,
            times,
            durations,
            ..Weights::default()
        }
    }

    /// Adds the counts of another run of the same command, and by sample the executed loads that
    /// each load represents.
    pub fn counted_by(mut self, counted: Counted, loads: &[(u32, f64)]) -> Weights {
        let end = loads.iter().map(|l| l.0 as usize + 1).max().unwrap_or(0);
        self.loads = vec![0; end];
        for &(sample, each) in loads {
            self.loads[sample as usize] = (each.clamp(1.0, 1e12) * UNIT as f64).round() as u64;
        }
        self.counted = Some(counted);
        self
    }

    /// Counts of another run of the same command.
    pub fn counted(&self) -> Option<&Counted> {
        self.counted.as_ref()
    }

    /// Weight of a sample among the loads of the run. If windows are triggered by time,
    /// [`Weights::of`] is the weight in time instead.
    pub fn of_loads(&self, sample: u32) -> u64 {
        if self.loads.is_empty() {
            return self.of(sample);
        }
        self.loads.get(sample as usize).copied().unwrap_or(0)
    }

    /// Nanoseconds by sample; see [`Weights::time`].
    pub fn times_by_sample(&self) -> &[u64] {
        &self.times
    }

    /// Nanoseconds by sample; see [`Weights::duration`].
    pub fn durations_by_sample(&self) -> &[u64] {
        &self.durations
    }

    /// Nanoseconds from a sample's begin to its end, with the cost of recording; 0 if unknown.
    pub fn duration(&self, sample: u32) -> u64 {
        self.durations.get(sample as usize).copied().unwrap_or(0)
    }

    /// Nanoseconds of its thread's time that a sample represents; 0 if unknown.
    pub fn time(&self, sample: u32) -> u64 {
        self.times.get(sample as usize).copied().unwrap_or(0)
    }

    /// Weights by sample, see [`Weights::of`].
    pub fn by_sample(&self) -> &[u64] {
        &self.by_sample
    }

    /// Executed loads by sample; see [`Weights::executed`].
    pub fn executed_by_sample(&self) -> &[Option<(f64, f64)>] {
        &self.executed
    }

    /// Adds the weights of other samples, which get numbers from `first` on.
    pub fn append(&mut self, other: &Weights, first: u32) {
        fn put<T: Copy>(mine: &mut Vec<T>, theirs: &[T], first: usize, none: T) {
            let end = first + theirs.len();
            mine.resize(end.max(mine.len()), none);
            mine[first..end].copy_from_slice(theirs);
        }
        let first = first as usize;
        put(&mut self.by_sample, &other.by_sample, first, 0);
        put(&mut self.executed, &other.executed, first, None);
        put(&mut self.times, &other.times, first, 0);
        put(&mut self.durations, &other.durations, first, 0);
    }

    /// The weight of a sample.
    pub fn of(&self, sample: u32) -> u64 {
        self.by_sample.get(sample as usize).copied().unwrap_or(0)
    }

    /// Executed loads that a sample represents, and their relative error; `None` unless measured
    /// for its own code.
    pub fn executed(&self, sample: u32) -> Option<(f64, f64)> {
        self.executed.get(sample as usize).copied().flatten()
    }
}

/// Reads the weights of a trace. `by_time`: its windows begin by time. `Ok(None)` if it has none;
/// an error is a sentence for the user.
pub fn read_weights(folder: &Path, by_time: bool) -> Result<Option<Weights>, String> {
    let path = folder.join(WINDOWS);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "{}: {error}; estimates for the whole run are by time, not by loads",
                path.display()
            ));
        }
    };
    quietly(|| frame::read_parquet(file))
        .and_then(|r| r)
        .and_then(|table| weights(&table, by_time))
        .map_err(|e| format!("{}: damaged ({e}); estimates for the whole run are by time, not by loads; record again", path.display()))
}

fn weights(table: &Frame, by_time: bool) -> Result<Option<Weights>, String> {
    let (sample, stands_for) = (
        frame::whole(table, "sample")?,
        frame::floats(table, "stands_for")?,
    );
    if table.height() == 0 || !by_time && stands_for.contains(&None) {
        return Ok(None);
    }
    let optional = |name: &'static str| frame::has(table, name).then_some(name);
    let loads = optional("loads")
        .map(|n| frame::whole(table, n))
        .transpose()?;
    let errors = optional("stands_for_error")
        .or(optional("ns_per_load_error"))
        .map(|n| frame::floats(table, n))
        .transpose()?;
    let sources = optional("ns_per_load_source")
        .map(|n| frame::texts(table, n))
        .transpose()?;
    let times = optional("time_ns")
        .map(|n| frame::floats(table, n))
        .transpose()?;
    let ends = ["begin_ns", "end_ns"].map(|name| match frame::has(table, name) {
        true => frame::whole(table, name).map(Some),
        false => Ok(None),
    });
    let [begins, ends] = ends;
    let (begins, ends) = (begins?, ends?);
    let duration =
        |row: usize| -> Option<u64> { (ends.as_ref()?[row]?).checked_sub(begins.as_ref()?[row]?) };
    let time = |row: usize| -> Option<f64> {
        let ns = times.as_ref()?[row]?;
        (ns > 0.0 && ns < 1e15).then_some(ns)
    };
    // Windows without a time get the mean time.
    let (sum, known) = (0..table.height())
        .filter_map(time)
        .fold((0.0, 0u64), |(sum, n), ns| (sum + ns, n + 1));
    let mean = if known > 0 { sum / known as f64 } else { 1.0 };
    let mut weights = Weights::default();
    for (row, (&sample, &stands_for)) in sample.iter().zip(&stands_for).enumerate() {
        let Some(sample) = sample else { continue };
        let loads = loads.as_ref().and_then(|l| l[row]);
        let weight = match (by_time, loads) {
            (true, Some(loads)) => {
                WINDOW / loads.max(1) as f64 * time(row).map_or(1.0, |ns| ns / mean)
            }
            // Without the number of rows, the time of a window cannot be divided among them.
            (true, None) => return Ok(None),
            (false, _) => stands_for.unwrap_or(0.0),
        };
        // Windows are numbered consecutively: a number far beyond their count is damage.
        if sample > 4 * table.height() as u64 + 1024 || !(0.0..1e12).contains(&weight) {
            return Err(format!("sample {sample} with a weight of {weight}"));
        }
        let at = sample as usize;
        if weights.by_sample.len() <= at {
            weights.by_sample.resize(at + 1, 0);
            weights.executed.resize(at + 1, None);
            weights.times.resize(at + 1, 0);
            weights.durations.resize(at + 1, 0);
        }
        weights.durations[at] = duration(row).unwrap_or(0);
        weights.times[at] = time(row).map_or(0, |ns| ns.round() as u64);
        weights.by_sample[at] = (weight * UNIT as f64).round() as u64;
        let error = errors.as_ref().and_then(|e| e[row]);
        let own = sources.as_ref().and_then(|s| s[row]).is_some_and(is_own);
        weights.executed[at] = match (stands_for, loads, error) {
            (Some(each), Some(loads), Some(error))
                if own && each.is_finite() && error.is_finite() =>
            {
                Some((each * loads as f64, error))
            }
            _ => None,
        };
    }
    Ok(Some(weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::frame::ColumnKind;
    use serde_json::{Value, json};

    /// Writes a table of these columns.
    fn write(path: &Path, columns: &[(&str, ColumnKind, Value)]) {
        let columns = columns.iter().map(|(name, kind, values)| {
            let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
            frame::column(name, *kind, &values).unwrap()
        });
        let table = frame::frame(columns.collect()).unwrap();
        frame::write_parquet(&table, std::fs::File::create(path).unwrap()).unwrap();
    }

    #[test]
    fn weights_are_read_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_weights(dir.path(), false), Ok(None));
        let path = dir.path().join(WINDOWS);
        let write = |samples: Value, weights: Value| {
            write(
                &path,
                &[
                    ("sample", ColumnKind::Whole, samples),
                    ("stands_for", ColumnKind::Number, weights),
                ],
            );
        };
        write(json!([0, 2, 1]), json!([1.5, 1000.0, 2.0]));
        let weights = read_weights(dir.path(), false).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3].map(|s| weights.of(s)), [24, 32, 16_000, 0]);
        write(json!([0, 4_000_000_000u64]), json!([1.5, 1000.0]));
        assert!(
            read_weights(dir.path(), false)
                .unwrap_err()
                .contains("damaged")
        );
        write(json!([0, 1]), json!([1.5, null]));
        assert_eq!(read_weights(dir.path(), false), Ok(None));
        std::fs::write(&path, b"PAR1 nothing").unwrap();
        assert!(read_weights(dir.path(), false).is_err());
    }

    /// A window that represents three times as much time has three times the weight.
    #[test]
    fn windows_weigh_by_the_time_that_they_stand_for() {
        let dir = tempfile::tempdir().unwrap();
        write(
            &dir.path().join(WINDOWS),
            &[
                ("sample", ColumnKind::Whole, json!([0, 1, 2])),
                ("loads", ColumnKind::Whole, json!([1024, 1024, 1024])),
                ("stands_for", ColumnKind::Number, json!([null, null, null])),
                ("time_ns", ColumnKind::Number, json!([1e6, 3e6, null])),
            ],
        );
        let weights = read_weights(dir.path(), true).unwrap().unwrap();
        assert_eq!(weights.of(1), 3 * weights.of(0));
        assert_eq!(weights.of(2), 2 * weights.of(0));
        assert_eq!(
            [0, 1, 2].map(|s| weights.time(s)),
            [1_000_000, 3_000_000, 0]
        );
    }

    #[test]
    fn windows_by_time_weigh_the_same_and_tell_loads_only_of_their_own_code() {
        let dir = tempfile::tempdir().unwrap();
        write(
            &dir.path().join(WINDOWS),
            &[
                ("sample", ColumnKind::Whole, json!([0, 1, 2, 3])),
                ("loads", ColumnKind::Whole, json!([1024, 512, 1024, 2048])),
                (
                    "stands_for",
                    ColumnKind::Number,
                    json!([10.0, 90.0, null, 5.0]),
                ),
                (
                    "ns_per_load_error",
                    ColumnKind::Number,
                    json!([0.5, 9.0, null, 2.0]),
                ),
                (
                    "ns_per_load_source",
                    ColumnKind::Text,
                    json!(["watched", "others", null, "balance"]),
                ),
            ],
        );
        let weights = read_weights(dir.path(), true).unwrap().unwrap();
        let whole = |s: u32, loads: u64| weights.of(s) * loads;
        assert!(whole(0, 1024) == whole(1, 512) && whole(2, 1024) == whole(3, 2048));
        assert_eq!(
            [0, 1, 2, 3].map(|s| weights.executed(s)),
            [Some((10_240.0, 0.5)), None, None, Some((10_240.0, 2.0))]
        );
    }
}
