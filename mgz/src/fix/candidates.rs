//! Remedies for findings that can be applied to a finished program.

use crate::fix::candidate::Candidate;
use crate::fix::document::{Cause, PrefetchedLoad, Recipe, Saved};
use crate::fix::params;
use crate::fix::sites::{Placing, Surroundings};
use crate::tools;
use anyhow::Context;
use mgz_annotations_schema::{NamedRemedy, ProgramChange};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Findings without a remedy that can be applied to a finished program, and the reason.
pub type LeftOver = (Cause, String);

/// The remedies of an analysis: large pages, then those of its findings in their order. `module`: the
/// file name of the program.
pub fn candidates(
    analysis: &Value,
    module: &str,
    surroundings: Surroundings,
) -> (Vec<Candidate>, Vec<LeftOver>) {
    let (mut found, mut left) = (Vec::new(), Vec::new());
    // Findings that only large pages may help.
    let mut others = Vec::new();
    let mut placing = Placing::new(module, surroundings);
    for finding in analysis["findings"].as_array().into_iter().flatten() {
        let cause = cause(finding);
        let changes = changes(finding);
        let placed = placing.candidates(&cause, &changes, finding);
        let has_one = !placed.is_empty();
        let is_new = |c: &Candidate| found.iter().all(|f: &Candidate| f.remedy != c.remedy);
        let placed: Vec<Candidate> = placed.into_iter().filter(is_new).collect();
        found.extend(placed);
        match recipe(finding, &changes, module) {
            Err(_) if has_one => {}
            Ok(recipe) => add_prefetch(
                &mut found,
                Candidate {
                    remedy: format!("prefetch of {}", place_text(&cause)),
                    predicted: predicted(finding),
                    finding: cause,
                    recipe,
                },
            ),
            Err(why) if changes.contains(&ProgramChange::HugePages) => others.push((cause, why)),
            Err(why) => left.push((cause, why)),
        }
    }
    match placing.huge_pages() {
        Some(large_pages) => found.insert(0, large_pages),
        None => left.extend(others),
    }
    (found, left)
}

/// Adds prefetches. Findings of one line are one candidate, because predictions are per line.
fn add_prefetch(found: &mut Vec<Candidate>, new: Candidate) {
    match found.iter_mut().find(|c| c.remedy == new.remedy) {
        Some(old) => {
            old.recipe = old.recipe.joined(&new.recipe);
            old.predicted = old.predicted.or(new.predicted);
        }
        None => found.push(new),
    }
}

/// The changes that a finding's mechanism suggests.
pub fn changes(finding: &Value) -> Vec<ProgramChange> {
    let all = finding["program_changes"].as_array().into_iter().flatten();
    all.filter_map(|change| ProgramChange::deserialize(change).ok())
        .collect()
}

/// The finding in a document.
pub fn cause(finding: &Value) -> Cause {
    let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    Cause {
        kind: text("kind"),
        title: text("title"),
        function: text("function"),
        file: text("file"),
        line: finding["line"].as_u64().unwrap_or(0) as u32,
        object: text("object"),
    }
}

/// `FILE:LINE`, or the function without line information.
pub fn place_text(cause: &Cause) -> String {
    match cause.line {
        0 => cause.function.clone(),
        line => format!("{}:{line}", cause.file),
    }
}

/// Prefetches of a finding's loads, or the reason why there are none.
fn recipe(finding: &Value, changes: &[ProgramChange], module: &str) -> Result<Recipe, String> {
    let mut ways = changes.iter().filter_map(|&change| way(change));
    let way = ways.next().ok_or("its remedy is a change of the source")?;
    let of = finding["module"].as_str().unwrap_or_default();
    if of != module {
        return Err(format!("its code is in {of}, and only {module} is fixed"));
    }
    let loads: Vec<PrefetchedLoad> = finding["load_addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|address| PrefetchedLoad {
            address: address.to_owned(),
            kind: way.to_owned(),
            distance: params::DISTANCES[params::FIRST_DISTANCE],
        })
        .collect();
    match loads.is_empty() {
        true => Err("the addresses of its loads are unknown".into()),
        false => Ok(Recipe {
            loads,
            ..Recipe::default()
        }),
    }
}

/// The method by which a prefetch computes the next addresses.
fn way(change: ProgramChange) -> Option<&'static str> {
    match change {
        ProgramChange::PrefetchGather => Some("gather"),
        ProgramChange::PrefetchStrided => Some("strided"),
        ProgramChange::PrefetchList => Some("list"),
        ProgramChange::PrefetchAuto => Some("auto"),
        ProgramChange::HugePages
        | ProgramChange::Pool
        | ProgramChange::PoolOfSites
        | ProgramChange::PadBlocks
        | ProgramChange::ShiftBlocks => None,
    }
}

