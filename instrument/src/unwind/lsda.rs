//! Exception tables (language-specific data areas) in the format that gcc defined and all compilers
//! use.
//!
//! The call-site table is rewritten with the clone's offsets, the action table is copied, and
//! relative pointers of the type table are adjusted.

use crate::unwind::{ENC_INDIRECT, ENC_OMIT, ENC_PCREL4, UnwindReader};
use mgz_abi::leb128;
use std::ops::Range;

/// One call site. Addresses are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// First byte.
    pub start: u64,
    /// End (exclusive).
    pub end: u64,
    /// Landing pad, 0 if there is none.
    pub pad: u64,
    /// Offset into the action table plus one, 0 for a cleanup.
    pub action: u64,
}

/// A parsed exception table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lsda {
    /// Call sites in order.
    pub sites: Vec<CallSite>,
    /// Used part of the action table.
    pub actions: Vec<u8>,
    /// Encoding of the type table, [`ENC_OMIT`] if there is none.
    pub type_encoding: u8,
    /// Types, numbered from 1: absolute addresses (of pointers if the encoding is indirect).
    pub types: Vec<u64>,
    /// Used part of the exception specifications after the type table.
    pub specs: Vec<u8>,
}

/// Bytes of one entry of a type table.
fn type_size(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

impl Lsda {
    /// Parses the table at `addr` of the function that starts at `function`. `None` if it has an
    /// unknown form.
    pub fn parse(data: &[u8], addr: u64, function: u64) -> Option<Lsda> {
        let mut r = UnwindReader::new(data, addr);
        let pad_encoding = r.u8()?;
        let pad_base = if pad_encoding == ENC_OMIT {
            function
        } else {
            r.pointer(pad_encoding, function)
                .filter(|_| pad_encoding & ENC_INDIRECT == 0)?
        };
        let type_encoding = r.u8()?;
        let type_base = if type_encoding == ENC_OMIT {
            None
        } else {
            let offset = r.uleb()?;
            Some(usize::try_from(r.addr.checked_add(offset)?.checked_sub(addr)?).ok()?)
        };
        let encoding = r.u8()?;
        if encoding & 0xf0 != 0 {
            return None;
        }
        let len = usize::try_from(r.uleb()?).ok()?;
        let mut table = UnwindReader::new(r.take(len)?, 0);
        let mut sites = Vec::new();
        while !table.rest().is_empty() {
            let start = function.checked_add(table.number(encoding)?)?;
            let end = start.checked_add(table.number(encoding)?)?;
            let pad = match table.number(encoding)? {
                0 => 0,
                offset => pad_base.checked_add(offset)?,
            };
            sites.push(CallSite {
                start,
                end,
                pad,
                action: table.uleb()?,
            });
        }
        if sites.windows(2).any(|w| w[1].start < w[0].end) {
            return None;
        }
        let mut lsda = Lsda {
            sites,
            actions: Vec::new(),
            type_encoding,
            types: Vec::new(),
            specs: Vec::new(),
        };
        lsda.read_actions(r.rest(), data, addr, type_base)?;
        Some(lsda)
    }

    /// Follows the chains of actions, and finds the extent of each table.
    fn read_actions(
        &mut self,
        actions: &[u8],
        data: &[u8],
        addr: u64,
        type_base: Option<usize>,
    ) -> Option<()> {
        let (mut used, mut types, mut specs) = (0usize, 0u64, 0usize);
        let mut seen = std::collections::HashSet::new();
        for site in self.sites.iter().filter(|s| s.action != 0) {
            let mut at = usize::try_from(site.action - 1).ok()?;
            while seen.insert(at) {
                let mut r = UnwindReader::new(actions.get(at..)?, at as u64);
                let filter = r.sleb()?;
                let next_at = r.addr;
                let next = r.sleb()?;
                used = used.max(r.addr as usize);
                if filter > 0 {
                    types = types.max(filter as u64);
                } else if filter < 0 {
                    let start = usize::try_from(filter.unsigned_abs() - 1).ok()?;
                    let mut list = UnwindReader::new(
                        data.get(type_base?.checked_add(start)?..)?,
                        start as u64,
                    );
                    while let kind @ 1.. = list.uleb()? {
                        types = types.max(kind);
                    }
                    specs = specs.max(list.addr as usize);
                }
                if next == 0 {
                    break;
                }
                at = usize::try_from(next_at.checked_add_signed(next)?).ok()?;
            }
        }
        self.actions = actions.get(..used)?.to_vec();
        let Some(base) = type_base else {
            return (types == 0).then_some(());
        };
        self.specs = data.get(base..base.checked_add(specs)?)?.to_vec();
        let size = type_size(self.type_encoding)?;
        for number in 1..=types {
            let at = base.checked_sub(size.checked_mul(usize::try_from(number).ok()?)?)?;
            let mut r = UnwindReader::new(data.get(at..)?, addr + at as u64);
            self.types.push(r.pointer(self.type_encoding, 0)?);
        }
        // An 8-byte absolute pointer has a dynamic relocation in position-independent code. Such
        // tables are writable, and no compiler for x86-64 emits them.
        Some(())
    }

    /// `(call range, landing pad)` of the sites that have one.
    pub fn landing_pads(&self) -> Vec<(Range<u64>, u64)> {
        self.sites
            .iter()
            .filter(|s| s.pad != 0)
            .map(|s| (s.start..s.end, s.pad))
            .collect()
    }

    /// The table for a clone, to be placed at `addr`. `sites` are the call sites with clone
    /// addresses, `function` is the clone's start.
    pub fn write(&self, addr: u64, function: u64, sites: &[CallSite]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        // Landing pads after the function's start need no base of their own.
        let lowest = sites.iter().map(|s| s.pad).filter(|&p| p != 0).min();
        let pad_base = match lowest {
            Some(pad) if pad <= function => {
                let base = pad - 1;
                out.push(ENC_PCREL4);
                out.extend_from_slice(&four_byte_distance(base, addr + 1)?);
                base
            }
            _ => {
                out.push(ENC_OMIT);
                function
            }
        };
        let mut table = Vec::new();
        for s in sites {
            leb(&mut table, s.start.checked_sub(function)?);
            leb(&mut table, s.end.checked_sub(s.start)?);
            leb(
                &mut table,
                if s.pad == 0 {
                    0
                } else {
                    s.pad.checked_sub(pad_base)?
                },
            );
            leb(&mut table, s.action);
        }
        let mut body = vec![0x01];
        leb(&mut body, table.len() as u64);
        body.extend_from_slice(&table);
        body.extend_from_slice(&self.actions);
        out.push(if self.type_encoding == ENC_OMIT {
            ENC_OMIT
        } else {
            self.written_encoding()
        });
        if self.type_encoding == ENC_OMIT {
            out.extend_from_slice(&body);
            return Some(out);
        }
        let size = type_size(self.written_encoding())?;
        // Some readers expect aligned types, so there is padding between actions and types. The
        // offset has a fixed length of 4 bytes, so that it does not depend on the padding.
        let offset_at = out.len();
        let after = addr + offset_at as u64 + 4;
        let unpadded = after + body.len() as u64;
        let padding = unpadded.wrapping_neg() & 3;
        let types_at = unpadded + padding;
        let base = types_at + (size * self.types.len()) as u64;
        fixed_leb(&mut out, base - after)?;
        out.extend_from_slice(&body);
        out.extend(std::iter::repeat_n(0, padding as usize));
        for (i, &target) in self.types.iter().rev().enumerate() {
            let place = types_at + (i * size) as u64;
            if target == 0 {
                out.extend(std::iter::repeat_n(0, size));
            } else if self.written_encoding() & 0x70 == 0x10 {
                out.extend_from_slice(&four_byte_distance(target, place)?);
            } else {
                out.extend_from_slice(&target.to_le_bytes()[..size]);
            }
        }
        out.extend_from_slice(&self.specs);
        Some(out)
    }

    /// The encoding of the new table: relative type pointers become 4-byte distances, absolute ones
    /// stay.
    fn written_encoding(&self) -> u8 {
        if self.type_encoding & 0x70 == 0x10 {
            ENC_PCREL4 | self.type_encoding & ENC_INDIRECT
        } else {
            self.type_encoding
        }
    }
}

/// The 4-byte distance from `place` to `target`.
pub fn four_byte_distance(target: u64, place: u64) -> Option<[u8; 4]> {
    i32::try_from(target.wrapping_sub(place) as i64)
        .ok()
        .map(i32::to_le_bytes)
}

fn leb(out: &mut Vec<u8>, value: u64) {
    leb128::encode(value, |byte| out.push(byte));
}

/// An unsigned LEB128 number of exactly four bytes.
fn fixed_leb(out: &mut Vec<u8>, value: u64) -> Option<()> {
    if value >= 1 << 28 {
        return None;
    }
    out.extend((0..4).map(|i| (value >> (7 * i)) as u8 & 0x7f | if i < 3 { 0x80 } else { 0 }));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function at 0x1000, table at 0x5000: two call sites, one with a handler for type 1 and then
    /// a specification that allows type 2 only, indirect pcrel types.
    fn table() -> Vec<u8> {
        let mut t = vec![ENC_OMIT, 0x9b];
        let mut body = vec![0x01, 8, 0x10, 5, 0x40, 1, 0x20, 5, 0, 0];
        // Action 1: filter 1, next at +1 (the next byte); action at 2: filter -1, end.
        body.extend_from_slice(&[0x01, 0x01, 0x7f, 0x00]);
        let types = 8;
        let after = t.len() + 1;
        let pad = (4 - (after + body.len()) % 4) % 4;
        t.push((body.len() + pad + types) as u8);
        t.extend_from_slice(&body);
        t.extend(std::iter::repeat_n(0, pad));
        let place = 0x5000 + t.len() as u64;
        t.extend_from_slice(&four_byte_distance(0x7020, place).unwrap());
        t.extend_from_slice(&four_byte_distance(0x7010, place + 4).unwrap());
        t.extend_from_slice(&[2, 0]);
        t
    }

    #[test]
    fn a_table_is_understood() {
        let lsda = Lsda::parse(&table(), 0x5000, 0x1000).unwrap();
        assert_eq!(
            lsda.sites,
            [
                CallSite {
                    start: 0x1010,
                    end: 0x1015,
                    pad: 0x1040,
                    action: 1
                },
                CallSite {
                    start: 0x1020,
                    end: 0x1025,
                    pad: 0,
                    action: 0
                },
            ]
        );
        assert_eq!(lsda.types, [0x7010, 0x7020]);
        assert_eq!(lsda.specs, [2, 0]);
        assert_eq!(lsda.actions, [1, 1, 0x7f, 0]);
        assert_eq!(lsda.landing_pads(), [(0x1010..0x1015, 0x1040)]);
    }

    #[test]
    fn a_written_table_reads_back_at_its_new_place() {
        let lsda = Lsda::parse(&table(), 0x5000, 0x1000).unwrap();
        for pad in [0x9_0400u64, 0x1040] {
            let moved = [
                CallSite {
                    start: 0x9_0100,
                    end: 0x9_0300,
                    pad,
                    action: 1,
                },
                CallSite {
                    start: 0x9_0310,
                    end: 0x9_0320,
                    pad: 0,
                    action: 0,
                },
            ];
            let bytes = lsda.write(0xa_0001, 0x9_0000, &moved).unwrap();
            let back = Lsda::parse(&bytes, 0xa_0001, 0x9_0000).unwrap();
            assert_eq!(back.sites, moved);
            assert_eq!(
                (back.types, back.specs, back.actions),
                (lsda.types.clone(), lsda.specs.clone(), lsda.actions.clone())
            );
        }
    }

    #[test]
    fn every_truncation_is_survived() {
        let whole = table();
        for len in 0..whole.len() {
            assert!(
                Lsda::parse(&whole[..len], 0x5000, 0x1000).is_none(),
                "{len} of {} bytes were accepted",
                whole.len()
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(0u8.., 0..64)) {
            let _ = Lsda::parse(&bytes, 0x5000, 0x1000);
        }
    }
}
