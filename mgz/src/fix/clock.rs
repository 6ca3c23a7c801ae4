//! The time that runs are compared by.

use crate::fix::workload::Ran;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The time that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchClock {
    /// Elapsed time from the start of the process to its end.
    #[default]
    Wall,
    /// CPU time, for programs with one thread. Other programs on the machine affect it less.
    Cpu,
}

impl BenchClock {
    /// The clock for a program by the manifest of its trace.
    pub fn of(manifest: &Value) -> BenchClock {
        match manifest["threads"].as_array().map(Vec::len) {
            Some(1) => BenchClock::Cpu,
            _ => BenchClock::Wall,
        }
    }

    pub(super) fn seconds(self, ran: &Ran) -> f64 {
        match self {
            BenchClock::Wall => ran.seconds,
            BenchClock::Cpu => ran.cpu_seconds,
        }
    }

    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            BenchClock::Wall => "wall time",
            BenchClock::Cpu => "CPU time",
        }
    }
}
