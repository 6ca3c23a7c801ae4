//! Reuses after samples that watchpoints caught.
//!
//! Data may be reused in bursts that are longer than a sample and shorter than the gap between two
//! samples. Other samples do not show such reuse. A hardware watchpoint on a word that a sample has
//! used catches it, as in RDX (Wang, Liu, Chabbi: "Featherlight Reuse-Distance Measurement", HPCA
//! 2019). Watches that are given up are censored.
//!
//! Other code than the word's user may be the next to touch it. Then that code's load hits or
//! misses. So for each piece of code, the share of an object's watches that it ends within some
//! time is estimated, with other code as a competing way to end (Kaplan and Meier, JASA 53, 1958;
//! Aalen and Johansen 1978), and its variance (Greenwood 1926; Marubini and Valsecchi 1995). This
//! share, over the code's share of the object's late visits, is the part of these visits that
//! return within that time. If only one piece of code uses the object, the result is Kaplan and
//! Meier's survival function.
//!
//! A word is eight bytes of a line of 64. Another word of the line may be touched sooner. So the
//! survival of words is an upper bound of that of lines: watches lower a survival and never raise
//! it. Strided loads are an exception, since their walks show when they return. Watches without an
//! access show that no walk returned between the samples, so they raise the lower end.

use crate::data::group::AccessClass;
use crate::data::memory_units::CacheLine;
use crate::data::reuse_pairs::{ReusePair, ReusePairs, WatchEnd};
use crate::misses::load_weights::LoadWeights;
use crate::misses::params;
use crate::misses::survival_curve::grid;
use crate::misses::watch_survival::{LineOverWord, Touches, WatchEndedBy, combined, mixed};
use crate::stages::line_visits::{LineVisits, PARTS, Visit, WatchedUse};
use crate::util::fast_hash::Mixed;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Contribution of the watchpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchedReuses {
    /// All watches.
    pub pairs: u64,
    /// Usable watches that a load ended.
    pub reused: u64,
    /// Watches that contradict the rows of their sample, or whose time cannot be converted to
    /// loads.
    pub unusable: u64,
    /// Watches that entered an estimate.
    pub used: u64,
    /// Number of samples.
    pub windows: u64,
}

/// A watch whose time is known in sample lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// The use at which the watch began: line, sample, address space, group.
    pub(crate) used: Visit,
    /// Part of the sample after the use, and number of lines touched there.
    pub(crate) rest: f64,
    pub(crate) after: f64,
    /// Length of the watch after the sample's end, in sample lengths.
    pub(crate) length: f64,
    pub(crate) end: WatchEnd,
}

/// Converts the time of watches to sample lengths, and counts watches by outcome.
pub(crate) fn timed(
    lines: &LineVisits,
    pairs: &ReusePairs,
    weights: &LoadWeights<'_>,
) -> (Vec<Watch>, WatchedReuses) {
    let mut loads: HashMap<u32, f64, Mixed> = HashMap::default();
    for of in &lines.samples {
        *loads.entry(of.sample).or_default() += f64::from(of.accesses) + f64::from(of.implied);
    }
    let of_use = |used: &WatchedUse| {
        let pair = pairs.all().get(used.pair as usize)?;
        let here = *loads.get(&pair.sample)?;
        Some(Watch {
            used: Visit {
                line: CacheLine::of(pair.address),
                byte: Visit::byte_of(pair.address),
                sample: pair.sample,
                space: used.space,
                group: used.group,
                ..Visit::default()
            },
            rest: f64::from(used.rest),
            after: f64::from(used.after),
            length: pair.cpu_ns as f64 * weights.lengths_per_ns(pair.sample, here)?,
            end: pair.end,
        })
    };
    let watches: Vec<Watch> = lines.watched.iter().filter_map(of_use).collect();
    let here = |p: &&ReusePair| !pairs.filtered || loads.contains_key(&p.sample);
    let all = pairs.all().iter().filter(here).count() as u64;
    let reused = |w: &&Watch| matches!(w.end, WatchEnd::Load(_));
    let seen = WatchedReuses {
        pairs: all,
        reused: watches.iter().filter(reused).count() as u64,
        unusable: all - watches.len() as u64,
        used: 0,
        windows: loads.len() as u64,
    };
    (watches, seen)
}

