//! `ptwrite` packets with the IP that follows them.
//!
//! A PTW whose IP bit is set gets the IP of the next FUP. Only timing packets may be between them;
//! any other packet means that the FUP was lost, and the PTW is counted as torn instead of getting
//! the IP of another event.

use crate::clock::{Clock, ClockSettings};
use crate::packet::{Ip, Packet};
use crate::stream::{GapReason, PacketOrGap, Packets, find_psb, may_run_on};

/// The last IP, against which the next is compressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastIp(u64);

impl LastIp {
    /// Applies a packet's IP; `None` if the packet has none.
    #[inline]
    pub fn update(&mut self, ip: Ip) -> Option<u64> {
        self.0 = match ip {
            Ip::Suppressed => return None,
            Ip::Low16(low) => self.0 & !0xffff | u64::from(low),
            Ip::Low32(low) => self.0 & !0xffff_ffff | u64::from(low),
            Ip::Low48(low) => self.0 & !0xffff_ffff_ffff | low,
            Ip::Signed48(low) => {
                (low << 16) as i64 as u64 >> 16 | if low >> 47 & 1 == 1 { 0xffff << 48 } else { 0 }
            }
            Ip::Full(ip) => ip,
        };
        Some(self.0)
    }

    /// Applies a FUP's IP given as its selector and the eight bytes behind its first (of which it
    /// uses some), without branches on the selector. Also returns the packet's length; `None`
    /// without a change for suppressed IPs and reserved selectors.
    #[inline(always)]
    fn update_raw(&mut self, selector: u8, raw: u64) -> Option<(u64, usize)> {
        /// By selector: packet length, mask of the replaced bits.
        const IP_FORMS: [(u8, u64); 8] = [
            (0, 0),
            (3, 0xffff),
            (5, 0xffff_ffff),
            (7, u64::MAX),
            (7, 0xffff_ffff_ffff),
            (0, 0),
            (9, u64::MAX),
            (0, 0),
        ];
        let (len, mask) = IP_FORMS[usize::from(selector & 7)];
        if len == 0 {
            return None;
        }
        let extended = ((raw << 16) as i64 >> 16) as u64;
        let bits = if selector == 3 { extended } else { raw };
        self.0 = self.0 & !mask | bits & mask;
        Some((self.0, usize::from(len)))
    }
}

/// An executed `ptwrite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptwrite {
    /// Address of the instruction; `None` if it was not recorded (`fup_on_ptw`).
    pub ip: Option<u64>,
    /// The operand.
    pub payload: u64,
    /// Time stamp counter, if a TSC packet was seen before.
    pub tsc: Option<u64>,
    /// Offset of its PTW packet in the bytes that are read.
    pub start: usize,
    /// Offset behind the packet that completed it (the PTW itself, or its FUP).
    pub end: usize,
}

/// Lost and skipped data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Bytes before the first PSB.
    pub before_psb_bytes: u64,
    /// Bad packets.
    pub bad_packets: u64,
    /// Bytes skipped because of them, up to the next PSB.
    pub bad_bytes: u64,
    /// Bytes of a packet that the end of the data cut off.
    pub cut_bytes: u64,
    /// Overflow packets: the hardware lost packets there.
    pub overflows: u64,
    /// PTWs without their FUP because the data ended.
    pub torn_at_end: u64,
    /// PTWs without their FUP for any other reason.
    pub torn: u64,
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Loss) {
        self.before_psb_bytes += other.before_psb_bytes;
        self.bad_packets += other.bad_packets;
        self.bad_bytes += other.bad_bytes;
        self.cut_bytes += other.cut_bytes;
        self.overflows += other.overflows;
        self.torn_at_end += other.torn_at_end;
        self.torn += other.torn;
    }
}

/// Iterator over the `ptwrite`s of a byte slice, from its first PSB on.
#[derive(Clone, Debug)]
pub struct Ptwrites<'a> {
    packets: Packets<'a>,
    clock: Clock,
    last_ip: LastIp,
    /// Payload and offset of a PTW whose FUP has not come yet.
    pending: Option<(u64, usize)>,
    loss: Loss,
    /// See [`Ptwrites::last_loss`].
    last_loss: usize,
}

