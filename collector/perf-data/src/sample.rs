//! The fields of samples, and of the identity at the end of other records.

use crate::header::Attr;
use crate::{u32_at, u64_at};
use mgz_perf::records::bits;

/// Thread, CPU and time, if a record has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process and thread.
    pub task: Option<(u32, u32)>,
    /// Time on perf's clock, ns.
    pub time: Option<u64>,
    /// Id of the counter.
    pub id: Option<u64>,
    /// Number of the CPU.
    pub cpu: Option<u32>,
}

/// The used fields of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Thread, CPU and time.
    pub identity: Identity,
    /// Events since the counter's previous sample.
    pub period: Option<u64>,
    /// Address of the next instruction.
    pub ip: Option<u64>,
    /// Address of the first byte that the instruction accesses.
    pub address: Option<u64>,
    /// Physical address of the first accessed byte.
    pub physical: Option<u64>,
    /// Latency of the access, cycles.
    pub weight: Option<u64>,
    /// Source of the accessed data (`PERF_SAMPLE_DATA_SRC`).
    pub source: Option<u64>,
    /// The call chain's words, as a range of the record's body.
    pub callchain: Option<std::ops::Range<usize>>,
    /// Branch records, likewise.
    pub branches: Option<std::ops::Range<usize>>,
    /// Registers of user code that the attribute names, likewise; of 64-bit code only.
    pub registers: Option<std::ops::Range<usize>>,
    /// A copy of the user's stack from the stack pointer on, likewise.
    pub stack: Option<std::ops::Range<usize>>,
    /// AUX data, as a range of the record's body.
    pub aux: Option<std::ops::Range<usize>>,
    /// Bytes behind the last field.
    pub rest: usize,
}

/// A cursor over the fields of a body. Its methods return `None` if a field does not fit.
struct Walk<'a> {
    body: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn word(&mut self) -> Option<u64> {
        let word = u64_at(self.body, self.at)?;
        self.at += 8;
        Some(word)
    }

    /// Skips bytes, which must be there.
    fn skip(&mut self, bytes: u64) -> Option<()> {
        let to = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (to <= self.body.len()).then(|| self.at = to)
    }

    fn words(&mut self, count: u64) -> Option<()> {
        self.skip(count.checked_mul(8)?)
    }

    fn pair(&mut self) -> Option<(u32, u32)> {
        let word = self.word()?;
        Some((word as u32, (word >> 32) as u32))
    }

    /// Counter values.
    fn read(&mut self, format: u64) -> Option<()> {
        let has = |bit: u64| u64::from(format & bit != 0);
        let (times, id, lost) = (has(1) + has(2), has(4), has(16));
        if format & 8 == 0 {
            return self.words(1 + times + id + lost);
        }
        let count = self.word()?;
        self.words(times)?;
        self.words(count.checked_mul(1 + id + lost)?)
    }

    fn registers(&mut self, which: u64) -> Option<()> {
        if self.word()? == 0 {
            return Some(());
        }
        self.words(u64::from(which.count_ones()))
    }
}

/// ABI value before the registers of 64-bit code.
const REGISTERS_64: u64 = 2;

/// Reads a sample's body; `None` if it contradicts its attribute.
pub fn sample(attr: &Attr, body: &[u8]) -> Option<Sample> {
    let mut walk = Walk { body, at: 0 };
    let mut sample = Sample::default();
    walk.numbers(attr, &mut sample)?;
    walk.lists(attr, &mut sample)?;
    walk.rest(attr, &mut sample)?;
    sample.rest = body.len() - walk.at;
    Some(sample)
}