/// A function and the class of its loads. Watches treat its visits as alike. Pieces of a function
/// touch a line one after the other: the first one has the late visit, and another one may touch
/// the watched word.
pub(crate) type Code = (u32, AccessClass);

/// Watches of one object, or of all objects, as one piece of code sees them.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Cells of the code in these objects.
    cells: Vec<u32>,
    /// Cells to which the unit's estimate applies, with their shares of the code's late visits.
    pub(crate) tells: Vec<(u32, f64)>,
    /// True if the code's loads are strided. Their walks show when they return, for each piece of
    /// code separately. Watches only show that they do not.
    pub(crate) walks: bool,
    watches: Vec<SeenWatch>,
    /// By replicate: weights of the code's late visits, and of all late visits to the objects.
    late: [(f64, f64); PARTS],
    times: LineOverWord,
    speed: SpeedCorrection,
}

/// A watch as one piece of code sees it.
#[derive(Clone, Copy, Debug)]
struct SeenWatch {
    /// Replicate.
    part: usize,
    beyond: f64,
    length: f64,
    end: WatchEndedBy,
}

/// Observations of some code inside samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InSamples {
    /// Rate of touches of a line over that of one of its words.
    pub(crate) times: LineOverWord,
    /// Late reuses, and the rate of touches of a line at that time, per sample length.
    pub(crate) reuses: f64,
    pub(crate) hazard: f64,
}

/// Correction of the assumed speed of code as a factor, and its standard error as a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SpeedCorrection {
    times: f64,
    off: f64,
}

impl SpeedCorrection {
    const UNKNOWN: SpeedCorrection = SpeedCorrection {
        times: 1.0,
        off: params::PACE_STANDARD_ERROR_FACTOR,
    };

    /// Measures the speed. Right after a sample, words are touched at the rate observed at the end
    /// of samples. The ratio of the two rates converts the time of watches to sample lengths, for
    /// any assumed speed. `share` is the code's share of the late visits.
    fn new(watches: &[SeenWatch], share: f64, known: &InSamples) -> SpeedCorrection {
        let own = watches.iter().filter(|w| w.end == WatchEndedBy::Own);
        let mut ends: Vec<f64> = own.map(|w| w.length).collect();
        ends.sort_unstable_by(f64::total_cmp);
        let enough = (watches.len() as f64 * share * params::EARLY_WATCHES_FOR_PACE) as usize;
        let early = enough.min(ends.len());
        if early < params::MIN_EARLY_WATCHES_FOR_PACE
            || known.reuses < params::MIN_EARLY_WATCHES_FOR_PACE as f64
        {
            return SpeedCorrection::UNKNOWN;
        }
        let until = ends[early - 1];
        let time: f64 = watches.iter().map(|w| w.length.min(until)).sum();
        let by_watches = early as f64 / (time * share).max(f64::MIN_POSITIVE);
        let by_samples = known.hazard * known.times.words_over_lines();
        let found = (by_watches / by_samples).ln();
        // Words outside of bursts show the gap between bursts, not the speed.
        if !found.is_finite()
            || found.abs()
                > params::MAX_PACE_DEVIATION_IN_ERRORS * params::PACE_STANDARD_ERROR_FACTOR.ln()
        {
            return SpeedCorrection::UNKNOWN;
        }
        let of_use = params::WATCHED_WORDS_LOG_ERROR * params::WATCHED_WORDS_LOG_ERROR;
        let variance = 1.0 / early as f64 + 1.0 / known.reuses + of_use;
        // The assumed speed is also weighted, by its own error.
        let prior = params::PACE_STANDARD_ERROR_FACTOR.ln().powi(2);
        SpeedCorrection {
            times: (found * prior / (prior + variance)).exp(),
            off: (prior * variance / (prior + variance)).sqrt().exp(),
        }
    }
}

/// A cell's late visits, to be matched with watches.
pub(crate) struct CellVisits {
    pub(crate) code: Code,
    pub(crate) object: u32,
    /// By replicate: sum over the samples of the cell's share of the sample's late visits. Each
    /// sample has the same number of watches.
    pub(crate) late: [f64; PARTS],
}

