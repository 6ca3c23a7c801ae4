//! Emptying the rings into a perf.data file.
//!
//! In a round every ring is emptied once, records first, then PT data. Records of one ring keep
//! their order; for records of different rings, the end of a round shows readers how far they may
//! sort by time. Losses that the kernel reports are in the records, and also counted here for an
//! immediate message.

use crate::pt::open::Opened;
use crate::pt::plan::{Role, pause_period};
use crate::pt::synth;
use crate::pt::synth::TscRatio;
use mgz_collector::util::text::count;
use mgz_perf::attr::ATTR_BYTES;
use mgz_perf::kernel::{Control, Kernel};
use mgz_perf::pmu::Pmu;
use mgz_perf::records::kind;
use mgz_perf_data::writer::{About, Described, Writer};
use mgz_perf_data::{u16_at, u32_at, u64_at, zero_terminated_text};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Counts so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of the kernel's records.
    pub records: u64,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of PT data in AUXTRACE records.
    pub aux_bytes: u64,
    /// Number of records that did not fit into a ring.
    pub lost: u64,
    /// Number of samples that the kernel lost.
    pub lost_samples: u64,
    /// Times that sampling was throttled.
    pub throttled: u64,
    /// Times that PT data was lost because the area was full.
    pub truncated: u64,
    /// Times that PT data has a gap.
    pub partial: u64,
    /// Number of bytes in rings that did not form records.
    pub malformed: u64,
    /// Size of the file, bytes.
    pub file_bytes: u64,
}

/// Reason why the file is no longer written while the program continues.
#[derive(Debug)]
pub enum Stopped {
    /// The file has reached its maximum size.
    Full,
    /// The file could not be written.
    Failed(io::Error),
}

/// A running recording.
pub struct Capture<'k> {
    kernel: &'k mut dyn Kernel,
    opened: Opened,
    writer: Writer,
    tally: Tally,
    scratch: Vec<u8>,
    /// Paths of files mapped since the last round.
    paths: BTreeSet<String>,
    /// Paths of files whose build id was already looked up.
    known: BTreeSet<String>,
    build_ids: Vec<Vec<u8>>,
    limit: Option<u64>,
    stopped: Option<Stopped>,
    /// Ids of the PT events, by CPU.
    traces: Vec<Option<u64>>,
    /// Current periods, by number of the planned event.
    periods: Vec<u64>,
    /// Error if the kernel refuses to change periods.
    fixed: Option<io::Error>,
}

/// Maximum factor by which a period is lengthened.
const MAX_LONGER: u64 = 1 << 12;
/// A period is lengthened if more than one in this many records is lost.
const BEARABLE_LOSS: u64 = 20;

const AUX_FLAG_TRUNCATED: u64 = 1;
const AUX_FLAG_PARTIAL: u64 = 4;

