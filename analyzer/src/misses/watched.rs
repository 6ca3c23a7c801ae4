//! Reuse that watchpoints saw: when what a sample used was touched again, behind the sample.
//!
//! Reuse in bursts that are longer than a sample and shorter than what lies between two leaves no trace in other samples. A hardware
//! watchpoint on a word that a sample has used sees it, as RDX does (Wang, Liu, Chabbi: "Featherlight Reuse-Distance Measurement", HPCA
//! 2019). Watches that are given up are censored. The word may be touched by other code than has used it, and it is that code whose load
//! hits or misses. So of all watches in an object the share that code touches again within some time is estimated, beside the share
//! that other code does (Kaplan and Meier, JASA 53, 1958; Aalen and Johansen 1978 for several ways to end), with the variance of Greenwood (1926;
//! Marubini and Valsecchi 1995 for several). Over the share of the code in the late visits of the object it is the part of these
//! that come again within that time. Where all is one code, this is the survival function of Kaplan and Meier.
//!
//! A word is eight bytes of a line of 64, and another word of the line may be touched sooner: lines are left alone for no longer than that.
//! So watches lower a survival and never raise it.

use crate::data::reuse_pairs::{ReusePair, ReusePairs, WatchEnd};
use crate::misses::far::grid;
use crate::misses::load_weights::LoadWeights;
use crate::stages::line_visits::{LINE, LineVisits, PARTS, Visit, WatchedUse};
use crate::util::fast_hash::Mixed;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Class of groups whose addresses come in even steps.
pub(super) const STRIDED: u32 = 1;
/// Watches that what is estimated from has at least, as far as they are of its code.
const FEWEST: f64 = 10.0;
/// The pace of code is known but for this factor.
const PACE: f64 = 2.0;
/// The same at the ends of a 95 % interval.
pub(super) const PACE_ENDS: f64 = PACE * PACE;
/// What the model does not know of bursts: this over the survival.
const BURSTS: f64 = 0.15;
/// What the share of code in an object is off by, of what is not its own.
const SHARE: f64 = 0.2;
/// Standard errors that words are left alone for less time than the model says of lines, from which on they speak against it, and from which
/// on it counts for no more than its errors say.
const APART: [f64; 2] = [1.0, 2.0];
/// Standard errors in half a 95 % interval.
const QUANTILE: f64 = 2.0;
/// A sample that was cut short counts as at least so much of a mean one.
const SHORTEST: f64 = 0.5;

/// What watchpoints contributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchedReuses {
    /// Watches.
    pub pairs: u64,
    /// Those that a load ended, of usable ones.
    pub reused: u64,
    /// Those that rows of their sample do not agree with, or whose time tells no loads.
    pub unusable: u64,
    /// Those that an estimate was made from.
    pub used: u64,
    /// Samples.
    pub windows: u64,
}

/// A watch whose time is known in sample lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Where the use was: line, sample, address space, group.
    pub(crate) used: Visit,
    /// Part of the sample behind it, and lines that were touched there.
    pub(crate) rest: f64,
    pub(crate) after: f64,
    /// Sample lengths from the sample's end on.
    pub(crate) length: f64,
    pub(crate) end: WatchEnd,
}

