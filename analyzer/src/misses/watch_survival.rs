//! Survival of words and of their lines, from watches that end in several ways.
//!
//! If all watches end in one way, the estimate is Kaplan and Meier's with Greenwood's variance
//! (JASA 53, 1958; 1926). Otherwise it is the cumulative incidence of one way (Aalen and Johansen
//! 1978) with the variance of Marubini and Valsecchi (1995).

use crate::misses::params;

/// The end of a watch as one piece of code sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEndedBy {
    /// The code itself touched the word.
    Own,
    /// Other code touched it.
    Others,
    /// No touch was seen.
    Unseen,
}

/// Incidence of touches by some code among a set of watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    /// Steps in the order of time, one for each time at which watches ended.
    steps: Vec<Step>,
    /// Smallest error of an incidence after the end of the last watch.
    least: f64,
    /// Lengths of the watches that ended or were given up, sorted.
    lengths: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    time: f64,
    at_risk: f64,
    ended: f64,
    own: f64,
    /// Share of the watches that had not ended before.
    before: f64,
    /// Share of the watches that the code has touched, up to and including this time.
    touched: f64,
}

impl Touches {
    /// Computes the steps. `ends`: time and end of each watch.
    pub(crate) fn new(mut ends: Vec<(f64, WatchEndedBy)>) -> Touches {
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut steps, mut at_risk) = (Vec::new(), ends.len() as f64);
        let (mut left, mut touched, mut least) = (1.0, 0.0, 0.0);
        for same in ends.chunk_by(|a, b| a.0 == b.0) {
            let count = |end: WatchEndedBy| same.iter().filter(|e| e.1 == end).count() as f64;
            let (own, others) = (count(WatchEndedBy::Own), count(WatchEndedBy::Others));
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
                // If all of n watches have ended, another one would last longer with a probability
                // of about 1/n.
                least = left / (at_risk + 1.0);
                left *= 1.0 - ended / at_risk;
            }
            at_risk -= same.len() as f64;
        }
        Touches {
            steps,
            least,
            lengths: ends.into_iter().map(|end| end.0).collect(),
        }
    }

    /// Number of watches that lasted until `time`, or that ended earlier without being given up.
    pub(crate) fn lasting(&self, time: f64) -> f64 {
        let ended: f64 = self.until(time).iter().map(|s| s.ended).sum();
        let before = self.lengths.partition_point(|&l| l <= time) as f64;
        self.lengths.len() as f64 - before + ended
    }

    fn until(&self, time: f64) -> &[Step] {
        &self.steps[..self.steps.partition_point(|s| s.time <= time)]
    }

    /// Share of the watches that the code has touched again by `time`.
    pub(crate) fn part(&self, time: f64) -> f64 {
        self.until(time).last().map_or(0.0, |s| s.touched)
    }

    /// Variance of that share: Greenwood's without other code, else that of Marubini and Valsecchi
    /// (1995).
    pub(crate) fn variance(&self, time: f64) -> f64 {
        let steps = self.until(time);
        let Some(last) = steps.last() else { return 0.0 };
        let of_step = |s: &Step| {
            let (n, more) = (s.at_risk, last.touched - s.touched);
            let stay = match n - s.ended {
                // No watch is left after this step.
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

/// Ratio of the rate of touches of a line to that of one of its words. It is 1 if all used words of
/// the line are used together, and 8 if all words are equally likely. It is estimated from reuses
/// inside samples of lines after other lines were touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineOverWord {
    least: f64,
    value: f64,
    most: f64,
}

/// Survival of lines that are touched `times` as often as words, see [`LineOverWord::of_lines`].
pub(super) fn mixed(times: f64, words: f64) -> f64 {
    match words {
        w if w <= 0.0 => 0.0,
        w => 1.0 / (1.0 + times * (1.0 / w - 1.0)),
    }
}

impl LineOverWord {
    /// Without data, the ratio may have any value.
    pub(super) const UNKNOWN: LineOverWord = LineOverWord {
        least: 1.0,
        value: 1.0,
        most: params::WORDS_PER_LINE,
    };

    /// Estimates the ratio from `again`, the reuses of lines, and `same_word`, the reuses of the
    /// same word.
    pub(crate) fn new(again: f64, same_word: f64) -> LineOverWord {
        if again < params::MIN_REUSES_FOR_LINE_OVER_WORD {
            return LineOverWord::UNKNOWN;
        }
        // Jeffreys' prior prevents certainty from small counts.
        let share = (same_word + 0.5) / (again + 1.0);
        let error = (share * (1.0 - share) / (again + 1.0)).sqrt();
        let times = |share: f64| {
            (1.0 / share.max(1.0 / params::WORDS_PER_LINE)).clamp(1.0, params::WORDS_PER_LINE)
        };
        LineOverWord {
            least: times(share + error),
            value: times(share),
            most: times(share - error),
        }
    }

    /// Ratio of the rate of touches of a word to that of its line.
    pub(super) fn words_over_lines(self) -> f64 {
        1.0 / self.value
    }

    /// Survival of lines from that of words, and its error. Data stays in use for varying times.
    /// With an exponential distribution of these, the survival of lines is the mixture that
    /// [`mixed`] computes. If all times were equal, it would be a power of the words' survival.
    pub(super) fn of_lines(self, words: f64) -> (f64, f64) {
        let mixed = |times: f64| mixed(times, words);
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

/// Combines the survivals of the model and of the watches, each given with its standard error.
///
/// Each is weighted by its inverse variance. A difference that the errors do not explain is
/// attributed to the model, which does not know of bursts as watches do. The interval then contains
/// both, up to `bound`, the greatest survival of the words.
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
    let half =
        params::STANDARD_ERRORS_IN_HALF_INTERVAL * (of_model_and_bursts * of_watches / sum).sqrt();
    let mut survival = Survival {
        least: (value - half).max(0.0),
        value,
        most: (value + half).min(by_model.max(value)),
    };
    if differ
        > params::STANDARD_ERRORS_IN_HALF_INTERVAL
            * params::STANDARD_ERRORS_IN_HALF_INTERVAL
            * (of_model + of_watches)
    {
        survival.least = survival
            .least
            .min((by_watches - params::STANDARD_ERRORS_IN_HALF_INTERVAL * watched.1).max(0.0));
        survival.most = by_model.min(bound.max(value));
    }
    survival
}

#[cfg(test)]
mod tests {
    use super::*;
    use WatchEndedBy::{Others, Own, Unseen};

    /// Five watches: ended at 1, given up at 2, ended at 3 and 4, given up at 5. The survival is
    /// 4/5, times 2/3, times 1/2.
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

    /// Four watches: the code ended two of them, other code ended one, and one was given up.
    #[test]
    fn other_code_does_not_count_as_touching() {
        let touches = Touches::new(vec![(1.0, Own), (2.0, Others), (3.0, Own), (4.0, Unseen)]);
        assert_eq!(
            [0.0, 1.0, 2.5, 3.0, 8.0].map(|t| touches.part(t)),
            [0.0, 0.25, 0.25, 0.5, 0.5]
        );
        assert!((touches.variance(3.0) - 0.5 * 0.5 / 4.0).abs() < 1e-12);
    }

    /// All of twelve watches ended, but a few more might have lasted.
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
        // The estimate is still near that of the watches.
        assert!(apart.value < 0.12, "{apart:?}");
        // If the errors explain the difference, each is weighted by its inverse variance.
        let near = combined((0.5, 0.1), (0.4, 0.1), 1.0);
        assert!(
            (near.value - 0.45).abs() < 1e-9 && near.most < 0.6,
            "{near:?}"
        );
    }
}
