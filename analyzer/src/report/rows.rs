//! Rows by code, as they stand in JSON.

use crate::data::counts::{Bin, Metrics};
use crate::estimate::row_estimates::Hats;
use serde::Serialize;

/// What the loads of a piece of code did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Loads {
    /// Share of the recorded and implied loads, percent; in traces of `burst` of the executed ones, estimated.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// Classes that were observed.
    #[serde(flatten)]
    pub observed: crate::stages::observed_class::ObservedRow,
    /// The most frequent strides of its load instructions.
    pub strides: Vec<crate::stages::strides::Stride>,
}

/// A function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionRow {
    /// Name.
    pub function: String,
    /// Module.
    pub module: String,
    /// Its loads.
    #[serde(flatten)]
    pub loads: Loads,
}

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
    /// Where it was inlined, hottest first; each is `caller at file:line`, from the inside out.
    pub inlined_into: Vec<String>,
    /// Its loads.
    #[serde(flatten)]
    pub loads: Loads,
}

/// A loop of the machine code, with the loops inside it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoopRow {
    /// Function that it is in.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file of the branch back to its head; empty if unknown.
    pub file: String,
    /// Line of that; 0 if unknown.
    pub line: u32,
    /// Where that code was inlined: `caller at file:line`, from the inside out.
    pub inlined_into: String,
    /// Link-time address of its head, hexadecimal.
    pub address: String,
    /// That of the loop around it.
    pub outer: Option<String>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Its loads.
    #[serde(flatten)]
    pub loads: Loads,
}
