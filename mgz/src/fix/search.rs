//! Search for the remedies that help, alone and together.

use crate::fix::bench::{Bench, Tested};
use crate::fix::builder::{Builder, Built};
use crate::fix::candidates::Candidate;
use crate::fix::document::{Measured, Outcome, Recipe, Tried};
use crate::fix::params;
use crate::fix::screen;
use crate::fix::sequential::Verdict;
use std::path::Path;

/// Everything that was tried, and the best of it.
pub struct Found {
    /// The candidates with their gains.
    pub tried: Vec<Tried>,
    /// The kept changes with their gain together. None if nothing is kept.
    pub best: Option<(Recipe, Measured)>,
}

/// The means of the search.
pub struct Search<'a> {
    /// Comparison of files.
    pub bench: &'a Bench,
    /// Makes files.
    pub builder: &'a Builder,
    /// The original.
    pub program: &'a Path,
}

impl Search<'_> {
    /// Tries all candidates, then combinations of those that help.
    pub fn run(&self, candidates: Vec<Candidate>) -> anyhow::Result<Found> {
        let mut tried = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            screen::begin(&candidate);
            let one = self.alone(candidate)?;
            screen::end(&one);
            tried.push(one);
        }
        let best = self.together(&mut tried)?;
        Ok(Found { tried, best })
    }

    /// Finds the best distance of a candidate, and measures its gain.
    fn alone(&self, candidate: Candidate) -> anyhow::Result<Tried> {
        let mut tried = Tried {
            finding: candidate.finding,
            remedy: candidate.remedy,
            predicted: candidate.predicted,
            measured: None,
            outcome: Outcome::Dropped,
            reason: String::new(),
            recipe: candidate.recipe,
        };
        if tried
            .predicted
            .is_some_and(|p| p.saved_pct_hi < 100.0 * params::MIN_GAIN)
        {
            tried.reason = "its predicted gain is below 1 %, so it was not tried".into();
            return Ok(tried);
        }
        let built = match self.best_distance(&mut tried.recipe)? {
            Ok(built) => built,
            Err(why) => {
                tried.reason = why;
                return Ok(tried);
            }
        };
        let left: Vec<&str> = built.refused.iter().map(|r| r.address.as_str()).collect();
        tried
            .recipe
            .loads
            .retain(|l| !left.contains(&l.address.as_str()));
        match self.bench.test(self.program, &built.file)? {
            Tested::Different(why) => tried.reason = why,
            Tested::Timed(verdict, measured) => {
                tried.measured = Some(measured);
                (tried.outcome, tried.reason) = match verdict {
                    Verdict::Faster => (Outcome::Kept, "its gain is above 1 %".into()),
                    _ => (Outcome::Dropped, "no gain above 1 % was measured".into()),
                };
            }
        }
        Ok(tried)
    }

    /// Looks for the distance with the best times of few pairs, first coarsely, then beside the best
    /// one, and returns its file.
    fn best_distance(&self, recipe: &mut Recipe) -> anyhow::Result<Result<Built, String>> {
        if recipe.loads.is_empty() {
            return self.builder.build(recipe, None);
        }
        let mut best: Option<(f64, usize, Built)> = None;
        let mut why_none = None;
        let mut look = |number: usize, best: &mut Option<(f64, usize, Built)>| {
            let distance = params::DISTANCES[number];
            match self.at_distance(recipe, distance)? {
                Ok((gain, built)) => {
                    let is_better = |b: &(f64, usize, Built)| gain > b.0 + params::MIN_BETTER;
                    if best.as_ref().is_none_or(is_better) {
                        *best = Some((gain, number, built));
                    }
                }
                Err(why) => {
                    why_none.get_or_insert(why);
                }
            }
            anyhow::Ok(())
        };
        for number in params::COARSE_DISTANCES {
            look(number, &mut best)?;
        }
        if let Some(middle) = best.as_ref().map(|b| b.1) {
            look(middle - 1, &mut best)?;
            look(middle + 1, &mut best)?;
        }
        let Some((_, number, built)) = best else {
            return Ok(Err(why_none.unwrap_or_default()));
        };
        *recipe = recipe.at_distance(params::DISTANCES[number]);
        Ok(Ok(built))
    }

    /// The gain of few pairs at a distance, and the file.
    fn at_distance(
        &self,
        recipe: &Recipe,
        distance: u32,
    ) -> anyhow::Result<Result<(f64, Built), String>> {
        let built = match self.builder.build(&recipe.at_distance(distance), None)? {
            Ok(built) => built,
            Err(why) => return Ok(Err(why)),
        };
        let pairs = params::PAIRS_PER_DISTANCE;
        let glance = self.bench.glance(self.program, &built.file, pairs)?;
        Ok(glance.map(|gain| (gain, built)))
    }

    /// Adds the remedies that help to the best one, as long as each gains more. The result is timed
    /// again: the best of several is partly the luckiest.
    fn together(&self, tried: &mut [Tried]) -> anyhow::Result<Option<(Recipe, Measured)>> {
        let gain = |t: &Tried| t.measured.map_or(0.0, |m| m.speedup.value);
        let mut order: Vec<usize> = (0..tried.len())
            .filter(|&n| tried[n].outcome == Outcome::Kept)
            .collect();
        order.sort_by(|&a, &b| gain(&tried[b]).total_cmp(&gain(&tried[a])));
        let Some((&first, rest)) = order.split_first() else {
            return Ok(None);
        };
        let mut recipe = tried[first].recipe.clone();
        for &number in rest {
            let joined = recipe.joined(&tried[number].recipe);
            screen::combine(&tried[number]);
            match self.gains_more(&recipe, &joined)? {
                Ok(()) => recipe = joined,
                Err(why) => {
                    tried[number].outcome = Outcome::Dropped;
                    tried[number].reason = why;
                }
            }
        }
        let first_measured = tried[first].measured;
        if tried.len() == 1
            && let Some(measured) = first_measured
        {
            return Ok(Some((recipe, measured)));
        }
        screen::confirm();
        let confirmed = match self.builder.build(&recipe, None)? {
            Ok(built) => self.bench.test(self.program, &built.file)?,
            Err(why) => Tested::Different(why),
        };
        let why = match confirmed {
            Tested::Timed(Verdict::Faster, measured) => return Ok(Some((recipe, measured))),
            Tested::Timed(..) => "a second measurement did not confirm a gain above 1 %".into(),
            Tested::Different(why) => why,
        };
        for one in tried.iter_mut().filter(|t| t.outcome == Outcome::Kept) {
            one.outcome = Outcome::Dropped;
            one.reason.clone_from(&why);
        }
        Ok(None)
    }

    /// Tests if a recipe is faster than another one.
    fn gains_more(&self, old: &Recipe, new: &Recipe) -> anyhow::Result<Result<(), String>> {
        let (old, new) = match (
            self.builder.build(old, None)?,
            self.builder.build(new, None)?,
        ) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        Ok(match self.bench.test(&old.file, &new.file)? {
            Tested::Timed(Verdict::Faster, _) => Ok(()),
            Tested::Timed(..) => {
                Err("it helps alone, and adds no gain above 1 % to the others".into())
            }
            Tested::Different(why) => Err(why),
        })
    }
}
