//! Time in code that was generated at run time, by function.

use crate::output::text_table::{Style, heading, push, row, text_table};
use crate::report::Analysis;
use crate::util::human::{count, percent};
use mgz_annotations_schema::coverage::{Coverage, GeneratedFunction};
use serde::Serialize;

/// Maximum number of functions on a screen.
const NAMED_ON_SCREEN: usize = 3;
/// Minimum share of the time of a function that is named on a screen. Source: Chosen.
const WORTH_A_NAME: f64 = 0.01;
/// Name of the row with all code without a name.
const WITHOUT_NAME: &str = "[without a name]";

/// A function, as in tables of files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct GeneratedRow {
    function: String,
    tier: String,
    file: String,
    line: u64,
    source: String,
    samples: u64,
    time_pct: Option<f64>,
}

/// All functions, most time first. All code without a name is in one row.
pub(crate) fn flat(coverage: &Coverage) -> Vec<GeneratedRow> {
    let time_pct = |samples: u64| {
        let all = coverage.time_samples;
        (all > 0).then(|| 100.0 * samples as f64 / all as f64)
    };
    let of = |f: &GeneratedFunction| GeneratedRow {
        function: f.function.clone(),
        tier: f.tier.clone(),
        file: f.file.clone(),
        line: f.line.into(),
        source: f.source.clone(),
        samples: f.samples,
        time_pct: time_pct(f.samples),
    };
    let mut rows: Vec<GeneratedRow> = coverage.generated_functions.iter().map(of).collect();
    let named: u64 = rows.iter().map(|row| row.samples).sum();
    let unnamed = coverage
        .generated_samples
        .unwrap_or(0)
        .saturating_sub(named);
    if unnamed > 0 {
        rows.push(GeneratedRow {
            function: WITHOUT_NAME.into(),
            samples: unnamed,
            time_pct: time_pct(unnamed),
            ..GeneratedRow::default()
        });
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.samples));
    rows
}

/// The table, if there is such code.
pub(crate) fn table(analysis: &Analysis, style: Style, out: &mut String) {
    let coverage = &analysis.summary.trace.coverage;
    let rows = flat(coverage);
    if rows.is_empty() {
        return;
    }
    heading(
        out,
        "Code generated at run time, by time (its loads are not recorded)",
    );
    let mut t = text_table(style, &["function", "kind", "place", "time%", "samples"], 3);
    for of in rows.iter().take(style.rows) {
        let place = match (of.file.as_str(), of.line) {
            (file, 0) => file.to_owned(),
            (file, line) => format!("{file}:{line}"),
        };
        t.add_row(row(
            vec![
                of.function.clone(),
                of.tier.clone(),
                place,
                percent(of.time_pct),
                count(of.samples),
            ],
            3,
        ));
    }
    push(out, &t);
    if rows.iter().any(|row| row.source == "perf map") {
        heading(
            out,
            "Names come from a perf map, which has no times: if an address was used again, its last name is shown.",
        );
    }
    if rows.iter().any(|row| row.function == WITHOUT_NAME) {
        heading(
            out,
            &format!("{WITHOUT_NAME}: {}.", coverage.naming_remedy()),
        );
    }
}

/// The line of the screen, if such code took enough of the time.
pub(crate) fn on_screen(coverage: &Coverage) -> Option<String> {
    let share = coverage
        .generated_share()
        .filter(|_| coverage.has_much_generated())?;
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut parts: Vec<String> = (coverage.generated_functions.iter())
        .filter_map(|f| Some((f, coverage.share_of_function(f)?)))
        .filter(|(_, share)| *share >= WORTH_A_NAME)
        .take(NAMED_ON_SCREEN)
        .map(|(f, share)| format!("{} {}", f.readable(), percent(share)))
        .collect();
    let unnamed = coverage.unnamed_share().unwrap_or(0.0);
    if unnamed >= WORTH_A_NAME {
        let names = coverage.naming_remedy().replace('`', "");
        parts.push(format!("without names {} ({names})", percent(unnamed)));
    }
    Some(format!(
        "{} of the time in code generated at run time, not recorded: {}",
        percent(share),
        parts.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage() -> Coverage {
        let function = |name: &str, samples| GeneratedFunction {
            function: name.into(),
            file: "/app/a.js".into(),
            line: 3,
            samples,
            ..GeneratedFunction::default()
        };
        let mut coverage = Coverage {
            time_samples: 1000,
            generated_samples: Some(800),
            naming_commands: vec!["node --perf-basic-prof".into()],
            ..Coverage::default()
        };
        coverage.set_functions(vec![function("cold", 5), function("work", 600)]);
        coverage
    }

    #[test]
    fn code_without_a_name_is_one_row() {
        let rows = flat(&coverage());
        let found: Vec<(&str, u64)> = (rows.iter())
            .map(|r| (r.function.as_str(), r.samples))
            .collect();
        assert_eq!(found, [("work", 600), (WITHOUT_NAME, 195), ("cold", 5)]);
        assert_eq!(rows[0].time_pct, Some(60.0));
        assert_eq!(flat(&Coverage::default()), []);
    }

    #[test]
    fn the_screen_names_the_hottest_functions() {
        assert_eq!(
            on_screen(&coverage()).unwrap(),
            "80 % of the time in code generated at run time, not recorded: work a.js:3 60 %, without names 20 % (node --perf-basic-prof names it)"
        );
        let little = Coverage {
            generated_samples: Some(10),
            ..coverage()
        };
        assert_eq!(on_screen(&little), None);
    }
}
