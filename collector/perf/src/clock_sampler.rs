//! `perf_event_open`: a sampling clock that the program and all its threads and children inherit.
//!
//! The events are opened on this thread, disabled, one per CPU (otherwise the kernel does not allow
//! shared rings for inherited events); a child that this thread starts inherits them, and they
//! begin to count when it executes the program.

use crate::attr::{ATTR_BYTES, Attr, SW_TASK_CLOCK, TYPE_SOFTWARE, flag};
use crate::code_samples::{CodeSample, CodeSamples};
use crate::mmap_ring::Ring;
use crate::open::open_perf_event;
use crate::pmu::cpu_list;
use crate::records::bits;
use crate::records::kind;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;

/// CPU time between samples, ns: about 1,000 a second, and not a divisor of the timer tick.
pub const PERIOD_NS: u64 = 1_001_003;
/// Data pages of a ring, a power of two; well below the memory that every user may lock (516 KiB
/// per CPU).
const RING_PAGES: usize = 64;
const MISC_COMM_EXEC: u16 = 1 << 13;

/// Reason why nothing can be sampled.
#[derive(Debug, thiserror::Error)]
#[error("--hot needs the kernel's sampling clock, which was refused ({error}){remedy}")]
pub struct SamplerRefused {
    error: io::Error,
    remedy: String,
}

impl SamplerRefused {
    fn new(error: io::Error) -> SamplerRefused {
        let remedy = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
                format!(
                    "; kernel.perf_event_paranoid is {}: let the administrator run `sysctl kernel.perf_event_paranoid=2` (in a container, seccomp may forbid it too), or choose the functions by another profiler",
                    level.trim()
                )
            }
            Some(libc::ENOSYS) => "; this kernel (or the container's seccomp filter) has no perf_event_open; choose the functions by another profiler".into(),
            Some(libc::EMFILE) => "; too many open files: raise `ulimit -n`".into(),
            _ => String::new(),
        };
        SamplerRefused { error, remedy }
    }
}

/// One CPU's event and its ring.
struct CpuEvent {
    ring: Ring,
    _event: OwnedFd,
}

impl CpuEvent {
    fn open(attr: &Attr, cpu: i32) -> io::Result<CpuEvent> {
        let event = open_perf_event(attr, 0, cpu, -1)?;
        Ok(CpuEvent {
            ring: Ring::map(&event, RING_PAGES)?,
            _event: event,
        })
    }
}

/// Code that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// File offset of the first byte.
    pub offset: u64,
    /// File, or a name in brackets.
    pub path: Vec<u8>,
}

/// Samples by location in a file.
#[derive(Debug, Default)]
pub struct Samples {
    /// `(path, file offset)` to number. Code outside of files is not included.
    pub places: HashMap<(Vec<u8>, u64), u64>,
    /// Number of samples by process id and path.
    pub files: HashMap<(u32, Vec<u8>), u64>,
    /// Samples in code outside of files, and at addresses without a known mapping.
    pub unnamed: CodeSamples,
    /// Samples that the kernel had no room for.
    pub lost: u64,
}

/// Distribution of the time of some processes over files.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Number of all samples.
    pub samples: u64,
    /// Number of samples by file; `""` is code outside of files.
    pub by_file: BTreeMap<String, u64>,
    /// Number of samples at addresses without a known mapping.
    pub unknown: u64,
    /// Samples in code outside of files, and at addresses without a known mapping.
    pub unnamed: CodeSamples,
}

impl Shares {
    /// Number of samples in a file; `None` if there are no samples at all.
    pub fn of(&self, path: &str) -> Option<u64> {
        (self.samples > 0).then(|| self.by_file.get(path).copied().unwrap_or(0))
    }
}

/// The open events.
pub struct Sampler {
    events: Vec<CpuEvent>,
    bytes: Vec<u8>,
    order: Order,
    placer: Placer,
}

