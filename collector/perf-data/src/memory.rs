//! Memory samples: the level of memory that served an access, from `PERF_SAMPLE_DATA_SRC`.
//!
//! Three sources of samples fill the field: Intel's PEBS, AMD's IBS, and perf itself for Arm's SPE
//! (`perf inject --itrace`). Older kernels set bits for levels, newer ones a number beside them.
//! Values unknown to this reader become [`Level::Unknown`].
//!
//! Samples do not always represent all loads: PEBS can be configured to sample only loads above a
//! latency, and IBS samples cycles by default. [`Drawn`] names the sampled population.

use crate::header::{Attr, AttrWithIds};
use crate::sample::Sample;
use crate::{u32_at, u64_at, zero_terminated_text};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Load.
    Load,
    /// Store.
    Store,
    /// Software prefetch.
    Prefetch,
    /// Instruction fetch.
    Execute,
    /// A load or store, unknown which.
    Unknown,
}

impl Operation {
    /// The column's text.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Store => "store",
            Operation::Prefetch => "prefetch",
            Operation::Execute => "execute",
            Operation::Unknown => "unknown",
        }
    }
}

/// Level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// First-level cache.
    L1,
    /// A buffer of the first level, while the line was being fetched.
    FillBuffer,
    /// Second-level cache.
    L2,
    /// A buffer of the second level, while the line was being fetched.
    L2FillBuffer,
    /// Third-level cache.
    L3,
    /// Fourth-level cache.
    L4,
    /// Cache at the memory's side.
    MemorySide,
    /// Some cache.
    AnyCache,
    /// Cache of another core or socket.
    RemoteCache,
    /// Memory of this node.
    Memory,
    /// Memory of another node.
    RemoteMemory,
    /// Persistent memory.
    Persistent,
    /// Memory behind a CXL link.
    Cxl,
    /// A device.
    Device,
    /// Memory that is not cached.
    Uncached,
    /// A level beyond this one: 1, 2 or 3.
    Past(u8),
    /// The sample has no level, or one unknown to this reader.
    Unknown,
}

impl Level {
    /// The column's text.
    pub fn name(self) -> &'static str {
        match self {
            Level::L1 => "L1",
            Level::FillBuffer => "fill buffer",
            Level::L2 => "L2",
            Level::L2FillBuffer => "L2 fill buffer",
            Level::L3 => "L3",
            Level::L4 => "L4",
            Level::MemorySide => "memory-side cache",
            Level::AnyCache => "some cache",
            Level::RemoteCache => "remote cache",
            Level::Memory => "memory",
            Level::RemoteMemory => "remote memory",
            Level::Persistent => "persistent memory",
            Level::Cxl => "CXL memory",
            Level::Device => "device",
            Level::Uncached => "uncached",
            Level::Past(1) => "past L1",
            Level::Past(2) => "past L2",
            Level::Past(_) => "past L3",
            Level::Unknown => "unknown",
        }
    }
}

/// Bits of `mem_lvl`.
mod level {
    pub const HIT: u64 = 1 << 1;
    pub const MISS: u64 = 1 << 2;
    pub const L1: u64 = 1 << 3;
    pub const FILL_BUFFER: u64 = 1 << 4;
    pub const L2: u64 = 1 << 5;
    pub const L3: u64 = 1 << 6;
    pub const MEMORY: u64 = 1 << 7;
    pub const REMOTE_MEMORY_1: u64 = 1 << 8;
    pub const REMOTE_MEMORY_2: u64 = 1 << 9;
    pub const REMOTE_CACHE_1: u64 = 1 << 10;
    pub const REMOTE_CACHE_2: u64 = 1 << 11;
    pub const DEVICE: u64 = 1 << 12;
    pub const UNCACHED: u64 = 1 << 13;
    /// All bits that name a level.
    pub const PLACES: u64 = 0x3ff8;
}

