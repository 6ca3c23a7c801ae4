//! Longer rows for an array whose columns fall into few sets of a cache: a recipe in words.

use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::params::LINE_BYTES;

/// Proposes rows that are longer by one line.
pub fn propose_longer_rows(means: &mut Means, finding: &Finding) -> Option<Made> {
    if finding.kind() != "conflicts" {
        return None;
    }
    let name = finding.object["object"].as_str().unwrap_or_default();
    let grid = means.info.grids.iter().find(|g| g.name == name)?;
    let row = grid.dimensions.last()? * grid.element;
    let what_if = format!("pad of {} by {row}", finding.target());
    let edits = Err(
        "code may go from the end of a row to the next one, which no search finds for sure".into(),
    );
    let mut made = Made::patch(format!("longer rows of {name}"), what_if, edits);
    made.recipe = format!(
        "let each row of {name} be a line longer: {} bytes instead of {row}\n",
        row + LINE_BYTES
    );
    Some(made)
}