impl Walk<'_> {
    /// The fields up to the counters' values.
    fn numbers(&mut self, attr: &Attr, sample: &mut Sample) -> Option<()> {
        let has = |bit: u64| attr.sample_type & bit != 0;
        let who = &mut sample.identity;
        if has(bits::IDENTIFIER) {
            who.id = Some(self.word()?);
        }
        if has(bits::IP) {
            sample.ip = Some(self.word()?);
        }
        if has(bits::TID) {
            who.task = Some(self.pair()?);
        }
        if has(bits::TIME) {
            who.time = Some(self.word()?);
        }
        if has(bits::ADDR) {
            sample.address = Some(self.word()?);
        }
        if has(bits::ID) {
            who.id = Some(self.word()?);
        }
        if has(bits::STREAM_ID) {
            self.word()?;
        }
        if has(bits::CPU) {
            who.cpu = Some(self.pair()?.0);
        }
        if has(bits::PERIOD) {
            sample.period = Some(self.word()?);
        }
        if has(bits::READ) {
            self.read(attr.read_format)?;
        }
        Some(())
    }

    /// The fields from the call chain to the user's stack.
    fn lists(&mut self, attr: &Attr, sample: &mut Sample) -> Option<()> {
        const HW_INDEX: u64 = 1 << 17;
        const COUNTERS: u64 = 1 << 19;
        let has = |bit: u64| attr.sample_type & bit != 0;
        if has(bits::CALLCHAIN) {
            let count = self.word()?;
            let from = self.at;
            self.words(count)?;
            sample.callchain = Some(from..self.at);
        }
        if has(bits::RAW) {
            let size = u32_at(self.body, self.at)?;
            // The size field and the data together are padded to whole words.
            self.skip((u64::from(size) + 4).next_multiple_of(8))?;
        }
        if has(bits::BRANCH_STACK) {
            let count = self.word()?;
            if attr.branch_sample_type & HW_INDEX != 0 {
                self.word()?;
            }
            let from = self.at;
            self.words(count.checked_mul(3)?)?;
            sample.branches = Some(from..self.at);
            if attr.branch_sample_type & COUNTERS != 0 {
                self.words(count)?;
            }
        }
        if has(bits::REGS_USER) {
            let from = self.at;
            self.registers(attr.regs_user)?;
            let is_64 = u64_at(self.body, from) == Some(REGISTERS_64);
            sample.registers = is_64.then_some(from + 8..self.at);
        }
        if has(bits::STACK_USER) {
            let size = self.word()?;
            if size > 0 {
                let from = self.at;
                self.skip(size)?;
                let (to, filled) = (self.at, self.word()?);
                let filled = usize::try_from(filled).unwrap_or(usize::MAX);
                sample.stack = Some(from..from.saturating_add(filled).min(to));
            }
        }
        Some(())
    }

    /// The fields behind the user's stack.
    fn rest(&mut self, attr: &Attr, sample: &mut Sample) -> Option<()> {
        let has = |bit: u64| attr.sample_type & bit != 0;
        if has(bits::WEIGHT | bits::WEIGHT_STRUCT) {
            let word = self.word()?;
            // The structure's first half is the latency, or its part beyond the first level.
            let is_structure = has(bits::WEIGHT_STRUCT);
            sample.weight = Some(if is_structure {
                word & 0xffff_ffff
            } else {
                word
            });
        }
        if has(bits::DATA_SRC) {
            sample.source = Some(self.word()?);
        }
        if has(bits::TRANSACTION) {
            self.word()?;
        }
        if has(bits::REGS_INTR) {
            self.registers(attr.regs_intr)?;
        }
        if has(bits::PHYS_ADDR) {
            sample.physical = Some(self.word()?);
        }
        for bit in [bits::CGROUP, bits::DATA_PAGE_SIZE, bits::CODE_PAGE_SIZE] {
            if has(bit) {
                self.word()?;
            }
        }
        if has(bits::AUX) {
            let size = self.word()?;
            let from = self.at;
            self.skip(size)?;
            sample.aux = Some(from..self.at);
        }
        Some(())
    }
}

/// Reads the identity at the end of another record's body.
pub fn identity(attr: &Attr, body: &[u8]) -> Identity {
    let mut who = Identity::default();
    if !attr.sample_id_all() {
        return who;
    }
    let mut end = body.len();
    let mut word = || {
        end = end.checked_sub(8)?;
        u64_at(body, end)
    };
    let pair = |word: u64| (word as u32, (word >> 32) as u32);
    let has = |bit: u64| attr.sample_type & bit != 0;
    if has(bits::IDENTIFIER) {
        who.id = word();
    }
    if has(bits::CPU) {
        who.cpu = word().map(|w| pair(w).0);
    }
    if has(bits::STREAM_ID) {
        word();
    }
    if has(bits::ID) {
        who.id = word();
    }
    if has(bits::TIME) {
        who.time = word();
    }
    if has(bits::TID) {
        who.task = word().map(pair);
    }
    who
}

