//! `windows.parquet`: one row for each window of `burst`, with how fast its code runs by itself.

use crate::convert::ConvertError;
use crate::convert::speed::measure;
use crate::convert::speed::measure::{Executed, ExecutedLoads, Speed};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use mgz_annotations_schema::expand::{Staged, Tables};
use mgz_annotations_schema::manifest::{Manifest, WINDOWS};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{Pace, SegmentHeader, ThreadKey, cause};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Module and function.
pub(crate) type Code = (u16, u32);

/// Its beginning and its end are this share of a window's loads, each.
const PART: usize = 8;

/// A window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub key: ThreadKey,
    pub sample: u32,
    /// Slots in it.
    pub records: u32,
    /// Loads in it, implied ones included.
    pub loads: u32,
    /// Times that one load was in another function than the one before: calls and returns, which
    /// take a recording thread longer.
    pub changes: u32,
    /// Different pairs of loads among these: where there are many, each call and return is
    /// foreseen by no branch predictor.
    pub ways: u32,
    /// Different loads in it, and those of them that no window before had.
    pub sites: [u32; 2],
    pub begin_ns: u64,
    pub end_ns: u64,
    pub cause: u8,
    /// Code at the window's start: the code of most loads of its first part.
    pub first: Code,
    /// Code at its end, likewise.
    pub last: Code,
    /// The measurement behind it.
    pub pace: Pace,
    /// Average distance between triggers when its own came; 0 if unknown.
    pub period: u64,
}

/// Windows as they are expanded.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    /// By module of the manifest, then by site: the function.
    functions: Vec<Vec<u32>>,
    pub list: Vec<Window>,
    /// The thread of the window before, if it has rows: a measurement is told with the window that
    /// follows it.
    before: Option<ThreadKey>,
    /// Code and number of loads of the current window, by row.
    rows: Vec<(Code, u32)>,
    /// [`Window::ways`] of the current window.
    ways: HashSet<[(u16, u32); 2]>,
    /// Loads of all windows so far.
    seen: HashSet<(u16, u32)>,
    /// Loads of the current window.
    sites: HashSet<(u16, u32)>,
}