impl<'k> Capture<'k> {
    /// Begins the file. `limit` bounds its size, bytes.
    pub fn begin(
        kernel: &'k mut dyn Kernel,
        opened: Opened,
        pt: Option<&Pmu>,
        filter: &str,
        pid: u32,
        path: &Path,
        limit: Option<u64>,
    ) -> io::Result<Capture<'k>> {
        let described = |(event, ids): (&crate::pt::plan::Planned, &Vec<u64>)| -> Described {
            let attr: [u8; ATTR_BYTES] = event.attr.bytes();
            Described {
                attr,
                ids: ids.clone(),
                name: event.name.clone(),
            }
        };
        let mut writer = Writer::create(
            path,
            opened
                .plan
                .events
                .iter()
                .zip(&opened.ids)
                .map(described)
                .collect(),
        )?;
        let conversion = opened.cpus.first().and_then(|c| c.ring.time_conversion());
        if let Some(conversion) = &conversion {
            writer.records(&synth::time_conversion(conversion)?)?;
        }
        // Must come before the records that refer to counters.
        writer.records(&synth::id_index(&opened.counters, pid)?)?;
        if let Some(pt) = pt {
            writer.records(&synth::auxtrace_info(
                pt,
                conversion.as_ref(),
                TscRatio::read(),
                filter,
            )?)?;
        }
        // The tracking event is the last of the plan.
        let track = opened
            .ids
            .last()
            .and_then(|ids| ids.first())
            .copied()
            .unwrap_or(0);
        writer.records(&synth::process(kernel, pid, track)?)?;
        writer.commit()?;
        let events = &opened.plan.events;
        let traces = opened.cpus.iter().map(|cpu| opened.id(cpu.trace?));
        Ok(Capture {
            traces: traces.collect(),
            periods: events.iter().map(|e| e.attr.sample_period).collect(),
            fixed: None,
            kernel,
            opened,
            writer,
            tally: Tally::default(),
            scratch: Vec::new(),
            paths: BTreeSet::new(),
            known: BTreeSet::new(),
            build_ids: Vec::new(),
            limit,
            stopped: None,
        })
    }

    /// Counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reason why the file is no longer written, if so.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Sleeps until there is something to do; false once no task is left.
    pub fn wait(&mut self, timeout: std::time::Duration) -> io::Result<bool> {
        self.kernel.wait(timeout)
    }

    /// Empties every ring once. A write error ends the recording, not the program: see
    /// [`Capture::stopped`].
    pub fn round(&mut self) {
        self.round_of(false);
    }

    fn round_of(&mut self, last: bool) {
        if self.stopped.is_some() {
            return;
        }
        let failed = match self.empty_rings(last) {
            Ok(()) => self
                .limit
                .filter(|&limit| self.writer.size() > limit)
                .map(|_| Stopped::Full),
            Err(error) => Some(Stopped::Failed(error)),
        };
        if let Some(why) = failed {
            if matches!(why, Stopped::Failed(_)) {
                self.writer.roll_back();
            }
            for cpu in &self.opened.cpus {
                // Events that cannot be stopped fill their rings and then stall, which is harmless.
                let _ = self.kernel.control(cpu.leader, &Control::Disable);
            }
            self.stopped = Some(why);
        }
    }

    fn empty_rings(&mut self, last: bool) -> io::Result<()> {
        let mut troubled = Troubled::default();
        for number in 0..self.opened.cpus.len() {
            let cpu = &mut self.opened.cpus[number];
            self.scratch.clear();
            cpu.ring.drain(&mut self.scratch);
            let (good, full) = look(
                &self.scratch,
                &mut self.tally,
                &mut self.paths,
                &mut troubled,
            );
            self.tally.malformed += (self.scratch.len() - good) as u64;
            self.writer.records(&self.scratch[..good])?;
            let mut taken = 0;
            if let Some(pending) = cpu.ring.pending(last) {
                let length = (pending.first.len() + pending.second.len()) as u64;
                self.writer.auxtrace(
                    pending.offset,
                    self.kernel.tsc(),
                    number as u32,
                    cpu.cpu,
                    [pending.first, pending.second],
                )?;
                // If the area is full, the kernel may turn PT off without a record.
                if !full && length + 8 > cpu.ring.aux_size() {
                    let end = pending.offset + length;
                    self.tally.truncated += 1;
                    let id = self.traces.get(number).copied().flatten();
                    let clock = cpu.ring.time_conversion();
                    let now = clock.map_or(0, |clock| clock.ns(self.kernel.tsc()));
                    let told = synth::truncated(end, cpu.cpu, id.unwrap_or(0), now)?;
                    self.writer.records(&told)?;
                }
                cpu.ring.taken(length);
                self.tally.aux_bytes += length;
                taken = length;
            }
            if let Some(trace) = cpu.trace.filter(|_| (full || taken > 0) && !last) {
                // While the area was full the kernel may have turned the event off, with or without
                // a record. Now there is room. If enabling fails, data is missing that has already
                // been counted.
                let _ = self.kernel.control(trace, &Control::Enable);
            }
        }
        self.lengthen(&troubled);
        for path in std::mem::take(&mut self.paths) {
            if !self.known.insert(path.clone()) {
                continue;
            }
            if let Some(record) = synth::build_id(&path) {
                self.writer.records(&record)?;
                self.build_ids.push(record);
            }
        }
        self.writer.end_round()?;
        self.tally.file_bytes = self.writer.size();
        Ok(())
    }

    /// Doubles the period of events that the kernel throttles, or of all sampling events if too
    /// many samples are lost. Excess samples are lost in any case, but with a longer period not at
    /// random.
    fn lengthen(&mut self, troubled: &Troubled) {
        if self.fixed.is_some() {
            return;
        }
        let overrun = troubled.lost * BEARABLE_LOSS > troubled.lost + troubled.records;
        let plan = &self.opened.plan.events;
        for sampling in 0..plan.len() {
            if plan[sampling].role != Role::Sample {
                continue;
            }
            let pausing = Some(sampling + 1)
                .filter(|&next| plan.get(next).is_some_and(|e| e.role == Role::Pause));
            let throttled = std::iter::once(sampling)
                .chain(pausing)
                .flat_map(|event| &self.opened.ids[event])
                .any(|id| troubled.throttled.contains(id));
            let asked = plan[sampling].attr.sample_period;
            let period = self.periods[sampling].saturating_mul(2);
            if !(overrun || throttled) || period / asked.max(1) > MAX_LONGER {
                continue;
            }
            let set = std::iter::once((sampling, period))
                .chain(pausing.map(|event| (event, pause_period(period))));
            for (event, period) in set {
                for &id in &self.opened.events[event] {
                    if let Err(error) = self.kernel.control(id, &Control::Period(period)) {
                        self.fixed = Some(error);
                        return;
                    }
                }
                self.periods[event] = period;
            }
        }
    }

    /// Sentences on periods that were changed.
    fn adapted(&self) -> Vec<String> {
        let Tally {
            throttled,
            lost,
            lost_samples,
            samples,
            ..
        } = self.tally;
        let gone = lost + lost_samples;
        let why = [
            (throttled > 0).then(|| format!("the kernel throttled sampling {throttled} times")),
            (gone > 0).then(|| {
                let share = 100.0 * gone as f64 / (gone + samples).max(1) as f64;
                format!("{gone} samples or other records were lost ({share:.1}%)")
            }),
        ];
        let why = why.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if let Some(error) = &self.fixed {
            return vec![format!(
                "{why}, and the period cannot be changed here ({error}); record with a longer one"
            )];
        }
        let plan = self.opened.plan.events.iter().zip(&self.periods);
        plan.filter(|(event, now)| event.role == Role::Sample && event.attr.sample_period != **now)
            .map(|(event, &now)| {
                format!(
                    "{why}, so that in the end samples were taken every {} instead of every {} by {} (threads that ran already kept theirs)",
                    count(now as f64),
                    count(event.attr.sample_period as f64),
                    event.name
                )
            })
            .collect()
    }

    /// Reads the rest of the rings and completes the file.
    pub fn finish(mut self, command: Vec<String>) -> Finished {
        self.round_of(true);
        let release = self
            .kernel
            .read("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_string();
        let about = About {
            release,
            cpus: self.opened.cpus.len() as u32,
            command,
            build_ids: std::mem::take(&mut self.build_ids),
        };
        if let Err(error) = self.writer.finish(&about) {
            self.stopped.get_or_insert(Stopped::Failed(error));
        }
        self.tally.file_bytes = self.writer.size();
        self.kernel.close_all();
        let mut notes = self.adapted();
        notes.extend(self.opened.plan.notes);
        Finished {
            tally: self.tally,
            stopped: self.stopped,
            notes,
        }
    }
}

