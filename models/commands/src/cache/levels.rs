//! The tables of levels, with the results of the simulation and of the models.

use crate::cache::evaluate::{LevelOutcome, Setup};
use crate::cache::spec::names;
use mgz_analyzer::columns;
use mgz_analyzer::output::document::{Document, DocumentTable, maybe, value};
use mgz_models::cache::{Inclusion, SetHits};
use mgz_models::statistics::ROUNDED_NORMAL_QUANTILE_OF_95_PCT;
use serde_json::Value;

/// Description of a row.
pub struct Of<'a> {
    /// Number of threads.
    pub threads: u64,
    /// Order of the threads.
    pub order: &'a str,
    /// Accesses that the simulation counted.
    pub accesses: u64,
    /// Constant loads that these imply.
    pub implied: u64,
    /// Accesses that models have seen, if there are models.
    pub modelled: Option<u64>,
}

/// Rows of the tables of levels.
pub struct LevelRows {
    levels: Vec<Vec<Value>>,
    ways: Vec<Vec<Value>>,
    stack_reads: Option<u64>,
}

impl LevelRows {
    /// No rows yet. `stack_reads` is the number of implicit stack reads, if known.
    pub fn new(stack_reads: Option<u64>) -> LevelRows {
        LevelRows {
            levels: Vec::new(),
            ways: Vec::new(),
            stack_reads,
        }
    }

    /// Adds a row for each level. `null` are the rates of one thread.
    pub fn push(
        &mut self,
        of: &Of<'_>,
        setup: &Setup,
        outcomes: &[LevelOutcome],
        null: Option<&[f64]>,
    ) {
        let all = of.accesses as f64;
        let modelled = of.modelled.map(|n| n as f64);
        let first = outcomes.first().map(|o| o.seen).unwrap_or_default();
        let (loads, stores) = (first.loads, first.stores);
        let share = |misses: u64, of: u64| maybe((of > 0).then(|| 1.0 - misses as f64 / of as f64));
        for (number, (spec, outcome)) in setup.levels.iter().zip(outcomes).enumerate() {
            let (shape, seen) = (&spec.shape, &outcome.seen);
            let model = modelled.map(|all| outcome.model / all);
            let alone = modelled.map(|all| outcome.alone as f64 / all);
            let misses = seen.load_misses + seen.store_misses;
            let rates = |hits: &SetHits| {
                let error = ROUNDED_NORMAL_QUANTILE_OF_95_PCT * hits.variance.sqrt();
                let all = modelled.unwrap_or(0.0);
                [
                    hits.hits,
                    (hits.hits - error).max(0.0),
                    (hits.hits + error).min(all),
                ]
                .map(|n| n / all)
            };
            let sets = outcome.by_ways.first().map(|(_, hits)| rates(hits));
            let difference = |a: Option<f64>| maybe(a.zip(alone).map(|(a, b)| 100.0 * (a - b)));
            // The counts of impossible events are null.
            let only = |n: u64, known: bool| if known { Value::from(n) } else { Value::Null };
            let prefetches = spec.prefetch.next_line || spec.prefetch.stride;
            let invalidated = setup.levels[number + 1..]
                .iter()
                .any(|l| l.inclusion == Inclusion::Inclusive);
            let [policy, inclusion, prefetch] = names(spec).map(Value::from);
            let prefetch = if prefetches { prefetch } else { Value::Null };
            let reads = self.stack_reads.map(|n| loads + of.implied + n);
            self.levels.push(vec![
                Value::from(of.threads),
                Value::from(of.order),
                Value::from(number + 1),
                Value::from(shape.size),
                Value::from(shape.ways),
                Value::from(shape.line),
                policy,
                inclusion,
                prefetch,
                Value::from(of.threads > 1 && number >= setup.shared),
                maybe(model),
                maybe(sets.map(|s| s[0])),
                maybe(alone),
                difference(model),
                difference(sets.map(|s| s[0])),
                maybe(sets.map(|s| s[1])),
                maybe(sets.map(|s| s[2])),
                value(1.0 - misses as f64 / all),
                share(misses, seen.loads + seen.stores),
                value(1.0 - misses as f64 / (all + of.implied as f64)),
                share(seen.load_misses, loads),
                share(seen.load_misses, loads + of.implied),
                reads.map_or(Value::Null, |reads| share(seen.load_misses, reads)),
                share(seen.store_misses, stores),
                Value::from(misses),
                Value::from(seen.load_misses),
                only(seen.store_misses, stores > 0),
                only(seen.write_backs, stores > 0),
                only(seen.back_invalidations, invalidated),
                only(seen.prefetches, prefetches),
                only(seen.useful_prefetches, prefetches),
                maybe(null.and_then(|null| null.get(number)).copied()),
            ]);
            let mut by_ways: Vec<&(usize, SetHits)> = outcome.by_ways.iter().collect();
            by_ways.sort_by_key(|w| w.0);
            self.ways.extend(by_ways.into_iter().map(|(n, hits)| {
                let [rate, low, high] = rates(hits);
                vec![
                    Value::from(of.threads),
                    Value::from(number + 1),
                    Value::from(*n),
                    Value::from(shape.sets() * *n as u64 * shape.line),
                    value(rate),
                    value(low),
                    value(high),
                ]
            }));
        }
    }

    /// The tables.
    pub fn tables(self, document: &mut Document) {
        document.tables.push(DocumentTable {
            name: "levels",
            title: "Levels (hierarchy: hits in this level or before it, of all accesses; local: of those that reach it; loads: of recorded loads; explicit_loads: implied Constant loads are hits; all_reads: so are implicit stack reads; model, sets and alone: LRU, the cache sees every access; lo and hi: 95% interval)".into(),
            columns: columns![
                threads: Id, order: Text, level: Id, size: Bytes, ways: Id, line: Bytes,
                policy: Text, inclusion: Text, prefetch: Text, shared: Flag, hit_rate_model: Share,
                hit_rate_sets: Share, hit_rate_alone: Share, difference_points: Number,
                difference_points_sets: Number, hit_rate_sets_lo: Share, hit_rate_sets_hi: Share,
                hit_rate_hierarchy: Share, hit_rate_local: Share, hit_rate_with_implied: Share,
                hit_rate_loads: Share, hit_rate_explicit_loads: Share, hit_rate_all_reads: Share,
                hit_rate_stores: Share, misses: Count, load_misses: Count, store_misses: Count,
                write_backs: Count, back_invalidations: Count, prefetches: Count,
                useful_prefetches: Count, hit_rate_one_thread: Share,
            ].to_vec(),
            rows: self.levels,
            text_rows: usize::MAX,
        });
        if self.ways.is_empty() {
            return;
        }
        document.tables.push(DocumentTable {
            name: "ways",
            title:
                "Hit rates with other numbers of ways (as many sets as the level; by set distances)"
                    .into(),
            columns: columns![
                threads: Id, level: Id, ways: Id, size: Bytes, hit_rate_sets: Share,
                hit_rate_sets_lo: Share, hit_rate_sets_hi: Share,
            ]
            .to_vec(),
            rows: self.ways,
            text_rows: usize::MAX,
        });
    }
}
