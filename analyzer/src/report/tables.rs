//! Builds the tables from the counts of a pass.

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::AccessCounts;
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::engine::EngineOutcome;
use crate::estimate::growth_tables::{self, GrowthRow, InterSample, WholeSightings};
use crate::estimate::part_loads::part_loads;
use crate::estimate::row_estimates::{
    Estimator, Hats, Maker, RegionEstimator, Shown, maker, samples_seen, see_rows,
};
use crate::estimate::sample_shares::Shares;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::estimate::{Design, Estimate, loads_by_speed};
use crate::findings::FindingList;
use crate::input::counted::Counted;
use crate::input::weights::Weights;
use crate::misses::Predicted;
use crate::report::rows::{self, ByTime, Facts};
use crate::report::summary::{self, Summary, sample_ratio};
use crate::report::sums::{BY_CODE, CodeSums, RowSums, all_rows};
use crate::report::{Analysis, Built, FORMAT, VERSION, counted, functions, lines, loops, windows};
use crate::stages::observed_class;
use crate::views::objects::Bounds;
use crate::views::{ByCode, call_paths};
use mgz_annotations_schema::manifest::Manifest;
use rayon::prelude::*;

/// Tables of growth, and of reuse between samples.
type Growth = (Vec<GrowthRow>, Option<InterSample>);

/// Input data of the tables.
pub struct Material<'a> {
    /// Manifest of the trace.
    pub manifest: &'a Manifest,
    /// Its code.
    pub code: &'a CodeMap,
    /// Counts of the pass.
    pub outcome: &'a EngineOutcome,
    /// Bytes of a block of reuse distance.
    pub block: u64,
    /// Estimator of footprints.
    pub estimator: Estimator,
    /// Extent of the result.
    pub detail: Detail,
    /// Sizes of the objects that code has touched.
    pub bounds: &'a Bounds,
    /// Misses, if they are predicted.
    pub predicted: Option<&'a Predicted>,
}

/// The warning that every `lag`th sample is in step with the program.
fn in_step(manifest: &Manifest, lag: usize) -> String {
    format!(
        "the samples are in step with the program: every {lag}th sample sees nearly the same addresses, so that other parts of its loops are never seen, and estimates of footprints are lower bounds; record again with another --period (a prime number that is no divisor of the loop, such as {})",
        if manifest.period.is_multiple_of(17_389) {
            19_181
        } else {
            17_389
        }
    )
}

/// Shares of time for the rows of a table. The speed of code is measured by function. `seen` has
/// the samples that saw each row of the tables in [`BY_CODE`].
fn by_time(
    times: &TimeShares,
    outcome: &EngineOutcome,
    code: &CodeMap,
    target: Target,
    seen: &[Vec<u64>],
) -> ByTime {
    let shares = times.by_code(code, target);
    let Some(weights) = outcome.weights.as_deref() else {
        return ByTime {
            shares,
            executed: Vec::new(),
        };
    };
    let of_rows = |target: Target| -> Vec<Option<Estimate>> {
        times
            .windows_by_code(code, target)
            .iter()
            .zip(times.by_code(code, target))
            .map(|(windows, share)| match target {
                // The whole run has all of the time, even with few windows.
                Target::Whole => loads_by_speed(windows, weights, TimeShare::ALL),
                _ => loads_by_speed(windows, weights, share),
            })
            .collect()
    };
    let executed = match target {
        Target::Function | Target::Whole => of_rows(target),
        Target::Line | Target::Loop => {
            let at = |wanted| BY_CODE.iter().position(|&t| t == wanted).unwrap_or(0);
            let seen = (&seen[at(Target::Function)][..], &seen[at(target)][..]);
            let functions = of_rows(Target::Function);
            part_loads(&outcome.buckets[0], code, target, &functions, seen)
        }
    };
    ByTime { shares, executed }
}

/// Share of the run that the samples represent, and their weights.
struct Sampling<'a> {
    rho: Option<f64>,
    rho_source: &'static str,
    /// Counts of another run of the same command.
    counted: Option<&'a Counted>,
    /// Relative error of the samples' weights, unless all have the same.
    error: Option<f64>,
    shares: Option<Shares>,
    times: Option<TimeShares>,
}