/// Result of a recording.
#[derive(Debug)]
pub struct Finished {
    /// Counts of the whole recording.
    pub tally: Tally,
    /// Reason why the file ends before the program, if so.
    pub stopped: Option<Stopped>,
    /// Shortcomings of the recording, compared with the request.
    pub notes: Vec<String>,
}

/// Problems with samples in one round.
#[derive(Default)]
struct Troubled {
    /// Ids of events that were throttled.
    throttled: BTreeSet<u64>,
    /// Number of lost records and samples.
    lost: u64,
    /// Number of records received.
    records: u64,
}

/// Counts records. Returns the number of bytes of complete records, and true if PT stopped because
/// its area was full.
fn look(
    bytes: &[u8],
    tally: &mut Tally,
    paths: &mut BTreeSet<String>,
    troubled: &mut Troubled,
) -> (usize, bool) {
    let mut at = 0;
    let mut full = false;
    while let Some(record) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let size = u16_at(record, 6).map_or(0, usize::from);
        let Some(body) = record.get(8..size).filter(|_| size.is_multiple_of(8)) else {
            break;
        };
        tally.records += 1;
        troubled.records += 1;
        match u32_at(record, 0).unwrap_or(0) {
            kind::SAMPLE => tally.samples += 1,
            kind::LOST => {
                let lost = u64_at(body, 8).unwrap_or(0);
                tally.lost += lost;
                troubled.lost += lost;
            }
            kind::LOST_SAMPLES => {
                let lost = u64_at(body, 0).unwrap_or(0);
                tally.lost_samples += lost;
                troubled.lost += lost;
            }
            kind::THROTTLE => {
                tally.throttled += 1;
                troubled.throttled.extend(u64_at(body, 8));
            }
            kind::AUX => {
                let flags = u64_at(body, 16).unwrap_or(0);
                tally.truncated += u64::from(flags & AUX_FLAG_TRUNCATED != 0);
                tally.partial += u64::from(flags & AUX_FLAG_PARTIAL != 0);
                full |= flags & AUX_FLAG_TRUNCATED != 0;
            }
            kind::MMAP2 => {
                let path = zero_terminated_text(body.get(64..).unwrap_or(&[]));
                if path.starts_with('/') && !path.starts_with("//") {
                    paths.insert(path);
                }
            }
            _ => {}
        }
        at += size;
    }
    (at, full)
}
