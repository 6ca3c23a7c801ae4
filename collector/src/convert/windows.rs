//! `windows.parquet`: one row for each window of `burst`, with how fast its code runs by itself.

use crate::convert::convert_error::ConvertError;
use crate::convert::expanded_window::{ExpandedWindow, ModuleFunction};
use crate::convert::speed::executed::{Executed, ExecutedLoads};
use crate::convert::speed::measure;
use crate::convert::speed::measure::Speed;
use crate::util::small_table;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use mgz_annotations_schema::expand::{Staged, Tables};
use mgz_annotations_schema::manifest::{Manifest, WINDOWS};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{SegmentHeader, SpeedMeasurement, ThreadKey, cause};
use parquet::errors::ParquetError;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// The first and the last part of a window have this fraction of its loads each. Source: Chosen.
const PART_DIVISOR: usize = 8;

/// Windows as they are expanded.
#[derive(Clone, Debug)]
pub(crate) struct WindowCollector {
    /// By module of the manifest, then by site: the function.
    functions: Vec<Vec<u32>>,
    pub list: Vec<ExpandedWindow>,
    /// The thread of the previous window, if it has rows. A measurement is reported with the window
    /// after it.
    before: Option<ThreadKey>,
    /// Code and number of loads of the current window, by row.
    rows: Vec<(ModuleFunction, u32)>,
    /// [`ExpandedWindow::ways`] of the current window.
    ways: HashSet<[(u16, u32); 2]>,
    /// Loads of all windows so far.
    seen: HashSet<(u16, u32)>,
    /// Loads of the current window.
    sites: HashSet<(u16, u32)>,
}

impl WindowCollector {
    /// For traces of `burst`.
    pub fn new(manifest: &Manifest, sidecars: &BTreeMap<String, Sidecar>) -> WindowCollector {
        let of = |id: &String| {
            sidecars.get(id).map_or_else(Vec::new, |s| {
                s.sites.iter().map(|site| site.function).collect()
            })
        };
        WindowCollector {
            functions: manifest.modules.iter().map(|m| of(&m.sidecar_id)).collect(),
            list: Vec::new(),
            before: None,
            rows: Vec::new(),
            ways: HashSet::new(),
            seen: HashSet::new(),
            sites: HashSet::new(),
        }
    }

    /// A window has been expanded to the rows from `first` on.
    pub fn add(
        &mut self,
        key: ThreadKey,
        header: &SegmentHeader,
        tables: &Tables,
        rows: &Staged,
        first: usize,
    ) {
        if header.pace != SpeedMeasurement::default()
            && self.before == Some(key)
            && let Some(last) = self.list.last_mut()
        {
            last.pace = header.pace;
        }
        self.before = None;
        let Some(sample) = rows.sample_of(first) else {
            return;
        };
        self.rows.clear();
        self.ways.clear();
        self.sites.clear();
        let WindowCollector {
            functions,
            rows: codes,
            ways,
            sites,
            ..
        } = self;
        let mut before: Option<(ModuleFunction, (u16, u32))> = None;
        let mut changes = 0u32;
        rows.loads(tables, first..rows.len(), |load| {
            if load.store {
                return;
            }
            let function = functions
                .get(usize::from(load.module))
                .and_then(|f| f.get(load.site as usize));
            let (code, site) = (
                (load.module, function.copied().unwrap_or(u32::MAX)),
                (load.module, load.site),
            );
            if let Some((other, from)) = before.replace((code, site))
                && other != code
            {
                changes += 1;
                ways.insert([from, site]);
            }
            sites.insert(site);
            codes.push((code, 1 + u32::from(load.implied_const)));
        });
        let before = self.seen.len();
        self.seen.extend(&self.sites);
        let sites = [self.sites.len(), self.seen.len() - before].map(|n| n as u32);
        let part = self.rows.len().div_ceil(PART_DIVISOR);
        let (Some(first), Some(last)) = (
            most(&self.rows[..part]),
            most(&self.rows[self.rows.len() - part..]),
        ) else {
            return;
        };
        let loads = self.rows.iter().map(|r| r.1).sum();
        self.before = Some(key);
        self.list.push(ExpandedWindow {
            key,
            sample,
            records: header.written() as u32,
            loads,
            changes,
            ways: self.ways.len() as u32,
            sites,
            begin_ns: header.begin_ns,
            end_ns: header.end_ns,
            cause: header.cause,
            first,
            last,
            pace: SpeedMeasurement::default(),
            period: header.period,
        });
    }
}