impl Sampler {
    /// Opens the events, disabled, for a sample every `period` nanoseconds of CPU time.
    pub fn open(period: u64) -> Result<Sampler, SamplerRefused> {
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            size: ATTR_BYTES as u32,
            config: SW_TASK_CLOCK,
            sample_period: period,
            sample_type: bits::IP | bits::TID | bits::TIME,
            flags: flag::DISABLED
                | flag::INHERIT
                | flag::EXCLUDE_KERNEL
                | flag::EXCLUDE_HV
                | flag::MMAP
                | flag::COMM
                | flag::ENABLE_ON_EXEC
                | flag::TASK
                | flag::SAMPLE_ID_ALL
                | flag::MMAP2
                | flag::COMM_EXEC
                | flag::USE_CLOCKID,
            // The clock of all other times of a trace, and of jitdump files.
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        let mut events = Vec::new();
        for cpu in online() {
            match CpuEvent::open(&attr, cpu as i32) {
                Ok(event) => events.push(event),
                // The CPU was turned off, or this process may not use it.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                Err(e) => return Err(SamplerRefused::new(e)),
            }
        }
        if events.is_empty() {
            return Err(SamplerRefused::new(io::Error::from_raw_os_error(
                libc::ENODEV,
            )));
        }
        Ok(Sampler {
            events,
            bytes: Vec::new(),
            order: Order::default(),
            placer: Placer::default(),
        })
    }

    /// Counts samples only by file from now on, not by location.
    pub fn files_only(&mut self) {
        self.placer.files_only = true;
    }

    /// Processes with samples in code that has no name yet.
    pub fn unnamed_processes(&self) -> &BTreeSet<u32> {
        &self.placer.unnamed_processes
    }

    /// Reads the kernel's records, and assigns the samples to locations.
    pub fn drain(&mut self) {
        let mut records: Vec<Record> = Vec::new();
        for event in &mut self.events {
            self.bytes.clear();
            event.ring.drain(&mut self.bytes);
            records.extend(parse(&self.bytes));
        }
        self.order.round(records, &mut self.placer);
    }

    /// Reads the remaining records.
    pub fn finish(mut self) -> Samples {
        self.drain();
        self.placer.place(self.order.pending);
        self.placer.samples
    }

    /// As [`Sampler::finish`], for the files of some processes. The recorder's own code does not
    /// count.
    pub fn shares(self, of: &dyn Fn(u32) -> bool) -> Shares {
        self.finish().shares(of)
    }
}

impl Samples {
    /// The shares of files in some processes. The recorder's own code does not count.
    pub fn shares(&self, of: &dyn Fn(u32) -> bool) -> Shares {
        let mut shares = Shares {
            unnamed: self.unnamed.clone(),
            ..Shares::default()
        };
        shares.unnamed.retain(|sample| of(sample.process));
        for ((process, path), &n) in &self.files {
            let path = String::from_utf8_lossy(path);
            if !of(*process) || path.starts_with("/memfd:mgz-") {
                continue;
            }
            shares.samples += n;
            // (Addresses without a known mapping are not generated code, since the kernel reports
            // its mappings as well.)
            if path == UNKNOWN {
                shares.unknown += n;
                continue;
            }
            let path = match is_of_no_file(path.as_bytes()) {
                true => "",
                false => path.strip_suffix(" (deleted)").unwrap_or(&path),
            };
            *shares.by_file.entry(path.to_owned()).or_default() += n;
        }
        shares
    }
}

/// True for the kernel's names of mappings without a file.
fn is_of_no_file(path: &[u8]) -> bool {
    path == b"//anon" || path.starts_with(b"/memfd:") || path.starts_with(b"[anon")
}

/// True if a sample in this mapping has no name yet, and is not in the recorder's own code.
fn is_unnamed(path: &[u8]) -> bool {
    let is_ours = path.starts_with(b"/memfd:mgz-");
    (is_of_no_file(path) || path == UNKNOWN.as_bytes()) && !is_ours
}

fn online() -> Vec<u32> {
    let text =
        std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
    cpu_list(&text)
}

#[derive(Debug, PartialEq, Eq)]
struct Record {
    time: u64,
    process: u32,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Sample(u64),
    Map(MappedCode),
    Exec,
    Fork {
        parent: u32,
    },
    /// A thread has ended.
    Exit,
    Lost(u64),
}

