//! A kernel that replays a transcript, with the real one's rules for full buffers.

use crate::attr::{Attr, SW_DUMMY, TYPE_SOFTWARE, action, flag};
use crate::kernel::{Area, Control, Counted, EventId, Kernel};
use crate::mmap_ring::{PAGE_SIZE, page};
use crate::records::bits;
use crate::records::kind;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

/// The dynamic type of Intel PT's events.
pub const PT: u32 = 8;

/// Something that happens on a CPU.
#[derive(Clone, Debug)]
pub enum ScriptEvent {
    /// A record of the tracking event.
    Track {
        /// Number of the CPU.
        cpu: u32,
        /// The record's type.
        kind: u32,
        /// Its `misc` field.
        misc: u16,
        /// Bytes behind its header.
        body: Vec<u8>,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Time, ns of the trace's clock.
        time: u64,
    },
    /// PT writes.
    Pt {
        /// Number of the CPU.
        cpu: u32,
        /// Raw packets.
        bytes: Vec<u8>,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Time, ns of the trace's clock.
        time: u64,
    },
    /// The sampling event overflows.
    Sample {
        /// Number of the CPU.
        cpu: u32,
        /// The instruction.
        ip: u64,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Time, ns of the trace's clock.
        time: u64,
    },
    /// The pausing event overflows.
    Pause {
        /// Number of the CPU.
        cpu: u32,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Time, ns of the trace's clock.
        time: u64,
    },
    /// The thread leaves the CPU, and PT with it.
    Out {
        /// Number of the CPU.
        cpu: u32,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Time, ns of the trace's clock.
        time: u64,
    },
    /// The recorder wakes up.
    Wake,
}

/// An opened event.
pub struct Opened {
    /// The requested attribute.
    pub attr: Attr,
    /// The monitored process; -1: any.
    pub pid: i32,
    /// The CPU.
    pub cpu: u32,
    /// The leader of its group.
    pub group: Option<EventId>,
    /// Event whose buffer gets its records.
    pub output: Option<EventId>,
    /// Its address filter.
    pub filter: Option<String>,
    /// Current period.
    pub period: u64,
    /// Number of times it was enabled.
    pub enabled: usize,
    /// Number of times it was disabled.
    pub disabled: usize,
}

/// Memory of one mapping; shared with the recorder through raw pointers, as the kernel's is.
struct Memory {
    words: Rc<Vec<std::cell::UnsafeCell<u64>>>,
}

impl Memory {
    fn new(len: usize) -> Memory {
        Memory {
            words: Rc::new(
                (0..len / 8)
                    .map(|_| std::cell::UnsafeCell::new(0))
                    .collect(),
            ),
        }
    }

    fn base(&self) -> NonNull<u8> {
        NonNull::new(self.words[0].get().cast()).unwrap()
    }

    fn len(&self) -> usize {
        self.words.len() * 8
    }

    fn area(&self) -> Area {
        // SAFETY: the vector is never resized and lives as long as the area keeps its count.
        unsafe { Area::new(self.base(), self.len(), Box::new(self.words.clone())) }
    }

    fn word(&self, at: usize) -> u64 {
        // SAFETY: inside; one thread.
        unsafe { *self.words[at / 8].get() }
    }

    fn set(&self, at: usize, value: u64) {
        // SAFETY: inside; one thread.
        unsafe { *self.words[at / 8].get() = value };
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len());
        // SAFETY: inside, as asserted; one thread.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base().as_ptr().add(at), bytes.len())
        };
    }

    fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len());
        // SAFETY: inside, as asserted; one thread.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr().add(at), len) }.to_vec()
    }
}

#[derive(Default)]
struct Buffers {
    ring: Option<Memory>,
    aux: Option<(Memory, bool)>,
    /// Number of lost records since the last stored one.
    lost: u64,
    /// PT has stopped because the area was full.
    stopped: bool,
    /// Total number of bytes that PT wrote.
    written: u64,
    /// PT is paused by another event.
    paused: bool,
}

