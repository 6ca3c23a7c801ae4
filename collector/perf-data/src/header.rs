//! File header and event attributes.

use crate::{PerfDataError, array, u32_at, u64_at, zero_terminated_text};
use mgz_perf::records::bits;
use std::ops::Range;

/// The parts of a `perf_event_attr` that determine the layout of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Type number of the PMU.
    pub pmu: u32,
    /// Event number, PMU-specific.
    pub config: u64,
    /// Events between samples, or samples a second.
    pub period: u64,
    /// Fields of samples ([`bits`]).
    pub sample_type: u64,
    /// Layout of counter values.
    pub read_format: u64,
    /// Bit fields (`disabled`, `inherit`, …).
    pub flags: u64,
    /// PMU-specific.
    pub config1: u64,
    /// PMU-specific.
    pub config2: u64,
    /// PMU-specific.
    pub config3: u64,
    /// Content of branch records.
    pub branch_sample_type: u64,
    /// User registers in a sample.
    pub regs_user: u64,
    /// Interrupted registers in a sample.
    pub regs_intr: u64,
    /// Number of the clock, if `flags` say that it was chosen.
    pub clock: u32,
}

/// Bit of [`Attr::flags`]: `clock` holds the number of the chosen clock.
const USE_CLOCK: u64 = 1 << 25;
/// The kernel's number of CLOCK_MONOTONIC.
const CLOCK_MONOTONIC: u32 = 1;

impl Attr {
    /// Reads an attribute; fields that an old file lacks are 0.
    pub fn read(bytes: &[u8]) -> Attr {
        let word = |at| u64_at(bytes, at).unwrap_or(0);
        Attr {
            pmu: u32_at(bytes, 0).unwrap_or(0),
            config: word(8),
            period: word(16),
            sample_type: word(24),
            read_format: word(32),
            flags: word(40),
            config1: word(56),
            config2: word(64),
            config3: word(128),
            branch_sample_type: word(72),
            regs_user: word(80),
            regs_intr: word(96),
            clock: u32_at(bytes, 92).unwrap_or(0),
        }
    }

    /// True if `period` is a frequency.
    pub fn is_frequency(&self) -> bool {
        self.flags >> 10 & 1 == 1
    }

    /// True if times are those of CLOCK_MONOTONIC (`perf record -k mono`).
    pub fn is_monotonic(&self) -> bool {
        self.flags & USE_CLOCK != 0 && self.clock == CLOCK_MONOTONIC
    }

    /// The fields that determine the layout of the event's records. Records of events with equal
    /// fields can be read without knowing which event they belong to.
    pub fn form(&self) -> [u64; 6] {
        let with = |bit: u64, value: u64| {
            if self.sample_type & bit != 0 {
                value
            } else {
                0
            }
        };
        [
            self.sample_type,
            u64::from(self.sample_id_all()),
            with(bits::READ, self.read_format),
            with(bits::BRANCH_STACK, self.branch_sample_type),
            with(bits::REGS_USER, self.regs_user),
            with(bits::REGS_INTR, self.regs_intr),
        ]
    }

    /// True if records other than samples end with an identity.
    pub fn sample_id_all(&self) -> bool {
        self.flags >> 18 & 1 == 1
    }
}

/// An attribute with the ids of its counters.
#[derive(Clone, Debug, Default)]
pub struct AttrWithIds {
    /// The event's attribute.
    pub attr: Attr,
    /// Ids of its counters.
    pub ids: Vec<u64>,
}

/// Parts of the file around the records.
#[derive(Clone, Debug, Default)]
pub struct PerfDataLayout {
    /// Range of the records in the file.
    pub data: Range<usize>,
    /// Events, if they are not among the records.
    pub events: Vec<AttrWithIds>,
    /// The build id section.
    pub build_ids: Range<usize>,
    /// Other sections, by [`feature`], and true if they lie completely in the file.
    pub features: Vec<(u32, Range<usize>, bool)>,
    /// perf was stopped before it completed the header, or the file was cut.
    pub incomplete: bool,
    /// Number of sections and lists of ids that lie outside of the file, or whose stated size is
    /// impossible.
    pub bad_sections: u64,
}

const MAGIC: &[u8; 8] = b"PERFILE2";
/// Magic of the first version.
const OLD_MAGIC: &[u8; 8] = b"PERFFILE";
const PIPE_HEADER: u64 = 16;

/// Sections that perf writes behind the records (pipe form: in records).
pub mod feature {
    #![allow(missing_docs, reason = "the names are perf's")]
    pub const BUILD_ID: u32 = 2;
    pub const HOSTNAME: u32 = 3;
    pub const CPUDESC: u32 = 8;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const PMU_MAPPINGS: u32 = 16;
    pub const MEM_TOPOLOGY: u32 = 22;
}

