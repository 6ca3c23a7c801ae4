//! Sequences of packets, with an account of the skipped bytes.

use crate::packet::{BlockItem, Fault, PSB, Packet, decode};
use std::fmt;

/// Reason why bytes were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Before the first PSB the boundaries of packets are unknown.
    BeforePsb,
    /// Invalid packet: skipped up to the next PSB.
    BadPacket,
    /// The bytes end inside a packet.
    Cut,
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapReason::BeforePsb => "before the first PSB",
            GapReason::BadPacket => "bad packet",
            GapReason::Cut => "cut off inside a packet",
        })
    }
}

/// Bytes that are in no packet. The range is empty if they were in a packet that the caller decoded
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first.
    pub from: usize,
    /// Offset behind the last.
    pub to: usize,
    /// Reason.
    pub reason: GapReason,
}

/// Items of [`Packets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrGap {
    /// A packet.
    Packet {
        /// Its offset.
        at: usize,
        /// Its length.
        len: usize,
        /// The packet.
        packet: Packet,
    },
    /// Bytes that were skipped.
    Gap(Gap),
}

/// Longest run of `02 82` that is measured. Real streams never have two PSBs in a row, and
/// malicious input must not cost much time.
const LONGEST_RUN: usize = 4 * PSB.len();

/// Bytes from `start` on in which `02 82` repeats.
fn run(bytes: &[u8], start: usize) -> usize {
    let pairs = bytes[start..].chunks_exact(2).take(LONGEST_RUN / 2);
    2 * pairs.take_while(|pair| *pair == &PSB[..2]).count()
}

/// Offset of the next PSB at or after `from`.
///
/// If the pattern `02 82` repeats more often than in a PSB, the run's last whole PSBs count, since
/// the bytes before them are the end of another packet.
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    // Every PSB covers a whole 8-byte step regardless of its start, so most bytes are not read.
    loop {
        let word = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
        const PSB_WORD: u64 = u64::from_le_bytes([0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82]);
        if word == PSB_WORD || word == PSB_WORD.rotate_right(8) {
            let mut start = at + usize::from(word != PSB_WORD);
            while start >= from + 2 && bytes[start - 2] == 0x02 && bytes[start - 1] == 0x82 {
                start -= 2;
            }
            let run = run(bytes, start);
            if run >= PSB.len() {
                return Some(start + run % PSB.len());
            }
            at = (start + run).max(at);
        }
        at += 8;
    }
}

/// True if bytes from `end` on may be the rest of a PSB. Other data looks like that only by chance.
#[inline(always)]
pub(crate) fn may_run_on(next: [u8; 2]) -> bool {
    u16::from_ne_bytes(next) & 0x7f7f == 0x0202
}

/// Offset of a PSB that begins inside the packet `at..end` and ends behind it.
///
/// In that case the packet was cut off and includes the PSB's first bytes, so its content is
/// invalid. A whole packet may end in bytes that look like a PSB's start, but then the run is
/// longer by these.
#[cold]
fn swallowed(bytes: &[u8], at: usize, end: usize) -> Option<usize> {
    let start = (at + 1..end).find(|&start| bytes[start..].starts_with(&PSB))?;
    let run = run(bytes, start);
    Some(start + run % PSB.len()).filter(|&psb| run < LONGEST_RUN && psb < end)
}

/// Iterator over the packets of a byte slice.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    synchronised: bool,
    block: Option<BlockItem>,
}

impl<'a> Packets<'a> {
    /// Starts at the first PSB.
    pub fn new(bytes: &'a [u8]) -> Self {
        Packets {
            bytes,
            at: 0,
            synchronised: false,
            block: None,
        }
    }

    /// Starts at the first byte, which must be the start of a packet.
    pub fn synchronised(bytes: &'a [u8]) -> Self {
        Packets {
            synchronised: true,
            ..Packets::new(bytes)
        }
    }

    /// Searches a PSB from an offset on.
    #[cold]
    fn synchronise(&mut self, reason: GapReason, search_from: usize) -> Option<Gap> {
        let from = self.at;
        let found = find_psb(self.bytes, search_from);
        self.at = found.unwrap_or(self.bytes.len());
        self.synchronised = true;
        self.block = None;
        (self.at > from).then_some(Gap {
            from,
            to: self.at,
            reason,
        })
    }
}

