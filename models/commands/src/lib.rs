//! The commands of locality models: `mgz-analyze reuse`, `spectra`, `cache`, `predict`,
//! `affinity` and `simpoints`. Each is a thin layer: it passes rows to [`mgz_models`] and returns a
//! [`Document`](mgz_analyzer::output::document::Document).

pub mod affinity;
pub(crate) mod beside;
pub mod cache;
mod contexts;
pub mod mimic;
pub mod ordered;
mod outlined;
pub mod predict;
mod predict_code;
mod private_data;
pub mod rdx;
pub mod reuse;
pub mod simpoints;
pub mod spectra;
pub mod threads;
pub mod watched;

use clap::Subcommand;
use mgz_analyzer::commands::{Common, finish, note_watched, start};
use std::path::Path;
use std::process::ExitCode;

/// A locality model.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure reuse distance and interval, exactly or approximately; histograms; miss-ratio curve.
    Reuse(reuse::ReuseArguments),
    /// Measure reuse distance at several block sizes at once, with Earth Mover's Distance between
    /// them and page-size advice.
    Spectra(spectra::SpectraArguments),
    /// Simulate caches exactly, with the stack-distance model beside it; shared caches; other numbers
    /// of threads.
    Cache(cache::arguments::CacheArguments),
    /// Predict reuse distances and miss ratios of inputs that were not run.
    Predict(predict::PredictArguments),
    /// Show which hot lines, pages or regions are accessed together.
    Affinity(affinity::AffinityArguments),
    /// Choose a few windows with weights that represent the run (SimPoint).
    Simpoints(simpoints::SimpointsArguments),
}

/// Runs a subcommand.
pub fn run_subcommand(command: &Command) -> anyhow::Result<ExitCode> {
    let common = match command {
        Command::Reuse(a) => &a.common,
        Command::Spectra(a) => &a.common,
        Command::Cache(a) => &a.common,
        Command::Predict(a) => &a.common,
        Command::Affinity(a) => &a.common,
        Command::Simpoints(a) => &a.common,
    };
    start(common)?;
    let result = match command {
        Command::Reuse(a) => reuse::run_reuse(a),
        Command::Spectra(a) => spectra::run_spectra(a),
        Command::Cache(a) => cache::run_cache(a),
        Command::Predict(a) => predict::run_predict(a),
        Command::Affinity(a) => affinity::run_affinity(a),
        Command::Simpoints(a) => simpoints::run_simpoints(a),
    };
    finish(result?, common)
}

/// Shows the use–reuse pairs of a trace of `--mode watch`, whatever command was requested: it has
/// no rows of loads.
pub fn show_watched(folder: &Path, common: Common) -> anyhow::Result<ExitCode> {
    let mut arguments = reuse::ReuseArguments::of_watched(folder)?;
    arguments.common = common;
    note_watched(folder);
    run_subcommand(&Command::Reuse(arguments))
}