/// Maximum number of arguments read from a command line; the kernel does not accept more.
const MAX_STRINGS: usize = 1 << 16;

/// The strings of a section: one, or (command line) a number of them. Also true if the section has
/// as many as it announces.
pub fn strings(id: u32, section: &[u8]) -> (Vec<String>, bool) {
    let mut at = 0;
    let mut count = 1;
    if id == feature::CMDLINE {
        count = u32_at(section, 0).map_or(usize::MAX, |n| n as usize);
        at = 4;
    }
    let mut out = Vec::new();
    while out.len() < count.min(MAX_STRINGS) {
        let string = u32_at(section, at)
            .and_then(|length| usize::try_from(length).ok())
            .and_then(|length| section.get(at + 4..at.checked_add(4)?.checked_add(length)?));
        let Some(bytes) = string else { break };
        out.push(zero_terminated_text(bytes));
        at += 4 + bytes.len();
    }
    let whole = out.len() == count;
    (out, whole)
}

/// Reads the header of either form.
pub fn layout(bytes: &[u8]) -> Result<PerfDataLayout, PerfDataError> {
    let magic: [u8; 8] = array(bytes, 0).ok_or(PerfDataError::NotPerfData)?;
    if &magic != MAGIC {
        let is = |of: &[u8; 8]| magic == *of || magic.iter().rev().eq(of.iter());
        return Err(if is(OLD_MAGIC) {
            PerfDataError::OldVersion
        } else if is(MAGIC) {
            PerfDataError::ByteOrder
        } else {
            PerfDataError::NotPerfData
        });
    }
    let word = |at: usize| {
        u64_at(bytes, at).ok_or_else(|| PerfDataError::Damaged("the header is cut off".into()))
    };
    if word(8)? == PIPE_HEADER {
        return Ok(PerfDataLayout {
            data: 16..bytes.len(),
            ..PerfDataLayout::default()
        });
    }
    let section = |at: usize| -> Result<(Range<usize>, bool), PerfDataError> {
        let (offset, size) = (word(at)?, word(at + 8)?);
        let clip = |v: u64| usize::try_from(v).unwrap_or(usize::MAX).min(bytes.len());
        let end = offset.saturating_add(size);
        Ok((clip(offset)..clip(end), end > bytes.len() as u64))
    };
    let entry = usize::try_from(word(16)?)
        .ok()
        .filter(|&size| (80..4096).contains(&size));
    let entry =
        entry.ok_or_else(|| PerfDataError::Damaged("attributes have an impossible size".into()))?;
    let mut bad_sections = 0;
    let (attrs, cut) = section(24)?;
    bad_sections += u64::from(cut || !attrs.len().is_multiple_of(entry));
    let (mut data, mut incomplete) = section(40)?;
    let mut events = Vec::new();
    // Each id is in the file once, so all of them together cannot exceed its size.
    let mut room = bytes.len();
    for chunk in bytes[attrs].chunks_exact(entry) {
        let (fields, ids) = chunk.split_at(entry - 16);
        let (from, size) = (u64_at(ids, 0).unwrap_or(0), u64_at(ids, 8).unwrap_or(0));
        let range = usize::try_from(from)
            .ok()
            .zip(usize::try_from(from.saturating_add(size)).ok());
        let ids = range
            .and_then(|(from, to)| bytes.get(from..to))
            .filter(|ids| ids.len() <= room && ids.len().is_multiple_of(8));
        bad_sections += u64::from(ids.is_none());
        let ids = ids.unwrap_or(&[]);
        room -= ids.len();
        let ids = ids
            .chunks_exact(8)
            .map(|id| u64_at(id, 0).unwrap_or(0))
            .collect();
        events.push(AttrWithIds {
            attr: Attr::read(fields),
            ids,
        });
    }
    let mut build_ids = 0..0;
    let mut features = Vec::new();
    if data.is_empty() && data.start > 0 {
        // perf writes the size when it ends.
        incomplete = true;
        data.end = bytes.len();
    } else if !incomplete {
        let set = word(72)?;
        for (place, id) in (0..64).filter(|id| set >> id & 1 == 1).enumerate() {
            let Ok((range, cut)) = section(data.end + 16 * place) else {
                bad_sections += 1;
                continue;
            };
            bad_sections += u64::from(cut);
            match id {
                feature::BUILD_ID => build_ids = range,
                _ => features.push((id, range, !cut)),
            }
        }
    }
    Ok(PerfDataLayout {
        data,
        events,
        build_ids,
        features,
        incomplete,
        bad_sections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_perf::attr::{Attr as Written, FORMAT_ID, IDENTITY};

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let attr = Written::inherited(8, 0x1234);
        let read = Attr::read(&attr.bytes());
        assert_eq!(
            (
                read.pmu,
                read.config,
                read.sample_type,
                read.read_format,
                read.flags
            ),
            (8, 0x1234, IDENTITY, FORMAT_ID, attr.flags)
        );
        assert!(read.sample_id_all());
    }

    #[test]
    fn what_is_no_perf_data_is_refused_with_a_reason() {
        assert!(matches!(layout(b""), Err(PerfDataError::NotPerfData)));
        assert!(matches!(
            layout(b"\x7fELF....more"),
            Err(PerfDataError::NotPerfData)
        ));
        assert!(matches!(layout(b"2ELIFREP"), Err(PerfDataError::ByteOrder)));
        assert!(matches!(
            layout(b"PERFILE2"),
            Err(PerfDataError::Damaged(_))
        ));
        assert!(matches!(
            layout(b"PERFFILE"),
            Err(PerfDataError::OldVersion)
        ));
        assert!(matches!(
            layout(b"ELIFFREP\x68"),
            Err(PerfDataError::OldVersion)
        ));
        let pipe = layout(b"PERFILE2\x10\0\0\0\0\0\0\0rest").unwrap();
        assert_eq!(pipe.data, 16..20);
    }

    #[test]
    fn strings_are_read_as_far_as_they_go() {
        let of = |list: &[&str], whole| (list.iter().map(|s| s.to_string()).collect(), whole);
        let host = b"\x08\0\0\0host\0\0\0\0";
        assert_eq!(strings(feature::HOSTNAME, host), of(&["host"], true));
        let command = b"\x02\0\0\0\x04\0\0\0perf\x04\0\0\0-a\0\0";
        assert_eq!(
            strings(feature::CMDLINE, command),
            of(&["perf", "-a"], true)
        );
        assert_eq!(
            strings(feature::CMDLINE, &command[..17]),
            of(&["perf"], false)
        );
        for bad in [&b"\xff\xff\xff\xff\xff\xff\xff\xffxx"[..], b"", b"\x01"] {
            assert_eq!(strings(feature::CMDLINE, bad), of(&[], false));
            assert_eq!(strings(feature::HOSTNAME, bad), of(&[], false));
        }
        // As many as the section announces, but not more than the maximum.
        let empty = [&u32::MAX.to_le_bytes()[..], &[0; 4 << 18]].concat();
        let (list, whole) = strings(feature::CMDLINE, &empty);
        assert_eq!((list.len(), whole), (MAX_STRINGS, false));
    }

    /// A file of `entries` attributes, each with the ids at `ids`, and of one section at `section`.
    fn file(entries: u64, ids: (u64, u64), section: (u64, u64)) -> Vec<u8> {
        let words = |list: &[u64]| {
            list.iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let data = 104 + 136 * entries;
        let mut out = MAGIC.to_vec();
        out.extend(words(&[
            104,
            136,
            104,
            136 * entries,
            data,
            8,
            0,
            0,
            1 << feature::HOSTNAME,
        ]));
        out.resize(104, 0);
        for _ in 0..entries {
            out.extend_from_slice(&[0; 120]);
            out.extend(words(&[ids.0, ids.1]));
        }
        out.extend(words(&[0x0008_0000_0000_0044, section.0, section.1]));
        out
    }

    #[test]
    fn sections_and_ids_outside_of_the_file_are_counted() {
        let read = |entries, ids, section| {
            let found = layout(&file(entries, ids, section)).unwrap();
            let ids = found.events.iter().map(|e| e.ids.len()).sum::<usize>();
            let bytes: usize = found.features.iter().map(|f| f.1.len()).sum();
            (found.bad_sections, ids, bytes, found.incomplete)
        };
        assert_eq!(read(2, (104, 16), (104, 16)), (0, 4, 16, false));
        // A section that reaches behind the end, one that begins there, one whose end overflows.
        assert_eq!(read(2, (104, 16), (370, 100)), (1, 4, 30, false));
        assert_eq!(read(2, (104, 16), (1 << 40, 100)), (1, 4, 0, false));
        assert_eq!(read(2, (104, 16), (u64::MAX - 4, 100)), (1, 4, 0, false));
        // Ids behind the end, with a fractional number, and with more bytes than the file.
        assert_eq!(read(2, (1 << 40, 16), (104, 16)), (2, 0, 16, false));
        assert_eq!(read(2, (u64::MAX, 16), (104, 16)), (2, 0, 16, false));
        assert_eq!(read(2, (104, 17), (104, 16)), (2, 0, 16, false));
        let (bad, ids, ..) = read(1000, (0, 136_000), (104, 16));
        assert_eq!((bad, ids), (999, 17_000));
        // The table of sections itself is cut off.
        let whole = file(2, (104, 16), (104, 16));
        assert_eq!(layout(&whole[..whole.len() - 8]).unwrap().bad_sections, 1);
    }
}
