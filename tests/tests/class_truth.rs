//! Compares the Strided share of the footprint, by static class and by the class that `mgz-analyze`
//! observed, with the share in the recorded addresses themselves.

use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow};
use mgz_tests::session::{self, analysis_json, record_program};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Allowed deviation of a share, in percentage points.
const POINTS: f64 = 10.0;

/// Sites for which at least nine in ten steps inside samples are the same and not zero.
fn strided(rows: &[&RecordedRow]) -> HashSet<(u16, u32)> {
    let mut last: HashMap<(u16, u32), (u32, u64)> = HashMap::new();
    let mut steps: HashMap<(u16, u32), HashMap<i64, u64>> = HashMap::new();
    for row in rows {
        let site = (row.module, row.site);
        if let Some((sample, address)) = last.insert(site, (row.sample, row.address))
            && sample == row.sample
        {
            let step = row.address.wrapping_sub(address) as i64;
            *steps.entry(site).or_default().entry(step).or_default() += 1;
        }
    }
    let is_strided = |counts: &HashMap<i64, u64>| {
        let all: u64 = counts.values().sum();
        counts
            .iter()
            .any(|(&step, &n)| step != 0 && n * 10 >= all * 9)
    };
    steps
        .into_iter()
        .filter(|(_, counts)| is_strided(counts))
        .map(|(site, _)| site)
        .collect()
}

/// Share of the distinct addresses, percent.
fn share(rows: &[&RecordedRow], of: impl Fn(&RecordedRow) -> bool) -> f64 {
    let all: HashSet<u64> = rows.iter().map(|r| r.address).collect();
    let some: HashSet<u64> = rows.iter().filter(|r| of(r)).map(|r| r.address).collect();
    some.len() as f64 * 100.0 / all.len().max(1) as f64
}

#[test]
fn strided_shares_are_those_of_the_addresses() {
    let dir = tempfile::tempdir().unwrap();
    // (With optimisation, clang reloads the base of the edges on one of two paths that merge, and
    // static analysis does not follow that.)
    for (clang, opt) in [(false, "0"), (true, "0"), (false, "2"), (false, "3")] {
        let variant = Variant {
            clang,
            opt,
            pie: true,
        };
        let Some(original) = programs::build("maps", variant, &["-g"], dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(
            &original,
            "soft",
            &["--functions", "^(build_map|get_max)\\(|build_map|get_max"],
        )
        .unwrap()
        .path;
        for form in ["build", "max"] {
            let what = format!("{variant:?} {form}");
            let trace = dir.path().join(form);
            let options = ["--mode", "ring", "--period", "20000", "--window", "2000"];
            record_program(&options, &trace, &app, &[form]);
            let report = analysis_json(&trace, &[]);
            let recorded = rows::read_trace(&trace).unwrap();
            std::fs::remove_dir_all(&trace).unwrap();
            let loads: Vec<&RecordedRow> = recorded
                .first_thread()
                .iter()
                .filter(|r| !r.store)
                .collect();
            let truth = strided(&loads);
            let mut samples: BTreeMap<u32, Vec<&RecordedRow>> = BTreeMap::new();
            loads
                .iter()
                .for_each(|r| samples.entry(r.sample).or_default().push(r));
            samples.retain(|_, rows| rows.len() >= 500);
            assert!(samples.len() >= 5, "{what}: {} samples", samples.len());
            let is_strided = |r: &RecordedRow| truth.contains(&(r.module, r.site));
            for (sample, rows) in &samples {
                let (by_class, by_steps) = (share(rows, |r| r.class == 1), share(rows, is_strided));
                assert!(by_steps > 5.0 && by_steps < 95.0, "{what}: {by_steps}");
                assert!(
                    (by_class - by_steps).abs() <= POINTS,
                    "{what}, sample {sample}: {by_class:.1} % by class, {by_steps:.1} % by steps"
                );
            }
            let summary = &report["summary"];
            let observed = summary["dF_str_observed_pct"].as_f64().unwrap();
            let expected = share(&loads, is_strided);
            assert!(
                (observed - expected).abs() <= POINTS,
                "{what}: {observed:.1} % observed, {expected:.1} % by steps"
            );
            // The line that reads edges has both classes.
            let pairs = summary["classes"].as_array().unwrap();
            let steady = pairs.iter().find(|p| p["observed"] == "strided");
            let steady = steady.unwrap_or_else(|| panic!("{what}: {pairs:#?}"));
            assert_eq!(
                (&steady["static"], &steady["step"]),
                (&"strided".into(), &16.into())
            );
        }
    }
}