/// The error with which an event is refused on a CPU, if it is.
type Refuse = Box<dyn Fn(&Attr, u32) -> Option<i32>>;

/// `f_type` of overlayfs.
pub const OVERLAY: i64 = 0x794c_7630;

/// The kernel.
pub struct Fake {
    /// Contents of files, by path.
    pub files: BTreeMap<String, String>,
    /// Kinds of file systems by file. On overlayfs, filters match nothing, as before Linux 6.18.
    pub file_systems: BTreeMap<String, i64>,
    /// A buffer that fills up from empty at once is reported with size 0, as before Linux 6.13.
    pub fills_at_once: bool,
    /// Events with shorter periods are throttled.
    pub fastest: u64,
    /// Events, in the order in which they were opened.
    pub events: Vec<Opened>,
    /// Which events are refused.
    pub refuse: Refuse,
    /// By thread: the return addresses of its call chains.
    pub callers: HashMap<u32, Vec<u64>>,
    /// Number of bytes that may be mapped.
    pub lockable: usize,
    /// Events still to come.
    pub script: VecDeque<ScriptEvent>,
    /// Number of events that were closed.
    pub closed: usize,
    /// Data that the kernel could not deliver: records, bytes of PT data.
    pub lost: (u64, u64),
    /// Positions at which PT data was cut: CPU and offset.
    pub cuts: Vec<(u32, u64)>,
    /// Number of times the AUX area was copied into a sample.
    pub snapshots: u64,
    /// Values of counters, by event.
    pub counts: HashMap<u64, Counted>,
    buffers: BTreeMap<u32, Buffers>,
}

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Two halves of a word, the lower first.
pub fn pair(a: u32, b: u32) -> u64 {
    u64::from(a) | u64::from(b) << 32
}

/// sysfs of a machine with PT. Each core PMU has a name, a type and CPUs.
pub fn machine(cpus: &str, cores: &[(&str, u32, &str)]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut put = |path: String, text: &str| files.insert(path, format!("{text}\n"));
    let devices = crate::pmu::DEVICES;
    put("/sys/devices/system/cpu/online".into(), cpus);
    put("/proc/sys/kernel/osrelease".into(), "6.1.0-test");
    put("/proc/sys/kernel/perf_event_paranoid".into(), "2");
    put("/proc/77/comm".into(), "mgz-record");
    put(
        "/proc/77/maps".into(),
        "400000-401000 r-xp 00000000 fe:01 5    /usr/bin/mgz-record\n500000-501000 rw-p 00000000 00:00 0 ",
    );
    put(format!("{devices}/intel_pt/type"), &PT.to_string());
    put(format!("{devices}/intel_pt/nr_addr_filters"), "2");
    put(format!("{devices}/intel_pt/max_nonturbo_ratio"), "20");
    for (name, bits) in [
        ("pt", "0"),
        ("cyc", "1"),
        ("fup_on_ptw", "5"),
        ("mtc", "9"),
        ("tsc", "10"),
        ("noretcomp", "11"),
        ("ptw", "12"),
        ("branch", "13"),
        ("mtc_period", "14-17"),
        ("psb_period", "24-27"),
    ] {
        put(
            format!("{devices}/intel_pt/format/{name}"),
            &format!("config:{bits}"),
        );
    }
    for (name, value) in [
        ("mtc", "1"),
        ("mtc_periods", "249"),
        ("psb_cyc", "1"),
        ("psb_periods", "3f"),
        ("ptwrite", "1"),
    ] {
        put(format!("{devices}/intel_pt/caps/{name}"), value);
    }
    for (name, kind, cpus) in cores {
        put(format!("{devices}/{name}/type"), &kind.to_string());
        put(format!("{devices}/{name}/format/event"), "config:0-7");
        put(format!("{devices}/{name}/format/umask"), "config:8-15");
        if !cpus.is_empty() {
            put(format!("{devices}/{name}/cpus"), cpus);
        }
    }
    files
}

