//! Comparison of a candidate with another file in alternating pairs of runs.

use crate::fix::clock::BenchClock;
use crate::fix::compare::Comparison;
use crate::fix::document::{Measured, Saved};
use crate::fix::params;
use crate::fix::progress::{self, Progress};
use crate::fix::sequential::{Test, Verdict};
use crate::fix::workload::{self, Ran, Workload, status_in_words};
use anyhow::{Context, bail};
use mgz_models::statistics::median;
use std::path::{Path, PathBuf};

/// The setup of all comparisons.
pub struct Bench {
    /// Runs of the program.
    pub workload: Workload,
    /// The method of comparing outputs.
    pub comparison: Comparison,
    /// The test.
    pub test: Test,
    /// Seconds after which a run is killed.
    pub limit: f64,
    /// The time that is compared.
    pub clock: BenchClock,
    /// The program's threads run in parallel.
    pub is_parallel: bool,
    /// The original.
    program: PathBuf,
    /// Its first run.
    reference: Ran,
}

/// Result of a test.
pub enum Tested {
    /// The gain is known.
    Timed(Verdict, Measured),
    /// The candidate behaves differently, for this reason.
    Different(String),
}

/// A pair of times in seconds, or the difference in behaviour.
type Pair = Result<(f64, f64), String>;

/// The refusal of a program that differs from run to run.
fn not_repeatable(program: &Path, difference: &str, comparison: &Comparison) -> anyhow::Error {
    let remedy = match comparison {
        Comparison::Exact => {
            "make it repeatable, for example by a fixed seed, or compare with --check CMD"
        }
        Comparison::Command(_) => "let the command of --check accept it",
    };
    anyhow::anyhow!(
        "{}: {difference} without any fix, so that changes by a fix cannot be seen; {remedy}",
        program.display()
    )
}

impl Bench {
    /// Runs the original twice. Refuses a program whose fixes could not be judged.
    pub fn new(
        workload: Workload,
        comparison: Comparison,
        test: Test,
        program: &Path,
    ) -> anyhow::Result<Bench> {
        let shown = program.display();
        let run = || -> anyhow::Result<Ran> {
            let ran = workload.run(program, None)?;
            ran.with_context(|| format!("{shown}: was ended by a limit"))
        };
        let first = run()?;
        if !first.status.success() {
            let terminal = match workload.has_input() {
                true => "it runs without a terminal",
                false => {
                    "it runs without a terminal and without input: give it input with --stdin FILE"
                }
            };
            let said = match workload::last_line(first.output.path()) {
                none if none.is_empty() => String::new(),
                last => format!("; its last line: {last}"),
            };
            bail!(
                "{shown}: ends with {}, so that good and bad runs cannot be distinguished; give arguments with which it succeeds; {terminal}{said}",
                status_in_words(first.status)
            );
        }
        if first.seconds < params::MIN_SECONDS {
            bail!(
                "{shown}: takes {:.3} s, which is too short to compare times; give it work for {} s or more",
                first.seconds,
                params::MIN_SECONDS
            );
        }
        let second = run()?;
        if let Some(difference) = comparison.difference(&first, &second)? {
            return Err(not_repeatable(program, &difference, &comparison));
        }
        let limit = workload::limit(first.seconds.max(second.seconds));
        Ok(Bench {
            workload,
            comparison,
            test,
            limit,
            clock: BenchClock::default(),
            is_parallel: first.is_parallel(),
            program: program.to_path_buf(),
            reference: first,
        })
    }

    /// Runs both files, the first one first if the number of the pair is even.
    fn pair(&self, original: &Path, candidate: &Path, number: usize) -> anyhow::Result<Pair> {
        let order = match number.is_multiple_of(2) {
            true => [original, candidate],
            false => [candidate, original],
        };
        let mut runs = Vec::with_capacity(order.len());
        for file in order {
            match self.workload.run(file, Some(self.limit))? {
                Some(ran) => runs.push(ran),
                None if file == self.program => {
                    return Ok(Err("the program itself took more than ten times as long as before, so that nothing was measured".into()));
                }
                None => return Ok(Err("it takes more than ten times as long".into())),
            }
        }
        let (before, after) = match number.is_multiple_of(2) {
            true => (&runs[0], &runs[1]),
            false => (&runs[1], &runs[0]),
        };
        if let Some(difference) = self.comparison.difference(before, after)? {
            if original == self.program
                && let Some(own) = self.comparison.difference(&self.reference, before)?
            {
                return Err(not_repeatable(original, &own, &self.comparison));
            }
            return Ok(Err(format!("it behaves differently: {difference}")));
        }
        Ok(Ok((self.clock.seconds(before), self.clock.seconds(after))))
    }

    /// Runs pairs until the test ends.
    pub fn test(&self, original: &Path, candidate: &Path) -> anyhow::Result<Tested> {
        let (mut logs, mut times) = (Vec::new(), Vec::new());
        let (line, most) = (Progress::new(), self.test.most_pairs());
        loop {
            line.show(&progress::pair(
                logs.len() + 1,
                most,
                self.test.interval(&logs),
            ));
            match self.pair(original, candidate, logs.len())? {
                Err(why) => return Ok(Tested::Different(why)),
                Ok((before, after)) => {
                    logs.push((before / after).ln());
                    times.push((before, after));
                }
            }
            let verdict = self.test.verdict(&logs);
            if verdict != Verdict::Open
                && let Some(speedup) = self.test.interval(&logs)
            {
                let [saved_pct, saved_pct_lo, saved_pct_hi] = speedup.saved_pct();
                let measured = Measured {
                    speedup,
                    saved: Saved {
                        saved_pct,
                        saved_pct_lo,
                        saved_pct_hi,
                    },
                    pairs: logs.len(),
                    seconds_before: median(&times.iter().map(|t| t.0).collect::<Vec<f64>>()),
                    seconds_after: median(&times.iter().map(|t| t.1).collect::<Vec<f64>>()),
                };
                return Ok(Tested::Timed(verdict, measured));
            }
        }
    }

    /// Median log ratio of the times of a few pairs. The candidate prefetches `distance` iterations
    /// ahead.
    pub fn glance(
        &self,
        original: &Path,
        candidate: &Path,
        (pairs, distance): (usize, u32),
    ) -> anyhow::Result<Result<f64, String>> {
        let mut logs = Vec::with_capacity(pairs);
        let line = Progress::new();
        for number in 0..pairs {
            line.show(&progress::pair_at_distance(number + 1, pairs, distance));
            match self.pair(original, candidate, number)? {
                Err(why) => return Ok(Err(why)),
                Ok((before, after)) => logs.push((before / after).ln()),
            }
        }
        Ok(Ok(median(&logs)))
    }
}
