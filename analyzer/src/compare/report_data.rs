//! Data for the report of a comparison: the comparison with its sentences, and a
//! [picture](crate::compare::picture) of each run.

use crate::compare::gate::GateOutcome;
use crate::compare::judge::Comparison;
use crate::compare::{show, words};
use serde_json::{Value, json};

/// All data, as JSON. `pictures` are those of the base and of the new build.
pub fn whole(
    comparison: &Comparison,
    outcomes: &[GateOutcome],
    pictures: [Vec<&Value>; 2],
) -> serde_json::Result<Value> {
    let mut all = show::json(comparison, outcomes)?;
    let mut changes = Vec::new();
    for change in words::ordered(comparison) {
        let mut row = serde_json::to_value(change)?;
        row["what"] = words::change_name(change).into();
        row["sentence"] = words::sentence(change).into();
        row["news"] = words::is_news(change).into();
        changes.push(row);
    }
    let [base, new] = pictures;
    all["changes"] = changes.into();
    all["remarks"] = show::remarks(comparison).into();
    all["gate"] = serde_json::to_value(show::gate_lines(outcomes))?;
    all["pictures"] = json!({ "base": base, "new": new });
    Ok(all)
}