impl Fake {
    /// A kernel with these contents of files, by path.
    pub fn new(files: BTreeMap<String, String>) -> Fake {
        Fake {
            files,
            file_systems: BTreeMap::new(),
            fills_at_once: false,
            fastest: 0,
            events: Vec::new(),
            refuse: Box::new(|_, _| None),
            callers: HashMap::new(),
            lockable: usize::MAX,
            script: VecDeque::new(),
            closed: 0,
            lost: (0, 0),
            cuts: Vec::new(),
            snapshots: 0,
            counts: HashMap::new(),
            buffers: BTreeMap::new(),
        }
    }

    /// The counter id of an event; like the kernel's, the ids have gaps.
    fn id_of(event: usize) -> u64 {
        50 + 3 * event as u64
    }

    fn find(&self, cpu: u32, which: impl Fn(&Opened) -> bool) -> usize {
        self.events
            .iter()
            .position(|e| e.cpu == cpu && which(e))
            .expect("such an event was opened")
    }

    fn trailer(&self, event: usize, pid: u32, tid: u32, time: u64) -> Vec<u8> {
        let attr = &self.events[event].attr;
        let mut list = vec![pair(pid, tid), time];
        if attr.sample_type & bits::CPU != 0 {
            list.push(u64::from(self.events[event].cpu));
        }
        list.push(Self::id_of(event));
        words(&list)
    }

    fn room(buffers: &Buffers) -> usize {
        let ring = buffers.ring.as_ref().unwrap();
        let used = ring.word(page::DATA_HEAD) - ring.word(page::DATA_TAIL);
        ring.len() - PAGE_SIZE - used as usize
    }

    fn write(ring: &Memory, record: &[u8]) {
        let size = (ring.len() - PAGE_SIZE) as u64;
        let head = ring.word(page::DATA_HEAD);
        for (n, &byte) in record.iter().enumerate() {
            ring.put(PAGE_SIZE + ((head + n as u64) % size) as usize, &[byte]);
        }
        ring.set(page::DATA_HEAD, head + record.len() as u64);
    }

    /// As `perf_output_begin`: records that do not fit are counted, and reported before the next
    /// one that fits.
    fn emit(
        &mut self,
        event: usize,
        kind_: u32,
        misc: u16,
        body: &[u8],
        identity: (u32, u32, u64),
    ) {
        let cpu = self.events[event].cpu;
        let owner = self.events[event].output.map_or(event, |e| e.0);
        assert!(
            self.buffers[&cpu].ring.is_some() && (owner == event || self.events[owner].cpu == cpu)
        );
        let (pid, tid, time) = identity;
        let tail = if kind_ == kind::SAMPLE {
            Vec::new()
        } else {
            self.trailer(event, pid, tid, time)
        };
        let record =
            crate::records::record_bytes(kind_, misc, &[body.to_vec(), tail].concat()).unwrap();
        let lost = self.buffers[&cpu].lost;
        let note = if lost > 0 {
            crate::records::record_bytes(
                kind::LOST,
                0,
                &[
                    words(&[Self::id_of(event), lost]),
                    self.trailer(event, pid, tid, time),
                ]
                .concat(),
            )
            .unwrap()
        } else {
            Vec::new()
        };
        let buffers = self.buffers.get_mut(&cpu).unwrap();
        if Self::room(buffers) < record.len() + note.len() {
            buffers.lost += 1;
            self.lost.0 += 1;
            return;
        }
        buffers.lost = 0;
        let ring = buffers.ring.as_ref().unwrap();
        Self::write(ring, &note);
        Self::write(ring, &record);
    }

