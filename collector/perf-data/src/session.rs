//! One pass over a file: PT data, clocks, threads, mappings.

use crate::callchain::{CallChain, UserStack};
use crate::header::{Attr, AttrWithIds, feature};
use crate::mapping::{Mapping, Spaces};
use crate::memory::{EventNames, MemorySamples, Nodes};
use crate::records::{PerfRecord, RecordBytes, Records};
use crate::sample::{IdPlace, Identity};
use crate::{PerfDataError, header, sample, u32_at, u64_at, zero_terminated_text};
use mgz_perf::records::{bits, kind};
use mgz_pt::ClockSettings;
use std::collections::{BTreeMap, HashMap};

/// Conversion of the time stamp counter to perf's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeConversion {
    shift: u32,
    multiplier: u64,
    zero: u64,
}

impl TimeConversion {
    /// `None` if the numbers are invalid.
    pub fn new(shift: u64, multiplier: u64, zero: u64) -> Option<Self> {
        (shift < 64 && multiplier > 0).then_some(TimeConversion {
            shift: shift as u32,
            multiplier,
            zero,
        })
    }

    /// Nanoseconds on perf's clock.
    pub fn ns(&self, tsc: u64) -> u64 {
        let product = (u128::from(tsc) * u128::from(self.multiplier)) >> self.shift;
        self.zero.wrapping_add(product as u64)
    }
}

/// A stream of PT data: one buffer of the kernel, i.e. one CPU or one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Buffer number of perf.
    Buffer(u64),
    /// CPU, if buffers are not numbered.
    Cpu(u32),
    /// Thread, if the CPU is unknown.
    Thread(u32),
}

/// A window: the AUX data of one sample, or one snapshot.
#[derive(Clone, Debug)]
pub struct AuxWindow<'a> {
    /// The stream of the window.
    pub stream: Stream,
    /// Its number in the file: the `sample` column.
    pub number: u32,
    /// Bytes.
    pub bytes: RecordBytes<'a>,
    /// Thread, CPU and time of the sample.
    pub identity: Identity,
    /// Index into [`Session::sampling`] of the event that took it. `None` for snapshots, and if
    /// unknown.
    pub sampling: Option<usize>,
    /// Events (loads, or ns) since the previous sample of the same counter; 0 if unknown.
    pub period: u64,
    /// Call chain of the sample; `None` if samples have none.
    pub chain: Option<CallChain>,
    /// The thread's stack, if the sample has a copy of it.
    pub stack: Option<UserStack<'a>>,
}

/// A piece of a full trace.
#[derive(Clone, Copy, Debug)]
pub struct AuxSpan<'a> {
    /// Its number in the file: the `sample` column.
    pub number: u32,
    /// Offset in the stream.
    pub offset: u64,
    /// Bytes.
    pub bytes: &'a [u8],
}

/// A full trace's stream.
#[derive(Clone, Debug, Default)]
pub struct FullStream<'a> {
    /// Pieces, in the order of the file.
    pub pieces: Vec<AuxSpan<'a>>,
    /// CPU, if the buffer is one CPU's.
    pub cpu: Option<u32>,
    /// Thread, if the buffer is one thread's.
    pub thread: Option<u32>,
    /// Threads that wrote parts of the stream: `(end offset, start offset, pid, tid)`, by AUX
    /// records of per-thread events.
    pub writers: Vec<(u64, u64, u32, u32)>,
    /// Offsets behind which the kernel reports missing data, ascending.
    pub cuts: Vec<u64>,
}

impl FullStream<'_> {
    /// The thread that wrote the byte at this offset, if known from AUX records, with the number of
    /// the record.
    pub fn writer(&self, at: u64) -> Option<(usize, (u32, u32))> {
        let n = self.writers.partition_point(|(end, ..)| *end <= at);
        self.writers
            .get(n)
            .filter(|(_, start, ..)| *start <= at)
            .map(|&(_, _, pid, tid)| (n, (pid, tid)))
    }
}

