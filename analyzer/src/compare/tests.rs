//! Verdicts on synthetic runs.

use crate::compare::CompareArguments;
use crate::compare::change::{Change, Test, Verdict};
use crate::compare::entries::{Cell, Entry, EntryKind, Metric, RunEntries};
use crate::compare::judge::{Comparison, compare};
use crate::compare::repeat;
use std::collections::BTreeSet;

fn cell(value: f64, half: f64) -> Cell {
    Cell {
        value,
        lo: Some(value - half),
        hi: Some(value + half),
    }
}

/// A run with shares of time by function, each ± `half` points.
fn shares(functions: &[(&str, f64)], half: f64) -> RunEntries {
    let entries = functions.iter().map(|&(name, share)| {
        let mut entry = Entry {
            name: name.into(),
            module: "app".into(),
            weight: share,
            ..Entry::default()
        };
        entry.cells.insert(Metric::Time, cell(share, half));
        entry
    });
    let mut run = RunEntries {
        samples: 1000,
        ..RunEntries::default()
    };
    run.tables.insert(EntryKind::Function, entries.collect());
    run
}

fn of<'a>(found: &'a Comparison, name: &str) -> &'a Change {
    found.changes.iter().find(|c| c.name == name).unwrap()
}

fn judged(base: &[RunEntries], new: &[RunEntries]) -> Comparison {
    compare(base, new, &BTreeSet::new())
}

#[test]
fn what_falls_does_not_make_others_rise() {
    let base = shares(
        &[
            ("kernel", 45.0),
            ("parse", 30.0),
            ("sort", 15.0),
            ("rest", 10.0),
        ],
        3.0,
    );
    // The kernel takes a third less time.
    let new = shares(
        &[
            ("kernel", 31.0),
            ("parse", 37.6),
            ("sort", 18.8),
            ("rest", 12.6),
        ],
        3.0,
    );
    let found = judged(&[base], &[new]);
    assert_eq!(of(&found, "kernel").verdict, Verdict::Better);
    for name in ["parse", "sort", "rest"] {
        let change = of(&found, name);
        assert!(
            !matches!(change.verdict, Verdict::Better | Verdict::Worse),
            "{change:?}"
        );
    }
}

#[test]
fn chance_is_no_change() {
    let base = shares(&[("kernel", 45.0), ("rest", 55.0)], 5.0);
    let new = shares(&[("kernel", 41.0), ("rest", 59.0)], 5.0);
    let (base, new) = ([base], [new]);
    let found = judged(&base, &new);
    assert_eq!(of(&found, "kernel").verdict, Verdict::Unclear);
    assert_eq!(of(&found, "kernel").test, Test::Intervals);
    let said = repeat::advice(&base, &new, &found).unwrap();
    assert!(
        said.starts_with("So few runs leave the time of `rest` open by ±1"),
        "{said}"
    );
    let four = |run: &RunEntries| vec![run.clone(); 4];
    assert_eq!(
        repeat::advice(&four(&base[0]), &four(&new[0]), &found),
        None
    );
}

/// The time of an object whose blocks were logged as a sample may have no interval for another run.
#[test]
fn a_time_of_unknown_error_is_not_judged() {
    let run = |seconds: f64, error: Option<f64>| {
        let mut entry = Entry {
            name: "build a.cpp:4".into(),
            weight: 40.0,
            ..Entry::default()
        };
        let cell = Cell {
            value: seconds,
            lo: error.map(|error| seconds - error),
            hi: error.map(|error| seconds + error),
        };
        entry.cells.insert(Metric::Seconds, cell);
        RunEntries {
            samples: 1000,
            instrumented_seconds: Some(10.0),
            tables: [(EntryKind::Object, vec![entry])].into(),
            ..RunEntries::default()
        }
    };
    let verdict = |error: Option<f64>| {
        let found = judged(&[run(2.0, error)], &[run(3.0, error)]);
        of(&found, "build a.cpp:4").verdict
    };
    assert_eq!(verdict(None), Verdict::Unclear);
    assert_eq!(verdict(Some(1.5)), Verdict::Unclear);
    assert_eq!(verdict(Some(0.1)), Verdict::Worse);
}

/// Changes below and above the accuracy of the cache model.
#[test]
fn predicted_misses_are_as_good_as_their_model() {
    let run = |ratio: f64| {
        let mut run = shares(&[("gather", 60.0), ("rest", 40.0)], 3.0);
        let gather = &mut run.tables.get_mut(&EntryKind::Function).unwrap()[0];
        let metric = Metric::Misses("L2".into());
        gather.per_load.insert(metric, cell(ratio, 0.002));
        run
    };
    let verdict = |base: f64, new: f64| {
        let found = judged(&[run(base)], &[run(new)]);
        let is = |c: &&Change| matches!(c.metric, Metric::Misses(_));
        found.changes.iter().find(is).unwrap().verdict
    };
    assert_eq!(verdict(0.9165, 0.9336), Verdict::Same);
    assert_eq!(verdict(0.80, 0.88), Verdict::Worse);
    assert_eq!(verdict(0.88, 0.80), Verdict::Better);
}

#[test]
fn new_functions_are_told() {
    let base = shares(&[("kernel", 100.0)], 0.5);
    let new = shares(&[("kernel", 70.0), ("copy", 30.0)], 3.0);
    let found = judged(&[base], &[new]);
    assert_eq!(found.only_new[0].name, "copy");
    assert_eq!(of(&found, "copy").verdict, Verdict::Worse);
}