impl<'a> Packets<'a> {
    /// The bytes from the next packet on and their offset, if packets are synchronized and no block
    /// is open.
    #[inline(always)]
    pub(crate) fn in_step(&self) -> Option<(&'a [u8], usize)> {
        if !self.synchronised || self.block.is_some() {
            return None;
        }
        Some((self.bytes.get(self.at..)?, self.at))
    }

    /// Skips bytes that the caller has decoded.
    #[inline(always)]
    pub(crate) fn leave(&mut self, len: usize) {
        self.at += len;
    }
}

impl Iterator for Packets<'_> {
    type Item = PacketOrGap;

    #[inline]
    fn next(&mut self) -> Option<PacketOrGap> {
        if !self.synchronised
            && let Some(gap) = self.synchronise(GapReason::BeforePsb, 0)
        {
            return Some(PacketOrGap::Gap(gap));
        }
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        match decode(rest, self.block) {
            Ok((packet, len)) => {
                let end = self.at + len;
                if self.bytes[end..]
                    .first_chunk()
                    .is_some_and(|&next| may_run_on(next))
                    && let Some(psb) = swallowed(self.bytes, self.at, end)
                {
                    let from = std::mem::replace(&mut self.at, psb);
                    self.block = None;
                    return Some(PacketOrGap::Gap(Gap {
                        from,
                        to: psb,
                        reason: GapReason::BadPacket,
                    }));
                }
                match packet {
                    Packet::Bbp { item, .. } => self.block = Some(item),
                    Packet::Bep { .. } | Packet::Psb | Packet::Ovf => self.block = None,
                    _ => {}
                }
                let at = self.at;
                self.at += len;
                Some(PacketOrGap::Packet { at, len, packet })
            }
            Err(Fault::Cut) => {
                let gap = Gap {
                    from: self.at,
                    to: self.bytes.len(),
                    reason: GapReason::Cut,
                };
                self.at = gap.to;
                Some(PacketOrGap::Gap(gap))
            }
            // The bad packet may be a truncated PSB with a complete one right behind it. A PSB that
            // begins before is possible only inside packets that the caller has decoded.
            Err(Fault::Bad) => {
                let from = self.at.saturating_sub(PSB.len() - 1);
                match find_psb(
                    &self.bytes[..self.bytes.len().min(self.at + 2 * PSB.len())],
                    from,
                ) {
                    Some(psb) if psb < self.at => {
                        self.at = psb;
                        self.block = None;
                        Some(PacketOrGap::Gap(Gap {
                            from: psb,
                            to: psb,
                            reason: GapReason::BadPacket,
                        }))
                    }
                    _ => self
                        .synchronise(GapReason::BadPacket, self.at + 1)
                        .map(PacketOrGap::Gap),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(bytes: &[u8]) -> Vec<PacketOrGap> {
        Packets::new(bytes).collect()
    }

    #[test]
    fn reading_starts_at_the_first_psb_and_again_after_a_bad_packet() {
        let mut bytes = vec![1, 2, 3];
        bytes.extend_from_slice(&PSB);
        bytes.extend_from_slice(&[0x05, 0x59, 0x00]);
        bytes.extend_from_slice(&PSB);
        bytes.extend_from_slice(&[0x59]);
        let gap = |from, to, reason| PacketOrGap::Gap(Gap { from, to, reason });
        let psb = |at| PacketOrGap::Packet {
            at,
            len: 16,
            packet: Packet::Psb,
        };
        assert_eq!(
            steps(&bytes),
            [
                gap(0, 3, GapReason::BeforePsb),
                psb(3),
                gap(19, 22, GapReason::BadPacket),
                psb(22),
                gap(38, 39, GapReason::Cut)
            ]
        );
    }

    #[test]
    fn a_psb_is_found_at_every_alignment() {
        for before in 0..40 {
            let mut bytes = vec![0x82; before];
            bytes.extend_from_slice(&PSB);
            bytes.extend_from_slice(&[0x02, 0x23]);
            assert_eq!(find_psb(&bytes, 0), Some(before), "after {before} bytes");
        }
        assert_eq!(find_psb(&PSB[..15], 0), None);
        assert_eq!(find_psb(&PSB, 1), None);
    }

    /// Bytes behind a PSB in the tests: two `ptwrite`s with their IPs.
    const AFTER_PSB: [u8; 26] = [
        0x02, 0x23, 0x02, 0x92, 1, 0, 0, 0, 0x7d, 0x00, 0x10, 0x40, 0, 0, 0, 0x02, 0x92, 2, 0, 0,
        0, 0x3d, 0x34, 0x12, 0, 0,
    ];

    fn psbs(bytes: &[u8]) -> Vec<usize> {
        let places = steps(bytes).into_iter().filter_map(|step| match step {
            PacketOrGap::Packet {
                at,
                packet: Packet::Psb,
                ..
            } => Some(at),
            _ => None,
        });
        places.collect()
    }

    /// Every kind of packet, cut at every length, includes bytes of the following PSB; so does the
    /// rest of the PSB if it looks like a packet.
    #[test]
    fn a_psb_whose_first_bytes_a_cut_packet_took_is_found() {
        let packets: [&[u8]; 28] = [
            &[0x0d],
            &[0x2d, 0x34, 0x12],
            &[0x51, 0x78, 0x56, 0x34, 0x12],
            &[0x81, 1, 2, 3, 4, 5, 6],
            &[0x7d, 1, 2, 3, 4, 5, 0x86],
            &[0xdd, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x99, 0x01],
            &[0x99, 0x22],
            &[0x02, 0x43, 3, 0, 0, 0, 0, 1],
            &[0x02, 0xc8, 1, 2, 3, 4, 5],
            &[0x19, 1, 2, 3, 4, 5, 6, 7],
            &[0x02, 0x73, 0x34, 0x12, 0, 0xff, 0x01],
            &[0x59, 0xab],
            &[0b0000_1111, 0b0000_0101, 0x04],
            &[0x02, 0x03, 0x18, 0x00],
            &[0x02, 0xa3, 5, 0, 0, 0, 0, 0x80],
            &[0x02, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x02, 0x12, 1, 2, 3, 4],
            // The payload's bytes are a PSB's own.
            &[0x02, 0xb2, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82],
            &[0x02, 0x32, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02],
            &[0x02, 0xc3, 0x88, 1, 0, 0, 0, 0, 0, 0, 2],
            &[0x02, 0xc2, 0x21, 0, 0, 0, 1, 0, 0, 0],
            &[0x02, 0x22, 0x80, 0x32],
            &[0x02, 0xa2, 0x36, 0x01, 0, 0, 0],
            &[0x02, 0x63, 0x84],
            &[0x02, 0x53, 1, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0xd9, 0x40, 1, 0x34, 0x12],
            &PSB,
        ];
        for packet in packets {
            for cut in 0..packet.len() {
                let mut bytes = [&PSB[..], &AFTER_PSB, &packet[..cut]].concat();
                let second = bytes.len();
                bytes.extend_from_slice(&PSB);
                bytes.extend_from_slice(&AFTER_PSB);
                let what = format!("{cut} bytes of {packet:02x?}");
                assert_eq!(psbs(&bytes), [0, second], "{what}");
                let bad = steps(&bytes)
                    .into_iter()
                    .find(|s| matches!(s, PacketOrGap::Gap(_)));
                let whole = cut == 0 || decode(&packet[..cut], None).is_ok();
                assert!(
                    whole
                        || bad
                            == Some(PacketOrGap::Gap(Gap {
                                from: second - cut,
                                to: second,
                                reason: GapReason::BadPacket
                            })),
                    "{what}: {bad:?}"
                );
                let mut pairs = crate::Ptwrites::new(&bytes, crate::ClockSettings::default());
                let found: Vec<_> = pairs.by_ref().map(|p| (p.ip, p.payload)).collect();
                let one = [(Some(0x40_1000), 1), (Some(0x40_1234), 2)];
                assert_eq!(found, [one, one].concat(), "{what}");
            }
        }
    }

    /// Tests a block of items, and a packet whose IP is in the lost bytes.
    #[test]
    fn a_cut_pair_or_item_takes_no_psb_with_it() {
        let ptw: &[u8] = &[0x02, 0x92, 9, 0, 0, 0];
        for cut in [
            &[ptw, &[0x7d, 1, 2, 3]].concat()[..],
            &[ptw, &[0x3d]].concat(),
            &[ptw, &[0x3d, 1]].concat(),
            &[ptw, &[0xdd, 0x02, 0x82, 0x02, 0x82, 0x02]].concat(),
            &[ptw, &[0x59]].concat(),
            &[ptw, &[0x07]].concat(),
            &[0x02, 0x63, 0x04, 0x0c, 1, 2, 3],
            &[0x02, 0x63, 0x84, 0x0c, 1],
            // Two cut packets in a row.
            &[0x02, 0xb2, 1, 2, 3, 0x02, 0x92, 7],
        ] {
            let bytes = [&PSB[..], &AFTER_PSB, cut, &PSB, &AFTER_PSB].concat();
            let second = PSB.len() + AFTER_PSB.len() + cut.len();
            assert_eq!(psbs(&bytes), [0, second], "{cut:02x?}");
            let mut pairs = crate::Ptwrites::new(&bytes, crate::ClockSettings::default());
            let found: Vec<_> = pairs.by_ref().map(|p| p.payload).collect();
            let loss = pairs.loss();
            assert_eq!(found, [1, 2, 1, 2], "{cut:02x?}");
            assert_eq!(loss.torn, u64::from(cut.starts_with(ptw)), "{cut:02x?}");
            assert_eq!(loss.bad_packets, 1, "{cut:02x?}");
        }
    }

    #[test]
    fn a_long_run_takes_no_time() {
        let bytes = PSB.repeat(1 << 17);
        assert_eq!(psbs(&bytes).len(), 1 << 17);
        assert_eq!(psbs(&bytes[6..]).len(), (1 << 17) - 1);
    }

    #[test]
    fn a_psb_behind_the_tail_of_a_packet_that_looks_like_it_is_found() {
        let mut bytes = vec![0x02, 0x82, 0x02, 0x82];
        bytes.extend_from_slice(&PSB);
        assert_eq!(find_psb(&bytes, 0), Some(4));
    }

    proptest::proptest! {
        #[test]
        fn every_byte_is_in_a_packet_or_a_gap(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600), places in proptest::collection::vec(0usize..600, 0..4)) {
            for place in places {
                if place + 16 <= bytes.len() {
                    bytes[place..place + 16].copy_from_slice(&PSB);
                }
            }
            for packets in [Packets::new(&bytes), Packets::synchronised(&bytes)] {
                let mut at = 0;
                for step in packets {
                    let (from, to) = match step {
                        PacketOrGap::Packet { at, len, .. } => (at, at + len),
                        PacketOrGap::Gap(gap) => (gap.from, gap.to),
                    };
                    assert!(from == at && to > from, "{step:?} at {at}");
                    at = to;
                }
                assert_eq!(at, bytes.len());
            }
        }

        /// With any bytes before it, each PSB found by a search is also read as a packet.
        #[test]
        fn no_psb_is_lost(parts in proptest::collection::vec((proptest::sample::select(vec![0u8, 1, 2, 3]), proptest::collection::vec(proptest::num::u8::ANY, 0..12), 0usize..17), 0..30)) {
            let mut bytes = Vec::new();
            for (kind, noise, cut) in parts {
                match kind {
                    0 => bytes.extend_from_slice(&PSB[..cut.min(16)]),
                    1 => bytes.extend_from_slice(&[0x02, [0xb2, 0x12, 0x73, 0xa3, 0x53, 0xc3][noise.len() % 6]]),
                    2 => bytes.extend_from_slice(&[&PSB[..], &AFTER_PSB].concat()),
                    _ => bytes.extend_from_slice(&noise),
                }
            }
            // Real streams never have so many PSBs in a row, and longer runs are not measured.
            proptest::prop_assume!(!bytes.windows(LONGEST_RUN).any(|window| run(window, 0) == LONGEST_RUN));
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(at) = find_psb(&bytes, from) {
                found.push(at);
                from = at + PSB.len();
            }
            assert_eq!(psbs(&bytes), found);
        }

        #[test]
        fn psb_search_agrees_with_the_plain_one(bytes in proptest::collection::vec(proptest::sample::select(vec![0x02u8, 0x82]), 0..80), noise in proptest::collection::vec((0usize..80, 0u8..3), 0..3), from in 0usize..8) {
            let mut bytes = bytes;
            for (at, value) in noise {
                if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            }
            // Any PSB must be found, unless a longer run moves it, and nothing else.
            let plain = (from..bytes.len()).find(|&at| bytes.get(at..at + 16) == Some(&PSB[..]));
            let found = find_psb(&bytes, from);
            assert_eq!(found.is_some(), plain.is_some());
            if let (Some(found), Some(plain)) = (found, plain) {
                assert_eq!(&bytes[found..found + 16], &PSB[..]);
                assert!(found >= plain && found < plain + 16);
            }
        }
    }
}