impl<'a> Ptwrites<'a> {
    /// Reads `bytes` with a clock of these settings.
    pub fn new(bytes: &'a [u8], settings: ClockSettings) -> Self {
        Ptwrites {
            packets: Packets::new(bytes),
            clock: Clock::new(settings),
            last_ip: LastIp::default(),
            pending: None,
            loss: Loss::default(),
            last_loss: 0,
        }
    }

    /// Losses so far.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Offset behind the last point at which a `ptwrite` may be missing (skipped bytes, an
    /// overflow, a torn pair); 0 if there is none so far. It changes if the `ptwrite` just read
    /// does not directly follow the previous one.
    pub fn last_loss(&self) -> usize {
        self.last_loss
    }

    /// Fast path: reads complete pairs with timing packets between them. Stops before any other
    /// packet, and before a pair that the rest of a PSB may follow.
    #[inline(always)]
    fn plain(&mut self) -> Option<Ptwrite> {
        if self.pending.is_some() {
            return None;
        }
        loop {
            let (rest, start) = self.packets.in_step()?;
            // The longest pair with its next bytes fits into this, so lengths are not checked
            // below.
            let head = rest.first_chunk::<33>()?;
            let word = |at: usize| {
                u64::from_le_bytes([
                    head[at],
                    head[at + 1],
                    head[at + 2],
                    head[at + 3],
                    head[at + 4],
                    head[at + 5],
                    head[at + 6],
                    head[at + 7],
                ])
            };
            match head[0] {
                0x02 if head[1] & 0x5f == 0x12 => {
                    // Widths and compression vary without a pattern, so they are computed without
                    // branches.
                    let wide = usize::from(head[1] >> 5 & 1);
                    let payload = word(2) & u64::MAX >> (32 - 32 * wide);
                    let len = 6 + 4 * wide;
                    let tsc = self.clock.tsc();
                    if head[1] & 0x80 == 0 {
                        if may_run_on([head[len], head[len + 1]]) {
                            return None;
                        }
                        self.packets.leave(len);
                        return Some(Ptwrite {
                            ip: None,
                            payload,
                            tsc,
                            start,
                            end: start + len,
                        });
                    }
                    let (kind, raw) = if wide == 1 {
                        (head[10], word(11))
                    } else {
                        (head[6], word(7))
                    };
                    if kind & 0x1f != 0x1d {
                        return None;
                    }
                    let mut last_ip = self.last_ip;
                    let (ip, more) = last_ip.update_raw(kind >> 5, raw)?;
                    let next = (len + more) & 31;
                    if may_run_on([head[next], head[next + 1]]) {
                        return None;
                    }
                    self.last_ip = last_ip;
                    let end = start + len + more;
                    self.packets.leave(len + more);
                    return Some(Ptwrite {
                        ip: Some(ip),
                        payload,
                        tsc,
                        start,
                        end,
                    });
                }
                0x59 => {
                    self.clock.update(&Packet::Mtc(head[1]));
                    self.packets.leave(2);
                }
                short if short & 3 == 3 && short & (head[1] & 1) << 2 == 0 => {
                    let second = short >> 2 & 1;
                    self.clock.update(&Packet::Cyc(
                        u64::from(short >> 3) | u64::from((head[1] >> 1) * second) << 5,
                    ));
                    self.packets.leave(1 + usize::from(second));
                }
                0 => self.packets.leave(1),
                _ => return None,
            }
        }
    }

    /// Counts a waiting PTW as torn, because the packet that ends at `end` is not its FUP.
    fn tear(&mut self, end: usize) {
        if self.pending.take().is_some() {
            self.loss.torn += 1;
            self.last_loss = end;
        }
    }
}

impl Iterator for Ptwrites<'_> {
    type Item = Ptwrite;

    #[inline]
    fn next(&mut self) -> Option<Ptwrite> {
        match self.plain() {
            Some(ptwrite) => Some(ptwrite),
            None => self.any(),
        }
    }
}

