//! Search for the remedies that help, alone and together.

use crate::fix::bench::{Bench, Tested};
use crate::fix::builder::{Builder, Built};
use crate::fix::candidate::Candidate;
use crate::fix::combine::{Maker, together};
use crate::fix::document::{Measured, Outcome, Recipe, Tried};
use crate::fix::params;
use crate::fix::screen;
use std::path::Path;

/// Everything that was tried, and the best combination.
pub struct Found {
    /// The candidates with their gains.
    pub tried: Vec<Tried>,
    /// The kept changes with their gain together. `None` if nothing is kept.
    pub best: Option<(Recipe, Measured)>,
}

/// The setup of the search.
pub struct Search<'a> {
    /// Compares files.
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
            screen::tell_candidate(&candidate);
            let one = self.alone(candidate)?;
            screen::tell_result(&one);
            tried.push(one);
        }
        let recipes: Vec<Recipe> = tried.iter().map(|t| t.recipe.clone()).collect();
        let mut files = Files(self.builder);
        let best = together(self.bench, self.program, &mut files, &mut tried, &recipes)?;
        Ok(Found {
            tried,
            best: best.map(|(recipe, measured, _)| (recipe, measured)),
        })
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
            patch: String::new(),
            words: String::new(),
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
                (tried.outcome, tried.reason) = measured.decision(verdict);
            }
        }
        Ok(tried)
    }

    /// Searches the distance with the best times of few pairs, first coarsely, then near the best
    /// one. Returns its file.
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
        let setup = (pairs, distance);
        let glance = self.bench.glance(self.program, &built.file, setup)?;
        Ok(glance.map(|gain| (gain, built)))
    }
}

/// Makes files of recipes.
struct Files<'a>(&'a Builder);

impl Maker for Files<'_> {
    type Change = Recipe;
    type Made = Built;

    fn make(&mut self, recipe: &Recipe) -> anyhow::Result<Result<Built, String>> {
        self.0.build(recipe, None)
    }

    fn joined(&self, one: &Recipe, other: &Recipe) -> Option<Recipe> {
        Some(one.joined(other))
    }
}