/// The gain that the analysis has already predicted.
fn predicted(finding: &Value) -> Option<Saved> {
    let is_prefetch = NamedRemedy::is_of_kind(finding["remedy"].as_str()?, "prefetch");
    is_prefetch.then(|| saved(finding)).flatten()
}

fn saved(value: &Value) -> Option<Saved> {
    Some(Saved {
        saved_pct: value["saved_pct"].as_f64()?,
        saved_pct_lo: value["saved_pct_lo"].as_f64()?,
        saved_pct_hi: value["saved_pct_hi"].as_f64()?,
    })
}

/// Predicts the gain of a remedy by `mgz-analyze what-if`. `None` if it cannot be predicted.
pub fn predict(trace: &Path, remedy: &str) -> anyhow::Result<Option<Saved>> {
    let done = Command::new(tools::find_tool("mgz-analyze")?)
        .args(["what-if", "--format", "json", "--remedy", remedy])
        .arg(trace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("mgz-analyze cannot be executed")?;
    let document: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    Ok(saved(&document["summary"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn finding(kind: &str, changes: &[&str], module: &str) -> Value {
        json!({
            "kind": kind, "program_changes": changes, "title": "t", "function": "main", "module": module, "file": "/s/a.c",
            "line": 6, "object": "", "load_addresses": ["0x401234", "0x401240"],
            "remedy": "prefetch of /s/a.c:6",
            "saved_pct": 40.0, "saved_pct_lo": 20.0, "saved_pct_hi": 50.0,
        })
    }

    #[test]
    fn loads_of_findings_are_prefetched() {
        let gather = ["huge-pages", "prefetch-gather"];
        let analysis = json!({"findings": [
            finding("gather", &gather, "a"),
            finding("tree", &["huge-pages", "pool", "of a later version"], "a"),
            finding("gather", &gather, "b.so"),
            finding("streaming", &["prefetch-strided"], "b.so"),
        ]});
        let (found, left) = candidates(&analysis, "a", Surroundings::default());
        let [pages, one, pool] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(pages.remedy, "huge-pages of all data");
        assert_eq!(pool.remedy, "pool of all heap blocks");
        assert_eq!(one.remedy, "prefetch of /s/a.c:6");
        assert_eq!(one.predicted.unwrap().saved_pct, 40.0);
        assert_eq!(one.recipe.loads.len(), 2);
        assert_eq!(one.recipe.loads[0].address, "0x401234");
        assert_eq!(one.recipe.loads[0].kind, "gather");
        // Large pages are tried for the gather in the library.
        let [(cause, why)] = &left[..] else {
            panic!("{left:?}");
        };
        assert!(cause.kind == "streaming" && why.contains("b.so"), "{why}");
    }

    #[test]
    fn findings_of_one_line_are_one_candidate() {
        let gather = ["huge-pages", "prefetch-gather"];
        let mut other = finding("hash_table", &["huge-pages", "prefetch-auto"], "a");
        other["load_addresses"] = json!(["0x401240", "0x401260"]);
        let mut elsewhere = finding("gather", &gather, "a");
        elsewhere["line"] = 7.into();
        let analysis = json!({"findings": [finding("gather", &gather, "a"), other, elsewhere]});
        let (found, _) = candidates(&analysis, "a", Surroundings::default());
        let prefetches: Vec<(&str, Vec<(&str, &str)>)> = (found.iter())
            .filter(|c| !c.recipe.loads.is_empty())
            .map(|c| {
                let loads = c.recipe.loads.iter();
                let loads = loads.map(|l| (l.address.as_str(), l.kind.as_str()));
                (c.remedy.as_str(), loads.collect())
            })
            .collect();
        assert_eq!(
            prefetches,
            [
                (
                    "prefetch of /s/a.c:6",
                    vec![
                        ("0x401234", "gather"),
                        ("0x401240", "gather"),
                        ("0x401260", "auto")
                    ]
                ),
                (
                    "prefetch of /s/a.c:7",
                    vec![("0x401234", "gather"), ("0x401240", "gather")]
                ),
            ]
        );
    }

    #[test]
    fn another_remedys_gain_is_no_prediction() {
        let mut split = finding("strided", &["prefetch-strided"], "a");
        split["remedy"] = "split of x".into();
        assert_eq!(predicted(&split), None);
        split["remedy"] = "prefetch of x".into();
        split["saved_pct"] = Value::Null;
        assert_eq!(predicted(&split), None);
    }
}