    fn pt(&mut self, cpu: u32, bytes: &[u8], identity: (u32, u32, u64)) {
        let event = self.find(cpu, |e| e.attr.kind == PT);
        let filter = self.events[event].filter.as_deref().unwrap_or("");
        let hidden = filter
            .split_whitespace()
            .filter_map(|word| word.split_once('@'))
            .any(|(_, path)| self.file_systems.get(path) == Some(&OVERLAY));
        let buffers = self.buffers.get_mut(&cpu).unwrap();
        if buffers.paused || hidden {
            return;
        }
        let (area, writable) = buffers.aux.as_ref().expect("the area is mapped");
        let size = area.len() as u64;
        let put = |at: u64, bytes: &[u8]| {
            bytes
                .iter()
                .enumerate()
                .for_each(|(n, &byte)| area.put(((at + n as u64) % size) as usize, &[byte]))
        };
        if !writable {
            put(buffers.written, bytes);
            buffers.written += bytes.len() as u64;
            return;
        }
        if buffers.stopped {
            self.lost.1 += bytes.len() as u64;
            return;
        }
        let ring = buffers.ring.as_ref().unwrap();
        let head = ring.word(page::AUX_HEAD);
        let room = size - (head - ring.word(page::AUX_TAIL));
        if room == 0 {
            // No output can be started, so the kernel writes no record about it.
            buffers.stopped = true;
            self.lost.1 += bytes.len() as u64;
            return;
        }
        let fits = bytes.len().min(room as usize);
        put(head, &bytes[..fits]);
        let cut = fits < bytes.len();
        if self.fills_at_once && cut && room == size {
            buffers.stopped = true;
            self.lost.1 += bytes.len() as u64;
            self.emit(event, kind::AUX, 0, &words(&[head, 0, 1]), identity);
            return;
        }
        ring.set(page::AUX_HEAD, head + fits as u64);
        if cut {
            buffers.stopped = true;
            self.lost.1 += (bytes.len() - fits) as u64;
            self.cuts.push((cpu, head + fits as u64));
        }
        self.emit(
            event,
            kind::AUX,
            0,
            &words(&[head, fits as u64, u64::from(cut)]),
            identity,
        );
    }

    fn sample(&mut self, cpu: u32, ip: u64, identity: (u32, u32, u64)) {
        let event = self.find(cpu, |e| {
            e.attr.kind != PT && e.attr.config != SW_DUMMY && e.attr.aux_action & action::PAUSE == 0
        });
        let attr = self.events[event].attr;
        let mut body = words(&[
            Self::id_of(event),
            ip,
            pair(identity.0, identity.1),
            identity.2,
        ]);
        if attr.sample_type & bits::PERIOD != 0 {
            body.extend(words(&[self.events[event].period]));
        }
        if attr.sample_type & bits::CALLCHAIN != 0 {
            const USER: u64 = -512i64 as u64;
            let callers = self.callers.get(&identity.1).map_or(&[][..], Vec::as_slice);
            body.extend(words(&[2 + callers.len() as u64, USER, ip]));
            body.extend(words(callers));
        }
        if attr.sample_type & bits::AUX != 0 {
            let buffers = &self.buffers[&cpu];
            let (area, writable) = buffers.aux.as_ref().unwrap();
            assert!(!writable, "samples are taken of flight recorders only");
            let count = buffers
                .written
                .min(u64::from(attr.aux_sample_size))
                .min(area.len() as u64);
            let from = buffers.written - count;
            let bytes: Vec<u8> = (from..buffers.written)
                .map(|at| area.get((at % area.len() as u64) as usize, 1)[0])
                .collect();
            let padded = count.next_multiple_of(8);
            body.extend(words(&[padded]));
            body.extend(bytes);
            body.resize(body.len() + (padded - count) as usize, 0);
            self.snapshots += 1;
        }
        self.emit(event, kind::SAMPLE, 2, &body, identity);
        if self.events[event].period < self.fastest {
            let body = words(&[identity.2, Self::id_of(event), Self::id_of(event)]);
            self.emit(event, kind::THROTTLE, 0, &body, identity);
        }
        // The kernel resumes after the sample, and pauses before it.
        if attr.aux_action & action::RESUME != 0 {
            self.buffers.get_mut(&cpu).unwrap().paused = false;
        }
    }

