//! Findings that only one of two builds has, with the misses of their functions.

use crate::findings::{Finding, params};
use crate::misses::{Misses, Range, is_vague};
use crate::output::findings::cost;
use crate::output::readable::within;
use crate::report::Analysis;
use crate::util::elided::elided;
use serde::Serialize;
use std::collections::BTreeMap;

/// A cheaper finding may be gone by chance, percent of the time. Source: Chosen, as for the screen.
const MIN_COST_PCT: f64 = 5.0;

/// A finding of a run.
#[derive(Clone, Debug, Default, PartialEq)]
struct RunFinding {
    kind: &'static str,
    title: String,
    /// The function without template arguments and parameters.
    function: String,
    /// `FILE:LINE` without folders; empty if unknown.
    place: String,
    score: f64,
    /// The cost in words.
    cost: String,
    is_firm: bool,
}

/// The findings of a run, and the misses of its functions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFindings {
    list: Vec<RunFinding>,
    /// By function without template arguments and parameters: level and misses per load.
    misses: BTreeMap<String, Vec<(String, Range)>>,
}

/// A finding that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FindingOfSide {
    /// Mechanism.
    pub kind: &'static str,
    /// Its title.
    pub title: String,
    /// Function.
    pub function: String,
    /// `FILE:LINE`; empty if unknown.
    pub place: String,
    /// Predicted cost in words.
    pub cost: String,
    /// Change of the function's misses. Null if it is not certain.
    pub misses: Option<MissChange>,
}

/// Misses of a function that differ for certain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MissChange {
    /// `L1`, `L2`, `L3`.
    pub level: String,
    /// Misses per load in the base, with the ends of the interval.
    pub base: Range,
    /// In the new build.
    pub new: Range,
}

/// Findings of only one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FindingChanges {
    /// Findings that only the base has.
    pub gone: Vec<FindingOfSide>,
    /// Findings that only the new build has.
    pub added: Vec<FindingOfSide>,
}

impl RunFindings {
    /// The findings of an analysis. `None` if their absence means nothing: misses were not predicted,
    /// or there are too few windows.
    pub fn of(analysis: &Analysis) -> Option<RunFindings> {
        let list = &analysis.findings.list;
        let has_windows = analysis.summary.samples >= params::MIN_WINDOWS_FOR_FINDING as u64;
        if analysis.summary.misses.is_none() || list.is_empty() && !has_windows {
            return None;
        }
        let functions = analysis.functions.iter();
        let misses = functions.filter_map(|row| {
            let known = levels(row.loads.misses.as_ref()?);
            Some((elided(&row.function), known))
        });
        Some(RunFindings {
            list: list.iter().map(RunFinding::of).collect(),
            misses: misses.collect(),
        })
    }

    fn has(&self, finding: &RunFinding) -> bool {
        self.list.iter().any(|other| other.is_same(finding))
    }

    /// Misses of a function at a level.
    fn misses_at(&self, function: &str, level: &str) -> Option<Range> {
        let levels = self.misses.get(function)?;
        Some(levels.iter().find(|(name, _)| name == level)?.1)
    }
}

/// Misses per load at the levels where they are known.
fn levels(misses: &Misses) -> Vec<(String, Range)> {
    let known = misses.levels.iter().filter_map(|level| {
        let ratio = level.ratio.filter(|ratio| !is_vague(*ratio))?;
        Some((level.level.clone(), ratio))
    });
    known.collect()
}

impl RunFinding {
    fn of(finding: &Finding) -> RunFinding {
        let file = finding.file.rsplit('/').next().unwrap_or_default();
        RunFinding {
            kind: finding.kind,
            title: finding.title.clone(),
            function: elided(&finding.function),
            place: match finding.line {
                0 => String::new(),
                line => format!("{file}:{line}"),
            },
            score: finding.score,
            cost: cost(finding),
            is_firm: !finding.is_vague() && !finding.is_upper_bound,
        }
    }

    fn is_same(&self, other: &RunFinding) -> bool {
        (self.kind, &self.function) == (other.kind, &other.function)
    }
}

/// Findings of one side only. `base` and `new` are the findings of the runs of a side.
pub fn changed(base: &[Option<RunFindings>], new: &[Option<RunFindings>]) -> FindingChanges {
    let known = |side: &[Option<RunFindings>]| -> Option<Vec<RunFindings>> {
        side.iter().cloned().collect()
    };
    let (Some(base), Some(new)) = (known(base), known(new)) else {
        return FindingChanges::default();
    };
    FindingChanges {
        gone: only_of(&base, &new, |ours, theirs| (ours, theirs)),
        added: only_of(&new, &base, |ours, theirs| (theirs, ours)),
    }
}

