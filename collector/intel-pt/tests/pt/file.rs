//! A writer of perf.data files with the features that PT recordings need.

use super::encode::{CTC_RATIO, MTC_PERIOD};

pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const IDENTIFIER: u64 = 1 << 16;
pub const AUX: u64 = 1 << 20;
pub const IP: u64 = 1;
pub const CALLCHAIN: u64 = 1 << 5;
/// User registers and stack.
pub const STACKS: u64 = 1 << 12 | 1 << 13;
/// Marker in a call chain: addresses of user code follow.
pub const USER: u64 = -512i64 as u64;
const PT_PMU: u32 = 8;
/// Counter id of the PT event on buffer 0; the sampling event's is 100 more.
pub const PT_ID: u64 = 50;
pub const SAMPLE_ID: u64 = 150;

/// perf's clock from the TSC: half a nanosecond a tick.
pub fn ns(tsc: u64) -> u64 {
    tsc / 2
}

/// Kinds of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingKind {
    /// AUX data in samples.
    Samples,
    /// A buffer for each CPU.
    PerCpu,
    /// A buffer for each thread.
    PerThread,
}

pub struct PerfFile {
    kind: RecordingKind,
    buffers: u32,
    data: Vec<u8>,
    timing: (bool, bool, bool),
    compressed: bool,
    /// PT data consists of snapshots.
    pub snapshot: bool,
    /// Further fields of samples, as `PERF_SAMPLE_*` bits.
    pub extra: u64,
    /// Further events: attributes and ids.
    pub more: Vec<(Vec<u8>, Vec<u64>)>,
    /// Intel PT is recorded without `ptw`.
    pub without_ptw: bool,
    /// The call chain of the samples that follow (with [`CALLCHAIN`] among the extra fields).
    pub chain: Vec<u64>,
    /// Length written into these call chains, if not the true one.
    pub chain_length: Option<u64>,
    /// Registers (bp, sp, ip) and the stack of the samples that follow (with [`STACKS`] among the
    /// extra fields).
    pub stack: Option<([u64; 3], Vec<u64>)>,
}

pub fn words_as_bytes(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub fn pair(a: u32, b: u32) -> u64 {
    u64::from(a) | u64::from(b) << 32
}

/// An attribute of 120 bytes.
pub fn attr(
    pmu: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    flags: u64,
    aux_sample_size: u32,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&pmu.to_le_bytes());
    out.extend_from_slice(&120u32.to_le_bytes());
    out.extend(words_as_bytes(&[config, period, sample_type, 4, flags]));
    out.resize(112, 0);
    out.extend_from_slice(&aux_sample_size.to_le_bytes());
    out.resize(120, 0);
    out
}

impl PerfFile {
    /// `timing`: TSC, MTC and CYC packets are on.
    pub fn new(kind: RecordingKind, buffers: u32, timing: (bool, bool, bool)) -> Self {
        PerfFile {
            kind,
            buffers,
            data: Vec::new(),
            timing,
            compressed: false,
            snapshot: false,
            extra: 0,
            more: Vec::new(),
            without_ptw: false,
            chain: Vec::new(),
            chain_length: None,
            stack: None,
        }
    }

    /// A file with the same settings and no records.
    fn empty(&self) -> PerfFile {
        PerfFile {
            snapshot: self.snapshot,
            extra: self.extra,
            more: self.more.clone(),
            without_ptw: self.without_ptw,
            ..PerfFile::new(self.kind, self.buffers, self.timing)
        }
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = u16::try_from(8 + body.len()).expect("records are short");
        self.data.extend_from_slice(&kind.to_le_bytes());
        self.data.extend_from_slice(&misc.to_le_bytes());
        self.data.extend_from_slice(&size.to_le_bytes());
        self.data.extend_from_slice(body);
    }

    /// A record of the kernel's, with its identity.
    pub fn event(
        &mut self,
        kind: u32,
        misc: u16,
        body: &[u8],
        pid: u32,
        tid: u32,
        tsc: u64,
        cpu: u32,
        buffer: u32,
    ) {
        let mut body = body.to_vec();
        body.extend(words_as_bytes(&[
            pair(pid, tid),
            ns(tsc),
            u64::from(cpu),
            PT_ID + u64::from(buffer),
        ]));
        self.record(kind, misc, &body);
    }

