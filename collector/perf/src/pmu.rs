//! PMUs as sysfs describes them: the layout of an event's configuration, and capabilities.
//!
//! Every position comes from `format/*`; only the name of a PMU and the names of its terms are
//! fixed here.

use crate::kernel::Kernel;
use std::collections::BTreeMap;
use std::io;

/// Folder with descriptions of PMUs.
pub const DEVICES: &str = "/sys/bus/event_source/devices";

/// A term's location: word 0 to 2 of the configuration, and its bits there in ascending order of
/// the value's bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermFormat {
    /// `config`, `config1` or `config2`.
    pub word: usize,
    /// The bits' numbers in the word, in ascending order of the value's bits.
    pub bits: Vec<u32>,
}

impl TermFormat {
    /// Reads e.g. `config:0-7,32`.
    pub fn parse(text: &str) -> Option<TermFormat> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last > 63 || first > last {
                return None;
            }
            bits.extend(first..=last);
        }
        Some(TermFormat { word, bits })
    }

    /// The bits as a mask.
    pub fn mask(&self) -> u64 {
        self.bits.iter().fold(0, |mask, bit| mask | 1 << bit)
    }

    /// Encodes a value in these bits; `None` if it needs more of them.
    pub fn place(&self, value: u64) -> Option<u64> {
        if self.bits.len() < 64 && value >> self.bits.len() != 0 {
            return None;
        }
        Some(
            self.bits
                .iter()
                .enumerate()
                .filter(|(n, _)| value >> n & 1 == 1)
                .fold(0, |word, (_, bit)| word | 1 << bit),
        )
    }
}

/// A PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Its name.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// Format of each term.
    pub format: BTreeMap<String, TermFormat>,
    /// Capabilities, as text.
    pub caps: BTreeMap<String, String>,
    /// CPUs that have this PMU; `None`: all.
    pub cpus: Option<Vec<u32>>,
    /// Number of supported address filters.
    pub address_filters: u32,
    /// Ratio of the TSC's frequency to the crystal's at the nominal clock; 0 if unknown.
    pub max_nonturbo_ratio: u64,
}

/// A term that the PMU does not have, or a value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the PMU {pmu} has no {term} (or not with the value {value})")]
pub struct NoTerm {
    /// The PMU.
    pub pmu: String,
    /// The term.
    pub term: String,
    /// The value.
    pub value: u64,
}

impl Pmu {
    /// Reads a PMU's description; `None` if there is no such PMU.
    pub fn read(kernel: &dyn Kernel, name: &str) -> Option<Pmu> {
        let base = format!("{DEVICES}/{name}");
        let file = |path: &str| {
            kernel
                .read(&format!("{base}/{path}"))
                .ok()
                .map(|t| t.trim().to_string())
        };
        let entries = |folder: &str| {
            let names = kernel.list(&format!("{base}/{folder}")).unwrap_or_default();
            names
                .into_iter()
                .filter_map(|name| Some((name.clone(), file(&format!("{folder}/{name}"))?)))
                .collect::<BTreeMap<_, _>>()
        };
        let kind = file("type")?.parse().ok()?;
        Some(Pmu {
            name: name.into(),
            kind,
            format: entries("format")
                .into_iter()
                .filter_map(|(name, text)| Some((name, TermFormat::parse(&text)?)))
                .collect(),
            caps: entries("caps"),
            cpus: file("cpus").map(|text| cpu_list(&text)),
            address_filters: file("nr_addr_filters")
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
            max_nonturbo_ratio: file("max_nonturbo_ratio")
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
        })
    }

    /// The core PMUs: one, or on hybrid machines one for each kind of core.
    pub fn cores(kernel: &dyn Kernel) -> Vec<Pmu> {
        let found: Vec<Pmu> = ["cpu", "cpu_core", "cpu_atom", "cpu_lowpower"]
            .iter()
            .filter_map(|name| Pmu::read(kernel, name))
            .collect();
        found
    }