#[test]
fn what_is_gone_is_not_the_same() {
    let base = shares(&[("kernel", 98.9), ("tiny", 1.1)], 0.5);
    let new = shares(&[("kernel", 100.0)], 0.5);
    let found = judged(&[base], &[new]);
    assert_ne!(of(&found, "tiny").verdict, Verdict::Same);
}

/// CPU seconds have no interval: with six runs a side their ranks decide.
#[test]
fn many_runs_are_compared_by_ranks() {
    let run = |seconds: f64| {
        let mut run = RunEntries::default();
        let mut entry = Entry {
            weight: 100.0,
            ..Entry::default()
        };
        let cell = Cell {
            value: seconds,
            lo: None,
            hi: None,
        };
        entry.cells.insert(Metric::Cpu, cell);
        run.tables.insert(EntryKind::Run, vec![entry]);
        run
    };
    let runs = |times: [f64; 6]| times.map(run).to_vec();
    let base = runs([1.00, 1.02, 1.01, 1.05, 1.03, 1.04]);
    let slower = judged(&base, &runs([1.10, 1.12, 1.11, 1.15, 1.13, 1.14]));
    assert_eq!(
        (slower.changes[0].verdict, slower.changes[0].test),
        (Verdict::Worse, Test::Ranks)
    );
    let alike = judged(&base, &runs([1.01, 1.02, 1.04, 1.00, 1.06, 1.03]));
    assert!(matches!(
        alike.changes[0].verdict,
        Verdict::Same | Verdict::Unclear
    ));
    let one = judged(&base[..1], &runs([1.10; 6])[..1]);
    assert_eq!(one.changes[0].verdict, Verdict::Unclear);
}

/// A hundred thousand misses in two hundred million loads are as negligible as a handful.
#[test]
fn few_misses_are_no_news() {
    let run = |misses: f64, half: f64| {
        let mut run = shares(&[("kernel", 50.0), ("rest", 50.0)], 3.0);
        let kernel = &mut run.tables.get_mut(&EntryKind::Function).unwrap()[0].cells;
        kernel.insert(Metric::Loads, Cell::exact(2e8));
        kernel.insert(Metric::Misses("L1".into()), cell(misses, half));
        run
    };
    let verdict = |new: RunEntries| {
        let found = judged(&[run(1.44e5, 1e4)], &[new]);
        let of = |c: &&Change| c.metric == Metric::Misses("L1".into());
        found.changes.iter().find(of).unwrap().verdict
    };
    assert_eq!(verdict(run(4.0, 1.0)), Verdict::Same);
    assert_eq!(verdict(run(5e7, 1e6)), Verdict::Worse);
}

/// A faster program: functions are compared by seconds, so that unchanged ones are not worse.
/// Objects on one side only are not reported.
#[test]
fn a_faster_program_is_better() {
    let run = |kernel: f64, rest: f64, object: &str| {
        let whole = kernel + rest;
        let parts = [
            ("kernel", 100.0 * kernel / whole),
            ("rest", 100.0 * rest / whole),
        ];
        let mut run = shares(&parts, 3.0);
        run.instrumented_seconds = Some(whole);
        let seconds = [kernel, rest].map(|s| cell(s, 0.03 * whole));
        let functions = run.tables.get_mut(&EntryKind::Function).unwrap();
        for (entry, seconds) in functions.iter_mut().zip(seconds) {
            entry.cells.insert(Metric::Seconds, seconds);
        }
        let mut data = functions[0].clone();
        data.name = object.into();
        run.tables.insert(EntryKind::Object, vec![data]);
        let mut all = Entry {
            weight: 100.0,
            ..Entry::default()
        };
        let cpu = Cell {
            value: whole,
            lo: None,
            hi: None,
        };
        all.cells.insert(Metric::Cpu, cpu);
        run.tables.insert(EntryKind::Run, vec![all]);
        run
    };
    let found = judged(&[run(3.6, 0.4, "old")], &[run(0.2, 0.4, "new")]);
    let verdict = |metric: &Metric, name: &str| {
        let is = |c: &&Change| c.metric == *metric && c.name == name;
        found.changes.iter().find(is).map(|c| c.verdict)
    };
    assert_eq!(verdict(&Metric::Cpu, ""), Some(Verdict::Better));
    assert_eq!(verdict(&Metric::Seconds, "kernel"), Some(Verdict::Better));
    assert_ne!(verdict(&Metric::Seconds, "rest"), Some(Verdict::Worse));
    assert!(!found.changes.iter().any(|c| c.verdict == Verdict::Worse));
    assert!(!found.changes.iter().any(|c| c.metric == Metric::Time));
}

/// Two paths need no `--`. More do, and the error says where it belongs.
#[test]
fn sides_are_told_apart() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        compare: CompareArguments,
    }
    let sides = |line: &str| {
        let words = std::iter::once("compare").chain(line.split_whitespace());
        let parsed = <Line as clap::Parser>::try_parse_from(words)
            .unwrap()
            .compare;
        let named = |side: &[std::path::PathBuf]| {
            let names: Vec<String> = side.iter().map(|p| p.display().to_string()).collect();
            names.join(" ")
        };
        let found = parsed.sides();
        found.map(|(base, new)| (named(base), named(new)))
    };
    let is = |base: &str, new: &str| Ok((base.to_owned(), new.to_owned()));
    assert_eq!(sides("old/ new/"), is("old/", "new/"));
    assert_eq!(sides("--rows 3 old new"), is("old", "new"));
    assert_eq!(sides("a b -- c"), is("a b", "c"));
    let error = sides("a b c").unwrap_err();
    assert!(error.ends_with("mgz compare a … -- … c"), "{error}");
    let error = sides("a").unwrap_err();
    assert!(error.ends_with("mgz compare a NEW"), "{error}");
}