/// Watches with their times, and what became of all.
pub(crate) fn timed(
    lines: &LineVisits,
    pairs: &ReusePairs,
    weights: &LoadWeights<'_>,
) -> (Vec<Watch>, WatchedReuses) {
    let mut loads: HashMap<u32, f64, Mixed> = HashMap::default();
    for of in &lines.samples {
        *loads.entry(of.sample).or_default() += f64::from(of.accesses) + f64::from(of.implied);
    }
    let mean = loads.values().sum::<f64>() / loads.len().max(1) as f64;
    let of_use = |used: &WatchedUse| {
        let pair = pairs.all().get(used.pair as usize)?;
        let here = loads.get(&pair.sample)?.max(SHORTEST * mean);
        Some(Watch {
            used: Visit {
                line: pair.address >> LINE,
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

/// How a watch ended, as the code at hand sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The code touched the word.
    Own,
    /// Other code did.
    Others,
    /// Nobody saw it.
    Unseen,
}

/// Watches of a kind, of which some code touches a part again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    /// By time: time, watches that have lasted until then, those that anything ends there, those that the code does; and, behind
    /// that, the part that has not ended, and the part that the code has ended.
    steps: Vec<Step>,
    /// Least error of a part, beyond the last end of a watch.
    least: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    time: f64,
    at_risk: f64,
    ended: f64,
    own: f64,
    /// The part that had not ended before.
    before: f64,
    /// The part that the code has touched, this time included.
    touched: f64,
}

impl Touches {
    /// From times and ends.
    pub(crate) fn new(mut ends: Vec<(f64, Ended)>) -> Touches {
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut steps, mut at_risk) = (Vec::new(), ends.len() as f64);
        let (mut left, mut touched, mut least) = (1.0, 0.0, 0.0);
        for same in ends.chunk_by(|a, b| a.0 == b.0) {
            let count = |end: Ended| same.iter().filter(|e| e.1 == end).count() as f64;
            let (own, others) = (count(Ended::Own), count(Ended::Others));
            let ended = own + others;
            if ended > 0.0 {
                touched += left * own / at_risk;
                steps.push(Step {
                    time: same[0].0,
                    at_risk,
                    ended,
                    own,
                    before: left,
                    touched,
                });
                // Of n that all have ended, the next one would not with a chance of about one in n.
                least = left / (at_risk + 1.0);
                left *= 1.0 - ended / at_risk;
            }
            at_risk -= same.len() as f64;
        }
        Touches { steps, least }
    }

    fn until(&self, time: f64) -> &[Step] {
        &self.steps[..self.steps.partition_point(|s| s.time <= time)]
    }

    /// The part of the watches that the code has touched again by then.
    pub(crate) fn part(&self, time: f64) -> f64 {
        self.until(time).last().map_or(0.0, |s| s.touched)
    }

    /// Variance of that: Greenwood's where there is no other code, Marubini and Valsecchi's (1995) else.
    pub(crate) fn variance(&self, time: f64) -> f64 {
        let steps = self.until(time);
        let Some(last) = steps.last() else { return 0.0 };
        let of_step = |s: &Step| {
            let (n, more) = (s.at_risk, last.touched - s.touched);
            let stay = match n - s.ended {
                // None is left: nothing comes behind.
                left if left <= 0.0 => 0.0,
                left => more * more * s.ended / (n * left),
            };
            let own = s.before * s.before * s.own * (n - s.own) / (n * n * n);
            stay + own - 2.0 * more * s.before * s.own / (n * n)
        };
        let sum: f64 = steps.iter().map(of_step).sum();
        sum.max(self.least * self.least)
    }
}

/// Reuses from which on they tell of words.
const TELLING: f64 = 20.0;
/// Words of a line.
const WORDS: f64 = 8.0;

/// How many times as often as a word its line is touched: 1 where all that is used of it is used together, 8 where any word is as likely as
/// the others. Reuses inside samples tell, those that come back to a line which had been left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineOverWord {
    least: f64,
    value: f64,
    most: f64,
}

impl LineOverWord {
    /// From reuses, and those of them that are of the same word.
    pub(crate) fn new(again: f64, same_word: f64) -> LineOverWord {
        if again < TELLING {
            return LineOverWord {
                least: 1.0,
                value: 1.0,
                most: WORDS,
            };
        }
        // (With Jeffreys' prior, so that no count is certain.)
        let share = (same_word + 0.5) / (again + 1.0);
        let error = (share * (1.0 - share) / (again + 1.0)).sqrt();
        let times = |share: f64| (1.0 / share.max(1.0 / WORDS)).clamp(1.0, WORDS);
        LineOverWord {
            least: times(share + error),
            value: times(share),
            most: times(share - error),
        }
    }

    /// The survival of lines for that of words, and its error. How long a part stays in use differs: as by an exponential distribution, of which
    /// this is the mixture; if all were used for as long, it would be a power of the words'.
    fn of_lines(self, words: f64) -> (f64, f64) {
        let mixed = |times: f64| match words {
            w if w <= 0.0 => 0.0,
            w => 1.0 / (1.0 + times * (1.0 / w - 1.0)),
        };
        let value = mixed(self.value);
        let of_times = (mixed(self.least) - mixed(self.most)) / 2.0;
        let of_form = (value - words.clamp(0.0, 1.0).powf(self.value)) / 2.0;
        (value, of_times.hypot(of_form))
    }
}

/// A survival with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Survival {
    pub(crate) least: f64,
    pub(crate) value: f64,
    pub(crate) most: f64,
}