    fn pause(&mut self, cpu: u32, identity: (u32, u32, u64)) {
        let event = self.find(cpu, |e| e.attr.aux_action & action::PAUSE != 0);
        self.buffers.get_mut(&cpu).unwrap().paused = true;
        let body = words(&[
            Self::id_of(event),
            0,
            pair(identity.0, identity.1),
            identity.2,
        ]);
        self.emit(event, kind::SAMPLE, 2, &body, identity);
    }

    fn step(&mut self, step: ScriptEvent) {
        match step {
            ScriptEvent::Track {
                cpu,
                kind,
                misc,
                body,
                pid,
                tid,
                time,
            } => {
                let event = self.find(cpu, |e| {
                    e.attr.kind == TYPE_SOFTWARE && e.attr.config == SW_DUMMY
                });
                self.emit(event, kind, misc, &body, (pid, tid, time));
            }
            ScriptEvent::Pt {
                cpu,
                bytes,
                pid,
                tid,
                time,
            } => self.pt(cpu, &bytes, (pid, tid, time)),
            ScriptEvent::Sample {
                cpu,
                ip,
                pid,
                tid,
                time,
            } => self.sample(cpu, ip, (pid, tid, time)),
            ScriptEvent::Pause {
                cpu,
                pid,
                tid,
                time,
            } => self.pause(cpu, (pid, tid, time)),
            ScriptEvent::Out {
                cpu,
                pid,
                tid,
                time,
            } => self.out(cpu, (pid, tid, time)),
            ScriptEvent::Wake => {}
        }
    }

    /// PT stops when its thread leaves the CPU. For a flight recorder, the kernel reports the
    /// position, and that everything was overwritten.
    fn out(&mut self, cpu: u32, identity: (u32, u32, u64)) {
        let event = self.find(cpu, |e| e.attr.kind == PT);
        let buffers = &self.buffers[&cpu];
        let (area, writable) = buffers.aux.as_ref().unwrap();
        if *writable {
            return;
        }
        let size = area.len() as u64;
        let head = buffers.written % size;
        buffers.ring.as_ref().unwrap().set(page::AUX_HEAD, head);
        self.emit(event, kind::AUX, 0, &words(&[head, size, 2]), identity);
    }
}