impl Collector {
    /// For traces of `burst`.
    pub fn new(manifest: &Manifest, sidecars: &BTreeMap<String, Sidecar>) -> Collector {
        let of = |id: &String| {
            sidecars.get(id).map_or_else(Vec::new, |s| {
                s.sites.iter().map(|site| site.function).collect()
            })
        };
        Collector {
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
        if header.pace != Pace::default()
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
        let Collector {
            functions,
            rows: codes,
            ways,
            sites,
            ..
        } = self;
        let mut before: Option<(Code, (u16, u32))> = None;
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
        let part = self.rows.len().div_ceil(PART);
        let (Some(first), Some(last)) = (
            most(&self.rows[..part]),
            most(&self.rows[self.rows.len() - part..]),
        ) else {
            return;
        };
        let loads = self.rows.iter().map(|r| r.1).sum();
        self.before = Some(key);
        self.list.push(Window {
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
            pace: Pace::default(),
            period: header.period,
        });
    }
}

/// The code of most loads.
fn most(rows: &[(Code, u32)]) -> Option<Code> {
    let mut tally: BTreeMap<Code, u32> = BTreeMap::new();
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
    /// So much of its thread's time in instrumented code.
    Time {
        /// Triggers that a window stands for: those that came in instrumented code and began none.
        each: f64,
        /// Nanoseconds from trigger to trigger that were asked for, where windows do not say so; 0
        /// if unknown.
        asked: f64,
        /// Times that triggers came more seldom than was asked for.
        slower: f64,
        /// Cost of a trigger by itself, nanoseconds.
        toll: f64,
        /// Time outside of instrumented code, by that in it.
        outside: f64,
    },
    /// So many loads.
    Loads {
        /// On average.
        loads: f64,
        /// Relative half-width of the 95% interval of all windows' sum.
        error: f64,
    },
}

/// Nanoseconds of its thread's time that each window stands for, and what the triggers took of
/// them; `None` where loads begin windows, or that is not known.
fn times(list: &[Window], each: Option<PerWindow>) -> Vec<Option<(f64, f64)>> {
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
    // A window that a dead thread left has no period. It is taken to be like the others.
    let known: Vec<f64> = list
        .iter()
        .filter(|w| w.period > 0)
        .map(|w| w.period as f64)
        .collect();
    let usual = match known.len() {
        0 => asked,
        n => known.iter().sum::<f64>() / n as f64,
    };
    let of = |w: &Window| {
        let period = match w.period {
            0 => usual,
            period => period as f64,
        };
        let ns = period * slower * each;
        (ns > 0.0).then(|| (ns, (toll * each).min(ns * MOST_TOLL)))
    };
    list.iter().map(of).collect()
}

/// Triggers that cost more than this share of a thread's time would not let it get anywhere.
const MOST_TOLL: f64 = 0.9;

/// Writes the file into a trace folder (mode 0600); returns what it tells of the loads that were
/// executed.
pub(crate) fn write(
    folder: &Path,
    list: &[Window],
    each: Option<PerWindow>,
) -> Result<ExecutedLoads, ConvertError> {
    use std::os::unix::fs::OpenOptionsExt;
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
        Some(PerWindow::Loads { loads, .. }) => list
            .iter()
            .map(|w| Some((loads / f64::from(w.loads.max(1))).max(1.0)))
            .collect(),
        None => vec![None; list.len()],
    };
    let errors: Vec<Option<f64>> = speeds
        .iter()
        .zip(&times)
        .map(|(speed, time)| Some(measure::stands_for_error(speed.as_ref()?, (*time)?, called)))
        .collect();
    let path = folder.join(WINDOWS);
    let temporary = folder.join(format!("{WINDOWS}.tmp"));
    let fields = [
        ("process", DataType::UInt32),
        ("thread", DataType::UInt32),
        ("sample", DataType::UInt32),
        ("records", DataType::UInt32),
        ("loads", DataType::UInt32),
        ("begin_ns", DataType::UInt64),
        ("end_ns", DataType::UInt64),
        ("cause", DataType::Utf8),
        ("pace", DataType::Utf8),
        ("pace_records", DataType::UInt32),
        ("pace_ns", DataType::UInt32),
    ];
    let mut fields: Vec<Field> = fields
        .into_iter()
        .map(|(name, kind)| Field::new(name, kind, false))
        .collect();
    fields.push(Field::new("ns_per_load", DataType::Float64, true));
    fields.push(Field::new("ns_per_load_error", DataType::Float64, true));
    fields.push(Field::new("ns_per_load_source", DataType::Utf8, true));
    fields.push(Field::new("stands_for", DataType::Float64, true));
    fields.push(Field::new("stands_for_error", DataType::Float64, true));
    fields.push(Field::new("time_ns", DataType::Float64, true));
    let u32s = |of: &dyn Fn(&Window) -> u32| {
        Arc::new(list.iter().map(of).collect::<UInt32Array>()) as ArrayRef
    };
    let u64s = |of: &dyn Fn(&Window) -> u64| {
        Arc::new(list.iter().map(of).collect::<UInt64Array>()) as ArrayRef
    };
    let texts = |of: &dyn Fn(&Window) -> &'static str| {
        Arc::new(list.iter().map(|w| Some(of(w))).collect::<StringArray>()) as ArrayRef
    };
    let known = |of: &dyn Fn(&Speed) -> f64| {
        Arc::new(
            speeds
                .iter()
                .map(|s| s.as_ref().map(of))
                .collect::<Float64Array>(),
        ) as ArrayRef
    };
    let columns = vec![
        u32s(&|w| w.key.process),
        u32s(&|w| w.key.thread),
        u32s(&|w| w.sample),
        u32s(&|w| w.records),
        u32s(&|w| w.loads),
        u64s(&|w| w.begin_ns),
        u64s(&|w| w.end_ns),
        texts(&|w| cause::name(w.cause)),
        texts(&|w| measure::name(w.pace.kind)),
        u32s(&|w| w.pace.records),
        u32s(&|w| w.pace.ns),
        known(&|s| s.ns_per_load),
        known(&|s| s.error),
        Arc::new(
            speeds
                .iter()
                .map(|s| s.as_ref().map(|s| s.source))
                .collect::<StringArray>(),
        ) as ArrayRef,
        Arc::new(stand_for.iter().copied().collect::<Float64Array>()) as ArrayRef,
        Arc::new(errors.iter().copied().collect::<Float64Array>()) as ArrayRef,
        Arc::new(
            times
                .iter()
                .map(|t| t.map(|t| t.0))
                .collect::<Float64Array>(),
        ) as ArrayRef,
    ];
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns)
        .map_err(|e| ConvertError::Encode(e.into()))?;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(crate::convert::io(&temporary))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    std::fs::rename(&temporary, &path).map_err(crate::convert::io(&path))?;
    Ok(match each {
        Some(PerWindow::Loads { loads, error }) => ExecutedLoads {
            known: (!list.is_empty()).then_some(Executed {
                loads: loads * list.len() as f64,
                error,
            }),
            assumed: None,
        },
        Some(PerWindow::Time { .. }) => {
            let (ns, toll) = times
                .iter()
                .flatten()
                .fold((0.0, 0.0), |sum, time| (sum.0 + time.0, sum.1 + time.1));
            ExecutedLoads {
                known: measure::known(list, &stand_for, (&speeds, &errors), &times),
                assumed: measure::assumed(
                    list,
                    &stand_for,
                    &speeds,
                    measure::toll_error(ns, toll) + called - 1.0,
                ),
            }
        }
        None => ExecutedLoads::default(),
    })
}
