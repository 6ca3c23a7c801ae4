//! A PT encoder: writes the packets that the hardware would write for a list of `ptwrite`s.

/// The packets between which decoding starts.
const PSB: [u8; 16] = [
    0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
];

/// One executed `ptwrite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    pub ip: u64,
    pub payload: u64,
    pub tsc: u64,
}

/// Location of an event in the stream, and true if it can be read back.
#[derive(Clone, Copy, Debug)]
pub struct PacketSpan {
    pub write: Write,
    pub start: usize,
    pub end: usize,
}

/// TSC ticks per crystal tick of the encoded machine.
pub const CTC_RATIO: u64 = 80;
/// MTC every 8 crystal ticks.
pub const MTC_PERIOD: u32 = 3;

/// Settings of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Minimum distance between PSBs, bytes.
    pub psb_every: usize,
    pub tsc: bool,
    pub mtc: bool,
    pub cyc: bool,
    /// FUPs behind PTWs.
    pub fup: bool,
}

pub struct Encoder {
    style: Style,
    pub bytes: Vec<u8>,
    /// Offsets of PSBs.
    pub boundaries: Vec<usize>,
    pub places: Vec<PacketSpan>,
    last_ip: u64,
    last_mtc: u64,
    last_tsc: u64,
}

impl Encoder {
    pub fn new(style: Style) -> Self {
        Encoder {
            style,
            bytes: Vec::new(),
            boundaries: Vec::new(),
            places: Vec::new(),
            last_ip: 0,
            last_mtc: 0,
            last_tsc: 0,
        }
    }

    /// The time packets at a start or resumption of tracing.
    pub fn timing(&mut self, tsc: u64) {
        if !self.style.tsc {
            return;
        }
        self.bytes.push(0x19);
        self.bytes.extend_from_slice(&tsc.to_le_bytes()[..7]);
        if self.style.mtc {
            let ctc = tsc / CTC_RATIO;
            self.bytes.extend_from_slice(&[0x02, 0x73]);
            self.bytes.extend_from_slice(&(ctc as u16).to_le_bytes());
            self.bytes.push(0);
            self.bytes
                .extend_from_slice(&((tsc % CTC_RATIO) as u16).to_le_bytes());
            self.last_mtc = ctc >> MTC_PERIOD;
        }
        if self.style.cyc {
            self.bytes.extend_from_slice(&[0x02, 0x03, 20, 0]);
        }
        self.last_tsc = tsc;
    }

    pub fn psb(&mut self, tsc: u64) {
        self.boundaries.push(self.bytes.len());
        self.bytes.extend_from_slice(&PSB);
        self.timing(tsc);
        self.bytes.extend_from_slice(&[0x99, 0x01, 0x02, 0x23]);
        self.last_ip = 0;
    }

    fn ip(&mut self, opcode: u8, ip: u64) {
        let bytes = ip.to_le_bytes();
        let (selector, len) = if ip >> 16 == self.last_ip >> 16 {
            (1, 2)
        } else if ip >> 32 == self.last_ip >> 32 {
            (2, 4)
        } else if (ip << 16) as i64 as u64 == ip << 16 && ((ip << 16) as i64 >> 16) as u64 == ip {
            (3, 6)
        } else {
            (6, 8)
        };
        self.bytes.push(selector << 5 | opcode);
        self.bytes.extend_from_slice(&bytes[..len]);
        self.last_ip = ip;
    }

    fn ptw(&mut self, payload: u64) {
        let ip = if self.style.fup { 0x80 } else { 0 };
        if payload >> 32 == 0 {
            self.bytes.extend_from_slice(&[0x02, 0x12 | ip]);
            self.bytes.extend_from_slice(&payload.to_le_bytes()[..4]);
        } else {
            self.bytes.extend_from_slice(&[0x02, 0x32 | ip]);
            self.bytes.extend_from_slice(&payload.to_le_bytes());
        }
    }

    /// Packets due before an event: PSB and time packets.
    fn advance(&mut self, tsc: u64) {
        let due = self
            .boundaries
            .last()
            .is_none_or(|&at| self.bytes.len() - at >= self.style.psb_every);
        if due {
            self.psb(tsc);
        }
        if self.style.mtc {
            let now = (tsc / CTC_RATIO) >> MTC_PERIOD;
            // The hardware writes every MTC, since readers see only the counter's low bits.
            while self.last_mtc < now {
                self.last_mtc += 1;
                self.bytes.extend_from_slice(&[0x59, self.last_mtc as u8]);
                self.last_tsc = (self.last_mtc * CTC_RATIO) << MTC_PERIOD;
            }
        }
        if self.style.cyc && tsc > self.last_tsc {
            // In these streams the core and the TSC have the same frequency.
            let cycles = tsc - self.last_tsc;
            if cycles < 32 {
                self.bytes.push((cycles as u8) << 3 | 3);
            } else if cycles < 1 << 12 {
                self.bytes
                    .extend_from_slice(&[(cycles as u8 & 31) << 3 | 7, ((cycles >> 5) as u8) << 1]);
            }
            self.last_tsc = tsc;
        }
    }

    /// The places that can be read from each window, once: those behind its first PSB. A window
    /// without a PSB is left out.
    pub fn readable(&self, windows: &[std::ops::Range<usize>]) -> Vec<std::ops::Range<usize>> {
        let mut next = 0;
        let mut out = Vec::new();
        for window in windows {
            let is_inside = |&&at: &&usize| at >= window.start && at + PSB.len() <= window.end;
            let Some(&first) = self.boundaries.iter().find(is_inside) else {
                continue;
            };
            let from = self.places.partition_point(|p| p.start < first).max(next);
            let to = self
                .places
                .partition_point(|p| p.end <= window.end)
                .max(from);
            out.push(from..to);
            next = next.max(to);
        }
        out
    }

    pub fn write(&mut self, write: Write) {
        self.advance(write.tsc);
        let start = self.bytes.len();
        self.ptw(write.payload);
        if self.style.fup {
            self.ip(0x1d, write.ip);
        }
        self.places.push(PacketSpan {
            write,
            start,
            end: self.bytes.len(),
        });
    }

    /// A `ptwrite` whose FUP the hardware lost in an overflow.
    pub fn overflow(&mut self, lost: Write) {
        self.advance(lost.tsc);
        self.ptw(lost.payload);
        self.bytes.extend_from_slice(&[0x02, 0xf3]);
        self.timing(lost.tsc);
    }

    pub fn pad(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }
}

/// Small deterministic generator, so that tests need no seed file.
pub struct SmallRandom(pub u64);

impl SmallRandom {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A program's `ptwrite`s: a few hot places in one module, some far away, addresses of all kinds.
pub fn writes(random: &mut SmallRandom, count: usize, first_tsc: u64) -> Vec<Write> {
    let mut tsc = first_tsc;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        tsc += random.below(40);
        let base = match random.below(50) {
            0 => 0x7f12_3450_0000,
            1 => 0x40_1000,
            _ => 0x5555_5555_0000,
        };
        let payload = match random.below(10) {
            0 => random.next(),
            1 => random.below(1 << 32),
            2 => 0,
            _ => 0x5555_0000_0000 + random.below(1 << 30),
        };
        out.push(Write {
            ip: base + random.below(64) * 24,
            payload,
            tsc,
        });
    }
    out
}