    pub fn comm(&mut self, pid: u32, tid: u32, tsc: u64) {
        let body = [&pair(pid, tid).to_le_bytes()[..], b"program\0"].concat();
        self.event(
            3,
            if pid == tid { 1 << 13 } else { 0 },
            &body,
            pid,
            tid,
            tsc,
            0,
            0,
        );
    }

    pub fn mmap(&mut self, pid: u32, start: u64, len: u64, path: &str, tsc: u64) {
        self.map(pid, start, len, 0, path, None, tsc);
    }

    /// A mapping of a part of a file, with the file's build id, or without as from older kernels.
    pub fn map(
        &mut self,
        pid: u32,
        start: u64,
        len: u64,
        offset: u64,
        path: &str,
        build_id: Option<&[u8]>,
        tsc: u64,
    ) {
        let mut body = words_as_bytes(&[pair(pid, pid), start, len, offset]);
        match build_id {
            Some(id) => {
                body.extend_from_slice(&[id.len() as u8, 0, 0, 0]);
                body.extend_from_slice(id);
                body.resize(body.len() + 20 - id.len(), 0);
            }
            None => body.extend(words_as_bytes(&[0, 0, 0])),
        }
        body.extend(words_as_bytes(&[pair(5, 2)]));
        body.extend_from_slice(path.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(8), 0);
        self.event(
            10,
            if build_id.is_some() { 2 | 1 << 14 } else { 2 },
            &body,
            pid,
            pid,
            tsc,
            0,
            0,
        );
    }

    pub fn start(&mut self, pid: u32, tid: u32, tsc: u64, cpu: u32, buffer: u32) {
        self.event(
            12,
            0,
            &pair(pid, tid).to_le_bytes(),
            pid,
            tid,
            tsc,
            cpu,
            buffer,
        );
    }

    pub fn switch(&mut self, out: bool, pid: u32, tid: u32, tsc: u64, cpu: u32) {
        self.event(
            14,
            if out { 1 << 13 | 2 } else { 2 },
            &[],
            pid,
            tid,
            tsc,
            cpu,
            cpu,
        );
    }

    pub fn aux(
        &mut self,
        offset: u64,
        size: u64,
        flags: u64,
        pid: u32,
        tid: u32,
        tsc: u64,
        cpu: u32,
        buffer: u32,
    ) {
        self.event(
            11,
            0,
            &words_as_bytes(&[offset, size, flags]),
            pid,
            tid,
            tsc,
            cpu,
            buffer,
        );
    }

    /// A sample with AUX data, padded as the kernel does. The extra fields have valid dummy values.
    pub fn sample(&mut self, aux: &[u8], ip: u64, pid: u32, tid: u32, tsc: u64, cpu: u32) {
        let has = |bit: u32| (self.extra | CPU | PERIOD) >> bit & 1 == 1;
        let mut body = words_as_bytes(&[SAMPLE_ID + u64::from(cpu), ip, pair(pid, tid), ns(tsc)]);
        let mut add = |bit: u32, list: &[u64]| {
            if has(bit) {
                body.extend(words_as_bytes(list));
            }
        };
        add(3, &[0x7000]); // ADDR
        add(6, &[SAMPLE_ID + u64::from(cpu)]); // ID
        add(9, &[77]); // STREAM_ID
        add(7, &[u64::from(cpu)]);
        add(8, &[1000]); // PERIOD
        add(4, &[5, SAMPLE_ID + u64::from(cpu)]); // READ, with id
        match self.chain.len() as u64 {
            0 => add(5, &[3, USER, ip, ip + 4]),
            count => {
                let count = self.chain_length.unwrap_or(count);
                add(5, &[&[count], &self.chain[..]].concat());
            }
        }
        add(10, &[20 | 0x1234 << 32, 1, 2]); // RAW: 20 bytes and its length
        add(11, &[2, 1, 2, 3, 4, 5, 6]); // BRANCH_STACK
        match &self.stack {
            None => {
                add(12, &[2, 11, 12]); // REGS_USER: two registers
                add(13, &[16, 1, 2, 16]); // STACK_USER
            }
            Some((registers, stack)) => {
                let bytes = stack.len() as u64 * 8;
                add(12, &[&[2], &registers[..]].concat());
                add(13, &[&[bytes], &stack[..], &[bytes]].concat());
            }
        }
        add(14, &[9]); // WEIGHT
        add(15, &[0x5080021]); // DATA_SRC
        add(17, &[0]); // TRANSACTION
        add(18, &[0]); // REGS_INTR: none
        add(19, &[0x1000]); // PHYS_ADDR
        add(21, &[42]); // CGROUP
        add(22, &[4096]); // DATA_PAGE_SIZE
        add(23, &[4096]); // CODE_PAGE_SIZE
        let len = aux.len().next_multiple_of(8);
        body.extend(words_as_bytes(&[len as u64]));
        body.extend_from_slice(aux);
        body.resize(body.len() + len - aux.len(), 0);
        self.record(9, 2, &body);
    }

