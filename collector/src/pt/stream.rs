//! Packets in a row, with an account of what was skipped.

use super::packet::{BlockItem, Fault, PSB, Packet, decode};
use std::fmt;

/// Why bytes were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Nothing says where packets begin before the first PSB.
    BeforePsb,
    /// Something that is no packet: skipped up to the next PSB.
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

/// Bytes that are in no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first.
    pub from: usize,
    /// Offset behind the last.
    pub to: usize,
    /// Why.
    pub reason: GapReason,
}

/// What [`Packets`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet.
    Packet {
        /// Its offset.
        at: usize,
        /// Its length.
        len: usize,
        /// What it is.
        packet: Packet,
    },
    /// Bytes that were skipped.
    Gap(Gap),
}

/// Offset of the next PSB at or after `from`.
///
/// Where the pattern `02 82` repeats more often than a PSB has it, the run's last whole PSBs count,
/// since what precedes them is the end of another packet.
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    // Every PSB covers a whole 8-byte step wherever it starts, so most bytes are never looked at.
    loop {
        let word = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
        const EVEN: u64 = u64::from_le_bytes([0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82]);
        if word == EVEN || word == EVEN.rotate_right(8) {
            let mut start = at + usize::from(word != EVEN);
            while start >= from + 2 && bytes[start - 2] == 0x02 && bytes[start - 1] == 0x82 {
                start -= 2;
            }
            let mut end = start;
            while bytes.get(end..end + 2) == Some(&PSB[..2]) {
                end += 2;
            }
            if end - start >= PSB.len() {
                return Some(start + (end - start) % PSB.len());
            }
            at = end.max(at);
        }
        at += 8;
    }
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

    /// Looks for a PSB from the present offset on.
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
    /// The bytes from the next packet on and their offset, where packets are in step and no block is open.
    #[inline(always)]
    pub(super) fn in_step(&self) -> Option<(&'a [u8], usize)> {
        if !self.synchronised || self.block.is_some() {
            return None;
        }
        Some((self.bytes.get(self.at..)?, self.at))
    }

    /// Leaves bytes behind that the caller decoded.
    #[inline(always)]
    pub(super) fn leave(&mut self, len: usize) {
        self.at += len;
    }
}

impl Iterator for Packets<'_> {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if !self.synchronised
            && let Some(gap) = self.synchronise(GapReason::BeforePsb, 0)
        {
            return Some(Step::Gap(gap));
        }
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        match decode(rest, self.block) {
            Ok((packet, len)) => {
                match packet {
                    Packet::Bbp { item, .. } => self.block = Some(item),
                    Packet::Bep { .. } | Packet::Psb | Packet::Ovf => self.block = None,
                    _ => {}
                }
                let at = self.at;
                self.at += len;
                Some(Step::Packet { at, len, packet })
            }
            Err(Fault::Cut) => {
                let gap = Gap {
                    from: self.at,
                    to: self.bytes.len(),
                    reason: GapReason::Cut,
                };
                self.at = gap.to;
                Some(Step::Gap(gap))
            }
            // The bad byte itself may be the first of a PSB's run that another packet's tail precedes.
            Err(Fault::Bad) => self
                .synchronise(GapReason::BadPacket, self.at + 1)
                .map(Step::Gap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(bytes: &[u8]) -> Vec<Step> {
        Packets::new(bytes).collect()
    }

    #[test]
    fn reading_starts_at_the_first_psb_and_again_after_a_bad_packet() {
        let mut bytes = vec![1, 2, 3];
        bytes.extend_from_slice(&PSB);
        bytes.extend_from_slice(&[0x05, 0x59, 0x00]);
        bytes.extend_from_slice(&PSB);
        bytes.extend_from_slice(&[0x59]);
        let gap = |from, to, reason| Step::Gap(Gap { from, to, reason });
        let psb = |at| Step::Packet {
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
                        Step::Packet { at, len, .. } => (at, at + len),
                        Step::Gap(gap) => (gap.from, gap.to),
                    };
                    assert!(from == at && to > from, "{step:?} at {at}");
                    at = to;
                }
                assert_eq!(at, bytes.len());
            }
        }

        #[test]
        fn psb_search_agrees_with_the_plain_one(bytes in proptest::collection::vec(proptest::sample::select(vec![0x02u8, 0x82]), 0..80), noise in proptest::collection::vec((0usize..80, 0u8..3), 0..3), from in 0usize..8) {
            let mut bytes = bytes;
            for (at, value) in noise {
                if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            }
            // Any 16 bytes that are a PSB must be found, unless a longer run moves them; never something else.
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
