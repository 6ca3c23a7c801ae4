//! The time that runs are compared by.

use crate::fix::workload::Ran;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The time that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Elapsed time from the start of the process to its end.
    #[default]
    Wall,
    /// CPU time, for programs with one thread. Other programs on the machine affect it less.
    Cpu,
}

impl Clock {
    /// The clock for a program by the manifest of its trace.
    pub fn of(manifest: &Value) -> Clock {
        match manifest["threads"].as_array().map(Vec::len) {
            Some(1) => Clock::Cpu,
            _ => Clock::Wall,
        }
    }

    pub(super) fn seconds(self, ran: &Ran) -> f64 {
        match self {
            Clock::Wall => ran.seconds,
            Clock::Cpu => ran.cpu_seconds,
        }
    }

    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Wall => "wall time",
            Clock::Cpu => "CPU time",
        }
    }
}