    pub fn auxtrace(&mut self, bytes: &[u8], offset: u64, buffer: u32, tid: u32, cpu: u32) {
        self.record(
            71,
            0,
            &words_as_bytes(&[
                bytes.len() as u64,
                offset,
                1,
                pair(buffer, tid),
                u64::from(cpu),
            ]),
        );
        self.data.extend_from_slice(bytes);
    }

    pub fn round(&mut self) {
        self.record(68, 0, &[]);
    }

    /// Removes the records so far, in the form in which one of perf's threads writes them into its
    /// own file.
    pub fn take_records(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.data)
    }

    /// Appends records that were made before.
    pub fn append(&mut self, records: &[u8]) {
        self.data.extend_from_slice(records);
    }

    fn attrs(&self) -> Vec<(Vec<u8>, Vec<u64>)> {
        let (tsc, mtc, cyc) = self.timing;
        let mut config = 1 | 0x20 | if self.without_ptw { 0 } else { 0x1000 };
        config |= if tsc { 0x400 } else { 0 };
        config |= if mtc {
            0x200 | u64::from(MTC_PERIOD) << 14
        } else {
            0
        };
        config |= if cyc { 2 } else { 0 };
        // disabled, inherit, no kernel, no hypervisor, enable on exec; mmap, comm, task;
        // sample_id_all; context switches
        let common = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 18;
        let tracked =
            common | 1 | 1 << 12 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24 | 1 << 26;
        let identity = TID | TIME | CPU | IDENTIFIER;
        let ids = |first: u64| {
            (0..u64::from(self.buffers))
                .map(|n| first + n)
                .collect::<Vec<_>>()
        };
        let mut list = vec![(
            attr(PT_PMU, config, 1, identity | IP | PERIOD, tracked, 0),
            ids(PT_ID),
        )];
        if self.kind == RecordingKind::Samples {
            let mut sampling = attr(
                4,
                0x81d0,
                1000,
                identity | IP | PERIOD | AUX | self.extra,
                common,
                8192,
            );
            // Registers: ax and dx; or bp, sp and ip.
            let registers: u16 = if self.stack.is_some() { 0x1c0 } else { 0b1001 };
            sampling[80..82].copy_from_slice(&registers.to_le_bytes());
            sampling[96] = 0b11;
            list.push((sampling, ids(SAMPLE_ID)));
        }
        list.extend(self.more.clone());
        list
    }

    /// Records that perf writes first.
    fn preamble(&self) -> Vec<u8> {
        let mut file = self.empty();
        // ns = tsc * 512 >> 10
        file.record(79, 0, &words_as_bytes(&[10, 512, 0]));
        let per_cpu = u64::from(self.kind != RecordingKind::PerThread);
        // As in perf, the index comes before the PT information.
        let mut index = Vec::new();
        for (_, ids) in self.attrs() {
            for (buffer, id) in ids.iter().enumerate() {
                let cpu = if self.kind == RecordingKind::PerThread {
                    u64::MAX
                } else {
                    buffer as u64
                };
                let thread = if self.kind == RecordingKind::PerCpu {
                    1000
                } else {
                    1000 + buffer as u64
                };
                index.extend([*id, buffer as u64, cpu, thread]);
            }
        }
        index.insert(0, index.len() as u64 / 4);
        file.record(69, 0, &words_as_bytes(&index));
        let switches = if self.kind == RecordingKind::PerThread {
            0
        } else {
            2
        };
        let info = [
            pair(1, 0),
            u64::from(PT_PMU),
            10,
            512,
            0,
            1,
            0x400,
            0x800,
            switches,
            u64::from(self.snapshot),
            per_cpu,
            0x200,
            0x3c000,
            CTC_RATIO,
            1,
            2,
            20,
            0,
        ];
        file.record(70, 0, &words_as_bytes(&info));
        file.data
    }

    /// The file form.
    pub fn finish(&self) -> Vec<u8> {
        let attrs = self.attrs();
        let ids_at = 104;
        let mut ids = Vec::new();
        let mut entries = Vec::new();
        for (attr, list) in &attrs {
            entries.extend_from_slice(attr);
            entries.extend(words_as_bytes(&[
                ids_at + ids.len() as u64,
                list.len() as u64 * 8,
            ]));
            ids.extend(words_as_bytes(list));
        }
        let attrs_at = ids_at + ids.len() as u64;
        let data_at = attrs_at + entries.len() as u64;
        let data = [self.preamble(), self.data.clone()].concat();
        let mut out = b"PERFILE2".to_vec();
        // The feature that says how records are compressed.
        let features = if self.compressed { 1 << 27 } else { 0 };
        out.extend(words_as_bytes(&[
            104,
            136,
            attrs_at,
            entries.len() as u64,
            data_at,
            data.len() as u64,
            0,
            0,
            features,
            0,
            0,
            0,
        ]));
        assert_eq!(out.len(), 104);
        out.extend(ids);
        out.extend(entries);
        out.extend(data);
        if self.compressed {
            let at = out.len() as u64 + 16;
            out.extend(words_as_bytes(&[at, 20]));
            // Version, zstd, level, ratio, size of the buffer.
            out.extend(
                [1u32, 1, 1, 5, 1 << 20]
                    .iter()
                    .flat_map(|w| w.to_le_bytes()),
            );
        }
        out
    }

    /// The pipe form: attributes are records.
    pub fn finish_pipe(&self) -> Vec<u8> {
        let mut file = self.empty();
        for (attr, ids) in self.attrs() {
            file.record(64, 0, &[attr, words_as_bytes(&ids)].concat());
        }
        let mut out = b"PERFILE2".to_vec();
        out.extend(words_as_bytes(&[16]));
        out.extend(file.data);
        out.extend(self.preamble());
        out.extend_from_slice(&self.data);
        out
    }

    /// The file form, in which the records from the kernel's buffers are compressed: all except the
    /// preamble and AUXTRACE records.
    pub fn finish_compressed(&self) -> Vec<u8> {
        let mut packed = self.empty();
        packed.compressed = true;
        let mut encoder = zstd::stream::raw::Encoder::new(1).expect("zstd works");
        let (mut at, mut from) = (0, 0);
        while at < self.data.len() {
            let word =
                |n: usize| u64::from_le_bytes(self.data[n..n + 8].try_into().expect("eight bytes"));
            let size = (word(at) >> 48) as usize;
            let next = at + size;
            if word(at) as u32 == 71 {
                packed.pack(&mut encoder, &self.data[from..at]);
                from = next + word(at + 8) as usize;
                packed.data.extend_from_slice(&self.data[at..from]);
                at = from;
            } else {
                at = next;
            }
        }
        packed.pack(&mut encoder, &self.data[from..]);
        packed.finish()
    }

    fn pack(&mut self, encoder: &mut zstd::stream::raw::Encoder<'_>, bytes: &[u8]) {
        use zstd::stream::raw::{InBuffer, Operation, OutBuffer};
        // Pieces end in the middle of records.
        for piece in bytes.chunks(10_007) {
            let mut space = vec![0u8; 20_000];
            let mut output = OutBuffer::around(&mut space[..]);
            encoder
                .run(&mut InBuffer::around(piece), &mut output)
                .expect("fits");
            encoder.flush(&mut output).expect("fits");
            let len = output.pos();
            self.record(81, 0, &space[..len]);
        }
    }
}