/// Parses records; stops at the first invalid one.
fn parse(mut bytes: &[u8]) -> Vec<Record> {
    let u32_at = |b: &[u8], at: usize| {
        b.get(at..at + 4)
            .map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")))
    };
    let u64_at = |b: &[u8], at: usize| {
        b.get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
    };
    let mut out = Vec::new();
    while bytes.len() >= 8 {
        let (Some(kind), Some(rest)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else {
            break;
        };
        let (misc, size) = (rest as u16, (rest >> 16) as usize);
        if size < 8 || size > bytes.len() {
            break;
        }
        let (record, behind) = bytes.split_at(size);
        bytes = behind;
        let body = &record[8..];
        // Every record except a sample ends with the ids of process and thread and the time.
        let end = body.len().wrapping_sub(16);
        let parsed = (|| {
            let (process, time, kind) = match kind {
                kind::SAMPLE => (
                    u32_at(body, 8)?,
                    u64_at(body, 16)?,
                    Kind::Sample(u64_at(body, 0)?),
                ),
                kind::MMAP2 => {
                    let name = body.get(64..end)?;
                    let path = name.split(|&b| b == 0).next()?.to_vec();
                    let code = MappedCode {
                        start: u64_at(body, 8)?,
                        length: u64_at(body, 16)?,
                        offset: u64_at(body, 24)?,
                        path,
                    };
                    (u32_at(body, 0)?, u64_at(body, end + 8)?, Kind::Map(code))
                }
                kind::COMM if misc & MISC_COMM_EXEC != 0 => {
                    (u32_at(body, 0)?, u64_at(body, end + 8)?, Kind::Exec)
                }
                kind::FORK => (
                    u32_at(body, 0)?,
                    u64_at(body, 16)?,
                    Kind::Fork {
                        parent: u32_at(body, 4)?,
                    },
                ),
                kind::EXIT => (u32_at(body, 0)?, u64_at(body, 16)?, Kind::Exit),
                kind::LOST => (0, u64_at(body, end + 8)?, Kind::Lost(u64_at(body, 8)?)),
                _ => return None,
            };
            Some(Record {
                time,
                process,
                kind,
            })
        })();
        out.extend(parsed);
    }
    out
}

/// Sorts the records of several rings. Each ring is in order; but while one is read, another may
/// receive records that are older than those of the next ring. So records wait for one round: by
/// then all records have arrived that are older than the newest one of the previous round.
#[derive(Debug, Default)]
struct Order {
    /// Waiting records, in order of time.
    pending: Vec<Record>,
    /// Time of the newest record of the previous round.
    newest: u64,
}

impl Order {
    /// Adds the records of all rings, and passes on those that are ready.
    fn round(&mut self, records: Vec<Record>, placer: &mut Placer) {
        let newest = records.iter().map(|r| r.time).max().unwrap_or(0);
        self.pending.extend(records);
        self.pending.sort_by_key(|r| r.time);
        let ready = self.pending.partition_point(|r| r.time <= self.newest);
        placer.place(self.pending.drain(..ready).collect());
        self.newest = self.newest.max(newest);
    }
}

/// Path for samples at addresses without a known mapping.
pub const UNKNOWN: &str = "[unknown]";

/// Follows the processes' mappings through time.
#[derive(Debug, Default)]
struct Placer {
    maps: HashMap<u32, Vec<MappedCode>>,
    /// Number of threads of each process.
    threads: HashMap<u32, u32>,
    /// Samples are counted only by file.
    files_only: bool,
    unnamed_processes: BTreeSet<u32>,
    samples: Samples,
}

impl Placer {
    fn place(&mut self, records: Vec<Record>) {
        let Placer {
            maps,
            threads,
            files_only,
            unnamed_processes,
            samples,
        } = self;
        for Record {
            process,
            kind,
            time,
        } in records
        {
            match kind {
                // Threads of the same process share its mappings.
                Kind::Fork { parent } if parent != process => {
                    let inherited = maps.get(&parent).cloned().unwrap_or_default();
                    maps.insert(process, inherited);
                    threads.insert(process, 1);
                }
                Kind::Fork { .. } => *threads.entry(process).or_insert(1) += 1,
                Kind::Exit => {
                    let left = threads.entry(process).or_insert(1);
                    *left -= 1;
                    if *left == 0 {
                        threads.remove(&process);
                        maps.remove(&process);
                    }
                }
                Kind::Exec => {
                    maps.remove(&process);
                }
                Kind::Map(code) => maps.entry(process).or_default().push(code),
                Kind::Lost(n) => samples.lost += n,
                Kind::Sample(ip) => {
                    // Later mappings replace earlier ones.
                    let found = maps
                        .get(&process)
                        .and_then(|m| m.iter().rfind(|m| ip.wrapping_sub(m.start) < m.length));
                    let (path, offset) = found.map_or_else(
                        || (UNKNOWN.as_bytes().to_vec(), ip),
                        |m| (m.path.clone(), ip - m.start + m.offset),
                    );
                    *samples.files.entry((process, path.clone())).or_default() += 1;
                    if is_unnamed(&path) {
                        unnamed_processes.insert(process);
                        samples.unnamed.push(CodeSample {
                            process,
                            address: ip,
                            time_ns: time,
                            weight: 1,
                            in_mapping: path != UNKNOWN.as_bytes(),
                        });
                    } else if !*files_only {
                        *samples.places.entry((path, offset)).or_default() += 1;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
fn place(records: Vec<Record>) -> Samples {
    let mut placer = Placer::default();
    placer.place(records);
    placer.samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend(misc.to_le_bytes());
        out.extend((8 + body.len() as u16).to_le_bytes());
        out.extend(body);
        out
    }

    fn words(parts: &[u64]) -> Vec<u8> {
        parts.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn ids(process: u32, thread: u32) -> u64 {
        u64::from(process) | u64::from(thread) << 32
    }

    fn map(process: u32, start: u64, offset: u64, path: &str, time: u64) -> Vec<u8> {
        let mut body = words(&[ids(process, process), start, 0x1000, offset, 0, 0, 0, 0]);
        let mut name = path.as_bytes().to_vec();
        name.resize((path.len() + 1).next_multiple_of(8), 0);
        body.extend(name);
        body.extend(words(&[ids(process, process), time]));
        record(kind::MMAP2, 2, &body)
    }

    fn sample(process: u32, ip: u64, time: u64) -> Vec<u8> {
        record(kind::SAMPLE, 2, &words(&[ip, ids(process, process), time]))
    }

    #[test]
    fn a_mapping_that_is_read_after_its_samples_counts() {
        let parsed = |bytes: &[Vec<u8>]| parse(&bytes.concat());
        let (mut order, mut placer) = (Order::default(), Placer::default());
        // The mapping reached the first ring while the second was read, so it is seen a round
        // later.
        order.round(
            parsed(&[map(7, 0x1000, 0, "/bin/a", 10), sample(7, 0x5010, 40)]),
            &mut placer,
        );
        order.round(
            parsed(&[
                map(7, 0x5000, 0, "/memfd:mgz-runtime (deleted)", 30),
                sample(7, 0x1010, 50),
            ]),
            &mut placer,
        );
        placer.place(order.pending);
        let files: BTreeMap<String, u64> = (placer.samples.files.iter())
            .map(|((_, path), n)| (String::from_utf8_lossy(path).into_owned(), *n))
            .collect();
        let expected = [("/bin/a", 1), ("/memfd:mgz-runtime (deleted)", 1)];
        assert_eq!(files, expected.map(|(p, n)| (p.to_owned(), n)).into());
    }

    #[test]
    fn samples_are_placed_by_what_was_mapped_then() {
        let fork = record(
            kind::FORK,
            0,
            &words(&[ids(8, 7), ids(8, 7), 30, ids(8, 8), 30]),
        );
        let mut exec_body = words(&[ids(8, 8)]);
        exec_body.extend(b"other\0\0\0");
        exec_body.extend(words(&[ids(8, 8), 50]));
        let exec = record(kind::COMM, MISC_COMM_EXEC, &exec_body);
        let bytes = [
            map(7, 0x1000, 0x400, "/bin/a", 10),
            sample(7, 0x1010, 20),
            fork,
            sample(8, 0x1020, 40),
            exec,
            sample(8, 0x1020, 60),
            map(8, 0x1000, 0, "/bin/b", 55),
            sample(7, 0x9999, 70),
            record(kind::LOST, 0, &words(&[1, 5, ids(7, 7), 80])),
        ]
        .concat();
        let mut records = parse(&bytes);
        records.sort_by_key(|r| r.time);
        let samples = place(records);
        let number = |path: &str, offset: u64| {
            samples
                .places
                .get(&(path.as_bytes().to_vec(), offset))
                .copied()
        };
        assert_eq!(number("/bin/a", 0x410), Some(1));
        assert_eq!(
            number("/bin/a", 0x420),
            Some(1),
            "the child has its parent's mappings"
        );
        assert_eq!(number("/bin/b", 0x20), Some(1), "and new ones after exec");
        let unnamed = samples.unnamed.list();
        assert_eq!(unnamed.len(), 1);
        assert_eq!(
            (unnamed[0].process, unnamed[0].address, unnamed[0].time_ns),
            (7, 0x9999, 70)
        );
        assert_eq!(samples.lost, 5);
        for length in 0..bytes.len() {
            let _ = parse(&bytes[..length]);
        }
    }
}
