//! The commands of Intel PT, which `mgz-intel-pt` provides and a build can leave out.

use crate::machine::backend::Choice;
use crate::machine::capabilities::ProbeReport;
use crate::machine::pt_facts::{BUILD_WITH_INTEL_PT, NO_INTEL_PT, PtFacts};
use crate::options::args::Cli;
use crate::options::request::PtWindows;
use crate::program::modules::Instrumented;
use crate::util::failure::Failure;
use std::path::{Path, PathBuf};

/// A program that Intel PT is to record.
pub struct PtRun<'a> {
    /// The command line.
    pub cli: &'a Cli,
    /// Windows, or none for a full trace.
    pub windows: PtWindows,
    /// The program's file.
    pub program: PathBuf,
    /// Its instrumented files.
    pub modules: &'a [Instrumented],
    /// Reason for the backend.
    pub choice: &'a Choice,
    /// Capabilities of this machine.
    pub probe: &'a ProbeReport,
}

/// The functions of `mgz-intel-pt`.
#[derive(Clone, Copy)]
pub struct IntelPt {
    /// Facts about this machine.
    pub facts: fn() -> PtFacts,
    /// Records a program; returns the exit status to pass on.
    pub record: fn(PtRun<'_>) -> Result<i32, Failure>,
    /// Makes a trace of a perf.data file, or prints its content.
    pub import: fn(&Cli, &Path) -> Result<i32, Failure>,
}

/// Failure of an option that needs Intel PT, in a build without it.
pub fn absent(option: &str) -> Failure {
    Failure::own(format!("{option}: {NO_INTEL_PT}; {BUILD_WITH_INTEL_PT}"))
}