/// What a model and watches say together. `model` and `watched`: survival and its standard error.
///
/// Each counts as much as its variance is small. What the two differ by, and their errors do not explain, is the model's error: it is blind to
/// bursts, watches are not. Then the interval has both, but for what words, whose survival is `bound` at most, say for sure.
pub(crate) fn combined(model: (f64, f64), watched: (f64, f64), bound: f64) -> Survival {
    let (by_model, by_watches) = (model.0, watched.0);
    if by_watches >= by_model {
        return Survival {
            least: by_model,
            value: by_model,
            most: by_model,
        };
    }
    let [of_model, of_watches] = [model.1, watched.1].map(|e| (e * e).max(1e-12));
    let differ = (by_model - by_watches).powi(2);
    let of_model_and_bursts = of_model + (differ - of_model - of_watches).max(0.0);
    let sum = of_model_and_bursts + of_watches;
    let value = (by_watches * of_model_and_bursts + by_model * of_watches) / sum;
    let half = QUANTILE * (of_model_and_bursts * of_watches / sum).sqrt();
    let mut survival = Survival {
        least: (value - half).max(0.0),
        value,
        most: (value + half).min(by_model.max(value)),
    };
    if differ > QUANTILE * QUANTILE * (of_model + of_watches) {
        survival.least = survival
            .least
            .min((by_watches - QUANTILE * watched.1).max(0.0));
        survival.most = by_model.min(bound.max(value));
    }
    survival
}

/// Code whose visits are taken as alike by watches: a function, and the class of its loads. Pieces of a function touch a line one after
/// the other, and the first one of them, whose visit is the late one, need not be the one that touches the word.
pub(crate) type Code = (u32, u32);

/// Watches of an object, or all, as some code sees them.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Cells of the code there.
    cells: Vec<u32>,
    /// Those whose survival is lowered.
    pub(crate) lowers: Vec<u32>,
    /// Replicate, sample lengths, end.
    watches: Vec<(usize, f64, Ended)>,
    /// By replicate: weights of late visits of the code, and of all there.
    late: [(f64, f64); PARTS],
    times: LineOverWord,
}

/// A cell, as watches see it.
pub(crate) struct CellVisits {
    pub(crate) code: Code,
    pub(crate) object: u32,
    /// By replicate: late visits, those of each sample as a part of all of the sample, since each has as many watches.
    pub(crate) late: [f64; PARTS],
}

/// A watch, as cells see it.
pub(crate) struct ObjectWatch {
    pub(crate) part: usize,
    pub(crate) object: u32,
    /// Sample lengths from where the reach of samples ends.
    pub(crate) length: f64,
    /// The code that touched it, or that it was not seen to be touched.
    pub(crate) by: Option<Code>,
}