impl Ptwrites<'_> {
    /// Reads until the next `ptwrite`, with any packets before it.
    #[inline(never)]
    fn any(&mut self) -> Option<Ptwrite> {
        while let Some(step) = self.packets.next() {
            let (packet, start, end) = match step {
                PacketOrGap::Packet { at, len, packet } => (packet, at, at + len),
                PacketOrGap::Gap(gap) => {
                    let bytes = (gap.to - gap.from) as u64;
                    match gap.reason {
                        GapReason::BeforePsb => {
                            self.loss.before_psb_bytes += bytes;
                            self.last_loss = gap.to;
                        }
                        GapReason::Cut => self.loss.cut_bytes += bytes,
                        GapReason::BadPacket => {
                            // Invalid bytes may have been taken for timing packets before.
                            self.clock.forget();
                            self.loss.bad_packets += 1;
                            self.loss.bad_bytes += bytes;
                            self.tear(gap.to);
                            self.last_loss = gap.to;
                        }
                    }
                    continue;
                }
            };
            match packet {
                Packet::Ptw { payload, ip, .. } => {
                    self.tear(end);
                    if !ip {
                        return Some(Ptwrite {
                            ip: None,
                            payload,
                            tsc: self.clock.tsc(),
                            start,
                            end,
                        });
                    }
                    self.pending = Some((payload, start));
                }
                Packet::Fup(ip) => {
                    let ip = self.last_ip.update(ip);
                    if ip.is_none() {
                        self.tear(end);
                    }
                    if let Some((payload, start)) = self.pending.take() {
                        return Some(Ptwrite {
                            ip,
                            payload,
                            tsc: self.clock.tsc(),
                            start,
                            end,
                        });
                    }
                }
                _ if packet.is_timing() => self.clock.update(&packet),
                Packet::Psb => {
                    self.tear(end);
                    self.last_ip = LastIp::default();
                }
                Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) => {
                    self.tear(end);
                    self.last_ip.update(ip);
                }
                Packet::Ovf => {
                    self.tear(end);
                    self.last_loss = end;
                    self.loss.overflows += 1;
                    self.clock.update(&packet);
                }
                _ => self.tear(end),
            }
        }
        self.loss.torn_at_end += u64::from(self.pending.take().is_some());
        None
    }
}

