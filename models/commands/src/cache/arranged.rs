//! Threads in an order that was not recorded, or more threads than were recorded.

use crate::cache::arguments::{CacheArguments, TurnsArgument};
use crate::cache::evaluate::{self, LevelOutcome, Setup};
use crate::cache::exact::Counted;
use crate::cache::levels::{LevelRows, Of};
use crate::cache::{pieces, put_counted};
use crate::mimic::{Mimic, aligned, in_phases, mimic};
use crate::private_data::PrivateData;
use crate::threads::{Thread, load};
use anyhow::bail;
use clap::ValueEnum;
use mgz_analyzer::input::Trace;
use mgz_analyzer::output::document::{ColumnUnit, Document, value};
use mgz_models::cache::{LevelSpec, Shape};
use mgz_models::threads::interleave::Turns;

/// The caches, and the threads' trace.
pub(super) struct Arranged<'a> {
    pub(super) arguments: &'a CacheArguments,
    pub(super) trace: &'a Trace,
    pub(super) levels: &'a [LevelSpec],
    /// First level that all threads share, from 0.
    pub(super) shared: usize,
    /// Number of sets that the models follow.
    pub(super) follow: Option<u64>,
}

/// Number of accesses of all threads.
fn accesses(threads: &[Thread]) -> u64 {
    let lengths = threads.iter().map(|t| t.accesses.address.len() as u64);
    lengths.sum()
}