impl<'a> Sampling<'a> {
    fn new(of: &Material<'a>) -> Sampling<'a> {
        let rows = all_rows(of.outcome, of.code);
        let counted = of.outcome.weights.as_deref().and_then(Weights::counted);
        let by_count = counted.and_then(|c| counted::sample_ratio(c, &rows));
        let (rho, rho_source) = match by_count {
            Some((rho, _)) => (Some(rho), "weights_from"),
            None => sample_ratio(of.manifest, &rows, rows.stores),
        };
        let by_time = of.manifest.triggers_by_time();
        Sampling {
            rho,
            rho_source,
            counted,
            error: by_count
                .map(|c| c.1)
                .or(summary::executed_error(of.manifest)),
            shares: Shares::new(of.outcome),
            times: by_time.then(|| TimeShares::new(of.outcome, of.code)),
        }
    }

    fn design(&self, outcome: &EngineOutcome) -> Option<Design> {
        let marked = |shares: &Shares| shares.windows(growth_tables::marked(outcome));
        let design = Design::new(self.rho?, outcome.census.samples)
            .weighted(self.error)
            .keeping(growth_tables::kept(outcome));
        Some(design.standing_for(self.shares.as_ref().map(marked)))
    }

    /// Shares of time for the rows of a table. `seen` is that of [`by_time`].
    fn time_of(&self, of: &Material<'_>, target: Target, seen: &[Vec<u64>]) -> Option<ByTime> {
        let times = self.times.as_ref()?;
        Some(by_time(times, of.outcome, of.code, target, seen))
    }
}

/// Counts by row, and the blocks that samples have seen in the whole run.
struct CodeCounts {
    sums: CodeSums,
    /// Blocks seen by samples, if the trace is sampled.
    seen: Option<WholeSightings>,
    classes: Option<observed_class::ByCode>,
}

impl CodeCounts {
    fn new(of: &Material<'_>, sampling: &Sampling<'_>) -> CodeCounts {
        let footprint = &of.outcome.buckets[0].footprint;
        let sampled = sampling.rho.is_some_and(|r| r > 1.0 + 1e-9);
        let see = || {
            sampled.then(|| WholeSightings::new(of.outcome, sampling.shares.as_ref(), of.detail))
        };
        let (folded, seen) = rayon::join(|| footprint.fold(of.code), see);
        let sums = CodeSums::new(of.outcome, of.code, folded);
        let classes = of.detail.is_all().then(|| {
            let (strides, far_steps) = (&of.outcome.strides, &of.outcome.far_steps);
            observed_class::ByCode::new(strides, far_steps, of.code, footprint)
        });
        CodeCounts {
            sums,
            seen,
            classes,
        }
    }
}

/// Makers of estimates, before blocks are added.
struct Makers<'a> {
    /// Number of samples after which the same addresses are seen, if the samples are in step with
    /// the program.
    lag: Option<u32>,
    /// By table: samples that have seen each row.
    seen: Vec<Vec<u64>>,
    whole: Maker<'a>,
    /// In the order of [`BY_CODE`].
    by_code: Vec<Maker<'a>>,
}

/// The rows of the tables by code.
struct CodeTables<'a> {
    facts: Vec<Facts<'a>>,
    orders: Vec<Vec<usize>>,
}

impl<'a> CodeTables<'a> {
    fn new(facts: Vec<Facts<'a>>, code: &CodeMap) -> CodeTables<'a> {
        let tie = |kind: usize, row: usize| match BY_CODE[kind] {
            // Among equal loops, the outer one comes first.
            Target::Loop => code.loops[row].depth,
            _ => 0,
        };
        let orders = (facts.iter().enumerate())
            .map(|(kind, facts)| rows::order(facts, |row| tie(kind, row)))
            .collect();
        CodeTables { facts, orders }
    }

    /// Finds the rows that have estimates of their memory.
    fn shown(&self, code: &CodeMap) -> Vec<(Target, Shown)> {
        // Lines without a number are left out: their code is listed among the functions.
        let may_stand = |kind: usize, row: usize| match BY_CODE[kind] {
            Target::Line => code.lines[row].line > 0,
            _ => true,
        };
        (self.facts.iter().zip(&self.orders).enumerate())
            .map(|(kind, (facts, order))| {
                let shown = rows::shown(facts, order, |row| may_stand(kind, row));
                (BY_CODE[kind], shown)
            })
            .collect()
    }

    fn table(&self, kind: usize) -> Option<(&Facts<'a>, &[usize])> {
        Some((self.facts.get(kind)?, &self.orders[kind][..]))
    }
}

/// Input data of the rows.
struct Passes<'a> {
    of: &'a Material<'a>,
    sampling: &'a Sampling<'a>,
    counts: &'a CodeCounts,
    places: RegionEstimator,
    /// By table: samples that have seen each row.
    seen: &'a [Vec<u64>],
    /// Share of time and executed loads of the whole, if windows are triggered by time.
    whole_time: Option<ByTime>,
}