/// A watch, to be matched with cells.
pub(crate) struct ObjectWatch {
    pub(crate) part: usize,
    pub(crate) object: u32,
    /// Length of the watch in sample lengths: `beyond` is from the reach of the sample to its end,
    /// and `length` is the time after that.
    pub(crate) beyond: f64,
    pub(crate) length: f64,
    /// The code that touched the word. None if no known load did.
    pub(crate) by: Option<Code>,
    /// True if a store or unknown code touched the word.
    pub(crate) otherwise: bool,
}

/// Groups watches by object and code, or by code alone if an object has too few. The second value
/// is the number of watches used.
pub(crate) fn units(
    cells: &[CellVisits],
    watches: &[ObjectWatch],
    in_samples: &dyn Fn(Code) -> InSamples,
) -> (Vec<Unit>, u64) {
    let known = speed_corrections(cells, watches, in_samples);
    let mut used = vec![false; watches.len()];
    let mut found = Vec::new();
    let mut told = vec![false; cells.len()];
    let mut by_object: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, watch) in watches.iter().enumerate() {
        by_object.entry(watch.object).or_default().push(at);
    }
    let mut add = |object: Option<u32>, those: &[usize]| {
        let here = |cell: &CellVisits| object.is_none_or(|o| o == cell.object);
        let mut by_code: BTreeMap<Code, Vec<u32>> = BTreeMap::new();
        let mut all = [0.0; PARTS];
        for (at, cell) in (0..).zip(cells).filter(|c| here(c.1)) {
            by_code.entry(cell.code).or_default().push(at);
            all.iter_mut().zip(cell.late).for_each(|(a, l)| *a += l);
        }
        for (code, of_code) in by_code {
            let mut late = all.map(|all| (0.0, all));
            for &cell in &of_code {
                let of = cells[cell as usize].late;
                late.iter_mut().zip(of).for_each(|(l, of)| l.0 += of);
            }
            let own = |cell: u32| cells[cell as usize].late.iter().sum::<f64>();
            let whole: f64 = of_code.iter().map(|&cell| own(cell)).sum();
            let tells: Vec<(u32, f64)> = (of_code.iter().copied())
                .filter(|&cell| !told[cell as usize])
                .map(|cell| (cell, own(cell) / whole.max(f64::MIN_POSITIVE)))
                .collect();
            let (times, speed) = known[&code];
            let unit = Unit {
                cells: of_code,
                tells,
                walks: code.1 == AccessClass::Strided,
                watches: those.iter().map(|&at| watches[at].seen_by(code)).collect(),
                late,
                times,
                speed,
            };
            if unit.tells.is_empty()
                || unit.share(None) * (those.len() as f64) < params::MIN_WATCHES_FOR_ESTIMATE
            {
                continue;
            }
            unit.tells.iter().for_each(|c| told[c.0 as usize] = true);
            those.iter().for_each(|&at| used[at] = true);
            found.push(unit);
        }
    };
    for (&object, those) in &by_object {
        add(Some(object), those);
    }
    add(None, &(0..watches.len()).collect::<Vec<usize>>());
    (found, used.iter().filter(|&&u| u).count() as u64)
}

/// By code: ratio of lines to words from samples, and speed from samples and the watches of all
/// objects.
fn speed_corrections(
    cells: &[CellVisits],
    watches: &[ObjectWatch],
    in_samples: &dyn Fn(Code) -> InSamples,
) -> BTreeMap<Code, (LineOverWord, SpeedCorrection)> {
    let mut late: BTreeMap<Code, f64> = BTreeMap::new();
    for cell in cells {
        *late.entry(cell.code).or_default() += cell.late.iter().sum::<f64>();
    }
    let all: f64 = late.values().sum();
    let of_code = |(&code, &own): (&Code, &f64)| {
        let known = in_samples(code);
        let seen: Vec<SeenWatch> = watches.iter().map(|w| w.seen_by(code)).collect();
        // The walks of strided loads show their speed themselves.
        let speed = match code.1 == AccessClass::Strided {
            true => SpeedCorrection::UNKNOWN,
            false => SpeedCorrection::new(&seen, own / all, &known),
        };
        (code, (known.times, speed))
    };
    late.iter().map(of_code).collect()
}

