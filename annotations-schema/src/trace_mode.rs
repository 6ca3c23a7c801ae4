//! Modes of recording, by their names in the manifest.

use crate::named::named;

named! {
    /// The part of a run in a trace. A trace of an unknown mode counts as sampled.
    TraceMode {
        /// Every load, in order. Also imports of complete processor traces.
        Full = "full",
        /// Numbers of executed loads by site, and no addresses.
        Count = "count",
        /// The last records of each period.
        Ring = "ring",
        /// Windows begun by triggers; between them the program runs at its own speed.
        Burst = "burst",
        /// Sampled accesses and their reuses, by hardware watchpoints.
        Watch = "watch",
        /// Imports: windows before the samples of an event.
        Samples = "samples",
        /// Imports: the last records before a snapshot was taken.
        Snapshot = "snapshot",
    }
}

impl TraceMode {
    /// True if the trace is meant to have every load of the run. All others are samples of it, or
    /// have no loads.
    pub fn has_all_loads(&self) -> bool {
        match self {
            TraceMode::Full => true,
            TraceMode::Count
            | TraceMode::Ring
            | TraceMode::Burst
            | TraceMode::Watch
            | TraceMode::Samples
            | TraceMode::Snapshot
            | TraceMode::Unknown(_) => false,
        }
    }

    /// True if samples are windows, of which a thread has any number.
    pub fn has_windows(&self) -> bool {
        match self {
            TraceMode::Ring | TraceMode::Burst | TraceMode::Samples => true,
            TraceMode::Full
            | TraceMode::Count
            | TraceMode::Watch
            | TraceMode::Snapshot
            | TraceMode::Unknown(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    #[test]
    fn names_survive_json_and_unknown_ones_do_too() {
        let names = [
            "full", "count", "ring", "burst", "watch", "samples", "snapshot", "later", "",
        ];
        for (at, name) in names.into_iter().enumerate() {
            let text = format!("{name:?}");
            let mode: TraceMode = serde_json::from_str(&text).unwrap();
            assert_eq!(matches!(mode, TraceMode::Unknown(_)), at > 6, "{name}");
            assert_eq!(serde_json::to_string(&mode).unwrap(), text);
            assert_eq!(mode.to_string(), name);
        }
        assert_eq!(serde_json::to_value(TraceMode::default()).unwrap(), "");
    }

    #[test]
    fn a_mode_that_is_no_text_is_an_error_that_says_so() {
        let error = serde_json::from_str::<Manifest>(r#"{"mode": 3}"#).unwrap_err();
        assert!(error.to_string().contains("expected a string"), "{error}");
    }
}