impl<'a> Passes<'a> {
    /// Executed loads of the whole, if they were measured or counted.
    fn executed(&self) -> Option<Option<Estimate>> {
        match self.sampling.counted {
            Some(counted) => Some(counted.whole().map(counted::estimate)),
            None => (self.whole_time.as_ref()).map(|t| t.executed.first().copied().flatten()),
        }
    }

    /// Makes the tables by code, with estimates of memory for the rows that are shown.
    fn tables(&self, makers: Vec<Maker<'a>>, accesses: Option<f64>) -> CodeTables<'a> {
        let weighed = self.sampling.error.is_some() || self.whole_time.is_some();
        let accesses = accesses.filter(|&a| a > 0.0 && weighed);
        let facts = (makers.into_iter().enumerate())
            .map(|(kind, maker)| self.facts(kind, maker.in_step(self.places.resonant), accesses))
            .collect();
        let mut tables = CodeTables::new(facts, self.of.code);
        self.see_blocks(&mut tables);
        tables
    }

    /// Gathers the data of one table. `of_whole` is the number of executed loads to which shares
    /// refer.
    fn facts(&self, kind: usize, maker: Maker<'a>, of_whole: Option<f64>) -> Facts<'a> {
        let (of, counts, target) = (self.of, self.counts, BY_CODE[kind]);
        let whole = &counts.sums.whole;
        let sums = &counts.sums.tables[kind];
        Facts {
            sums,
            seen: &self.seen[kind],
            maker,
            by_time: self.sampling.time_of(of, target, self.seen),
            counted: self
                .sampling
                .counted
                .map(|c| counted::row_estimates(c, target)),
            bounds: Some(&of.bounds.by_code[kind][..]).filter(|b| !b.is_empty()),
            all: whole.accesses + whole.implied,
            of_whole,
            observed: (0..sums.counts.len())
                .filter_map(|row| Some(counts.classes.as_ref()?.row(target, row)))
                .collect(),
            misses: of
                .predicted
                .filter(|_| of.detail.is_all())
                .map(|predicted| {
                    let mut groups = vec![Vec::new(); sums.counts.len()];
                    for group in Group::all(of.code.pieces.len()).filter(|g| !g.is_store()) {
                        let rows = of.code.targets(target, group);
                        rows.iter()
                            .for_each(|&row| groups[row as usize].push(group));
                    }
                    (predicted, groups, of.manifest.recorded_cpu_seconds() * 1e9)
                }),
            detail: of.detail,
        }
    }

    /// Adds the blocks that samples have seen, for the rows that are shown.
    fn see_blocks(&self, tables: &mut CodeTables<'_>) {
        let (of, shares) = (self.of, self.sampling.shares.as_ref());
        let shown = tables.shown(of.code);
        let divide = || {
            (self.counts.seen.as_ref().zip(self.places.design))
                .map(|(seen, design)| seen.divide(design, of.detail))
        };
        let (_, grouped) = rayon::join(divide, || {
            see_rows(of.outcome, of.code, self.places, shares, &shown, of.detail)
        });
        let mut grouped = grouped.into_iter();
        let facts = tables.facts.iter_mut();
        facts.for_each(|facts| facts.maker.see_rows(grouped.next()));
    }

    /// Makes the tables of growth, and the estimates of the whole.
    fn growth_and_whole(&self, maker: Maker<'a>) -> (Growth, Hats) {
        let (of, sampling, seen) = (self.of, self.sampling, self.counts.seen.as_ref());
        let maker = maker.in_step(self.places.resonant).seeing_whole(
            of.outcome,
            seen.filter(|_| self.places.needs_blocks().is_some()),
        );
        let growth = || match seen {
            Some(seen) if of.detail.is_all() => {
                let shares = sampling.shares.as_ref().zip(sampling.error);
                growth_tables::build_growth_tables(of.outcome, sampling.rho, seen, shares)
            }
            _ => Default::default(),
        };
        let whole = || {
            let (counts, samples) = (&self.counts.sums.whole, of.outcome.census.samples);
            maker.make(0, counts, samples, self.executed(), of.bounds.whole)
        };
        let (growth, hats) = rayon::join(growth, whole);
        match &self.whole_time {
            // The whole run has all of the time, even with few windows.
            Some(_) => (growth, hats.marked_by(TimeShare::ALL)),
            None => (growth, hats),
        }
    }

    /// Makes the summary. `hats` are the estimates of the whole.
    fn summary(&self, hats: Hats) -> Summary {
        let (of, sampling, counts) = (self.of, self.sampling, self.counts);
        let mut summary = summary::summary(
            of.manifest,
            of.outcome,
            (&counts.sums.whole, &counts.sums.stores),
            hats,
            (sampling.rho, sampling.rho_source),
            (of.block, of.estimator),
        );
        if let Some(counted) = sampling.counted {
            summary.weighted_by(counted.from.clone());
        }
        let classes = counts.classes.as_ref();
        summary.observed = classes.map_or_else(Default::default, |c| c.row(Target::Whole, 0));
        if let Some(predicted) = of.predicted {
            summary.trace.caches = predicted.hierarchy.caches.clone();
            let ns = of.manifest.recorded_cpu_seconds() * 1e9;
            let spent = Some([ns; 3]).filter(|_| of.manifest.triggers_by_time() && ns > 0.0);
            summary.misses = predicted
                .of_whole()
                .map(|whole| whole.of_run(summary.hats.executed(), spent));
        }
        summary
    }
}

/// The counts by code, without fetches. Fetches are counted only for the whole run. So rows of the
/// whole that are compared with its parts must leave them out.
fn bare(tables: [RowSums; 3]) -> ByCode {
    let [functions, _, loops] = tables.map(|table| {
        let counts = table.counts.iter();
        counts.map(AccessCounts::without_fetches).collect()
    });
    ByCode { functions, loops }
}

impl Material<'_> {
    /// Prepares the makers of estimates.
    fn makers<'m>(
        &'m self,
        sampling: &'m Sampling<'_>,
        places: RegionEstimator,
        seen: Option<&WholeSightings>,
    ) -> Makers<'m> {
        let (outcome, code) = (self.outcome, self.code);
        let resonance = || seen.and_then(|seen| growth_tables::resonance(outcome, seen));
        // A screen shows no loops.
        let kinds = &BY_CODE[..if self.detail.is_all() { 3 } else { 2 }];
        let samples = || {
            let of = |&target: &Target| samples_seen(outcome, code, target);
            kinds.par_iter().map(of).collect()
        };
        let shares = sampling.shares.as_ref();
        let maker_of = |target| maker(outcome, code, target, places, shares, self.detail);
        let makers = || {
            rayon::join(
                || maker_of(Target::Whole),
                || kinds.par_iter().map(|&t| maker_of(t)).collect(),
            )
        };
        let ((lag, seen), (whole, by_code)) =
            rayon::join(|| rayon::join(resonance, samples), makers);
        Makers {
            lag,
            seen,
            whole,
            by_code,
        }
    }

    /// Makes the tables.
    pub fn build(&self, mut warnings: Vec<String>) -> Built {
        let (outcome, code) = (self.outcome, self.code);
        let sampling = Sampling::new(self);
        let counts = CodeCounts::new(self, &sampling);
        let places = RegionEstimator {
            design: sampling.design(outcome),
            estimator: self.estimator,
            resonant: false,
            mapped: self.manifest.mapped_bytes,
        };
        let makers = self.makers(&sampling, places, counts.seen.as_ref());
        warnings.extend(makers.lag.map(|lag| in_step(self.manifest, lag as usize)));
        let places = RegionEstimator {
            resonant: makers.lag.is_some(),
            ..places
        };
        let passes = Passes {
            of: self,
            sampling: &sampling,
            counts: &counts,
            places,
            seen: &makers.seen,
            whole_time: sampling.time_of(self, Target::Whole, &makers.seen),
        };
        let accesses = (makers.whole).accesses(0, &counts.sums.whole, passes.executed());
        let tables = passes.tables(makers.by_code, accesses);
        let ((growth, inter_sample), hats) = passes.growth_and_whole(makers.whole);
        let functions = tables.table(0).map(|of| functions::function_rows(code, of));
        let lines = (tables.table(1)).map(|of| lines::line_rows(code, of, &counts.sums.chains));
        let loops = tables.table(2).map(|of| loops::loop_rows(code, of));
        summary::doubts(outcome, &mut warnings);
        let analysis = Analysis {
            format: FORMAT,
            version: VERSION,
            filter: None,
            summary: passes.summary(hats),
            processes: Vec::new(),
            threads: Vec::new(),
            functions: functions.unwrap_or_default(),
            lines: lines.unwrap_or_default(),
            loops: loops.unwrap_or_default(),
            windows: windows::window_rows(outcome),
            growth,
            inter_sample,
            objects: Vec::new(),
            call_paths: call_paths::without(&self.manifest.call_paths, outcome.census.samples),
            python: None,
            by_path: None,
            measured: None,
            counters: None,
            findings: FindingList::default(),
            heat_map: None,
            time_zoom: None,
            location_zoom: None,
            warnings,
        };
        Built {
            analysis,
            whole: counts.sums.whole.without_fetches(),
            by_code: bare(counts.sums.tables),
            places,
            times: sampling.times,
        }
    }
}
