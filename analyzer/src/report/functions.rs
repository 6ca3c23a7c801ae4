//! The table of functions.

use crate::data::code_map::CodeMap;
use crate::report::rows::{Facts, LoadMetrics, rows_by};
use serde::Serialize;

/// A function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionRow {
    /// Name.
    pub function: String,
    /// Module.
    pub module: String,
    /// Its loads.
    #[serde(flatten)]
    pub loads: LoadMetrics,
}

/// The rows of the table.
pub(crate) fn function_rows(
    code: &CodeMap,
    (facts, order): (&Facts<'_>, &[usize]),
) -> Vec<FunctionRow> {
    rows_by(facts, order, |number, loads| FunctionRow {
        function: code.functions[number].function.clone(),
        module: code.functions[number].module.clone(),
        loads,
    })
}
