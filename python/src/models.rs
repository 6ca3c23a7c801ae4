//! The locality models on streams of addresses.

use crate::arrow::PyFrame;
use crate::buffer::{Numbers, block_shift};
use crate::trace::Trace;
use crate::{failed, failed_by};
use mgz_analyzer::commands::require_full;
use mgz_analyzer::commands::stream::visit;
use mgz_analyzer::data::frame::{self, Column};
use mgz_analyzer::input::ColumnSet;
use mgz_model_commands::cache::levels_of_trace;
use mgz_model_commands::cache::spec::hierarchy;
use mgz_models::cache::System;
use mgz_models::footprint::Footprint;
use mgz_models::histogram::{Fine, Scale, TRACE_BITS};
use mgz_models::miss_ratio::MissRatio;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use pyo3::prelude::*;

/// Source of accesses.
enum Accesses {
    Array(Numbers),
    Trace(std::sync::Arc<mgz_analyzer::input::Trace>),
}

impl Accesses {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Accesses> {
        if let Ok(trace) = object.cast::<Trace>() {
            return Ok(Accesses::Trace(trace.get().0.clone()));
        }
        Numbers::of(object).map(Accesses::Array)
    }

    /// Passes the accesses to `each` in parts: true if they begin a separate stream (another
    /// thread, or after a gap), addresses and sizes.
    fn visit(
        &self,
        what: &str,
        mut each: impl FnMut(bool, &[u64], &[u32]) + Send,
    ) -> anyhow::Result<()> {
        match self {
            Accesses::Array(numbers) => {
                let mut starts = true;
                let sizes = [1; 1 << 14];
                numbers.visit(|addresses| {
                    each(
                        std::mem::take(&mut starts),
                        addresses,
                        &sizes[..addresses.len()],
                    );
                });
            }
            Accesses::Trace(trace) => {
                require_full(trace, what, "")?;
                let source = trace.source(ColumnSet::default());
                let damage = visit(&*source, &|_| (), &mut |segment| {
                    each(segment.starts, segment.loads.address, segment.loads.size);
                });
                if let Some(sentence) = damage.first().or(trace.damage.first()) {
                    anyhow::bail!("{sentence}");
                }
            }
        }
        Ok(())
    }
}

fn frame(columns: Vec<Column>) -> PyResult<PyFrame> {
    frame::frame(columns).map(PyFrame).map_err(failed_by)
}

/// Distances as a histogram.
struct Histogram {
    distances: Fine,
    firsts: u64,
}

impl ReuseSink for Histogram {
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
        self.firsts += 1;
    }

    fn reuse(&mut self, _row: u64, _block: u64, _tag: u32, distance: u64, _interval: u64) {
        self.distances.add(distance);
    }

    fn done(&mut self, _row: u64, _tag: u32) {}
}

fn histogram(accesses: &Accesses, shift: u32, what: &str) -> PyResult<Histogram> {
    let mut engine = ReuseEngine::new(shift);
    let mut found = Histogram {
        distances: Fine::new(TRACE_BITS),
        firsts: 0,
    };
    let mut tags: Vec<u32> = Vec::new();
    accesses
        .visit(what, |starts, addresses, sizes| {
            if starts {
                engine.begin();
            }
            tags.resize(addresses.len().max(tags.len()), 0);
            engine.run(addresses, sizes, &tags[..addresses.len()], &mut found);
        })
        .map_err(failed)?;
    Ok(found)
}

/// Distance and interval by access.
#[derive(Default)]
struct Each {
    distance: Vec<Option<u64>>,
    interval: Vec<Option<u64>>,
}

impl ReuseSink for Each {
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
        self.distance.push(None);
        self.interval.push(None);
    }

    fn reuse(&mut self, _row: u64, _block: u64, _tag: u32, distance: u64, interval: u64) {
        self.distance.push(Some(distance));
        self.interval.push(Some(interval));
    }

    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Distance and interval of each access of an array.
#[pyfunction]
fn reuse_distances(py: Python<'_>, addresses: Bound<'_, PyAny>, block: u64) -> PyResult<PyFrame> {
    let numbers = Numbers::of(&addresses)?;
    let shift = block_shift(block)?;
    py.detach(|| {
        let mut engine = ReuseEngine::new(shift);
        engine.begin();
        let mut each = Each::default();
        each.distance.reserve(numbers.len());
        each.interval.reserve(numbers.len());
        let (sizes, tags) = ([1; 1 << 14], [0; 1 << 14]);
        numbers.visit(|addresses| {
            let count = addresses.len();
            engine.run(addresses, &sizes[..count], &tags[..count], &mut each);
        });
        frame(vec![
            Column::new("distance", each.distance),
            Column::new("interval", each.interval),
        ])
    })
}

/// Histogram of the distances; the last row has the first touches.
#[pyfunction]
fn reuse_histogram(py: Python<'_>, accesses: Bound<'_, PyAny>, block: u64) -> PyResult<PyFrame> {
    let accesses = Accesses::of(&accesses)?;
    let shift = block_shift(block)?;
    py.detach(|| {
        let found = histogram(&accesses, shift, "the histogram of reuse distances")?;
        let scale = Scale::Octaves { first: 1, bins: 0 };
        let bins = found.distances.cut(&scale);
        let mut rows: Vec<(Option<u64>, Option<u64>, u64)> = bins
            .iter()
            .filter(|b| b.count > 0.0)
            .map(|b| {
                (
                    Some(b.from as u64),
                    Some(b.to as u64),
                    b.count.round() as u64,
                )
            })
            .collect();
        rows.push((None, None, found.firsts));
        frame(vec![
            Column::new("from", rows.iter().map(|r| r.0).collect::<Vec<_>>()),
            Column::new("to", rows.iter().map(|r| r.1).collect::<Vec<_>>()),
            Column::new("count", rows.iter().map(|r| r.2).collect::<Vec<_>>()),
        ])
    })
}