/// Puts watches together: by object and code, or, where an object has too few, by code. Tells how many are used, too.
pub(crate) fn units(
    cells: &[CellVisits],
    watches: &[ObjectWatch],
    times: &dyn Fn(Code) -> LineOverWord,
) -> (Vec<Unit>, u64) {
    let mut used = vec![false; watches.len()];
    let mut found = Vec::new();
    let mut lowered = vec![false; cells.len()];
    let mut by_object: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, watch) in watches.iter().enumerate() {
        by_object.entry(watch.object).or_default().push(at);
    }
    let mut add = |object: Option<u32>, those: &[usize]| {
        let here = |cell: &CellVisits| object.is_none_or(|o| o == cell.object);
        // (Walks tell when loads in even steps come back, each piece of code by itself.)
        let mut by_code: BTreeMap<Code, Vec<u32>> = BTreeMap::new();
        let mut all = [0.0; PARTS];
        for (at, cell) in (0..).zip(cells).filter(|c| here(c.1)) {
            by_code.entry(cell.code).or_default().push(at);
            all.iter_mut().zip(cell.late).for_each(|(a, l)| *a += l);
        }
        for (code, of_code) in by_code.into_iter().filter(|(code, _)| code.1 != STRIDED) {
            let mut late = all.map(|all| (0.0, all));
            for &cell in &of_code {
                let of = cells[cell as usize].late;
                late.iter_mut().zip(of).for_each(|(l, of)| l.0 += of);
            }
            let lowers: Vec<u32> = (of_code.iter().copied())
                .filter(|&cell| !lowered[cell as usize])
                .collect();
            let unit = Unit {
                cells: of_code,
                lowers,
                watches: those.iter().map(|&at| watches[at].seen_by(code)).collect(),
                late,
                times: times(code),
            };
            if unit.lowers.is_empty() || unit.share(None) * (those.len() as f64) < FEWEST {
                continue;
            }
            unit.lowers.iter().for_each(|&c| lowered[c as usize] = true);
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

impl ObjectWatch {
    fn seen_by(&self, code: Code) -> (usize, f64, Ended) {
        let end = match self.by {
            Some(by) if by == code => Ended::Own,
            Some(_) => Ended::Others,
            None => Ended::Unseen,
        };
        (self.part, self.length, end)
    }
}

impl Unit {
    /// Share of the code in the late visits.
    fn share(&self, without: Option<usize>) -> f64 {
        let kept = self.late.iter().enumerate();
        let sums = kept
            .filter(|(part, _)| Some(*part) != without)
            .fold((0.0, 0.0), |sum, (_, l)| (sum.0 + l.0, sum.1 + l.1));
        if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 }
    }

    /// By what the survival of its cells is multiplied along the grid: least, estimate, most. `model`: the mean survival and its error by the
    /// model, from survivals of cells at a place of the grid.
    pub(crate) fn factors(
        &self,
        without: Option<usize>,
        model: impl Fn(f64, &[u32]) -> (f64, f64),
    ) -> Vec<[f64; 3]> {
        let kept = self.watches.iter().filter(|w| Some(w.0) != without);
        let touches = Touches::new(kept.map(|&(_, length, end)| (length, end)).collect());
        let share = self.share(without);
        let alone = |v: f64| (1.0 - touches.part(v) / share.max(1e-9)).clamp(0.0, 1.0);
        let mut lowest = [1.0f64; 3];
        let at = |v: f64| {
            let (survival, range) = model(v, &self.cells);
            let survival = survival.max(f64::MIN_POSITIVE);
            let words = alone(v);
            let pace = (alone(v / PACE) - alone(v * PACE)) / 2.0;
            let of_share = SHARE * (1.0 - share) * (1.0 - words);
            let chance = touches.variance(v).sqrt() / share.max(1e-9);
            let of_words = chance.hypot(pace).hypot(of_share);
            let (watched, of_times) = self.times.of_lines(words);
            let [low, high] = [words - of_words, words + of_words]
                .map(|words| self.times.of_lines(words.clamp(0.0, 1.0)).0);
            let error = ((high - low) / 2.0).hypot(of_times).max(chance / WORDS);
            let model = (survival, range.hypot(BURSTS * survival));
            let both = combined(model, (watched, error), words + QUANTILE * of_words);
            // Words bound lines from above. As long as they may be left alone for as long as the model says, they do not contradict it.
            let apart = (survival - words) / range.hypot(of_words).max(1e-9);
            let against = ((apart - APART[0]) / (APART[1] - APART[0])).clamp(0.0, 1.0);
            if both.value < survival && against > 0.0 {
                // What was touched stays so.
                let ends = [both.least, both.value, both.most];
                let ends = ends.map(|end| survival + against * (end - survival));
                (lowest.iter_mut().zip(ends)).for_each(|(low, end)| *low = low.min(end));
            }
            lowest.map(|low| low.min(survival) / survival)
        };
        grid().map(at).collect()
    }
}

/// The factors at a time, between those of the grid.
pub(crate) fn between(factors: &[[f64; 3]], v: f64) -> [f64; 3] {
    let Some(last) = factors.len().checked_sub(1) else {
        return [1.0; 3];
    };
    let place = ((v.max(f64::MIN_POSITIVE).log2() + 4.0) * 2.0).clamp(0.0, last as f64);
    let (from, part) = (place as usize, place.fract());
    let to = (from + 1).min(last);
    std::array::from_fn(|end| factors[from][end] + part * (factors[to][end] - factors[from][end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ended::{Others, Own, Unseen};

    /// Five watches: ended at 1, given up at 2, ended at 3 and 4, given up at 5. Left are 4/5, times 2/3, times 1/2.
    #[test]
    fn one_kind_of_end_is_kaplan_meier_and_greenwood() {
        let ends = vec![
            (3.0, Own),
            (1.0, Own),
            (2.0, Unseen),
            (5.0, Unseen),
            (4.0, Own),
        ];
        let touches = Touches::new(ends);
        let left = [
            (0.5, 1.0),
            (1.0, 0.8),
            (2.9, 0.8),
            (3.0, 8.0 / 15.0),
            (4.0, 4.0 / 15.0),
            (9.0, 4.0 / 15.0),
        ];
        for (time, left) in left {
            assert!((1.0 - touches.part(time) - left).abs() < 1e-12, "{time}");
        }
        let greenwood = |left: f64, sum: f64| left * left * sum;
        let (early, late) = (1.0 / 20.0 + 1.0 / 6.0, 1.0 / 20.0 + 1.0 / 6.0 + 1.0 / 2.0);
        assert!((touches.variance(3.0) - greenwood(8.0 / 15.0, early)).abs() < 1e-12);
        assert!((touches.variance(4.0) - greenwood(4.0 / 15.0, late)).abs() < 1e-12);
        assert_eq!(touches.variance(0.5), 0.0);
    }

    /// Four watches that all end: two of four by the code, with the variance of two of four.
    #[test]
    fn other_code_does_not_count_as_touching() {
        let touches = Touches::new(vec![(1.0, Own), (2.0, Others), (3.0, Own), (4.0, Unseen)]);
        assert_eq!(
            [0.0, 1.0, 2.5, 3.0, 8.0].map(|t| touches.part(t)),
            [0.0, 0.25, 0.25, 0.5, 0.5]
        );
        assert!((touches.variance(3.0) - 0.5 * 0.5 / 4.0).abs() < 1e-12);
    }

    /// All of few watches ended: more would not have, perhaps.
    #[test]
    fn a_few_watches_are_never_certain() {
        let touches = Touches::new(vec![(1.0, Own); 12]);
        assert_eq!(touches.part(1.0), 1.0);
        assert!(touches.variance(1.0).sqrt() > 0.07);
        assert_eq!(Touches::new(Vec::new()).part(1.0), 0.0);
    }

    #[test]
    fn watches_lower_and_never_raise() {
        for step in 0..=100 {
            let (model, watched) = (0.6, f64::from(step) / 100.0);
            for errors in [(0.0, 0.0), (0.1, 0.02), (0.02, 0.1), (0.3, 0.3)] {
                let both = combined((model, errors.0), (watched, errors.1), 1.0);
                let lower = watched.min(model);
                assert!(
                    both.value <= model && both.value >= lower - 1e-9,
                    "{both:?}"
                );
                assert!(both.least <= both.value && both.value <= both.most && both.most <= model);
                if watched >= model {
                    assert_eq!((both.least, both.value, both.most), (model, model, model));
                }
            }
        }
    }

    #[test]
    fn the_interval_has_both_where_they_disagree() {
        let apart = combined((0.9, 0.14), (0.1, 0.03), 1.0);
        assert!(apart.least <= 0.1 && apart.most >= 0.9, "{apart:?}");
        // What watches see is near the estimate all the same.
        assert!(apart.value < 0.12, "{apart:?}");
        // Where errors explain it, each counts by its variance.
        let near = combined((0.5, 0.1), (0.4, 0.1), 1.0);
        assert!(
            (near.value - 0.45).abs() < 1e-9 && near.most < 0.6,
            "{near:?}"
        );
    }

    fn cell(code: u32, object: u32, late: f64) -> CellVisits {
        CellVisits {
            code: (code, 2),
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
            length,
            by: by.map(|code| (code, 2)),
        })
    }

    /// One function uses lines of an object first, another comes soon behind: only what the second one touches is a hit.
    #[test]
    fn who_touches_again_hits() {
        let cells = [cell(1, 7, 3.0), cell(2, 7, 3.0)];
        // Uses by the first are touched by the second, those by the second by nobody.
        let seen: Vec<_> =
            (watches(40, 7, Some(2), 2.0).chain(watches(40, 7, None, 500.0))).collect();
        let (units, used) = units(&cells, &seen, &|_| LineOverWord::new(0.0, 0.0));
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
        // Once gone, a line stays gone, whatever the model says.
        assert!(at(&units[1], 1e9)[1] <= second[1] && at(&units[1], f64::MAX)[1] <= second[1]);
    }

    #[test]
    fn too_few_watches_of_an_object_count_with_those_of_the_code() {
        let cells = [cell(1, 7, 1.0), cell(1, 8, 1.0), cell(3, 9, 0.01)];
        let few = |n: usize| -> Vec<ObjectWatch> {
            (watches(n, 7, Some(1), 2.0).chain(watches(3, 8, Some(1), 2.0))).collect()
        };
        let lowers = |n: usize| -> Vec<Vec<u32>> {
            units(&cells, &few(n), &|_| LineOverWord::new(0.0, 0.0))
                .0
                .into_iter()
                .map(|u| u.lowers)
                .collect()
        };
        assert_eq!(lowers(12), [vec![0], vec![1]]);
        assert_eq!(lowers(9), [vec![0, 1]]);
        assert!(lowers(4).is_empty());
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