    /// True if a CPU has this PMU.
    pub fn covers(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|list| list.contains(&cpu))
    }

    /// The words of a configuration.
    pub fn encode(&self, terms: &[(&str, u64)]) -> Result<[u64; 3], NoTerm> {
        let mut words = [0; 3];
        for &(term, value) in terms {
            let none = || NoTerm {
                pmu: self.name.clone(),
                term: term.into(),
                value,
            };
            let format = self.format.get(term).ok_or_else(none)?;
            words[format.word] |= format.place(value).ok_or_else(none)?;
        }
        Ok(words)
    }

    /// A term's bits in the first word; 0 if the PMU does not have it.
    pub fn mask(&self, term: &str) -> u64 {
        self.format
            .get(term)
            .filter(|f| f.word == 0)
            .map_or(0, TermFormat::mask)
    }

    /// A capability that is a decimal number or flag.
    pub fn cap(&self, name: &str) -> Option<u64> {
        self.caps.get(name)?.parse().ok()
    }

    /// A capability that is a hexadecimal set of values.
    pub fn cap_set(&self, name: &str) -> u64 {
        self.caps
            .get(name)
            .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
            .unwrap_or(0)
    }

    /// The allowed value nearest to `wanted`, from below if there is one, for a term whose values
    /// are a set.
    pub fn nearest(&self, set: &str, wanted: u32) -> Option<u64> {
        let allowed = self.cap_set(set);
        let below = (0..=wanted.min(63)).rev().find(|n| allowed >> n & 1 == 1);
        below
            .or_else(|| (wanted.min(63)..64).find(|n| allowed >> n & 1 == 1))
            .map(u64::from)
    }
}

/// A list such as `0-3,8`, as the kernel writes sets of CPUs.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(0xffff)));
        }
    }
    cpus
}

/// CPUs that are online.
pub fn online(kernel: &dyn Kernel) -> io::Result<Vec<u32>> {
    let cpus = cpu_list(&kernel.read("/sys/devices/system/cpu/online")?);
    if cpus.is_empty() {
        Err(io::ErrorKind::InvalidData.into())
    } else {
        Ok(cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_say_where_bits_go() {
        let format = TermFormat::parse("config:0-7,21\n").unwrap();
        assert_eq!(format.mask(), 0x2000ff);
        assert_eq!(format.place(0x181), Some(0x200081));
        assert_eq!(format.place(0x200), None, "nine bits only");
        assert_eq!(
            TermFormat::parse("config1:0-63").unwrap().place(u64::MAX),
            Some(u64::MAX)
        );
        assert_eq!(
            TermFormat::parse("config2:5").unwrap(),
            TermFormat {
                word: 2,
                bits: vec![5]
            }
        );
        for bad in [
            "",
            "config",
            "config9:0",
            "config:3-1",
            "config:60-64",
            "config:x",
        ] {
            assert_eq!(TermFormat::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list(""), Vec::<u32>::new());
        assert_eq!(
            cpu_list("0-4294967295").len(),
            0x10000,
            "nonsense stays small"
        );
    }

    #[test]
    fn values_are_chosen_from_what_is_allowed() {
        let pmu = Pmu {
            caps: [
                ("psb_periods".to_string(), "003f".to_string()),
                ("mtc_periods".into(), "0249".into()),
            ]
            .into(),
            ..Pmu::default()
        };
        assert_eq!(pmu.nearest("psb_periods", 0), Some(0));
        assert_eq!(pmu.nearest("psb_periods", 9), Some(5));
        assert_eq!(pmu.nearest("mtc_periods", 4), Some(3));
        assert_eq!(pmu.nearest("none", 4), None);
        let odd = Pmu {
            caps: [("s".to_string(), "8".to_string())].into(),
            ..Pmu::default()
        };
        assert_eq!(
            odd.nearest("s", 0),
            Some(3),
            "from above, if there is nothing below"
        );
    }

    #[test]
    fn terms_that_are_not_there_are_errors() {
        let pmu = Pmu {
            name: "p".into(),
            format: [("a".to_string(), TermFormat::parse("config:4-5").unwrap())].into(),
            ..Pmu::default()
        };
        assert_eq!(pmu.encode(&[("a", 2)]), Ok([0x20, 0, 0]));
        assert!(pmu.encode(&[("a", 4)]).is_err() && pmu.encode(&[("b", 1)]).is_err());
        assert_eq!((pmu.mask("a"), pmu.mask("b")), (0x30, 0));
    }
}
