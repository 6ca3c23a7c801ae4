//! Proposals for findings: patches of the source, or recipes in words if no patch is safe.

use crate::fix::candidates::{cause, place_text};
use crate::fix::document::{Cause, Saved};
use crate::fix::source::edit::Edits;
use crate::fix::source::finding::{Finding, Made, Means, declared, structure_name};
use crate::fix::source::reorder::{MemberOrder, members_of_units};
use crate::fix::source::{exchange, hints, huge_pages, pad, prefetch, rows, split, uses};
use serde_json::Value;
use std::path::Path;

/// The change that a proposal consists of.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A patch that keeps the program's results.
    Patch(Edits),
    /// A comment in the source: the remedy is the user's decision.
    Comment(Edits),
    /// No change: the words say what to do, or why nothing is proposed.
    Words,
}

/// A remedy of a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The finding.
    pub finding: Cause,
    /// The remedy: `reorder of struct body (app.c:3)`.
    pub remedy: String,
    /// The remedy for `mgz what-if`; empty if its gain cannot be predicted.
    pub what_if: String,
    /// Predicted gain, if it is known.
    pub predicted: Option<Saved>,
    /// The change.
    pub change: Change,
    /// The recipe, and the reason if there is no patch.
    pub words: String,
}

/// A kind of source change for a finding. `None` if it does not apply.
type Way = fn(&mut Means, &Finding) -> Option<Made>;

/// All kinds of changes, in the order of the list of proposals.
const WAYS: [Way; 8] = [
    split::propose_split,
    reorder,
    exchange::propose_exchange,
    prefetch::propose_prefetch,
    huge_pages::propose_huge_pages,
    pad::propose_padding,
    rows::propose_longer_rows,
    hints::propose_hint,
];

/// Proposals for the findings of an analysis, in their order.
pub fn proposals(means: &mut Means) -> Vec<Proposal> {
    let mut found: Vec<Proposal> = Vec::new();
    let analysis = means.analysis;
    for value in analysis["findings"].as_array().into_iter().flatten() {
        let cause = cause(value);
        let finding = Finding {
            value,
            object: object(analysis, &cause.object),
            cause,
        };
        let before = found.len();
        let mut is_known = false;
        for way in WAYS {
            let Some(made) = way(means, &finding) else {
                continue;
            };
            match found.iter().any(|p| p.remedy == made.remedy) {
                true => is_known = true,
                false => found.push(proposal(&finding, made, means.tree)),
            }
        }
        if found.len() == before && !is_known {
            found.push(advice(&finding));
        }
    }
    found
}

fn proposal(finding: &Finding, made: Made, tree: &Path) -> Proposal {
    let is_inside = |edits: &Edits| edits.files().iter().all(|f| f.starts_with(tree));
    let edits = made.edits.and_then(|edits| match is_inside(&edits) {
        true => Ok(edits),
        false => Err("its source lies outside of the tree; give its folder by --tree DIR".into()),
    });
    let (change, why) = match edits {
        Ok(edits) if made.is_comment => (Change::Comment(edits), String::new()),
        Ok(edits) => (Change::Patch(edits), String::new()),
        Err(why) => (Change::Words, format!("no patch: {why}\n")),
    };
    Proposal {
        finding: finding.cause.clone(),
        remedy: made.remedy,
        what_if: made.what_if,
        predicted: None,
        change,
        words: why + &made.recipe,
    }
}

/// The advice for a finding without an applicable change.
fn advice(finding: &Finding) -> Proposal {
    let advice = finding.value["advice"].as_str().unwrap_or_default();
    Proposal {
        finding: finding.cause.clone(),
        remedy: format!("{} at {}", finding.cause.title, place_text(&finding.cause)),
        what_if: finding.value["remedy"].as_str().unwrap_or_default().into(),
        predicted: None,
        change: Change::Words,
        words: format!("no patch: it needs a decision of yours\n{advice}\n"),
    }
}

/// The row of an object by its name in a finding: `name (type)`, and perhaps `and 3 other objects`, or
/// the name alone.
fn object<'a>(analysis: &'a Value, name: &str) -> &'a Value {
    let rows = analysis["objects"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let own = |row: &Value| row["object"].as_str().unwrap_or_default().to_owned();
    let has_full_name = |row: &&Value| {
        let full = match row["type"].as_str().unwrap_or_default() {
            "" => own(row),
            of_type => format!("{} ({of_type})", own(row)),
        };
        let rest = name.strip_prefix(&full);
        !own(row).is_empty() && rest.is_some_and(|r| r.is_empty() || r.starts_with(" and "))
    };
    let mut of_name = rows.iter().filter(|row| own(row) == name);
    let alone = of_name.next().filter(|_| of_name.next().is_none());
    (rows.iter().find(has_full_name))
        .or(alone)
        .unwrap_or(&Value::Null)
}

/// Proposes fields in the order of their loads.
fn reorder(means: &mut Means, finding: &Finding) -> Option<Made> {
    let structure = means.info.structure(finding.of_type()).ok()?;
    let heat = finding.heat();
    if structure.members.len() < 2 || heat.is_empty() {
        return None;
    }
    let remedy = format!("reorder of {}", structure_name(structure));
    let what_if = format!("reorder of {}", finding.target());
    let found = declared(means, finding.of_type());
    let (structure, declaration) = match found {
        Ok(found) => found,
        Err(why) => {
            let units: Vec<Vec<usize>> = (0..structure.members.len()).map(|m| vec![m]).collect();
            // Without a readable declaration there is only the recipe.
            let order = MemberOrder::new(structure, &units, &heat).ok()?;
            let mut made = Made::patch(remedy, what_if, Err(why));
            made.recipe = order.recipe(structure);
            return Some(made);
        }
    };
    let order = MemberOrder::new(structure, &members_of_units(&declaration), &heat).ok()?;
    let edits = match uses::obstacle(structure, means) {
        Some(why) => Err(why),
        None => means.sources.get(&structure.file).and_then(|file| {
            let edits = order.edits(file, &declaration);
            edits.ok_or_else(|| "its members overlap".into())
        }),
    };
    let mut made = Made::patch(remedy, what_if, edits);
    made.recipe = order.recipe(structure);
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_found_by_the_names_of_findings() {
        let analysis = json!({"objects": [
            {"object": "all", "type": "struct a[9]"}, {"object": "main a.c:3", "type": ""},
            {"object": "two", "type": "int"}, {"object": "two", "type": "long"},
        ]});
        let found = |name: &str| object(&analysis, name)["type"].as_str().map(str::to_owned);
        let is = |name: &str, of_type: &str| assert_eq!(found(name).as_deref(), Some(of_type));
        is("all (struct a[9])", "struct a[9]");
        is("all (struct a[9]) and 3 other objects", "struct a[9]");
        is("all", "struct a[9]");
        is("main a.c:3", "");
        is("two (long)", "long");
        for name in ["two", "al", "", "main a.c:33"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