impl Kernel for Fake {
    fn read(&self, path: &str) -> io::Result<String> {
        self.files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let below = self
            .files
            .keys()
            .filter_map(|k| k.strip_prefix(path)?.strip_prefix('/'));
        Ok(below
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_string)
            .collect())
    }

    fn file_system(&self, path: &str) -> io::Result<i64> {
        let found = self.file_systems.get(path).copied();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(
        &mut self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        group: Option<EventId>,
    ) -> io::Result<EventId> {
        let cpu = cpu as u32;
        let refused = (self.refuse)(attr, cpu).or_else(|| {
            // The rules of perf_event_open that concern AUX data.
            let leader = group.map(|g| self.events[g.0].attr);
            let follows_pt = leader.is_some_and(|l| l.kind == PT);
            let acts = attr.aux_action & (action::PAUSE | action::RESUME);
            let wrong = (attr.aux_sample_size > 0 || acts != 0) && !follows_pt
                || acts == action::PAUSE | action::RESUME
                || attr.aux_action & action::START_PAUSED != 0 && attr.kind != PT
                || attr.size != 120
                || attr.flags & flag::INHERIT == 0 && attr.sample_type & bits::AUX != 0;
            wrong.then_some(libc::EINVAL)
        });
        if let Some(errno) = refused {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.events.push(Opened {
            attr: *attr,
            pid,
            cpu,
            group,
            output: None,
            filter: None,
            period: attr.sample_period,
            enabled: 0,
            disabled: 0,
        });
        Ok(EventId(self.events.len() - 1))
    }

    fn id(&mut self, event: EventId) -> io::Result<u64> {
        Ok(Self::id_of(event.0))
    }

    fn count(&mut self, event: EventId) -> io::Result<Counted> {
        let counted = self.counts.get(&self.events[event.0].attr.config);
        counted
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn control(&mut self, event: EventId, control: &Control) -> io::Result<()> {
        let cpu = self.events[event.0].cpu;
        match control {
            Control::Enable => {
                self.events[event.0].enabled += 1;
                if let Some(buffers) = self.buffers.get_mut(&cpu) {
                    buffers.stopped = false;
                }
            }
            Control::Disable => self.events[event.0].disabled += 1,
            Control::Output(ring) => {
                // The kernel joins only mapped rings of the same CPU.
                if self.events[ring.0].cpu != cpu
                    || self.buffers.get(&cpu).is_none_or(|b| b.ring.is_none())
                {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                self.events[event.0].output = Some(*ring);
            }
            Control::Filter(text) => self.events[event.0].filter = Some(text.clone()),
            Control::Period(period) => self.events[event.0].period = *period,
        }
        Ok(())
    }

    fn map(&mut self, event: EventId, len: usize, offset: u64, writable: bool) -> io::Result<Area> {
        let refuse = |errno| Err(io::Error::from_raw_os_error(errno));
        let cpu = self.events[event.0].cpu;
        let used: usize = self
            .buffers
            .values()
            .flat_map(|b| {
                b.ring
                    .iter()
                    .map(Memory::len)
                    .chain(b.aux.iter().map(|a| a.0.len()))
            })
            .sum();
        // Memory of an earlier attempt has been unmapped.
        let used = if offset == 0 && self.buffers.contains_key(&cpu) {
            0
        } else {
            used
        };
        if used + len > self.lockable {
            return refuse(libc::EPERM);
        }
        if offset == 0 {
            if !(len - PAGE_SIZE).is_power_of_two() || !writable {
                return refuse(libc::EINVAL);
            }
            if used == 0 {
                self.buffers.clear();
            }
            let ring = Memory::new(len);
            ring.set(page::DATA_OFFSET, PAGE_SIZE as u64);
            ring.set(page::DATA_SIZE, (len - PAGE_SIZE) as u64);
            // perf's clock: half a nanosecond a tick (as in the tests' encoder): mult 512, shift
            // 10.
            ring.set(page::CAPABILITIES, page::CAP_USER_TIME_ZERO);
            ring.set(48, 512 << 32 | 10 << 16);
            let area = ring.area();
            self.buffers.insert(
                cpu,
                Buffers {
                    ring: Some(ring),
                    ..Buffers::default()
                },
            );
            return Ok(area);
        }
        let buffers = self.buffers.get_mut(&cpu).unwrap();
        let ring = buffers.ring.as_ref().unwrap();
        let announced = ring.word(page::AUX_OFFSET) == offset
            && ring.word(page::AUX_SIZE) == len as u64
            && offset >= ring.len() as u64;
        if self.events[event.0].attr.kind != PT || !announced || !len.is_power_of_two() {
            return refuse(libc::EINVAL);
        }
        let aux = Memory::new(len);
        let area = aux.area();
        buffers.aux = Some((aux, writable));
        buffers.paused = self.events[event.0].attr.aux_action & action::START_PAUSED != 0;
        Ok(area)
    }

    fn wait(&mut self, _: Duration) -> io::Result<bool> {
        while let Some(step) = self.script.pop_front() {
            if matches!(step, ScriptEvent::Wake) {
                break;
            }
            self.step(step);
        }
        Ok(!self.script.is_empty())
    }

    fn close_all(&mut self) {
        self.closed += 1;
        self.events.clear();
    }

    fn page(&self) -> usize {
        PAGE_SIZE
    }

    fn tsc(&self) -> u64 {
        1
    }
}