/// Value of `PERF_SAMPLE_DATA_SRC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    fn field(self, shift: u32, width: u32) -> u64 {
        self.0 >> shift & ((1 << width) - 1)
    }

    /// Kind of the access; `None` if the sampled instruction accesses no memory, or if the kind is
    /// unknown.
    pub fn operation(self) -> Option<Operation> {
        match self.field(0, 5) & !1 {
            0 => None,
            2 => Some(Operation::Load),
            4 => Some(Operation::Store),
            8 => Some(Operation::Prefetch),
            16 => Some(Operation::Execute),
            _ => Some(Operation::Unknown),
        }
    }

    /// Level that served the access.
    pub fn level(self) -> Level {
        const NONE: u64 = 15;
        let bits = self.field(5, 14);
        let missed = bits & level::MISS != 0 && bits & level::HIT == 0;
        match (self.field(33, 4), missed) {
            (0 | NONE, missed) => by_bits(bits, missed, self.is_remote() == Some(true)),
            (number @ 1..=3, true) => Level::Past(number as u8),
            (_, true) => Level::Unknown,
            (number, false) => by_number(number, self.is_remote() == Some(true)),
        }
    }

    /// True if another core, node or socket served the access; `None` if unknown. (The bit is new,
    /// so its absence is meaningful only together with a level number.)
    pub fn is_remote(self) -> Option<bool> {
        let old = level::REMOTE_MEMORY_1
            | level::REMOTE_MEMORY_2
            | level::REMOTE_CACHE_1
            | level::REMOTE_CACHE_2;
        if self.field(37, 1) == 1 || self.field(5, 14) & old != 0 {
            return Some(true);
        }
        let tells =
            !matches!(self.level_number(), 0 | 15) || self.field(5, 14) & level::PLACES != 0;
        tells.then_some(false)
    }

    fn level_number(self) -> u64 {
        self.field(33, 4)
    }

    /// Distance of a remote source: 0 another core of the node, 1 another node of the socket, 2
    /// another socket of the board, 3 another board.
    pub fn hops(self) -> Option<u8> {
        let hops = self.field(43, 3);
        (1..=4).contains(&hops).then(|| hops as u8 - 1)
    }

    /// Result of the snoop of other caches: `none`, `hit`, `miss`, `hitm` (modified there),
    /// `forward` or `peer`.
    pub fn snoop(self) -> Option<&'static str> {
        let (old, new) = (self.field(19, 5), self.field(38, 2));
        match (old & !1, new) {
            (hitm, _) if hitm & 16 != 0 => Some("hitm"),
            (_, forward) if forward & 1 != 0 => Some("forward"),
            (_, peer) if peer & 2 != 0 => Some("peer"),
            (2, _) => Some("none"),
            (4, _) => Some("hit"),
            (8, _) => Some("miss"),
            _ => None,
        }
    }

    /// True if the access was locked.
    pub fn locked(self) -> Option<bool> {
        match self.field(24, 2) {
            2 => Some(true),
            0 => Some(false),
            _ => None,
        }
    }

    /// Result of the translation: `hit` or `miss`, after the levels involved.
    pub fn tlb(self) -> Option<String> {
        let bits = self.field(26, 7);
        let result = match bits & 6 {
            2 => "hit",
            4 => "miss",
            _ => return None,
        };
        let levels = [(8, "L1"), (16, "L2"), (32, "walker"), (64, "fault")];
        let named = levels.iter().filter(|(bit, _)| bits & bit != 0);
        let names: Vec<&str> = named.map(|(_, name)| *name).collect();
        Some(match names.is_empty() {
            true => result.to_owned(),
            false => format!("{} {result}", names.join(" or ")),
        })
    }

    /// Reason why a load was held up: `data` or `address` of an earlier store was not known.
    pub fn blocked(self) -> Option<&'static str> {
        match self.field(40, 3) & !1 {
            2 => Some("data"),
            4 => Some("address"),
            6 => Some("data and address"),
            _ => None,
        }
    }
}

/// Level by the number that newer kernels give.
fn by_number(number: u64, remote: bool) -> Level {
    match (number, remote) {
        (1..=4 | 11, true) => Level::RemoteCache,
        (13, true) => Level::RemoteMemory,
        (1, _) => Level::L1,
        (2, _) => Level::L2,
        (3, _) => Level::L3,
        (4, _) => Level::L4,
        (5, _) => Level::L2FillBuffer,
        (6, _) => Level::MemorySide,
        (8, _) => Level::Uncached,
        (9, _) => Level::Cxl,
        (10, _) => Level::Device,
        (11, _) => Level::AnyCache,
        (12, _) => Level::FillBuffer,
        (13, _) => Level::Memory,
        (14, _) => Level::Persistent,
        _ => Level::Unknown,
    }
}