/// Miss ratio of fully associative LRU caches of these sizes in bytes.
#[pyfunction]
fn miss_ratio_curve(
    py: Python<'_>,
    accesses: Bound<'_, PyAny>,
    sizes: Vec<u64>,
    block: u64,
) -> PyResult<PyFrame> {
    let accesses = Accesses::of(&accesses)?;
    let shift = block_shift(block)?;
    py.detach(|| {
        let found = histogram(&accesses, shift, "the miss-ratio curve")?;
        let model = MissRatio::new(found.distances.bins(), found.firsts as f64, 0.0);
        let ratios: Vec<f64> = sizes
            .iter()
            .map(|&size| model.ratio((size >> shift) as f64))
            .collect();
        frame(vec![
            Column::new("size", sizes),
            Column::new("miss_ratio", ratios),
        ])
    })
}

/// Mean footprints of windows.
#[pyfunction]
fn footprint_curve(
    py: Python<'_>,
    addresses: Bound<'_, PyAny>,
    windows: Vec<u64>,
    block: u64,
) -> PyResult<PyFrame> {
    let numbers = Numbers::of(&addresses)?;
    let shift = block_shift(block)?;
    py.detach(|| {
        let mut footprint = Footprint::default();
        numbers.visit(|addresses| addresses.iter().for_each(|&a| footprint.access(a >> shift)));
        let means = footprint.means(&windows);
        frame(vec![
            Column::new("window", windows),
            Column::new("footprint", means),
        ])
    })
}

/// Distinct blocks.
#[pyfunction]
fn footprint(py: Python<'_>, addresses: Bound<'_, PyAny>, block: u64) -> PyResult<u64> {
    let numbers = Numbers::of(&addresses)?;
    let shift = block_shift(block)?;
    Ok(py.detach(|| {
        let mut blocks = std::collections::HashSet::new();
        numbers.visit(|addresses| blocks.extend(addresses.iter().map(|a| a >> shift)));
        blocks.len() as u64
    }))
}

/// Accesses and misses of a hierarchy of caches, whose levels are given as on the command line.
#[pyfunction]
fn simulate(py: Python<'_>, accesses: Bound<'_, PyAny>, levels: &str) -> PyResult<PyFrame> {
    let accesses = Accesses::of(&accesses)?;
    py.detach(|| {
        let levels = hierarchy(levels).map_err(failed_by)?;
        let seen = match &accesses {
            Accesses::Trace(trace) => {
                let (seen, lacking) = levels_of_trace(trace, &levels).map_err(failed)?;
                if let Some(sentence) = lacking.first() {
                    return Err(failed_by(sentence.clone()));
                }
                seen
            }
            Accesses::Array(numbers) => {
                if levels.iter().any(|l| l.prefetch.stride) {
                    return Err(failed_by(
                        "stride: it follows instructions, and an array has addresses alone; leave out stride, or give a full trace",
                    ));
                }
                let mut caches = System::new(&levels, 0, 1).map_err(failed_by)?;
                numbers.visit(|addresses| {
                    for &address in addresses {
                        caches.access(0, address, 1, false, 0);
                    }
                });
                caches.seen().to_vec()
            }
        };
        let numbers =
            |value: &dyn Fn(usize) -> u64| -> Vec<u64> { (0..levels.len()).map(value).collect() };
        let texts = |value: &dyn Fn(usize) -> String| -> Vec<String> {
            (0..levels.len()).map(value).collect()
        };
        let of = |level: usize| {
            let seen = seen[level];
            (seen.loads + seen.stores, seen.load_misses + seen.store_misses)
        };
        let ratio = |level: usize| {
            let (all, misses) = of(level);
            (all > 0).then(|| misses as f64 / all as f64)
        };
        frame(vec![
            Column::new("level", numbers(&|level| level as u64 + 1)),
            Column::new("size", numbers(&|level| levels[level].shape.size)),
            Column::new("ways", numbers(&|level| levels[level].shape.ways)),
            Column::new("line", numbers(&|level| levels[level].shape.line)),
            Column::new("policy", texts(&|level| levels[level].policy.name().into())),
            Column::new("inclusion",
                texts(&|level| levels[level].inclusion.name().into()),
            ),
            Column::new("prefetch", texts(&|level| levels[level].prefetch.names())),
            Column::new("accesses", numbers(&|level| of(level).0)),
            Column::new("misses", numbers(&|level| of(level).1)),
            Column::new("miss_ratio",
                (0..levels.len()).map(ratio).collect::<Vec<_>>(),
            ),
        ])
    })
}

/// Earth Mover's Distance of two signatures; none if one of them is empty.
#[pyfunction]
fn emd(a: Vec<f64>, b: Vec<f64>) -> Option<f64> {
    mgz_models::emd::earth_movers_distance(&a, &b)
}

/// Adds the functions.
pub(crate) fn add_models(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(reuse_distances, module)?)?;
    module.add_function(wrap_pyfunction!(reuse_histogram, module)?)?;
    module.add_function(wrap_pyfunction!(miss_ratio_curve, module)?)?;
    module.add_function(wrap_pyfunction!(footprint_curve, module)?)?;
    module.add_function(wrap_pyfunction!(footprint, module)?)?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(emd, module)?)
}
