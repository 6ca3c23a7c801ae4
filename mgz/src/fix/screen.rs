//! Text of `mgz fix` on the screen.

use crate::fix::candidate::Candidate;
use crate::fix::candidates::LeftOver;
use crate::fix::document::{Cause, Document, Measured, Outcome, Saved, Tried};
use crate::fix::sequential::Speedup;
use mgz_annotations_schema::{NamedRemedy, tell};
use std::fmt::Write;
use std::path::Path;

/// The line of a finding without folders: `gather.c:6`.
fn short_place(cause: &Cause) -> String {
    let file = cause.file.rsplit('/').next().unwrap_or_default();
    match cause.line {
        0 => cause.function.clone(),
        line => format!("{file}:{line}"),
    }
}

/// The remedy without folders: `prefetch of gather.c:6`.
fn short_remedy(finding: &Cause, remedy: &str) -> String {
    match NamedRemedy::is_of_kind(remedy, "prefetch") {
        true => {
            let kind = finding.kind.replace('_', " ");
            format!("prefetch of {} ({kind})", short_place(finding))
        }
        false => remedy.to_owned(),
    }
}

/// Prints that a candidate is being tried.
pub fn tell_candidate(candidate: &Candidate) {
    let remedy = short_remedy(&candidate.finding, &candidate.remedy);
    tell!("mgz: trying {remedy}, {}", predicted(candidate.predicted));
}

/// Prints the result of a candidate.
pub fn tell_result(tried: &Tried) {
    tell!("mgz:   {}", measured(tried));
}

/// Prints that a remedy is added to others.
pub fn combine(tried: &Tried) {
    let remedy = short_remedy(&tried.finding, &tried.remedy);
    tell!("mgz: trying the kept remedies with {remedy}");
}

/// Prints that the result is measured again.
pub fn confirm() {
    tell!("mgz: measuring the kept remedies again");
}

/// A predicted gain as text.
pub fn predicted(saved: Option<Saved>) -> String {
    saved.map_or_else(
        || "predicted gain unknown".into(),
        |s| format!("predicted {}", less_time(s)),
    )
}

/// For example `38 % (31–44) less time`. Whether a number is above 1 % can be seen.
fn less_time(saved: Saved) -> String {
    let number = |pct: f64| match pct.abs() {
        0.05..1.95 => format!("{pct:.1}"),
        _ => format!("{pct:.0}"),
    };
    let [value, lo, hi] = [saved.saved_pct, saved.saved_pct_lo, saved.saved_pct_hi];
    match value < 0.0 {
        false => format!(
            "{} % ({}–{}) less time",
            number(value),
            number(lo),
            number(hi)
        ),
        true => format!(
            "{} % ({}–{}) more time",
            number(-value),
            number(-hi),
            number(-lo)
        ),
    }
}

/// A measured ratio of times as text.
pub fn less_time_of(speedup: Speedup) -> String {
    let [saved_pct, saved_pct_lo, saved_pct_hi] = speedup.saved_pct();
    less_time(Saved {
        saved_pct,
        saved_pct_lo,
        saved_pct_hi,
    })
}

/// The decision on a candidate as text, with its measured gain.
pub fn measured(tried: &Tried) -> String {
    let word = match tried.outcome {
        Outcome::Kept => "kept",
        Outcome::Dropped => "dropped",
    };
    match (tried.measured, tried.outcome) {
        (Some(measured), Outcome::Kept) => format!(
            "{word}: measured {} in {} pairs{}",
            less_time(measured.saved),
            measured.pairs,
            at_distance(tried)
        ),
        (Some(measured), Outcome::Dropped) => format!(
            "{word}: measured {} in {} pairs; {}",
            less_time(measured.saved),
            measured.pairs,
            tried.reason
        ),
        (None, _) => format!("{word}: {}", tried.reason),
    }
}

fn at_distance(tried: &Tried) -> String {
    let first = tried.recipe.loads.first();
    first.map_or_else(String::new, |load| {
        format!(", {} iterations ahead", load.distance)
    })
}

/// For example `1.41 times as fast (1.38–1.44)`.
fn times_as_fast(measured: &Measured) -> String {
    let ratio = measured.speedup;
    format!(
        "{:.2} times as fast ({:.2}–{:.2})",
        ratio.value, ratio.lo, ratio.hi
    )
}