impl ObjectWatch {
    fn seen_by(&self, code: Code) -> SeenWatch {
        let end = match self.by {
            Some(by) if by == code => WatchEndedBy::Own,
            Some(_) => WatchEndedBy::Others,
            // Memory that is written is mostly read as well, so it counts as touched.
            None if self.otherwise && code.1 == AccessClass::Strided => WatchEndedBy::Own,
            None => WatchEndedBy::Unseen,
        };
        let [beyond, length] = [self.beyond, self.length];
        SeenWatch {
            part: self.part,
            beyond,
            length,
            end,
        }
    }
}

impl Unit {
    /// The code's share of the late visits.
    fn share(&self, without: Option<usize>) -> f64 {
        let kept = self.late.iter().enumerate();
        let sums = kept
            .filter(|(part, _)| Some(*part) != without)
            .fold((0.0, 0.0), |sum, (_, l)| (sum.0 + l.0, sum.1 + l.1));
        if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 }
    }

    fn touches(&self, without: Option<usize>) -> Touches {
        let kept = self.watches.iter().filter(|w| Some(w.part) != without);
        Touches::new(
            kept.map(|w| (w.beyond + self.speed.times * w.length, w.end))
                .collect(),
        )
    }

    /// Error factor of the time of watches at the ends of a 95 % interval.
    pub(crate) fn pace_ends(&self) -> f64 {
        self.speed.off * self.speed.off
    }

    /// Along the grid: a lower bound of the share of the code's late visits whose words are not
    /// touched.
    pub(crate) fn floors(&self, without: Option<usize>) -> Vec<f64> {
        let (touches, share) = (self.touches(without), self.share(without).max(1e-9));
        let at = |v: f64| {
            let lasting = touches.lasting(v);
            if lasting * share < params::MIN_WATCHES_FOR_ESTIMATE {
                return 0.0;
            }
            // If none of n watches was touched, up to three in n may be (rule of three, 95 %).
            let chance = (params::STANDARD_ERRORS_IN_HALF_INTERVAL * touches.variance(v).sqrt())
                .max(params::UNSEEN_EVENTS_AT_95_PCT / lasting);
            let touched = touches.part(v) / share;
            (1.0 - touched - chance / share).max(0.0)
        };
        grid().map(at).collect()
    }

    /// Along the grid: factors on the survival of the code's cells (lower end, estimate, upper
    /// end). `model` returns the mean survival of cells by the model at a time, and its error.
    pub(crate) fn factors(
        &self,
        without: Option<usize>,
        model: impl Fn(f64, &[u32]) -> (f64, f64),
    ) -> Vec<[f64; 3]> {
        let (touches, share) = (self.touches(without), self.share(without));
        let alone = |v: f64| (1.0 - touches.part(v) / share.max(1e-9)).clamp(0.0, 1.0);
        let mut lowest = [1.0f64; 3];
        let at = |v: f64| {
            let (survival, range) = model(v, &self.cells);
            let survival = survival.max(f64::MIN_POSITIVE);
            let words = alone(v);
            let of_speed = (alone(v / self.speed.off) - alone(v * self.speed.off)) / 2.0;
            let chance = touches.variance(v).sqrt() / share.max(1e-9);
            let of_words = chance.hypot(of_speed);
            let (watched, of_times) = self.times.of_lines(words);
            let [low, high] = [words - of_words, words + of_words]
                .map(|words| self.times.of_lines(words.clamp(0.0, 1.0)).0);
            let error = ((high - low) / 2.0)
                .hypot(of_times)
                .max(chance / params::WORDS_PER_LINE);
            let both = combined(
                (survival, range),
                (watched, error),
                words + params::STANDARD_ERRORS_IN_HALF_INTERVAL * of_words,
            );
            // The survival of words is an upper bound of that of lines. Watches contradict the
            // model only if the survival of words is below its survival of lines.
            let apart = (survival - words) / range.hypot(of_words).max(1e-9);
            let against = (apart - params::MIN_ERRORS_TO_CONTRADICT)
                / (params::ERRORS_TO_COUNT_FULLY - params::MIN_ERRORS_TO_CONTRADICT);
            let against = against.clamp(0.0, 1.0);
            if both.value < survival && against > 0.0 {
                // A lowered survival stays low at later times.
                let ends = [both.least, both.value, both.most];
                let ends = ends.map(|end| survival + against * (end - survival));
                (lowest.iter_mut().zip(ends)).for_each(|(low, end)| *low = low.min(end));
            }
            lowest.map(|low| low.min(survival) / survival)
        };
        grid().map(at).collect()
    }
}

