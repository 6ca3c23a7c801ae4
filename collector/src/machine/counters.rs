//! Events that count accesses on this machine.

use crate::watch::events::Counter;
use std::path::Path;

/// Retired loads and stores of Intel's processors since Haswell (MEM_UOPS_RETIRED, later
/// MEM_INST_RETIRED).
const INTEL: [u64; 2] = [0x81d0, 0x82d0];
/// Loads and stores, each with those that are both, as AMD's Zen processors dispatch them
/// (LsDispatch: loads 1, stores 2, both in one 4).
const AMD: [u64; 2] = [0x0529, 0x0629];

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSearch {
    /// Events that count loads and stores; `None` where nothing does.
    pub counters: Option<[Counter; 2]>,
    /// The events that count, or the missing part.
    pub why: String,
}

fn none(why: String) -> CounterSearch {
    CounterSearch {
        counters: None,
        why,
    }
}

/// Finds events that count accesses on this machine. The kernel must `accept` each event.
pub fn here(accept: &mut dyn FnMut(&Counter) -> std::io::Result<()>) -> CounterSearch {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    find_counters_under(Path::new("/sys/bus/event_source/devices"), &cpuinfo, accept)
}

/// Looks at a tree of `/sys/bus/event_source/devices` and the text of `/proc/cpuinfo`, and lets the
/// kernel `accept` each event.
pub fn find_counters_under(
    devices: &Path,
    cpuinfo: &str,
    accept: &mut dyn FnMut(&Counter) -> std::io::Result<()>,
) -> CounterSearch {
    let pmu = ["cpu", "cpu_core"].iter().find_map(|name| {
        let kind = std::fs::read_to_string(devices.join(name).join("type")).ok()?;
        Some((*name, kind.trim().parse().ok()?))
    });
    let Some((name, kind)) = pmu else {
        return none(format!(
            "nothing counts accesses on this machine: it has no PMU ({} has neither cpu nor cpu_core; virtual machines often hide it)",
            devices.display()
        ));
    };
    if devices.join("cpu_atom").exists() {
        return none("nothing counts accesses on this machine: it has two kinds of cores, and an event counts on one of them only".into());
    }
    let configs: &[u64; 2] = match cpuinfo
        .lines()
        .find(|l| l.starts_with("vendor_id"))
        .and_then(|l| l.split(':').nth(1))
        .map(str::trim)
    {
        Some("GenuineIntel") => &INTEL,
        Some("AuthenticAMD") => &AMD,
        other => {
            return none(format!(
                "nothing counts accesses on this machine: the events of {} processors are not known",
                other.unwrap_or("such")
            ));
        }
    };
    let counters = configs.map(|config| Counter { kind, config });
    for counter in &counters {
        if let Err(error) = accept(counter) {
            return none(format!(
                "nothing counts accesses on this machine: its PMU ({name}) refuses event {:#x} ({error})",
                counter.config
            ));
        }
    }
    let list: Vec<String> = configs.iter().map(|c| format!("{c:#x}")).collect();
    CounterSearch {
        why: format!(
            "accesses are counted by the PMU ({name}, events {})",
            list.join(" and ")
        ),
        counters: Some(counters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn each_missing_part_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut yes = |_: &Counter| Ok(());
        let intel = "processor : 0\nvendor_id\t: GenuineIntel\n";
        assert!(
            find_counters_under(dir.path(), intel, &mut yes)
                .why
                .contains("no PMU")
        );
        std::fs::create_dir(dir.path().join("cpu_core")).unwrap();
        std::fs::write(dir.path().join("cpu_core/type"), "10\n").unwrap();
        let found = find_counters_under(dir.path(), intel, &mut yes);
        assert_eq!(
            found.counters,
            Some([
                Counter {
                    kind: 10,
                    config: 0x81d0
                },
                Counter {
                    kind: 10,
                    config: 0x82d0
                }
            ])
        );
        assert!(found.why.contains("cpu_core"));
        std::fs::create_dir(dir.path().join("cpu")).unwrap();
        std::fs::write(dir.path().join("cpu/type"), "4\n").unwrap();
        assert_eq!(
            find_counters_under(dir.path(), "vendor_id : AuthenticAMD", &mut yes).counters,
            Some([
                Counter {
                    kind: 4,
                    config: 0x0529
                },
                Counter {
                    kind: 4,
                    config: 0x0629
                }
            ])
        );
        let other = find_counters_under(dir.path(), "vendor_id : Shanghai", &mut yes);
        assert!(other.counters.is_none() && other.why.contains("Shanghai"));
        std::fs::create_dir(dir.path().join("cpu_atom")).unwrap();
        let hybrid = find_counters_under(dir.path(), intel, &mut yes);
        assert!(hybrid.counters.is_none() && hybrid.why.contains("two kinds of cores"));
        std::fs::remove_dir(dir.path().join("cpu_atom")).unwrap();
        let refused = find_counters_under(dir.path(), intel, &mut |c| {
            if c.config == 0x82d0 {
                Err(io::ErrorKind::NotFound.into())
            } else {
                Ok(())
            }
        });
        assert!(
            refused.counters.is_none() && refused.why.contains("refuses event 0x82d0"),
            "{}",
            refused.why
        );
    }
}
