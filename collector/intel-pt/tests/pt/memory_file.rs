//! A writer of perf.data files with memory samples, as `perf mem record` and `perf inject` make
//! them.

use super::file::{attr, pair, words_as_bytes};

pub const IP: u64 = 1;
pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const ADDR: u64 = 1 << 3;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const WEIGHT: u64 = 1 << 14;
pub const DATA_SRC: u64 = 1 << 15;
pub const IDENTIFIER: u64 = 1 << 16;
pub const PHYS_ADDR: u64 = 1 << 19;
pub const WEIGHT_STRUCT: u64 = 1 << 24;
/// Fields of every sample.
pub const EVERY_SAMPLE: u64 = IDENTIFIER | IP | TID | TIME | CPU | ADDR | DATA_SRC;

/// The process of all records.
pub const PID: u32 = 1000;

/// Operation.
pub const LOAD: u64 = 2;
pub const STORE: u64 = 4;
/// Level bits.
pub const HIT: u64 = 2;

/// `PERF_SAMPLE_DATA_SRC` from its fields.
pub fn source(op: u64, bits: u64, number: u64, remote: u64, snoop: u64, tlb: u64) -> u64 {
    op | bits << 5 | snoop << 19 | 1 << 24 | tlb << 26 | number << 33 | remote << 37
}

/// An event: attribute, id of its counter, fields of its samples, name.
struct Event {
    attr: Vec<u8>,
    id: u64,
    fields: u64,
    name: String,
}

/// Values of a sample.
#[derive(Clone, Copy, Default)]
pub struct Values {
    pub ip: u64,
    pub time: u64,
    pub address: u64,
    pub period: u64,
    pub weight: u64,
    pub source: u64,
    pub physical: u64,
    pub kernel: bool,
}

#[derive(Default)]
pub struct MemoryFile {
    events: Vec<Event>,
    pmus: Vec<(u32, String)>,
    data: Vec<u8>,
    nodes: Option<Vec<u64>>,
}

fn text(text: &str) -> Vec<u8> {
    let padded = (text.len() + 1).next_multiple_of(64);
    let mut out = (padded as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(4 + padded, 0);
    out
}

impl MemoryFile {
    /// Adds an event with further fields in its samples; returns its number.
    pub fn event(&mut self, pmu: u32, config: [u64; 2], more: u64, name: &str) -> usize {
        // sample_id_all, and data mappings.
        let mut attr = attr(
            pmu,
            config[0],
            1000,
            EVERY_SAMPLE | more,
            1 << 18 | 1 << 17,
            0,
        );
        attr[56..64].copy_from_slice(&config[1].to_le_bytes());
        let id = 70 + self.events.len() as u64;
        self.events.push(Event {
            attr,
            id,
            fields: EVERY_SAMPLE | more,
            name: name.into(),
        });
        self.events.len() - 1
    }

    /// Samples have times of CLOCK_MONOTONIC (`-k mono`).
    pub fn monotonic(&mut self) {
        for event in &mut self.events {
            event.attr[43] |= 1 << 1;
            event.attr[92] = 1;
        }
    }

    /// Names a PMU.
    pub fn pmu(&mut self, number: u32, name: &str) {
        self.pmus.push((number, name.into()));
    }

    /// Sets the section on memory nodes and their blocks, in words.
    pub fn nodes(&mut self, words: &[u64]) {
        self.nodes = Some(words.to_vec());
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = u16::try_from(8 + body.len()).expect("records are short");
        self.data.extend_from_slice(&kind.to_le_bytes());
        self.data.extend_from_slice(&misc.to_le_bytes());
        self.data.extend_from_slice(&size.to_le_bytes());
        self.data.extend_from_slice(body);
    }

    /// A mapping at time 1.
    pub fn map(&mut self, start: u64, len: u64, offset: u64, path: &str) {
        let mut body = words_as_bytes(&[pair(PID, PID), start, len, offset, 0, 0, 0, pair(5, 2)]);
        body.extend_from_slice(path.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(8), 0);
        // Identity: thread, time, processor, counter.
        body.extend(words_as_bytes(&[pair(PID, PID), 1, 0, 70]));
        self.record(10, 2, &body);
    }

    pub fn sample(&mut self, event: usize, values: Values) {
        let Event { id, fields, .. } = self.events[event];
        let has = |bit: u64| fields & bit != 0;
        let mut words = vec![id, values.ip, pair(PID, PID + 1), values.time];
        words.extend([values.address, 3]);
        words.extend(has(PERIOD).then_some(values.period));
        words.extend(has(WEIGHT | WEIGHT_STRUCT).then_some(values.weight));
        words.push(values.source);
        words.extend(has(PHYS_ADDR).then_some(values.physical));
        let misc = if values.kernel { 1 } else { 2 };
        self.record(9, misc, &words_as_bytes(&words));
    }

    /// The sections behind the records: number and bytes.
    fn sections(&self) -> Vec<(u32, Vec<u8>)> {
        let mut described = [self.events.len() as u32, 120]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>();
        for event in &self.events {
            described.extend_from_slice(&event.attr);
            described.extend_from_slice(&1u32.to_le_bytes());
            described.extend(text(&event.name));
            described.extend(words_as_bytes(&[event.id]));
        }
        let mut pmus = (self.pmus.len() as u32).to_le_bytes().to_vec();
        for (number, name) in &self.pmus {
            pmus.extend_from_slice(&number.to_le_bytes());
            pmus.extend(text(name));
        }
        let mut list = vec![(12, described), (16, pmus)];
        list.extend(self.nodes.iter().map(|words| (22, words_as_bytes(words))));
        list
    }

    /// The file.
    pub fn finish(&self) -> Vec<u8> {
        let ids: Vec<u64> = self.events.iter().map(|e| e.id).collect();
        let attrs_at = 104 + 8 * ids.len() as u64;
        let mut entries = Vec::new();
        for (number, event) in self.events.iter().enumerate() {
            entries.extend_from_slice(&event.attr);
            entries.extend(words_as_bytes(&[104 + 8 * number as u64, 8]));
        }
        let data_at = attrs_at + entries.len() as u64;
        let sections = self.sections();
        let features = sections.iter().fold(0u64, |set, (id, _)| set | 1 << id);
        let mut out = b"PERFILE2".to_vec();
        out.extend(words_as_bytes(&[
            104,
            136,
            attrs_at,
            entries.len() as u64,
            data_at,
            self.data.len() as u64,
            0,
            0,
            features,
            0,
            0,
            0,
        ]));
        out.extend(words_as_bytes(&ids));
        out.extend(entries);
        out.extend_from_slice(&self.data);
        let mut at = out.len() as u64 + 16 * sections.len() as u64;
        for (_, bytes) in &sections {
            out.extend(words_as_bytes(&[at, bytes.len() as u64]));
            at += bytes.len() as u64;
        }
        sections
            .iter()
            .for_each(|(_, bytes)| out.extend_from_slice(bytes));
        out
    }
}
