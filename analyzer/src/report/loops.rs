//! The table of loops.

use crate::data::code_map::{CodeMap, chain_text};
use crate::report::rows::{Facts, LoadMetrics, rows_by};
use serde::Serialize;

/// A loop of the machine code, with the loops inside it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoopRow {
    /// Function that contains the loop.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file of the back edge's branch; empty if unknown.
    pub file: String,
    /// Line of that branch; 0 if unknown.
    pub line: u32,
    /// Caller that the code was inlined into: `caller at file:line`, innermost first.
    pub inlined_into: String,
    /// Link-time address of its head, hexadecimal.
    pub address: String,
    /// That of the enclosing loop.
    pub outer: Option<String>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Its loads.
    #[serde(flatten)]
    pub loads: LoadMetrics,
}

/// The rows of the table.
pub(crate) fn loop_rows(code: &CodeMap, (facts, order): (&Facts<'_>, &[usize])) -> Vec<LoopRow> {
    rows_by(facts, order, |number, loads| {
        let name = &code.loops[number];
        let function = &code.functions[name.function as usize];
        LoopRow {
            function: function.function.clone(),
            module: function.module.clone(),
            file: name.file.clone(),
            line: name.line,
            inlined_into: chain_text(&name.chain),
            address: format!("{:#x}", name.header),
            outer: name.outer.map(|at| format!("{at:#x}")),
            depth: name.depth,
            loads,
        }
    })
}