/// Counts of losses and unreadable parts in the file outside of PT data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLoss {
    /// The file was cut, or perf did not finish it.
    pub incomplete: bool,
    /// Bytes at the end that do not form a complete record.
    pub cut_bytes: u64,
    /// Reading stopped here.
    pub stopped_at: Option<usize>,
    /// Compressed records that could not be unpacked.
    pub bad_compressed: u64,
    /// Records shorter than their type demands, or samples that contradict their attribute.
    pub bad_records: u64,
    /// Samples with bytes behind the last known field, e.g. of a newer kernel.
    pub odd_samples: u64,
    /// Records of a counter that is in no attribute, or of an unknown counter.
    pub unknown_ids: u64,
    /// Sections of the header that lie outside of the file, or are shorter than announced.
    pub bad_sections: u64,
    /// Samples taken in a virtual machine: ignored, since its processes are unknown here.
    pub guest_samples: u64,
    /// Mappings in virtual machines: ignored.
    pub guest_mappings: u64,
    /// Records that the kernel lost.
    pub lost_records: u64,
    /// Samples that the kernel lost.
    pub lost_samples: u64,
    /// Times that sampling was throttled.
    pub throttled: u64,
    /// AUX records that report lost PT data, because perf did not keep up.
    pub aux_truncated: u64,
    /// Those of them with size 0: the buffer had no room, or filled up at once (Linux before 6.13).
    pub aux_empty: u64,
    /// AUX records with gaps (the tracer was stopped in between).
    pub aux_partial: u64,
    /// AUX records that report data overwritten on purpose (snapshot, sampling).
    pub aux_overwritten: u64,
    /// Errors that perf noted while recording.
    pub noted_errors: u64,
}

/// Event whose count makes the kernel take samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledEvent {
    /// Retired loads.
    Loads,
    /// Nanoseconds of CPU time.
    CpuClock,
    /// Another event.
    Other,
}

/// An event that made the kernel take AUX samples. On hybrid processors each kind of core has its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The counted event.
    pub trigger: SampledEvent,
    /// Initial period: number of trigger events between samples; 0 if the kernel adapts it.
    pub period: u64,
    /// Number of samples with AUX data.
    pub windows: u64,
    /// Sum of the periods of these samples; `None` if one is unknown.
    pub events: Option<u64>,
    /// Shortest and longest period of a sample; 0 without samples.
    pub periods: (u64, u64),
}

impl Sampling {
    fn of(attr: &Attr) -> Sampling {
        const SOFTWARE: u32 = 1;
        let trigger = match (attr.pmu, attr.config) {
            (SOFTWARE, 0 | 1) => SampledEvent::CpuClock,
            // MEM_UOPS_RETIRED.ALL_LOADS and MEM_INST_RETIRED.ALL_LOADS have the same number on all
            // cores with PT.
            (pmu, config) if pmu != SOFTWARE && config & 0xffff == 0x81d0 => SampledEvent::Loads,
            _ => SampledEvent::Other,
        };
        Sampling {
            trigger,
            period: if attr.is_frequency() { 0 } else { attr.period },
            windows: 0,
            events: Some(0),
            periods: (0, 0),
        }
    }

    /// Counts a sample, with its own period if the record has it.
    fn sample(&mut self, own: Option<u64>) -> u64 {
        let period = own.unwrap_or(self.period);
        self.windows += 1;
        let known = Some(period).filter(|&period| period > 0);
        self.events = self.events.zip(known).and_then(|(a, b)| a.checked_add(b));
        let (least, most) = self.periods;
        self.periods = if self.windows == 1 {
            (period, period)
        } else {
            (least.min(period), most.max(period))
        };
        period
    }
}

/// The content of a perf.data file.
#[derive(Debug, Default)]
pub struct Session<'a> {
    /// Windows, in the order of the file.
    pub windows: Vec<AuxWindow<'a>>,
    /// Full traces by stream.
    pub full: BTreeMap<Stream, FullStream<'a>>,
    /// Clock of the PT streams.
    pub clock: ClockSettings,
    /// Conversion to perf's clock.
    pub conversion: Option<TimeConversion>,
    /// Address spaces.
    pub spaces: Spaces,
    /// Names of processes by `(pid, tid)`, with the last name of each.
    pub names: BTreeMap<(u32, u32), String>,
    /// Build ids by path, from the header or from records.
    pub build_ids: BTreeMap<String, String>,
    /// Process of each thread.
    pub process_of: HashMap<u32, u32>,
    /// Losses outside of PT data.
    pub loss: FileLoss,
    /// Number of samples, with AUX data or without.
    pub samples: u64,
    /// Intel PT was recorded, according to the file.
    pub has_pt: bool,
    /// Samples of memory accesses.
    pub memory: MemorySamples,
    /// Events that triggered AUX samples.
    pub sampling: Vec<Sampling>,
    /// Some event of Intel PT was recorded with `ptw`; `None` if unknown.
    pub ptwrites_on: Option<bool>,
    /// The command line of perf.
    pub command: Vec<String>,
    /// Times are those of CLOCK_MONOTONIC.
    pub is_monotonic: bool,
    /// Name of the machine.
    pub host: String,
    /// Name of the machine's processor.
    pub processor: String,
    /// Threads by CPU: `(time, pid, tid)`; the thread ran from this time on.
    switches: HashMap<u32, Vec<(u64, u32, u32)>>,
    /// A number for each of these, see [`Session::turn_at`].
    turns: HashMap<u32, Vec<u32>>,
    snapshot: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    event: Option<usize>,
    /// The counter is that of a virtual machine whose recording was merged into this one.
    guest: bool,
    buffer: Option<u64>,
    cpu: Option<u32>,
    thread: Option<u32>,
}

