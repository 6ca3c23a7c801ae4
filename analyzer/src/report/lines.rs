//! The table of source lines.

use crate::data::code_map::{CodeMap, chain_text};
use crate::report::rows::{Facts, LoadMetrics, rows_by};
use serde::Serialize;

/// A source line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LineRow {
    /// Innermost function.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Callers that it was inlined into, hottest first; each is `caller at file:line`, innermost
    /// first.
    pub inlined_into: Vec<String>,
    /// Its loads.
    #[serde(flatten)]
    pub loads: LoadMetrics,
}

/// The rows of the table. `chains`: pieces of each line that are inlined.
pub(crate) fn line_rows(
    code: &CodeMap,
    (facts, order): (&Facts<'_>, &[usize]),
    chains: &[Vec<usize>],
) -> Vec<LineRow> {
    rows_by(facts, order, |number, loads| {
        let name = &code.lines[number];
        LineRow {
            function: name.function.clone(),
            module: name.module.clone(),
            file: name.file.clone(),
            line: name.line,
            inlined_into: chains[number]
                .iter()
                .map(|&piece| chain_text(&code.pieces[piece].chain))
                .collect(),
            loads,
        }
    })
}