/// The code that has most loads.
fn most(rows: &[(ModuleFunction, u32)]) -> Option<ModuleFunction> {
    let mut tally: BTreeMap<ModuleFunction, u32> = BTreeMap::new();
    rows.iter()
        .for_each(|&(code, loads)| *tally.entry(code).or_default() += loads);
    tally
        .into_iter()
        .max_by_key(|&(code, n)| (n, std::cmp::Reverse(code)))
        .map(|(code, _)| code)
}

/// The time or loads that a window stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PerWindow {
    /// Share of the thread's time in instrumented code.
    Time {
        /// Triggers per window: those in instrumented code, including those that began no window.
        each: f64,
        /// Requested nanoseconds between triggers, for windows without a period; 0 if unknown.
        asked: f64,
        /// Factor by which triggers came less often than requested.
        slower: f64,
        /// Cost of a trigger by itself, nanoseconds.
        toll: f64,
        /// Time outside instrumented code, relative to the time inside.
        outside: f64,
    },
    /// A part of all loads.
    Loads {
        /// Sum over all windows.
        loads: f64,
        /// Requested loads between triggers, for windows without a period.
        asked: u64,
        /// Relative half-width of the 95% interval of all windows' sum.
        error: f64,
    },
}

/// Nanoseconds of its thread's time that each window stands for, and the triggers' part of them;
/// `None` where loads begin windows, or if unknown.
fn times(list: &[ExpandedWindow], each: Option<PerWindow>) -> Vec<Option<(f64, f64)>> {
    let Some(PerWindow::Time {
        each,
        asked,
        slower,
        toll,
        outside: _,
    }) = each
    else {
        return vec![None; list.len()];
    };
    // A window left by a dead thread has no period. The mean of the others is used.
    let known: Vec<f64> = list
        .iter()
        .filter(|w| w.period > 0)
        .map(|w| w.period as f64)
        .collect();
    let usual = match known.len() {
        0 => asked,
        n => known.iter().sum::<f64>() / n as f64,
    };
    let of = |w: &ExpandedWindow| {
        let period = match w.period {
            0 => usual,
            period => period as f64,
        };
        let ns = period * slower * each;
        (ns > 0.0).then(|| (ns, (toll * each).min(ns * MAX_TOLL)))
    };
    list.iter().map(of).collect()
}

/// Executed loads per load of each window, where `loads` is the total. A window stands for its
/// trigger's period. Periods differ if triggers were slowed down.
fn by_loads(list: &[ExpandedWindow], loads: f64, asked: u64) -> Vec<Option<f64>> {
    let period = |w: &ExpandedWindow| if w.period > 0 { w.period } else { asked } as f64;
    let periods: f64 = list.iter().map(period).sum();
    let own = |w: &ExpandedWindow| loads * period(w) / periods / f64::from(w.loads.max(1));
    list.iter().map(|w| Some(own(w).max(1.0))).collect()
}

/// Upper bound of the triggers' share of a thread's time. A larger one would leave the thread no
/// progress.
const MAX_TOLL: f64 = 0.9;

/// Windows with the estimates of each, in their order.
struct Estimates<'a> {
    list: &'a [ExpandedWindow],
    each: Option<PerWindow>,
    speeds: Vec<Option<Speed>>,
    /// See [`measure::called_time`].
    called: f64,
    /// See [`times`].
    times: Vec<Option<(f64, f64)>>,
    /// Executed loads per load of each window.
    stand_for: Vec<Option<f64>>,
    /// Relative errors of these.
    errors: Vec<Option<f64>>,
}

