//! The event that begins windows or samples, and the unit of the distance between them.

use crate::named::named;

named! {
    /// Event that begins windows or samples.
    TriggerEvent {
        /// A number of records.
        Records = "records",
        /// A number of loads, counted by the processor.
        Loads = "loads",
        /// A number of events that the kernel counts by itself, in place of loads.
        SoftwareLoads = "software_loads",
        /// CPU time, by events of the kernel's clock.
        CpuTime = "cpu_time",
        /// CPU time at the kernel's tick, at a rate that the tick allows.
        CpuTimeAtTicks = "cpu_time_at_ticks",
        /// CPU time by timers, whose rate may exceed that of the tick.
        CpuTimeByTimers = "cpu_time_by_timers",
        /// Another event of an imported file, or several events.
        Other = "other",
    }
}

named! {
    /// Unit of the distance between windows or samples.
    SamplingUnit {
        /// Records of probes.
        Records = "records",
        /// Executed loads.
        Loads = "loads",
        /// Nanoseconds of CPU time (imports).
        CpuClock = "cpu-clock",
        /// Nanoseconds of CPU time (mode `watch`).
        CpuTime = "ns of cpu time",
        /// Another event of an imported file.
        Events = "events",
        /// Several events of an imported file.
        Mixed = "mixed",
    }
}

impl TriggerEvent {
    /// The event in the description of a trigger, for traces of releases that wrote only that.
    pub(crate) fn of_description(text: &str) -> TriggerEvent {
        let has = |part: &str| text.contains(part);
        match text {
            "" => TriggerEvent::default(),
            "records" => TriggerEvent::Records,
            _ if text.starts_with("loads") && has("(perf_event 1:") => TriggerEvent::SoftwareLoads,
            _ if text.starts_with("loads") => TriggerEvent::Loads,
            _ if has("at most at the kernel's tick") => TriggerEvent::CpuTimeByTimers,
            _ if has("tick") => TriggerEvent::CpuTimeAtTicks,
            _ if text.starts_with("cpu") => TriggerEvent::CpuTime,
            _ => TriggerEvent::Other,
        }
    }

    /// True if a number of loads begins a window.
    pub fn is_loads(&self) -> bool {
        matches!(self, TriggerEvent::Loads | TriggerEvent::SoftwareLoads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    #[test]
    fn events_of_earlier_traces_are_known_from_their_descriptions() {
        let expected = [
            ("", TriggerEvent::default()),
            ("records", TriggerEvent::Records),
            (
                "loads (perf_event 4:0x81d0, user space only)",
                TriggerEvent::Loads,
            ),
            (
                "loads (perf_event 1:0x2, user space only)",
                TriggerEvent::SoftwareLoads,
            ),
            ("loads", TriggerEvent::Loads),
            ("cpu time", TriggerEvent::CpuTime),
            ("cpu-clock", TriggerEvent::CpuTime),
            (
                "cpu time (perf_event, user space only)",
                TriggerEvent::CpuTime,
            ),
            (
                "cpu time (perf_event, user space only, then POSIX timers at the kernel's tick)",
                TriggerEvent::CpuTimeAtTicks,
            ),
            (
                "cpu time (POSIX timers, at the kernel's tick)",
                TriggerEvent::CpuTimeAtTicks,
            ),
            (
                "cpu time (POSIX timers, at most at the kernel's tick)",
                TriggerEvent::CpuTimeByTimers,
            ),
            ("events", TriggerEvent::Other),
            ("mixed", TriggerEvent::Other),
        ];
        for (text, event) in expected {
            let json = serde_json::json!({ "trigger": text }).to_string();
            let manifest: Manifest = serde_json::from_str(&json).unwrap();
            assert_eq!(manifest.trigger_event(), event, "{text}");
        }
    }

    #[test]
    fn an_event_that_is_stated_is_not_sought_in_the_description() {
        let json = r#"{"trigger": "by something new", "trigger_event": "loads"}"#;
        let manifest: Manifest = serde_json::from_str(json).unwrap();
        assert!(manifest.triggers_by_loads());
    }
}