/// Findings that all runs of a side have and no run of the other one. `in_order` puts the misses of
/// this side and of the other into the order base, new.
fn only_of(
    side: &[RunFindings],
    other: &[RunFindings],
    in_order: fn(Range, Range) -> (Range, Range),
) -> Vec<FindingOfSide> {
    let (Some(first), Some(other_first)) = (side.first(), other.first()) else {
        return Vec::new();
    };
    let is_only = |finding: &&RunFinding| {
        finding.score >= MIN_COST_PCT
            && side.iter().all(|run| run.has(finding))
            && !other.iter().any(|run| run.has(finding))
    };
    let of = |finding: &RunFinding| {
        let misses = changed_misses((first, other_first), &finding.function, in_order);
        (finding.is_firm || misses.is_some()).then(|| FindingOfSide {
            kind: finding.kind,
            title: finding.title.clone(),
            function: finding.function.clone(),
            place: finding.place.clone(),
            cost: finding.cost.clone(),
            misses,
        })
    };
    first.list.iter().filter(is_only).filter_map(of).collect()
}

/// The greatest decrease of a function's misses per load from one run to another, among levels whose
/// intervals do not overlap.
fn changed_misses(
    (one, other): (&RunFindings, &RunFindings),
    function: &str,
    in_order: fn(Range, Range) -> (Range, Range),
) -> Option<MissChange> {
    let changes = one
        .misses
        .get(function)?
        .iter()
        .filter_map(|(level, ours)| {
            let theirs = other.misses_at(function, level)?;
            (theirs[2] < ours[0]).then_some((level, *ours, theirs))
        });
    let (level, ours, theirs) =
        changes.max_by(|a, b| (a.1[1] - a.2[1]).total_cmp(&(b.1[1] - b.2[1])))?;
    let (base, new) = in_order(ours, theirs);
    Some(MissChange {
        level: level.clone(),
        base,
        new,
    })
}

impl FindingChanges {
    /// A sentence for each finding, without its full stop.
    pub fn sentences(&self) -> Vec<String> {
        let gone = self.gone.iter().map(|of| sentence(of, "is gone"));
        let added = self.added.iter().map(|of| sentence(of, "is new"));
        gone.chain(added).collect()
    }
}

fn sentence(of: &FindingOfSide, what: &str) -> String {
    let place = match of.place.as_str() {
        "" => String::new(),
        place => format!(", {place}"),
    };
    let share = |[lo, value, hi]: Range| within(100.0 * value, Some((100.0 * lo, 100.0 * hi)));
    let misses = of.misses.as_ref().map_or_else(String::new, |change| {
        format!(
            "; {} of the loads of `{}` miss the {} instead of {} (predicted)",
            share(change.new),
            of.function,
            change.level,
            share(change.base)
        )
    });
    format!(
        "the finding \"{}\" in `{}`{place} {what} ({}){misses}",
        of.title, of.function, of.cost
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kinds: &[(&'static str, f64, bool)], l2: f64) -> RunFindings {
        let list = kinds.iter().map(|&(kind, score, is_firm)| RunFinding {
            kind,
            title: "a few bytes of each element".into(),
            function: "total".into(),
            place: "aos.cpp:12".into(),
            score,
            cost: format!("predicted cost {score} % of the time"),
            is_firm,
        });
        let ratio = [l2 - 0.02, l2, l2 + 0.02];
        RunFindings {
            list: list.collect(),
            misses: [("total".to_owned(), vec![("L2".to_owned(), ratio)])].into(),
        }
    }

    fn of(base: &[&RunFindings], new: &[&RunFindings]) -> FindingChanges {
        let side = |runs: &[&RunFindings]| -> Vec<Option<RunFindings>> {
            runs.iter().map(|&run| Some(run.clone())).collect()
        };
        changed(&side(base), &side(new))
    }

    #[test]
    fn a_finding_that_the_new_build_does_not_have_is_gone() {
        let (aos, soa) = (run(&[("strided", 60.0, true)], 0.9), run(&[], 0.12));
        let changes = of(&[&aos], &[&soa]);
        assert_eq!(
            changes.sentences(),
            [
                "the finding \"a few bytes of each element\" in `total`, aos.cpp:12 is gone (predicted cost 60 % of the time); 12 % (10–14) of the loads of `total` miss the L2 instead of 90 % (88–92) (predicted)"
            ]
        );
        let back = of(&[&soa], &[&aos]);
        assert_eq!((back.gone.len(), back.added.len()), (0, 1));
        assert!(back.sentences()[0].contains("90 % (88–92) of the loads"));
        assert_eq!(of(&[&aos], &[&aos]), FindingChanges::default());
        // Nothing is known of the findings of the new build.
        assert_eq!(changed(&[Some(aos)], &[None]), FindingChanges::default());
    }

    #[test]
    fn a_finding_may_be_gone_by_chance() {
        let gone = |base: &RunFindings, new: &RunFindings| !of(&[base], &[new]).gone.is_empty();
        let none = |l2: f64| run(&[], l2);
        assert!(!gone(&run(&[("strided", 3.0, true)], 0.5), &none(0.1)));
        let vague = run(&[("strided", 30.0, false)], 0.5);
        assert!(!gone(&vague, &none(0.49)));
        // The misses show that it is gone.
        assert!(gone(&vague, &none(0.1)));
        // It is in one of the two runs of the new build.
        let without = none(0.1);
        assert!(!of(&[&vague, &vague], &[&without]).gone.is_empty());
        assert!(of(&[&vague], &[&without, &vague]).gone.is_empty());
    }
}