impl Arranged<'_> {
    /// Evaluates the caches. The flag is true if a part of the trace could not be read.
    pub(super) fn run(&self, mut rows: LevelRows, document: &mut Document) -> anyhow::Result<bool> {
        let (threads, implied, damaged) = load(self.trace, self.arguments.stores, document)?;
        let accesses = accesses(&threads);
        let stores = threads.iter().flat_map(|t| &t.accesses.group);
        let stores = stores.filter(|g| g.is_store()).count() as u64;
        document.put("A", ColumnUnit::Count, accesses);
        document.put("A_const", ColumnUnit::Count, implied);
        document.put("threads", ColumnUnit::Count, threads.len());
        let counted = Counted {
            rows: accesses,
            loads: accesses - stores,
            stores,
            implied,
        };
        put_counted(document, self.arguments, counted);
        match self.arguments.turns {
            Some(turns) if self.arguments.mimic.is_empty() => {
                self.in_turns(turns, &threads, implied, &mut rows, document)?;
            }
            _ => self.mimicked(&threads, implied, &mut rows, document)?,
        }
        rows.tables(document);
        if let ([thread], true) = (&threads[..], self.follow.is_some()) {
            let shapes: Vec<Shape> = self.levels.iter().map(|l| l.shape).collect();
            pieces::put_pieces(thread, self.trace, &shapes, self.arguments, document)?;
        }
        Ok(damaged)
    }

    fn setup(&self, shared: usize, simulate: bool) -> Setup {
        Setup {
            levels: self.levels.to_vec(),
            shared,
            follow: self.follow,
            simulate,
        }
    }

    /// Adds the rows for the threads of the trace, in the requested order.
    fn in_turns(
        &self,
        turns: TurnsArgument,
        threads: &[Thread],
        implied: u64,
        rows: &mut LevelRows,
        document: &mut Document,
    ) -> anyhow::Result<()> {
        let setup = self.setup(if threads.len() > 1 { self.shared } else { 0 }, true);
        let aligned = aligned(threads, &self.trace.code);
        if threads.len() > 1 {
            document.put("regions", ColumnUnit::Count, aligned.regions);
            document.put("aligned", ColumnUnit::Flag, aligned.regions > 0);
        }
        let turns = self.arguments.order(turns);
        let order = |next: &mut dyn FnMut(usize, usize)| in_phases(&aligned.phases, turns, next);
        let outcomes = evaluate::evaluate(threads, &order, &setup).map_err(anyhow::Error::msg)?;
        let accesses = accesses(threads);
        let run = Of {
            threads: threads.len() as u64,
            order: &self.turns_name("recorded"),
            accesses,
            implied,
            modelled: self.follow.map(|_| accesses),
        };
        rows.push(&run, &setup, &outcomes, None);
        Ok(())
    }

    /// Adds rows for other numbers of threads, predicted from the run of one thread.
    fn mimicked(
        &self,
        threads: &[Thread],
        implied: u64,
        rows: &mut LevelRows,
        document: &mut Document,
    ) -> anyhow::Result<()> {
        let folder = self.arguments.trace.display();
        if threads.len() != 1 {
            bail!(
                "{folder}: --mimic needs a run with one thread, and this trace has {}; record it with OMP_NUM_THREADS=1",
                threads.len()
            );
        }
        let (own, problem) = PrivateData::read(&self.arguments.trace);
        document.warnings.extend(problem);
        let null = self.rates_of_one(threads)?;
        for &n in &self.arguments.mimic {
            let setup = self.setup(self.shared, true);
            let (made, outcomes) = self.mimic(&threads[0], n as usize, &setup, &own)?;
            if made.regions == 0 {
                bail!(
                    "{folder}: no OpenMP region was found (functions named *._omp_fn.* or *omp_outlined*); compile with -fopenmp and symbols, and instrument that file"
                );
            }
            let divided = accesses(&made.threads);
            if n == self.arguments.mimic[0] {
                put_regions(&made, divided, document);
            }
            let run = Of {
                threads: n,
                order: &self.turns_name("round-robin"),
                accesses: divided,
                implied,
                modelled: Some(divided),
            };
            rows.push(&run, &setup, &outcomes, Some(&null));
        }
        Ok(())
    }

    /// Hit rates of one thread with all accesses: the null prediction, without knowledge of
    /// threads.
    fn rates_of_one(&self, threads: &[Thread]) -> anyhow::Result<Vec<f64>> {
        let accesses = accesses(threads);
        let order = |next: &mut dyn FnMut(usize, usize)| {
            (0..accesses as usize).for_each(|i| next(0, i));
        };
        let one = evaluate::evaluate(threads, &order, &self.setup(0, false));
        let one = one.map_err(anyhow::Error::msg)?;
        let rates = one.iter().map(|o| o.alone as f64 / accesses as f64);
        Ok(rates.collect())
    }

    /// Divides the run of a thread among `n` threads, and evaluates these.
    fn mimic(
        &self,
        thread: &Thread,
        n: usize,
        setup: &Setup,
        own: &PrivateData,
    ) -> anyhow::Result<(Mimic, Vec<LevelOutcome>)> {
        let arguments = self.arguments;
        let made = mimic(thread, &self.trace.code, n, arguments.schedule, own);
        let turns = arguments
            .turns
            .map_or(Turns::RoundRobin, |turns| arguments.order(turns));
        let order = |next: &mut dyn FnMut(usize, usize)| in_phases(&made.phases, turns, next);
        let outcomes = evaluate::evaluate(&made.threads, &order, setup);
        let outcomes = outcomes.map_err(anyhow::Error::msg)?;
        Ok((made, outcomes))
    }

    fn turns_name(&self, default: &str) -> String {
        self.arguments
            .turns
            .and_then(|t| t.to_possible_value().map(|v| v.get_name().to_string()))
            .unwrap_or_else(|| default.into())
    }
}

/// Writes how much of the run was divided among threads.
fn put_regions(made: &Mimic, divided: u64, document: &mut Document) {
    let share = |part: u64, of: u64| value(part as f64 / of as f64);
    let parallel = made.parallel.max(1);
    document.put("regions", ColumnUnit::Count, made.regions);
    document.put(
        "parallel_share",
        ColumnUnit::Share,
        share(made.parallel, divided),
    );
    document.put(
        "private_share",
        ColumnUnit::Share,
        share(made.private, parallel),
    );
    document.put(
        "private_heap_share",
        ColumnUnit::Share,
        share(made.private_heap, parallel),
    );
}