/// Level by the bits of older kernels; several levels that hit count as unknown.
fn by_bits(bits: u64, missed: bool, remote: bool) -> Level {
    let place = bits & level::PLACES;
    if missed {
        return match place {
            level::L1 => Level::Past(1),
            level::L2 => Level::Past(2),
            level::L3 => Level::Past(3),
            _ => Level::Unknown,
        };
    }
    match place {
        level::L1 => Level::L1,
        level::FILL_BUFFER => Level::FillBuffer,
        level::L2 => Level::L2,
        level::L3 if remote => Level::RemoteCache,
        level::L3 => Level::L3,
        level::MEMORY if remote => Level::RemoteMemory,
        level::MEMORY => Level::Memory,
        level::REMOTE_MEMORY_1 | level::REMOTE_MEMORY_2 => Level::RemoteMemory,
        level::REMOTE_CACHE_1 | level::REMOTE_CACHE_2 => Level::RemoteCache,
        level::DEVICE => Level::Device,
        level::UNCACHED => Level::Uncached,
        _ => Level::Unknown,
    }
}

/// The population from which samples of an event are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drawn {
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
    /// The population is unknown.
    #[default]
    Unknown,
}

impl Drawn {
    /// The population for an event and the name of its PMU, if the file has it. `spe_filtered`: the
    /// file's SPE recording excluded some operations.
    pub fn of(attr: &Attr, pmu: Option<&str>, name: &str, spe_filtered: bool) -> Drawn {
        const RAW: u32 = 4;
        /// IBS: the counter counts operations, not cycles.
        const IBS_COUNTS_OPERATIONS: u64 = 1 << 19;
        /// IBS: only operations that missed the third level.
        const IBS_L3_MISSES: u64 = 1 << 16;
        /// IBS (Zen 5): only loads above a latency.
        const IBS_LATENCY: u64 = 0xfff;
        // A load from the first level takes four cycles or more on all processors with PEBS.
        const ALL: u64 = 3;
        let core = |pmu: &str| pmu == "cpu" || pmu.starts_with("cpu_");
        match pmu {
            Some("ibs_op")
                if attr.config & IBS_L3_MISSES != 0 || attr.config1 & IBS_LATENCY != 0 =>
            {
                Drawn::Unknown
            }
            Some("ibs_op") if attr.config & IBS_COUNTS_OPERATIONS != 0 => Drawn::Operations,
            Some("ibs_op") => Drawn::Cycles,
            pmu if pmu.is_some_and(core) || pmu.is_none() && attr.pmu == RAW => {
                match attr.config & 0xffff {
                    0x01cd if attr.config1 & 0xffff <= ALL => Drawn::Loads,
                    0x01cd => Drawn::SlowLoads((attr.config1 & 0xffff) as u32),
                    0x81d0 => Drawn::Loads,
                    0x82d0 | 0x02cd => Drawn::Stores,
                    _ => Drawn::Unknown,
                }
            }
            // perf makes samples with this name for all operations that SPE has recorded.
            _ if name == "memory" && !spe_filtered => Drawn::Operations,
            _ => Drawn::Unknown,
        }
    }
}

/// A sample of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// Process; 0 if unknown.
    pub process: u32,
    /// Thread; 0 if unknown.
    pub thread: u32,
    /// Number of the processor.
    pub cpu: Option<u32>,
    /// perf's clock, ns.
    pub time: Option<u64>,
    /// Address of the instruction.
    pub ip: Option<u64>,
    /// The instruction is in the kernel.
    pub in_kernel: bool,
    /// Address of the first accessed byte.
    pub address: Option<u64>,
    /// Physical address of the first accessed byte.
    pub physical: Option<u64>,
    /// Latency, cycles.
    pub latency: Option<u32>,
    /// Source of the data.
    pub source: DataSource,
    /// Kind of the access.
    pub operation: Operation,
    /// Number of events that the sample represents; 0 if unknown.
    pub period: u64,
    /// Number of its event in [`MemorySamples::events`].
    pub event: u32,
}