/// State of the pass.
struct Reader<'a> {
    session: Session<'a>,
    events: Vec<AttrWithIds>,
    names: EventNames,
    /// Number in [`Session::sampling`] of each event.
    samplings: Vec<Option<usize>>,
    counters: HashMap<u64, Counter>,
    place: Option<IdPlace>,
    info: Option<Vec<u64>>,
    writers: Vec<(Stream, u64, u64, u32, u32)>,
    cuts: Vec<(Stream, u64)>,
    number: u32,
    clock_seen: bool,
    /// Events differ in the layout of their records.
    mixed: bool,
    /// Some counter is a virtual machine's.
    has_guests: bool,
}

/// Bit of `misc`: for COMM, the name is that of a new program.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// Bit of `misc`: for SWITCH, the thread leaves the CPU.
const MISC_SWITCH_OUT: u16 = 1 << 13;
/// Bit of `misc`: MMAP2 holds a build id in place of device and inode.
const MISC_BUILD_ID: u16 = 1 << 14;
/// Bit of `misc`: a build id comes with its length.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
/// Bits of `misc` with the processor's mode, and the values for a virtual machine's kernel and for
/// a program in it.
const MISC_CPUMODE: u16 = 7;
const MISC_GUEST: std::ops::RangeInclusive<u16> = 4..=5;
/// Longest build id in records.
const BUILD_ID_BYTES: usize = 20;
const AUXTRACE_INTEL_PT: u32 = 1;
/// Bit of the configuration of Intel PT on every processor that has it (IA32_RTIT_CTL.PTWEn).
const CONFIG_PTW: u64 = 1 << 12;