/// Lower bound of the share of a cell's visits whose lines are not touched for `v` sample lengths.
/// `part` is the cell's share of its unit's late visits. `floors` has bounds for words along the
/// grid, and is empty if none are known. The bound at a time is at least that at the next point of
/// the grid.
///
/// A walk that returns touches the same words again. Other loads of the code may touch other words
/// of the lines in as many visits as they have. In the worst case all reuse belongs to this cell.
pub(crate) fn floor_of(floors: &[f64], part: f64, v: f64) -> f64 {
    let place = grid().take_while(|&at| at < v).count();
    let words = floors.get(place).copied().unwrap_or(0.0);
    let part = part.max(f64::MIN_POSITIVE);
    let lines = mixed((1.0 / part).clamp(1.0, params::WORDS_PER_LINE), words);
    (1.0 - (1.0 - lines) / part).max(0.0)
}

/// Interpolates the factors between points of the grid.
pub(crate) fn between(factors: &[[f64; 3]], v: f64) -> [f64; 3] {
    let Some(last) = factors.len().checked_sub(1) else {
        return [1.0; 3];
    };
    let place = ((v.max(f64::MIN_POSITIVE).log2() - params::GRID_START_LOG2)
        * params::GRID_POINTS_PER_DOUBLING)
        .clamp(0.0, last as f64);
    let (from, part) = (place as usize, place.fract());
    let to = (from + 1).min(last);
    std::array::from_fn(|end| factors[from][end] + part * (factors[to][end] - factors[from][end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples without any reuse.
    const NO_REUSES: InSamples = InSamples {
        times: LineOverWord::UNKNOWN,
        reuses: 0.0,
        hazard: 0.0,
    };

    fn cell(code: u32, object: u32, late: f64) -> CellVisits {
        CellVisits {
            code: (code, AccessClass::Irregular),
            object,
            late: [late; PARTS],
        }
    }

    fn watches(
        n: usize,
        object: u32,
        by: Option<u32>,
        length: f64,
    ) -> impl Iterator<Item = ObjectWatch> {
        (0..n).map(move |at| ObjectWatch {
            part: at % PARTS,
            object,
            beyond: 0.0,
            length,
            by: by.map(|code| (code, AccessClass::Irregular)),
            otherwise: false,
        })
    }

    /// One function is the first to use lines of an object, and another one follows soon. Only the
    /// touches of the second one are hits.
    #[test]
    fn who_touches_again_hits() {
        let cells = [cell(1, 7, 3.0), cell(2, 7, 3.0)];
        // The second function touches the words that the first one used. Nothing touches the words
        // that the second one used.
        let seen: Vec<_> =
            (watches(40, 7, Some(2), 2.0).chain(watches(40, 7, None, 500.0))).collect();
        let (units, used) = units(&cells, &seen, &|_| NO_REUSES);
        assert_eq!((units.len(), used), (2, 80));
        let model = |_: f64, _: &[u32]| (0.9, 0.0);
        let at = |unit: &Unit, v: f64| between(&unit.factors(None, model), v);
        assert_eq!(at(&units[0], 64.0), [1.0; 3]);
        let second = at(&units[1], 64.0);
        assert!(
            second[1] < 0.15 && second[0] < 0.05 && second[2] > second[1],
            "{second:?}"
        );
        assert_eq!(at(&units[1], 1.0)[1], 1.0);
        // Later survival stays low, even if the model disagrees.
        assert!(at(&units[1], 1e9)[1] <= second[1] && at(&units[1], f64::MAX)[1] <= second[1]);
    }

    #[test]
    fn too_few_watches_of_an_object_count_with_those_of_the_code() {
        let cells = [cell(1, 7, 1.0), cell(1, 8, 1.0), cell(3, 9, 0.01)];
        let few = |n: usize| -> Vec<ObjectWatch> {
            (watches(n, 7, Some(1), 2.0).chain(watches(3, 8, Some(1), 2.0))).collect()
        };
        let lowers = |n: usize| -> Vec<Vec<u32>> {
            units(&cells, &few(n), &|_| NO_REUSES)
                .0
                .into_iter()
                .map(|u| u.tells.into_iter().map(|c| c.0).collect())
                .collect()
        };
        assert_eq!(lowers(12), [vec![0], vec![1]]);
        assert_eq!(lowers(9), [vec![0, 1]]);
        assert!(lowers(4).is_empty());
    }

    /// A hundred watches of a walk, none of which ended with an access.
    #[test]
    fn walks_that_do_not_come_back_have_a_floor() {
        let unit = |came_back: usize| {
            let mut seen: Vec<_> = watches(100 - came_back, 7, None, 50.0).collect();
            for mut watch in watches(came_back, 7, None, 20.0) {
                watch.by = Some((1, AccessClass::Strided));
                seen.push(watch);
            }
            let mut walk = cell(1, 7, 1.0);
            walk.code = (1, AccessClass::Strided);
            let (mut units, used) = units(&[walk], &seen, &|_| NO_REUSES);
            assert_eq!((units.len(), used), (1, 100));
            units.remove(0)
        };
        let floors = unit(0).floors(None);
        assert!((0.96..0.98).contains(&floor_of(&floors, 1.0, 30.0)));
        // No watch lasted longer.
        assert_eq!(floor_of(&floors, 1.0, 60.0), 0.0);
        assert_eq!(floor_of(&[], 1.0, 1.0), 0.0);
        // If other walks of the code are as frequent, all reuse may belong to one of them, and to
        // other words.
        let half = floor_of(&floors, 0.5, 30.0);
        assert!((0.85..0.92).contains(&half), "{half}");
        assert!(floor_of(&floors, 0.01, 30.0) < 1e-9);
        let some = unit(40).floors(None);
        let (early, late) = (floor_of(&some, 1.0, 8.0), floor_of(&some, 1.0, 30.0));
        assert!(early > 0.9 && (0.45..0.6).contains(&late), "{early} {late}");
    }

    /// Words are reused eight times less often after samples than inside them. The pace of the code
    /// is assumed eight times too fast.
    #[test]
    fn pace_follows_from_what_samples_see() {
        let (cells, hazard) = ([cell(1, 7, 1.0)], 0.08);
        // Quantiles of an exponential distribution.
        let length = |at: usize| -(1.0 - (at as f64 + 0.5) / 200.0).ln() / (hazard / 8.0);
        let seen: Vec<_> = (0..200)
            .flat_map(|at| watches(1, 7, Some(1), length(at)))
            .collect();
        let known = |reuses: f64| InSamples {
            times: LineOverWord::new(1000.0, 1000.0),
            reuses,
            hazard,
        };
        let unit = |reuses: f64| units(&cells, &seen, &|_| known(reuses)).0.remove(0);
        let speed = unit(1000.0).speed;
        // The assumed speed is also weighted.
        assert!(
            (0.125..0.25).contains(&speed.times) && speed.off < 1.5,
            "{speed:?}"
        );
        let alone = |unit: &Unit, v: f64| 1.0 - unit.touches(None).part(v);
        let (v, truth) = (10.0, (-10.0f64 * hazard).exp());
        assert!((alone(&unit(1000.0), v) - truth).abs() < 0.2);
        assert!((alone(&unit(0.0), v) - truth).abs() > 0.4);
        assert_eq!(unit(0.0).speed, SpeedCorrection::UNKNOWN);
    }

    #[test]
    fn factors_lie_between_those_of_the_grid() {
        let factors: Vec<[f64; 3]> = (0..5).map(|at| [f64::from(at); 3]).collect();
        assert_eq!(between(&factors, 0.0)[1], 0.0);
        assert_eq!(between(&factors, 1.0 / 16.0)[1], 0.0);
        assert!((between(&factors, 1.0 / 8.0)[1] - 2.0).abs() < 1e-12);
        assert_eq!(between(&factors, f64::INFINITY)[1], 4.0);
        assert_eq!(between(&[], 3.0), [1.0; 3]);
    }
}
