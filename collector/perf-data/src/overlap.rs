//! Overlap of two windows of one stream.
//!
//! A window ends at a known moment and contains the buffer at that moment. So the next window may
//! begin before the last one's end. Both can be decoded only from a PSB on, so it is enough to find
//! a PSB of the new window in the old one. The time stamp behind a PSB makes it unique. Without
//! time stamps, all bytes up to the old window's end must agree.

use mgz_pt::packet::PSB;
use mgz_pt::{Packet, PacketOrGap, Packets, find_psb};
use std::collections::HashMap;

/// Begin of a window's new part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Packets that end at or before this offset were already in the previous window.
    pub seen: usize,
    /// Bytes at the start that were not in the previous window (which began later), if any.
    pub unseen_head: usize,
}

/// Minimum length of an accepted agreement without time stamps, bytes.
const MIN_PLAIN: usize = 64;

/// The time stamp in the PSB+ that starts at the first byte.
fn stamp(bytes: &[u8]) -> Option<u64> {
    for step in Packets::synchronised(bytes).skip(1) {
        match step {
            PacketOrGap::Packet {
                packet: Packet::Tsc(tsc),
                ..
            } => return Some(tsc),
            PacketOrGap::Packet {
                packet: Packet::PsbEnd | Packet::Ovf | Packet::Psb,
                ..
            }
            | PacketOrGap::Gap(_) => return None,
            PacketOrGap::Packet { .. } => {}
        }
    }
    None
}

fn boundaries(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = find_psb(bytes, from)?;
        from = at + PSB.len();
        Some(at)
    })
}

/// Length of the part of `new` that was in `old`. `None` if no common part can be recognised.
pub fn overlap(old: &[u8], new: &[u8]) -> Option<Overlap> {
    // The kernel pads windows to whole words with zeros.
    let padding = old.iter().rev().take(7).take_while(|&&b| b == 0).count();
    let mut stamps: HashMap<u64, usize> = HashMap::new();
    let mut plain = Vec::new();
    for at in boundaries(old) {
        match stamp(&old[at..]) {
            Some(tsc) => drop(stamps.entry(tsc).or_insert(at)),
            None => plain.push(at),
        }
    }
    for at in boundaries(new) {
        let common = |from: usize| {
            old[from..]
                .iter()
                .zip(&new[at..])
                .take_while(|(a, b)| a == b)
                .count()
        };
        let place = match stamp(&new[at..]) {
            Some(tsc) => stamps.get(&tsc).copied(),
            None => plain.iter().copied().find(|&from| {
                let common = common(from);
                common >= MIN_PLAIN && common + padding >= old.len() - from
            }),
        };
        if let Some(from) = place {
            return Some(Overlap {
                seen: at + common(from),
                unseen_head: at.saturating_sub(from),
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of PSBs, each with a time stamp (if `stamped`) and 100 PTWs.
    fn stream(stamped: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in 0..20u32 {
            bytes.extend_from_slice(&PSB);
            if stamped {
                bytes.push(0x19);
                bytes.extend_from_slice(&u64::from(part + 1).to_le_bytes()[..7]);
            }
            bytes.extend_from_slice(&[0x02, 0x23]);
            for ptw in 0..100u32 {
                bytes.extend_from_slice(&[0x02, 0x12]);
                bytes.extend_from_slice(&(part * 100 + ptw).to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn the_common_part_is_found_exactly() {
        for stamped in [true, false] {
            let stream = stream(stamped);
            for (old, new) in [
                (0..5000, 2500..7500),
                (1..5003, 3000..8000),
                (100..6000, 100..9000),
            ] {
                let mut first = stream[old.clone()].to_vec();
                first.resize(first.len().next_multiple_of(8), 0);
                let found = overlap(&first, &stream[new.clone()]).unwrap();
                let expected = old.end - new.start;
                assert!(
                    found.seen == expected
                        || found.seen <= expected + 7
                            && stream[old.end..][..found.seen - expected]
                                .iter()
                                .all(|&b| b == 0),
                    "{stamped} {old:?} {new:?} {found:?}"
                );
                assert_eq!(found.unseen_head, 0);
            }
        }
    }

    #[test]
    fn separate_windows_have_nothing_in_common() {
        for stamped in [true, false] {
            let stream = stream(stamped);
            assert_eq!(overlap(&stream[..4000], &stream[4000..8000]), None);
            assert_eq!(overlap(&[], &stream), None);
            assert_eq!(overlap(&stream, &[]), None);
        }
    }

    #[test]
    fn a_longer_window_shows_what_the_one_before_did_not_hold() {
        let stream = stream(true);
        assert_eq!(
            overlap(&stream[3000..5000], &stream[1000..6000]),
            Some(Overlap {
                seen: 4000,
                unseen_head: 2000
            })
        );
    }
}