/// An event whose samples have sources of data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Name; empty if it is not in the file.
    pub name: String,
    /// The accesses that its samples are drawn from.
    pub drawn: Drawn,
}

/// All samples of accesses in a file.
#[derive(Clone, Debug, Default)]
pub struct MemorySamples {
    /// The samples, in the order of the file.
    pub list: Vec<MemorySample>,
    /// The file's events.
    pub events: Vec<MemoryEvent>,
    /// Samples of instructions that access no memory.
    pub of_no_access: u64,
    /// Number of samples dropped because another event has sampled the same access.
    pub repeated: u64,
    /// Nodes of physical memory.
    pub nodes: Nodes,
}

impl MemorySamples {
    /// Adds a sample, if it is of an access. `event`: number of its event; `None` if unknown.
    pub(crate) fn push(&mut self, found: &Sample, misc: u16, event: Option<usize>) {
        const KERNEL: [u16; 2] = [1, 3];
        let Some(source) = found.source.map(DataSource) else {
            return;
        };
        let Some(operation) = source.operation() else {
            self.of_no_access += 1;
            return;
        };
        let (process, thread) = found.identity.task.unwrap_or((0, 0));
        let known = |value: Option<u64>| value.filter(|&value| value != 0);
        self.list.push(MemorySample {
            process,
            thread,
            cpu: found.identity.cpu,
            time: found.identity.time,
            ip: found.ip,
            in_kernel: KERNEL.contains(&(misc & 7)),
            address: known(found.address),
            physical: known(found.physical),
            latency: known(found.weight).and_then(|cycles| u32::try_from(cycles).ok()),
            source,
            operation,
            period: found.period.unwrap_or(0),
            event: event.map_or(u32::MAX, |event| event as u32),
        });
    }

    /// Sets the events from the file's data, and drops repeated samples of one access: perf makes
    /// several if SPE reports several events. The sample of the event with the best known
    /// population is kept.
    pub(crate) fn settle(&mut self, events: &[AttrWithIds], about: &EventNames) {
        self.events = about.events(events);
        // Samples without a period have that of their event.
        for sample in self.list.iter_mut().filter(|s| s.period == 0) {
            let attr = events.get(sample.event as usize).map(|e| e.attr);
            sample.period = attr.filter(|a| !a.is_frequency()).map_or(0, |a| a.period);
        }
        let drawn = |s: &MemorySample| self.events.get(s.event as usize).map(|e| e.drawn);
        let before = self.list.len();
        self.list.dedup_by(|next, kept| {
            let alike = next.event != kept.event
                && next.time.is_some()
                && (next.time, next.process, next.thread, next.cpu)
                    == (kept.time, kept.process, kept.thread, kept.cpu)
                && (next.ip, next.address, next.source) == (kept.ip, kept.address, kept.source);
            if alike && drawn(next) < drawn(kept) {
                *kept = *next;
            }
            alike
        });
        self.repeated += (before - self.list.len()) as u64;
    }

    /// The event of a sample; `None` if unknown.
    pub fn event(&self, sample: &MemorySample) -> Option<&MemoryEvent> {
        self.events.get(sample.event as usize)
    }
}

/// Names of PMUs and events in the header.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventNames {
    /// Names of PMUs, by type.
    pmus: BTreeMap<u32, String>,
    /// Names of events, by id of a counter.
    names: BTreeMap<u64, Arc<str>>,
    /// Names of events in the file's order; `None` for those with ids. perf writes no ids if there
    /// is only one event.
    without_ids: Vec<Option<Arc<str>>>,
}

impl EventNames {
    /// Reads the section of PMUs; false if it is cut off.
    pub(crate) fn read_pmus(&mut self, section: &[u8]) -> bool {
        let (count, mut at) = (u32_at(section, 0).unwrap_or(0), 4);
        for _ in 0..count {
            let Some((pmu, (name, next))) = u32_at(section, at).zip(text_at(section, at + 4))
            else {
                return false;
            };
            self.pmus.insert(pmu, name);
            at = next;
        }
        section.len() >= 4
    }