impl<'a> Estimates<'a> {
    fn new(list: &'a [ExpandedWindow], each: Option<PerWindow>) -> Estimates<'a> {
        let outside = match each {
            Some(PerWindow::Time { outside, .. }) => outside,
            _ => 0.0,
        };
        let speeds = measure::speeds(list, outside);
        let called = measure::called_time(outside);
        let times: Vec<Option<(f64, f64)>> = times(list, each);
        let stand_for: Vec<Option<f64>> = match each {
            Some(PerWindow::Time { .. }) => list
                .iter()
                .zip(&speeds)
                .zip(&times)
                .map(|((w, s), time)| {
                    let (ns, toll) = (*time)?;
                    measure::stands_for(w, s.as_ref(), (ns, toll), called)
                })
                .collect(),
            Some(PerWindow::Loads { loads, asked, .. }) => by_loads(list, loads, asked),
            None => vec![None; list.len()],
        };
        let errors: Vec<Option<f64>> = speeds
            .iter()
            .zip(&times)
            .map(|(speed, time)| Some(measure::stands_for_error(speed.as_ref()?, (*time)?, called)))
            .collect();
        Estimates {
            list,
            each,
            speeds,
            called,
            times,
            stand_for,
            errors,
        }
    }

    fn table(&self) -> Result<RecordBatch, ConvertError> {
        let list = self.list;
        let u32s = |of: &dyn Fn(&ExpandedWindow) -> u32| {
            Arc::new(list.iter().map(of).collect::<UInt32Array>()) as ArrayRef
        };
        let u64s = |of: &dyn Fn(&ExpandedWindow) -> u64| {
            Arc::new(list.iter().map(of).collect::<UInt64Array>()) as ArrayRef
        };
        let texts = |of: &dyn Fn(&ExpandedWindow) -> &'static str| {
            Arc::new(list.iter().map(|w| Some(of(w))).collect::<StringArray>()) as ArrayRef
        };
        let floats = |values: &mut dyn Iterator<Item = Option<f64>>| {
            Arc::new(values.collect::<Float64Array>()) as ArrayRef
        };
        let known = |of: &dyn Fn(&Speed) -> f64| {
            floats(&mut self.speeds.iter().map(|s| s.as_ref().map(of)))
        };
        let sources = self.speeds.iter().map(|s| s.as_ref().map(|s| s.source));
        let columns = [
            ("process", u32s(&|w| w.key.process), false),
            ("thread", u32s(&|w| w.key.thread), false),
            ("sample", u32s(&|w| w.sample), false),
            ("records", u32s(&|w| w.records), false),
            ("loads", u32s(&|w| w.loads), false),
            ("begin_ns", u64s(&|w| w.begin_ns), false),
            ("end_ns", u64s(&|w| w.end_ns), false),
            ("cause", texts(&|w| cause::name(w.cause)), false),
            (
                "pace",
                texts(&|w| measure::pace_kind_name(w.pace.kind)),
                false,
            ),
            ("pace_records", u32s(&|w| w.pace.records), false),
            ("pace_ns", u32s(&|w| w.pace.ns), false),
            ("ns_per_load", known(&|s| s.ns_per_load), true),
            ("ns_per_load_error", known(&|s| s.error), true),
            (
                "ns_per_load_source",
                Arc::new(sources.collect::<StringArray>()) as ArrayRef,
                true,
            ),
            (
                "stands_for",
                floats(&mut self.stand_for.iter().copied()),
                true,
            ),
            (
                "stands_for_error",
                floats(&mut self.errors.iter().copied()),
                true,
            ),
            (
                "time_ns",
                floats(&mut self.times.iter().map(|t| t.map(|t| t.0))),
                true,
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns)
            .map_err(|e| ConvertError::Encode(e.into()))
    }

    /// The number of loads that were executed.
    fn executed(&self) -> ExecutedLoads {
        match self.each {
            Some(PerWindow::Loads { loads, error, .. }) => ExecutedLoads {
                known: (!self.list.is_empty()).then_some(Executed { loads, error }),
                assumed: None,
            },
            Some(PerWindow::Time { .. }) => {
                let (ns, toll) = self
                    .times
                    .iter()
                    .flatten()
                    .fold((0.0, 0.0), |sum, time| (sum.0 + time.0, sum.1 + time.1));
                ExecutedLoads {
                    known: measure::known(
                        self.list,
                        &self.stand_for,
                        (&self.speeds, &self.errors),
                        &self.times,
                    ),
                    assumed: measure::assumed(
                        self.list,
                        &self.stand_for,
                        &self.speeds,
                        measure::toll_error(ns, toll) + self.called - 1.0,
                    ),
                }
            }
            None => ExecutedLoads::default(),
        }
    }
}

/// Writes the file into a trace folder (mode 0600). The result tells how many loads were executed.
pub(crate) fn write_windows(
    folder: &Path,
    list: &[ExpandedWindow],
    each: Option<PerWindow>,
) -> Result<ExecutedLoads, ConvertError> {
    let estimates = Estimates::new(list, each);
    let table = estimates.table()?;
    small_table::write_small_table(folder, WINDOWS, table.schema(), [Ok(table)]).map_err(
        |error| match error.downcast::<ParquetError>() {
            Ok(error) => ConvertError::Encode(error),
            Err(error) => crate::convert::convert_error::io(&folder.join(WINDOWS))(
                error.downcast().unwrap_or_else(std::io::Error::other),
            ),
        },
    )?;
    Ok(estimates.executed())
}
