//! The operations that an event of memory samples chooses from.

use serde::{Deserialize, Serialize};

/// The population from which the memory samples of an event are drawn. JSON and
/// `measured.parquet` have it as a text.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(from = "String", into = "String")]
pub enum SamplePopulation {
    /// All loads.
    Loads,
    /// All stores.
    Stores,
    /// All operations of the processor, of which loads and stores are a part.
    Operations,
    /// Loads of at least this many cycles.
    SlowLoads(u32),
    /// Cycles: slow operations are sampled more often.
    Cycles,
    /// Different populations.
    Mixed,
    /// The population is unknown, or unknown to this release.
    #[default]
    Unknown,
}

/// Text before the cycles of slow loads.
const SLOW_LOADS: &str = "loads of ";
/// Text behind them.
const CYCLES_OR_MORE: &str = " cycles or more";

impl SamplePopulation {
    /// True if samples are drawn from all loads, so that their shares are shares of loads.
    pub fn has_all_loads(self) -> bool {
        matches!(self, SamplePopulation::Loads | SamplePopulation::Operations)
    }
}

impl std::fmt::Display for SamplePopulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SamplePopulation::Loads => "loads",
            SamplePopulation::Stores => "stores",
            SamplePopulation::Operations => "operations",
            SamplePopulation::SlowLoads(cycles) => {
                return write!(f, "{SLOW_LOADS}{cycles}{CYCLES_OR_MORE}");
            }
            SamplePopulation::Cycles => "cycles",
            SamplePopulation::Mixed => "mixed",
            SamplePopulation::Unknown => "unknown",
        })
    }
}

impl From<&str> for SamplePopulation {
    fn from(text: &str) -> SamplePopulation {
        let cycles = || {
            let rest = text.strip_prefix(SLOW_LOADS)?;
            rest.strip_suffix(CYCLES_OR_MORE)?.parse().ok()
        };
        match text {
            "loads" => SamplePopulation::Loads,
            "stores" => SamplePopulation::Stores,
            "operations" => SamplePopulation::Operations,
            "cycles" => SamplePopulation::Cycles,
            "mixed" => SamplePopulation::Mixed,
            _ => cycles().map_or(SamplePopulation::Unknown, SamplePopulation::SlowLoads),
        }
    }
}

impl From<String> for SamplePopulation {
    fn from(text: String) -> SamplePopulation {
        text.as_str().into()
    }
}

impl From<SamplePopulation> for String {
    fn from(population: SamplePopulation) -> String {
        population.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for population in [
            SamplePopulation::Loads,
            SamplePopulation::Stores,
            SamplePopulation::Operations,
            SamplePopulation::SlowLoads(30),
            SamplePopulation::Cycles,
            SamplePopulation::Mixed,
            SamplePopulation::Unknown,
        ] {
            assert_eq!(SamplePopulation::from(population.to_string()), population);
        }
        for text in ["", "loads of x cycles or more", "loads of 3", "later"] {
            assert_eq!(SamplePopulation::from(text), SamplePopulation::Unknown);
        }
    }
}