    /// Reads the section of events; false if it is cut off.
    pub(crate) fn read_events(&mut self, section: &[u8]) -> bool {
        let (count, size) = (
            u32_at(section, 0).unwrap_or(0),
            u32_at(section, 4).unwrap_or(0),
        );
        let mut at = 8usize;
        for _ in 0..count {
            let Some(next) = self.read_event(section, at.saturating_add(size as usize)) else {
                return false;
            };
            at = next;
        }
        section.len() >= 8
    }

    /// Reads the data behind an attribute. Returns the offset of the next one.
    fn read_event(&mut self, section: &[u8], at: usize) -> Option<usize> {
        let ids = u32_at(section, at)? as usize;
        let (name, from) = text_at(section, at + 4)?;
        let name: Arc<str> = name.into();
        let to = from.checked_add(ids.checked_mul(8)?)?;
        self.without_ids.push((ids == 0).then(|| name.clone()));
        let ids = section.get(from..to)?.chunks_exact(8);
        self.names
            .extend(ids.filter_map(|id| Some((u64_at(id, 0)?, name.clone()))));
        Some(to)
    }

    /// The events of a file.
    fn events(&self, events: &[AttrWithIds]) -> Vec<MemoryEvent> {
        let pmu = |attr: &Attr| self.pmus.get(&attr.pmu).map(String::as_str);
        let is_spe = |attr: &Attr| pmu(attr).is_some_and(|name| name.starts_with("arm_spe"));
        let filtered = events
            .iter()
            .any(|e| is_spe(&e.attr) && (e.attr.config1 | e.attr.config2 | e.attr.config3) != 0);
        // Positions identify events only if no event has ids.
        let places = Some(&self.without_ids).filter(|places| places.len() == events.len());
        let by_place = |place: usize| places?.get(place)?.as_ref();
        let event = |(place, event): (usize, &AttrWithIds)| {
            let name = event.ids.iter().find_map(|id| self.names.get(id));
            let name = name.or_else(|| by_place(place).filter(|_| event.ids.is_empty()));
            let name = name.map_or_else(String::new, |name| name.to_string());
            MemoryEvent {
                drawn: Drawn::of(&event.attr, pmu(&event.attr), &name, filtered),
                name,
            }
        };
        events.iter().enumerate().map(event).collect()
    }
}

/// A text with its length before it, and the offset behind it.
fn text_at(section: &[u8], at: usize) -> Option<(String, usize)> {
    let from = at.checked_add(4)?;
    let to = from.checked_add(u32_at(section, at)? as usize)?;
    Some((zero_terminated_text(section.get(from..to)?), to))
}

/// Blocks of physical memory and the NUMA nodes that they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    block: u64,
    /// Nodes, and a bit set of the blocks of each.
    blocks: Vec<(u32, Vec<u64>)>,
}

/// Linux has 1,024 nodes at most.
const MAX_NODES: u64 = 1024;

impl Nodes {
    /// Reads the section; `None` if it is invalid.
    pub(crate) fn read(section: &[u8]) -> Option<Nodes> {
        const VERSION: u64 = 1;
        let word = |n: usize| u64_at(section, n.checked_mul(8)?);
        let (version, block, count) = (word(0)?, word(1)?, word(2)?);
        if version != VERSION || block == 0 || count > MAX_NODES {
            return None;
        }
        let mut blocks = Vec::new();
        let mut at = 3usize;
        for _ in 0..count {
            // A node, the number of its bits, and a list of bits that begins with that number.
            let (node, bits) = (u32::try_from(word(at)?).ok()?, word(at + 2)?);
            let from = at + 3;
            at = from.checked_add(usize::try_from(bits.div_ceil(64)).ok()?)?;
            let bytes = section.get(from * 8..at.checked_mul(8)?)?;
            let words = bytes.chunks_exact(8).filter_map(|word| u64_at(word, 0));
            blocks.push((node, words.collect()));
        }
        Some(Nodes { block, blocks })
    }

    /// The node of a physical address, if the file has it.
    pub fn of(&self, physical: u64) -> Option<u32> {
        let block = physical.checked_div(self.block)?;
        let word = usize::try_from(block / 64).ok()?;
        let has = |(_, words): &&(u32, Vec<u64>)| {
            words
                .get(word)
                .is_some_and(|word| word >> (block % 64) & 1 == 1)
        };
        self.blocks.iter().find(has).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests;
