//! Emptying the rings into a perf.data file.
//!
//! In a round every ring is emptied once, records first, then PT data. Records of one ring keep their
//! order; between rings the round's end tells readers how far they may sort by time. What the kernel says it lost is
//! in the records, and counted here too, since the user wants to know it at once.

use super::attr::ATTR_BYTES;
use super::file::{About, Described, Writer};
use super::kernel::{Control, Kernel};
use super::open::Opened;
use super::pmu::Pmu;
use super::synth::{self, TscRatio};
use crate::perfdata::records::kind;
use crate::perfdata::{text, u16_at, u32_at, u64_at};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What was seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records of the kernel.
    pub records: u64,
    /// Samples.
    pub samples: u64,
    /// Bytes of PT data in AUXTRACE records.
    pub aux_bytes: u64,
    /// Records that did not fit into a ring.
    pub lost: u64,
    /// Samples that the kernel lost.
    pub lost_samples: u64,
    /// Times that sampling was throttled.
    pub throttled: u64,
    /// Times that PT data was lost because the area was full.
    pub truncated: u64,
    /// Times that PT data has a gap.
    pub partial: u64,
    /// Bytes in rings that were no records.
    pub malformed: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Why nothing more is written, though the program runs on.
#[derive(Debug)]
pub enum Stopped {
    /// The file is as large as it may be.
    Full,
    /// It could not be written.
    Failed(io::Error),
}

/// A recording that runs.
pub struct Capture<'k> {
    kernel: &'k mut dyn Kernel,
    opened: Opened,
    writer: Writer,
    tally: Tally,
    scratch: Vec<u8>,
    /// Files that were mapped since the last round.
    paths: BTreeSet<String>,
    /// Those that were looked at.
    known: BTreeSet<String>,
    build_ids: Vec<Vec<u8>>,
    limit: Option<u64>,
    stopped: Option<Stopped>,
}

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
        let described = |(event, ids): (&super::plan::Planned, &Vec<u64>)| -> Described {
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
        // Before what refers to counters.
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
        Ok(Capture {
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

    /// What was seen so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Why nothing more is written.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Sleeps until there is something to do; false once no task is left.
    pub fn wait(&mut self, timeout: std::time::Duration) -> io::Result<bool> {
        self.kernel.wait(timeout)
    }

    /// Empties every ring once. An error of the file ends the recording, not the program: see [`Capture::stopped`].
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
                // Events that cannot be stopped fill their rings and then wait for ever, which does no harm.
                let _ = self.kernel.control(cpu.leader, &Control::Disable);
            }
            self.stopped = Some(why);
        }
    }

    fn empty_rings(&mut self, last: bool) -> io::Result<()> {
        for number in 0..self.opened.cpus.len() {
            let cpu = &mut self.opened.cpus[number];
            self.scratch.clear();
            cpu.ring.drain(&mut self.scratch);
            let (good, full) = look(&self.scratch, &mut self.tally, &mut self.paths);
            self.tally.malformed += (self.scratch.len() - good) as u64;
            self.writer.records(&self.scratch[..good])?;
            if let Some(pending) = cpu.ring.pending(last) {
                let length = (pending.first.len() + pending.second.len()) as u64;
                self.writer.auxtrace(
                    pending.offset,
                    self.kernel.tsc(),
                    number as u32,
                    cpu.cpu,
                    [pending.first, pending.second],
                )?;
                cpu.ring.taken(length);
                self.tally.aux_bytes += length;
            }
            if let Some(trace) = cpu.trace.filter(|_| full && !last) {
                // When the area was full the kernel turned the event off; now there is room. A refusal shows as missing
                // data, which has been counted already.
                let _ = self.kernel.control(trace, &Control::Enable);
            }
        }
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

    /// Takes what is left and completes the file.
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
        Finished {
            tally: self.tally,
            stopped: self.stopped,
            notes: self.opened.plan.notes,
        }
    }
}

/// What a recording came to.
#[derive(Debug)]
pub struct Finished {
    /// Counts.
    pub tally: Tally,
    /// Why the file ends before the program.
    pub stopped: Option<Stopped>,
    /// Where the recording falls short of what was asked.
    pub notes: Vec<String>,
}

/// Counts records; returns how many bytes of whole records there are, and whether PT stopped because its area was full.
fn look(bytes: &[u8], tally: &mut Tally, paths: &mut BTreeSet<String>) -> (usize, bool) {
    let mut at = 0;
    let mut full = false;
    while let Some(record) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let size = u16_at(record, 6).map_or(0, usize::from);
        let Some(body) = record.get(8..size).filter(|_| size.is_multiple_of(8)) else {
            break;
        };
        tally.records += 1;
        match u32_at(record, 0).unwrap_or(0) {
            kind::SAMPLE => tally.samples += 1,
            kind::LOST => tally.lost += u64_at(body, 8).unwrap_or(0),
            kind::LOST_SAMPLES => tally.lost_samples += u64_at(body, 0).unwrap_or(0),
            kind::THROTTLE => tally.throttled += 1,
            kind::AUX => {
                let flags = u64_at(body, 16).unwrap_or(0);
                tally.truncated += u64::from(flags & AUX_FLAG_TRUNCATED != 0);
                tally.partial += u64::from(flags & AUX_FLAG_PARTIAL != 0);
                full |= flags & AUX_FLAG_TRUNCATED != 0;
            }
            kind::MMAP2 => {
                let path = text(body.get(64..).unwrap_or(&[]));
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