/// Estimates the number of PTWs in `bytes` before the first PSB.
///
/// The first packet's offset is unknown, so the first offset is used from which packets can be read
/// without a fault up to the PSB (or the end). Returns the number of PTWs and the number of bytes
/// read.
pub fn estimate_unsynchronised(bytes: &[u8]) -> (u64, usize) {
    let end = find_psb(bytes, 0).unwrap_or(bytes.len());
    let head = &bytes[..end];
    let whole = end == bytes.len();
    for skip in 0..16.min(end) {
        let mut count = 0;
        let fits = Packets::synchronised(&head[skip..]).all(|step| match step {
            PacketOrGap::Packet { packet, .. } => {
                count += u64::from(matches!(packet, Packet::Ptw { .. }));
                true
            }
            PacketOrGap::Gap(gap) => whole && gap.reason == GapReason::Cut,
        });
        if fits {
            return (count, end);
        }
    }
    (0, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PSB;

    fn ptw(payload: u32) -> Vec<u8> {
        [&[0x02, 0x92][..], &payload.to_le_bytes()].concat()
    }

    const FUP48: [u8; 7] = [0x7d, 0x00, 0x10, 0x40, 0, 0, 0];
    const FUP16: [u8; 3] = [0x3d, 0x34, 0x12];

    fn read(parts: &[&[u8]]) -> (Vec<(Option<u64>, u64)>, Loss) {
        let bytes = parts.concat();
        let mut events = Ptwrites::new(&bytes, ClockSettings::default());
        let rows = events.by_ref().map(|e| (e.ip, e.payload)).collect();
        (rows, events.loss())
    }

    #[test]
    fn payloads_get_the_ip_behind_them_even_with_timing_between() {
        let (rows, loss) = read(&[&PSB, &ptw(1), &FUP48, &ptw(2), &[0x59, 0x07, 0x0b], &FUP16]);
        assert_eq!(rows, [(Some(0x40_1000), 1), (Some(0x40_1234), 2)]);
        assert_eq!(loss, Loss::default());
    }

    #[test]
    fn a_payload_without_ip_bit_stands_alone() {
        let (rows, _) = read(&[&PSB, &[0x02, 0x12, 9, 0, 0, 0], &FUP48]);
        assert_eq!(rows, [(None, 9)]);
    }

    /// Whichever packet is between them, the payload is dropped and counted, and the next pair is
    /// correct.
    #[test]
    fn torn_pairs_are_counted_and_never_given_another_ip() {
        let between: [(&str, &[u8]); 7] = [
            ("overflow", &[0x02, 0xf3]),
            ("psb", &PSB),
            ("tip", &[0x2d, 0x00, 0x20]),
            ("pgd", &[0x01]),
            ("another ptwrite", &[0x02, 0x12, 0, 0, 0, 0]),
            ("exstop", &[0x02, 0xe2]),
            (
                "bad packet and resynchronisation",
                &[
                    0x05, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
                    0x02, 0x82, 0x02, 0x82,
                ],
            ),
        ];
        for (name, bytes) in between {
            let (rows, loss) = read(&[&PSB, &ptw(1), bytes, &FUP48, &ptw(2), &FUP16]);
            let paired: Vec<_> = rows.into_iter().filter(|r| r.0.is_some()).collect();
            assert_eq!(paired, [(Some(0x40_1234), 2)], "{name}");
            assert_eq!((loss.torn, loss.torn_at_end), (1, 0), "{name}");
        }
        let (rows, loss) = read(&[&PSB, &ptw(1), &FUP48[..4]]);
        assert_eq!((rows.len(), loss.torn_at_end, loss.cut_bytes), (0, 1, 4));
        let (rows, loss) = read(&[&PSB, &ptw(1), &[0x1d], &ptw(2), &FUP48]);
        assert_eq!((rows, loss.torn), (vec![(Some(0x40_1000), 2)], 1));
    }

    #[test]
    fn ip_compression_follows_the_manual() {
        let mut last = LastIp(0x1122_3344_5566_7788);
        assert_eq!(last.update(Ip::Suppressed), None);
        assert_eq!(last.update(Ip::Low16(0xaaaa)), Some(0x1122_3344_5566_aaaa));
        assert_eq!(
            last.update(Ip::Low32(0xbbbb_bbbb)),
            Some(0x1122_3344_bbbb_bbbb)
        );
        assert_eq!(
            last.update(Ip::Low48(0xcccc_cccc_cccc)),
            Some(0x1122_cccc_cccc_cccc)
        );
        assert_eq!(
            last.update(Ip::Signed48(0x8000_0000_0001)),
            Some(0xffff_8000_0000_0001)
        );
        assert_eq!(
            last.update(Ip::Signed48(0x7fff_0000_0001)),
            Some(0x0000_7fff_0000_0001)
        );
        assert_eq!(last.update(Ip::Full(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn both_ways_to_apply_an_ip_agree() {
        let raw = 0x8877_8655_4433_2211u64;
        for (selector, ip) in [
            (1, Ip::Low16(raw as u16)),
            (2, Ip::Low32(raw as u32)),
            (3, Ip::Signed48(raw & 0xffff_ffff_ffff)),
            (4, Ip::Low48(raw & 0xffff_ffff_ffff)),
            (6, Ip::Full(raw)),
        ] {
            for old in [0, 0x1122_3344_5566_7788, u64::MAX] {
                let (mut a, mut b) = (LastIp(old), LastIp(old));
                assert_eq!(
                    a.update(ip),
                    b.update_raw(selector, raw).map(|x| x.0),
                    "{ip:?} on {old:#x}"
                );
            }
        }
        for selector in [0, 5, 7] {
            let mut last = LastIp(7);
            assert_eq!((last.update_raw(selector, raw), last.0), (None, 7));
        }
    }

    #[test]
    fn a_psb_resets_the_last_ip_and_an_overflow_does_not() {
        let (rows, _) = read(&[&PSB, &ptw(1), &FUP48, &PSB, &ptw(2), &FUP16]);
        assert_eq!(rows[1], (Some(0x1234), 2));
        let (rows, loss) = read(&[&PSB, &ptw(1), &FUP48, &[0x02, 0xf3], &ptw(2), &FUP16]);
        assert_eq!((rows[1], loss.overflows), ((Some(0x40_1234), 2), 1));
    }

    #[test]
    fn ptwrites_before_the_first_psb_are_estimated() {
        let bytes = [
            &[0xaa, 0xad][..],
            &FUP16,
            &ptw(7),
            &FUP16,
            &ptw(8),
            &FUP16,
            &PSB,
            &ptw(9),
            &FUP48,
        ]
        .concat();
        assert_eq!(
            estimate_unsynchronised(&bytes),
            (2, bytes.len() - 16 - 6 - 7)
        );
        assert_eq!(estimate_unsynchronised(&bytes[2..20]), (2, 18));
        assert_eq!(estimate_unsynchronised(&[]), (0, 0));
    }
}