/// The number of kept candidates and the gain of all.
pub fn summary_text(document: &Document) -> String {
    let kept = (document.candidates.iter())
        .filter(|t| t.outcome == Outcome::Kept)
        .count();
    format!(
        "kept {kept} of {}: {}, {:.2} s of {} instead of {:.2} s\n",
        document.candidates.len(),
        times_as_fast(&document.result),
        document.result.seconds_after,
        document.clock.name(),
        document.result.seconds_before,
    )
}

/// The result of a fix, with a line per candidate and the way to undo it.
pub fn result(document: &Document, paths: &[&Path]) -> String {
    let mut text = summary_text(document);
    text.push_str(&candidate_lines(&document.candidates));
    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    let _ = writeln!(
        text,
        "\nrun {} instead of {}; to undo the fix, delete {}",
        document.output,
        document.program.path,
        names.join(" and ")
    );
    text
}

/// A line per candidate.
fn candidate_lines(candidates: &[Tried]) -> String {
    let mut text = String::new();
    for tried in candidates {
        let remedy = short_remedy(&tried.finding, &tried.remedy);
        let _ = writeln!(text, "  {remedy}: {}", predicted(tried.predicted));
        let _ = writeln!(text, "    {}", measured(tried));
    }
    text
}

/// The reasons why nothing is kept.
pub fn nothing(name: &str, tried: &[Tried], left: &[LeftOver], no_finding: &str) -> String {
    let mut text = match (tried.is_empty(), left.is_empty()) {
        (true, true) => format!("{name} is left as it is: {no_finding}\n"),
        (true, false) => format!(
            "{name} is left as it is: no finding has a remedy that can be applied to a finished program\n"
        ),
        (false, _) => format!("{name} is left as it is: kept 0 of {}\n", tried.len()),
    };
    text.push_str(&candidate_lines(tried));
    for (cause, why) in left {
        let _ = writeln!(text, "  {} at {}: {why}", cause.title, short_place(cause));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::document::Recipe;

    fn tried(outcome: Outcome, ratio: f64) -> Tried {
        let speedup = Speedup {
            value: ratio,
            lo: ratio - 0.03,
            hi: ratio + 0.03,
        };
        let [saved_pct, saved_pct_lo, saved_pct_hi] = speedup.saved_pct();
        let saved = Saved {
            saved_pct,
            saved_pct_lo,
            saved_pct_hi,
        };
        Tried {
            finding: Cause {
                kind: "hash_table".into(),
                file: "/s/a.c".into(),
                line: 6,
                ..Cause::default()
            },
            remedy: "prefetch of /s/a.c:6".into(),
            predicted: Some(saved),
            measured: Some(Measured {
                speedup,
                saved,
                pairs: 4,
                seconds_before: 2.0,
                seconds_after: 1.42,
            }),
            outcome,
            reason: "no gain above 1 % was measured".into(),
            recipe: Recipe::default(),
            patch: String::new(),
            words: String::new(),
        }
    }

    #[test]
    fn ends_of_intervals_show_if_they_are_above_one_percent() {
        let saved = |saved_pct, saved_pct_lo, saved_pct_hi| Saved {
            saved_pct,
            saved_pct_lo,
            saved_pct_hi,
        };
        assert_eq!(less_time(saved(5.1, 0.84, 9.2)), "5 % (0.8–9) less time");
        assert_eq!(less_time(saved(-5.1, -9.2, -0.01)), "5 % (0–9) more time");
    }

    #[test]
    fn candidates_have_predicted_and_measured_gains() {
        let text = candidate_lines(&[tried(Outcome::Kept, 1.41), tried(Outcome::Dropped, 0.9)]);
        assert!(
            text.contains("prefetch of a.c:6 (hash table): predicted 29 % (28–31) less time"),
            "{text}"
        );
        assert!(
            text.contains("kept: measured 29 % (28–31) less time in 4 pairs"),
            "{text}"
        );
        assert!(
            text.contains("dropped: measured 11 % (8–15) more time in 4 pairs; no gain"),
            "{text}"
        );
    }
}