impl<'a> Session<'a> {
    /// Reads a file of either form, which must contain Intel PT data.
    pub fn read(file: &'a [u8]) -> Result<Session<'a>, PerfDataError> {
        Self::read_all(&[file])
    }

    /// As [`Session::read`], of a recording in several files: that with the header, and others with
    /// further records.
    pub fn read_all(files: &[&'a [u8]]) -> Result<Session<'a>, PerfDataError> {
        let session = Self::read_any(files)?;
        if !session.holds_pt() {
            return Err(PerfDataError::NoIntelPt);
        }
        Ok(session)
    }

    /// As [`Session::read_all`], of a recording of Intel PT, of memory samples, or of both.
    pub fn read_to_import(files: &[&'a [u8]]) -> Result<Session<'a>, PerfDataError> {
        let session = Self::read_any(files)?;
        if !session.holds_pt() && session.memory.list.is_empty() {
            return Err(PerfDataError::NothingToImport);
        }
        Ok(session)
    }

    /// True if Intel PT was recorded.
    pub fn holds_pt(&self) -> bool {
        self.has_pt || !self.windows.is_empty() || !self.full.is_empty()
    }

    /// As [`Session::read_all`], whatever it contains.
    pub fn read_any(files: &[&'a [u8]]) -> Result<Session<'a>, PerfDataError> {
        let (&file, others) = files.split_first().ok_or(PerfDataError::NotPerfData)?;
        let layout = header::layout(file)?;
        let mut reader = Reader {
            session: Session::default(),
            events: Vec::new(),
            names: EventNames::default(),
            samplings: Vec::new(),
            counters: HashMap::new(),
            place: None,
            info: None,
            writers: Vec::new(),
            cuts: Vec::new(),
            number: 0,
            clock_seen: false,
            mixed: false,
            has_guests: false,
        };
        for event in layout.events {
            reader.add_event(event);
        }
        // Each file is compressed separately.
        let parts = std::iter::once((file, layout.data))
            .chain(others.iter().map(|&other| (other, 0..other.len())));
        for (file, range) in parts {
            let mut records = Records::new(file, range);
            for record in records.by_ref() {
                if reader.record(&record).is_none() {
                    reader.session.loss.bad_records += 1;
                }
            }
            let problems = records.problems();
            let loss = &mut reader.session.loss;
            loss.cut_bytes += problems.cut_bytes;
            loss.stopped_at = loss.stopped_at.or(problems.stopped_at);
            loss.bad_compressed += problems.bad_compressed;
        }
        let mut ids = Records::new(file, layout.build_ids);
        for record in ids.by_ref() {
            // The section's records have a header of type 0.
            if reader.build_id(record.misc, &record.body).is_none() {
                reader.session.loss.bad_records += 1;
            }
        }
        let cut = ids.problems().cut_bytes > 0;
        for (id, range, whole) in layout.features {
            let complete = reader.feature(id, &file[range]);
            // Sections outside of the file were already counted with the layout.
            reader.session.loss.bad_sections += u64::from(whole && !complete);
        }
        let loss = &mut reader.session.loss;
        loss.incomplete = layout.incomplete;
        loss.bad_sections += layout.bad_sections + u64::from(cut && layout.bad_sections == 0);
        Ok(reader.finish())
    }

    /// The thread that ran on a CPU at a time, if known.
    pub fn thread_at(&self, cpu: u32, time: u64) -> Option<(u32, u32)> {
        let list = self.switches.get(&cpu)?;
        let at = list
            .partition_point(|(from, ..)| *from <= time)
            .checked_sub(1)?;
        Some((list[at].1, list[at].2))
    }

    /// Number of the turn on a CPU at a time. Two times have the same number only if, as far as
    /// known, the same thread ran there at both and neither left the CPU nor was replaced in
    /// between.
    pub fn turn_at(&self, cpu: u32, time: u64) -> Option<u32> {
        let list = self.switches.get(&cpu)?;
        let at = list
            .partition_point(|(from, ..)| *from <= time)
            .checked_sub(1)?;
        self.turns.get(&cpu)?.get(at).copied()
    }

    /// Numbers the turns of each CPU.
    fn number_turns(&mut self) {
        let mut places: HashMap<(u32, u32), Vec<(u64, u32)>> = HashMap::new();
        for (&cpu, list) in &self.switches {
            list.iter().for_each(|&(time, pid, tid)| {
                places.entry((pid, tid)).or_default().push((time, cpu))
            });
        }
        places.values_mut().for_each(|list| list.sort_unstable());
        for (&cpu, list) in &self.switches {
            let mut turns: Vec<u32> = Vec::with_capacity(list.len());
            for (at, &(time, pid, tid)) in list.iter().enumerate() {
                let stayed = at
                    .checked_sub(1)
                    .map(|before| list[before])
                    .is_some_and(|before| {
                        let all = places.get(&(pid, tid)).map_or(&[][..], Vec::as_slice);
                        let between = &all[all.partition_point(|p| p.0 < before.0)
                            ..all.partition_point(|p| p.0 <= time)];
                        (before.1, before.2) == (pid, tid) && between.iter().all(|p| p.1 == cpu)
                    });
                turns.push(turns.last().map_or(0, |last| last + u32::from(!stayed)));
            }
            self.turns.insert(cpu, turns);
        }
    }

    /// True if more than one thread ran on a CPU.
    pub fn is_shared(&self, cpu: u32) -> bool {
        self.switches
            .get(&cpu)
            .is_some_and(|list| list.iter().any(|s| s.2 != list[0].2))
    }

    /// True if PT data is a full trace, without windows or snapshots.
    pub fn is_full(&self) -> bool {
        self.windows.is_empty() && !self.snapshot
    }

    /// True if the full trace consists of snapshots, which may overlap.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot
    }
}

fn known(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|&v| v != u32::MAX)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl<'a> Reader<'a> {
    fn add_event(&mut self, event: AttrWithIds) {
        let number = self.events.len();
        for id in &event.ids {
            self.counters.entry(*id).or_default().event = Some(number);
        }
        if self.place.is_none() {
            self.place = IdPlace::of(&event.attr);
        }
        let samples = event.attr.sample_type & bits::AUX != 0;
        self.samplings
            .push(samples.then_some(self.session.sampling.len()));
        if samples {
            self.session.sampling.push(Sampling::of(&event.attr));
        }
        if self
            .events
            .first()
            .is_some_and(|first| first.attr.form() != event.attr.form())
        {
            self.mixed = true;
        }
        self.events.push(event);
    }

    /// The attribute that describes a record. Records with an unknown one are counted.
    fn attr(&mut self, record: &PerfRecord<'_>) -> Option<Attr> {
        let first = self.events.first().map(|e| e.attr);
        if first.is_some() && !self.mixed {
            return first;
        }
        let found = match self.id(record) {
            // Records that perf synthesizes (mappings of running processes) have the id 0.
            Some(0) if !self.counters.contains_key(&0) => first,
            id => id
                .and_then(|id| self.counters.get(&id)?.event)
                .and_then(|number| self.events.get(number))
                .map(|e| e.attr),
        };
        self.session.loss.unknown_ids += u64::from(found.is_none());
        found
    }

    /// The counter id of a record, at the position for this file.
    fn id(&self, record: &PerfRecord<'_>) -> Option<u64> {
        let place = self.place?;
        let at = if record.kind == kind::SAMPLE {
            Some(place.sample)
        } else {
            record.body.len().checked_sub(place.other)
        };
        at.and_then(|at| u64_at(&record.body, at))
    }

    /// True if a record of the kernel concerns a virtual machine. Samples and mappings of those are
    /// counted.
    fn is_guest(&mut self, record: &PerfRecord<'_>) -> bool {
        let by_mode = MISC_GUEST.contains(&(record.misc & MISC_CPUMODE))
            && matches!(record.kind, kind::SAMPLE | kind::MMAP | kind::MMAP2);
        let guest = by_mode
            || self.has_guests
                && record.kind < kind::USER_FIRST
                && self
                    .id(record)
                    .and_then(|id| self.counters.get(&id))
                    .is_some_and(|counter| counter.guest);
        if guest {
            match record.kind {
                kind::SAMPLE => self.session.loss.guest_samples += 1,
                kind::MMAP | kind::MMAP2 => self.session.loss.guest_mappings += 1,
                _ => {}
            }
        }
        guest
    }

    fn identity(&mut self, record: &PerfRecord<'_>) -> Identity {
        self.attr(record)
            .map(|attr| sample::identity(&attr, &record.body))
            .unwrap_or_default()
    }

    /// Handles a record; `None` if it is malformed.
    fn record(&mut self, record: &PerfRecord<'a>) -> Option<()> {
        let body = &record.body[..];
        let pair = || u32_at(body, 0).zip(u32_at(body, 4));
        if self.is_guest(record) {
            return Some(());
        }
        match record.kind {
            kind::SAMPLE => self.sample(record)?,
            kind::MMAP | kind::MMAP2 => self.mapping(record)?,
            kind::COMM => {
                let (pid, tid) = pair()?;
                let time = self.identity(record).time.unwrap_or(0);
                self.session.process_of.insert(tid, pid);
                self.session
                    .names
                    .insert((pid, tid), zero_terminated_text(&body[8..]));
                if record.misc & MISC_COMM_EXEC != 0 {
                    self.session.spaces.exec(pid, time);
                }
            }
            kind::FORK => {
                let (pid, parent) = pair()?;
                let (tid, time) = (u32_at(body, 8)?, u64_at(body, 16)?);
                self.session.process_of.insert(tid, pid);
                self.session.spaces.fork(pid, parent, time);
            }
            kind::ITRACE_START => {
                let (pid, tid) = pair()?;
                let who = self.identity(record);
                self.session.process_of.insert(tid, pid);
                self.running(who, pid, tid);
            }
            kind::SWITCH | kind::SWITCH_CPU_WIDE if record.misc & MISC_SWITCH_OUT == 0 => {
                let who = self.identity(record);
                if let Some((pid, tid)) = who.task {
                    self.running(who, pid, tid);
                }
            }
            kind::SWITCH_CPU_WIDE => {
                let (pid, tid) = pair()?;
                let who = self.identity(record);
                self.running(who, pid, tid);
            }
            kind::AUX => self.aux(record)?,
            kind::LOST => self.session.loss.lost_records += u64_at(body, 8)?,
            kind::LOST_SAMPLES => self.session.loss.lost_samples += u64_at(body, 0)?,
            kind::THROTTLE => self.session.loss.throttled += 1,
            kind::AUXTRACE_ERROR => self.session.loss.noted_errors += 1,
            kind::HEADER_ATTR => {
                let size = u32_at(body, 4)? as usize;
                let size = if size == 0 { 64 } else { size };
                let ids = body
                    .get(size..)?
                    .chunks_exact(8)
                    .filter_map(|id| u64_at(id, 0))
                    .collect();
                self.add_event(AttrWithIds {
                    attr: Attr::read(&body[..size]),
                    ids,
                });
            }
            kind::ID_INDEX => self.id_index(body)?,
            kind::AUXTRACE_INFO if u32_at(body, 0)? == AUXTRACE_INTEL_PT => {
                let words = body.get(8..)?.chunks_exact(8).filter_map(|w| u64_at(w, 0));
                self.info = Some(words.collect());
            }
            kind::AUXTRACE => self.piece(record)?,
            kind::TIME_CONV => {
                let conversion =
                    TimeConversion::new(u64_at(body, 0)?, u64_at(body, 8)?, u64_at(body, 16)?);
                if !self.clock_seen {
                    self.session.conversion = conversion;
                }
            }
            kind::BUILD_ID => self.build_id(record.misc, body)?,
            kind::HEADER_FEATURE => {
                let (id, section) = (u64_at(body, 0)? as u32, &body[8..]);
                let complete = self.feature(id, section);
                self.session.loss.bad_sections += u64::from(!complete);
            }
            _ => {}
        }
        Some(())
    }

    fn running(&mut self, who: Identity, pid: u32, tid: u32) {
        if let (Some(cpu), Some(time)) = (who.cpu, who.time) {
            self.session
                .switches
                .entry(cpu)
                .or_default()
                .push((time, pid, tid));
        }
    }

    /// Handles a section, as far as it is complete; false if it is not.
    fn feature(&mut self, id: u32, section: &[u8]) -> bool {
        match id {
            feature::EVENT_DESC => return self.names.read_events(section),
            feature::PMU_MAPPINGS => return self.names.read_pmus(section),
            feature::MEM_TOPOLOGY => {
                let nodes = Nodes::read(section);
                let is_whole = nodes.is_some();
                self.session.memory.nodes = nodes.unwrap_or_default();
                return is_whole;
            }
            feature::HOSTNAME | feature::CPUDESC | feature::CMDLINE => {}
            _ => return true,
        }
        let (mut strings, whole) = header::strings(id, section);
        match id {
            feature::HOSTNAME => self.session.host = strings.pop().unwrap_or_default(),
            feature::CPUDESC => self.session.processor = strings.pop().unwrap_or_default(),
            feature::CMDLINE => self.session.command = strings,
            _ => {}
        }
        whole
    }

    fn next_number(&mut self) -> u32 {
        let number = self.number;
        self.number = self.number.saturating_add(1);
        number
    }

    fn sample(&mut self, record: &PerfRecord<'a>) -> Option<()> {
        let Some(attr) = self.attr(record) else {
            return Some(());
        };
        let found = sample::sample(&attr, &record.body)?;
        self.session.samples += 1;
        self.session.loss.odd_samples += u64::from(found.rest > 0);
        if found.source.is_some() {
            let event = match found.identity.id.and_then(|id| self.counters.get(&id)) {
                Some(counter) => counter.event,
                None => Some(0).filter(|_| self.events.len() == 1),
            };
            self.session.memory.push(&found, record.misc, event);
        }
        let Some(aux) = found.aux.clone() else {
            return Some(());
        };
        let chain = CallChain::of(&attr, &found, &record.body, record.misc);
        let stack = UserStack::of(&attr, &found, &record.body);
        let sampling = self.sampling(found.identity.id);
        let period = match sampling.and_then(|n| self.session.sampling.get_mut(n)) {
            Some(sampling) => sampling.sample(found.period),
            None => found.period.unwrap_or(0),
        };
        let bytes = match &record.body {
            RecordBytes::File(body) => RecordBytes::File(&body[aux]),
            RecordBytes::Unpacked(body) => RecordBytes::Unpacked(body[aux].into()),
        };
        let counter = found
            .identity
            .id
            .and_then(|id| self.counters.get(&id))
            .copied()
            .unwrap_or_default();
        let mut identity = found.identity;
        identity.cpu = identity.cpu.or(counter.cpu);
        let thread = identity.task.map_or(0, |(_, tid)| tid);
        if let Some((pid, tid)) = identity.task {
            self.session.process_of.insert(tid, pid);
        }
        let stream = match (counter.buffer, identity.cpu) {
            (Some(buffer), _) => Stream::Buffer(buffer),
            (None, Some(cpu)) => Stream::Cpu(cpu),
            (None, None) => Stream::Thread(thread),
        };
        let number = self.next_number();
        self.session.windows.push(AuxWindow {
            stream,
            number,
            bytes,
            identity,
            sampling,
            period,
            chain,
            stack,
        });
        Some(())
    }

    /// Index of a counter's event in [`Session::sampling`].
    fn sampling(&self, id: Option<u64>) -> Option<usize> {
        match id.and_then(|id| self.counters.get(&id)) {
            Some(counter) => self.samplings.get(counter.event?).copied().flatten(),
            // Without ids, events can be distinguished only if there is just one.
            None => Some(0).filter(|_| self.session.sampling.len() == 1),
        }
    }

    fn mapping(&mut self, record: &PerfRecord<'_>) -> Option<()> {
        let body = &record.body[..];
        let time = self.identity(record).time.unwrap_or(0);
        let (pid, tid, start, len, offset) = (
            u32_at(body, 0)?,
            u32_at(body, 4)?,
            u64_at(body, 8)?,
            u64_at(body, 16)?,
            u64_at(body, 24)?,
        );
        self.session.process_of.entry(tid).or_insert(pid);
        let mut build_id = None;
        let mut path = 32;
        if record.kind == kind::MMAP2 {
            path = 64;
            if record.misc & MISC_BUILD_ID != 0 {
                let size = usize::from(*body.get(32)?).min(BUILD_ID_BYTES);
                build_id = Some(hex(body.get(36..36 + size)?)).filter(|id| !id.is_empty());
            }
        }
        let path = zero_terminated_text(body.get(path..)?);
        if let Some(id) = &build_id {
            self.session.build_ids.insert(path.clone(), id.clone());
        }
        let mapping = Mapping {
            start,
            end: start.saturating_add(len),
            offset,
            path,
            build_id,
        };
        self.session.spaces.map(pid, time, mapping);
        Some(())
    }

    fn aux(&mut self, record: &PerfRecord<'_>) -> Option<()> {
        let (offset, size, flags) = (
            u64_at(&record.body, 0)?,
            u64_at(&record.body, 8)?,
            u64_at(&record.body, 16)?,
        );
        let loss = &mut self.session.loss;
        loss.aux_truncated += flags & 1;
        loss.aux_empty += u64::from(flags & 1 == 1 && size == 0);
        loss.aux_overwritten += flags >> 1 & 1;
        loss.aux_partial += flags >> 2 & 1;
        let who = self.identity(record);
        let counter = who
            .id
            .and_then(|id| self.counters.get(&id))
            .copied()
            .unwrap_or_default();
        if let Some(buffer) = counter.buffer
            && flags & 5 != 0
        {
            self.cuts
                .push((Stream::Buffer(buffer), offset.saturating_add(size)));
        }
        // Only events that follow a thread (and its children) stop with it, so only their records
        // belong to that thread.
        if let (Some(buffer), Some(_), Some((pid, tid))) =
            (counter.buffer, counter.thread, who.task)
        {
            self.writers.push((
                Stream::Buffer(buffer),
                offset,
                offset.saturating_add(size),
                pid,
                tid,
            ));
        }
        Some(())
    }

    fn id_index(&mut self, body: &[u8]) -> Option<()> {
        let count = usize::try_from(u64_at(body, 0)?).ok()?;
        let entries = body.get(8..8usize.checked_add(count.checked_mul(32)?)?)?;
        for entry in entries.chunks_exact(32) {
            let word = |n: usize| u64_at(entry, n * 8).unwrap_or(u64::MAX);
            let counter = self.counters.entry(word(0)).or_default();
            counter.buffer = Some(word(1));
            counter.cpu = known(word(2));
            counter.thread = known(word(3));
        }
        // In newer files the ids of virtual machines may follow: process of the machine, processor.
        let machines = body.get(8 + entries.len()..).unwrap_or(&[]);
        for (entry, machine) in entries.chunks_exact(32).zip(machines.chunks_exact(16)) {
            if let (Some(id), Some(1..)) = (u64_at(entry, 0), u64_at(machine, 0)) {
                self.counters.entry(id).or_default().guest = true;
                self.has_guests = true;
            }
        }
        Some(())
    }

    fn piece(&mut self, record: &PerfRecord<'a>) -> Option<()> {
        let body = &record.body;
        let (offset, buffer) = (u64_at(body, 8)?, u32_at(body, 24)?);
        let (thread, cpu) = (u32_at(body, 28)?, u32_at(body, 32)?);
        let number = self.next_number();
        let stream = self
            .session
            .full
            .entry(Stream::Buffer(u64::from(buffer)))
            .or_default();
        stream.cpu = known(u64::from(cpu));
        stream.thread = known(u64::from(thread));
        stream.pieces.push(AuxSpan {
            number,
            offset,
            bytes: record.trailer,
        });
        Some(())
    }

    /// Entry: process, build id, path.
    fn build_id(&mut self, misc: u16, body: &[u8]) -> Option<()> {
        // Without a size, shorter ids end in zeros.
        let size = match misc & MISC_BUILD_ID_SIZE {
            0 => BUILD_ID_BYTES,
            _ => usize::from(*body.get(24)?).min(BUILD_ID_BYTES),
        };
        let id = body.get(4..4 + size)?;
        let path = zero_terminated_text(body.get(28..)?);
        let guest = MISC_GUEST.contains(&(misc & MISC_CPUMODE));
        if !path.is_empty() && size > 0 && !guest {
            self.session.build_ids.insert(path, hex(id));
        }
        Some(())
    }

    /// Reads the clock settings from perf's data about the PMU.
    fn clock(&mut self, info: &[u64]) {
        let word = |n: usize| info.get(n).copied().unwrap_or(0);
        let (pmu, shift, multiplier, zero, capable) = (word(0), word(1), word(2), word(3), word(4));
        if capable != 0
            && let Some(conversion) = TimeConversion::new(shift, multiplier, zero)
        {
            self.session.conversion = Some(conversion);
        }
        self.session.snapshot = word(8) != 0;
        let configs = || {
            let of_pt = self.events.iter();
            of_pt
                .filter(|e| u64::from(e.attr.pmu) == pmu)
                .map(|e| e.attr.config)
        };
        let config = configs().next().unwrap_or(0);
        if configs().next().is_some() {
            self.session.ptwrites_on = Some(configs().any(|config| config & CONFIG_PTW != 0));
        }
        let (mtc, frequency, cyc) = (word(10), word(11), word(14));
        let small = |value: u64| u32::try_from(value).unwrap_or(0);
        let settings = &mut self.session.clock;
        if mtc != 0 && config & mtc != 0 && frequency != 0 {
            settings.tsc_per_ctc = small(word(12));
            settings.tsc_per_ctc_divisor = small(word(13));
            settings.mtc_period =
                ((config & frequency) >> frequency.trailing_zeros()).min(255) as u8;
        }
        if cyc != 0 && config & cyc != 0 {
            settings.nominal_ratio = u8::try_from(word(15)).unwrap_or(0);
        }
    }

    fn finish(mut self) -> Session<'a> {
        self.session.has_pt = self.info.is_some();
        if let Some(info) = self.info.take() {
            self.clock_seen = true;
            self.clock(&info);
        }
        for (stream, from, to, pid, tid) in std::mem::take(&mut self.writers) {
            if let Some(full) = self.session.full.get_mut(&stream) {
                full.writers.push((to, from, pid, tid));
            }
        }
        for (stream, at) in std::mem::take(&mut self.cuts) {
            if let Some(full) = self.session.full.get_mut(&stream) {
                full.cuts.push(at);
            }
        }
        for full in self.session.full.values_mut() {
            full.writers.sort_unstable();
            full.cuts.sort_unstable();
        }
        for list in self.session.switches.values_mut() {
            list.sort_by_key(|(time, ..)| *time);
        }
        self.session.number_turns();
        self.session.spaces.finish();
        self.session.memory.settle(&self.events, &self.names);
        let mut events = self.events.iter();
        self.session.is_monotonic =
            !self.events.is_empty() && events.all(|event| event.attr.is_monotonic());
        self.session
    }
}