/// Position of the counter's id, by which the right attribute is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPlace {
    /// Offset in a sample's body.
    pub sample: usize,
    /// Offset from the end of another record's body.
    pub other: usize,
}

impl IdPlace {
    /// The position for an attribute; `None` if its records have no id.
    pub fn of(attr: &Attr) -> Option<IdPlace> {
        let has = |bit: u64| attr.sample_type & bit != 0;
        if has(bits::IDENTIFIER) {
            return Some(IdPlace {
                sample: 0,
                other: 8,
            });
        }
        if !has(bits::ID) {
            return None;
        }
        let count = |bits: &[u64]| bits.iter().filter(|&&bit| has(bit)).count() * 8;
        Some(IdPlace {
            sample: count(&[bits::IP, bits::TID, bits::TIME, bits::ADDR]),
            other: 8 + count(&[bits::CPU, bits::STREAM_ID]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn aux_data_is_found_behind_every_other_field() {
        let all = (1u64 << 25) - 1 - bits::WEIGHT_STRUCT;
        let attr = Attr {
            sample_type: all,
            read_format: 0x1f,
            branch_sample_type: 1 << 17 | 1 << 19,
            regs_user: 0b101,
            regs_intr: 0b1,
            ..Attr::default()
        };
        let mut body = words(&[77, 0x1000, 5 | 6 << 32, 123, 0xadd0, 78, 79, 3, 100]);
        body.extend(words(&[2, 1, 1, 10, 11, 12, 20, 21, 22])); // read: nr, times, 2 x (value, id, lost)
        body.extend(words(&[2, 1, 2])); // callchain
        body.extend([12, 0, 0, 0]);
        body.extend([0xee; 12]); // raw
        body.extend(words(&[1, 9, 1, 2, 3, 4])); // branches with index and counters
        body.extend(words(&[1, 1, 2])); // user registers
        body.extend(words(&[16, 0, 0, 16])); // stack
        body.extend(words(&[1, 2, 3])); // weight, data source, transaction
        body.extend(words(&[2, 9])); // interrupted registers
        body.extend(words(&[1, 2, 3, 4])); // physical address, cgroup, page sizes
        body.extend(words(&[8, 0x1122]));
        let sample = sample(&attr, &body).unwrap();
        assert_eq!(
            (sample.aux, sample.rest),
            (Some(body.len() - 8..body.len()), 0)
        );
        assert_eq!(sample.period, Some(100));
        assert_eq!(
            (
                sample.address,
                sample.weight,
                sample.source,
                sample.physical
            ),
            (Some(0xadd0), Some(1), Some(2), Some(1))
        );
        assert_eq!(
            sample.identity,
            Identity {
                task: Some((5, 6)),
                time: Some(123),
                id: Some(78),
                cpu: Some(3)
            }
        );
        for cut in 0..body.len() {
            assert_eq!(super::sample(&attr, &body[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn the_identity_is_read_from_the_end() {
        let attr = Attr {
            sample_type: bits::TID | bits::TIME | bits::CPU | bits::IDENTIFIER,
            flags: 1 << 18,
            ..Attr::default()
        };
        let body = words(&[0xffff, 5 | 6 << 32, 123, 3, 88]);
        assert_eq!(
            identity(&attr, &body),
            Identity {
                task: Some((5, 6)),
                time: Some(123),
                id: Some(88),
                cpu: Some(3)
            }
        );
        assert_eq!(
            identity(&Attr { flags: 0, ..attr }, &body),
            Identity::default()
        );
        assert_eq!(identity(&attr, &body[..4]), Identity::default());
        assert_eq!(
            IdPlace::of(&attr),
            Some(IdPlace {
                sample: 0,
                other: 8
            })
        );
        let by_id = Attr {
            sample_type: bits::IP | bits::TIME | bits::ID | bits::CPU,
            ..attr
        };
        assert_eq!(
            IdPlace::of(&by_id),
            Some(IdPlace {
                sample: 16,
                other: 16
            })
        );
    }
}
