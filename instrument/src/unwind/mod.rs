//! Unwind tables: `.eh_frame`, the exception tables (LSDAs) that it refers to, and the rewriting of
//! both for the clone.
//!
//! The new `.eh_frame` describes the original code like the old one (so that debuggers that read
//! one section see all code), and the clones likewise, with mapped code offsets. Short adjacent
//! functions share an entry ([`merge`]). All pointers are written as 4-byte distances to their own
//! place.
//!
//! All input is checked. A part of unknown form is an error for the whole section if later entries
//! would get lost. If only an exception table is unknown, its function is left unchanged.

pub mod cfi;
pub mod lsda;
pub mod merge;
pub mod write;

use lsda::Lsda;
use mgz_abi::leb128;
use mgz_elf::{Elf, Refusal};
use object::elf;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Pointer encoding: absolute, 8 bytes.
pub const ENC_ABS: u8 = 0x00;
/// Pointer encoding: distance to its own place, 4 bytes, signed.
pub const ENC_PCREL4: u8 = 0x1b;
/// Pointer encoding flag: the value is the address of the pointer.
pub const ENC_INDIRECT: u8 = 0x80;
/// Pointer encoding: none.
pub const ENC_OMIT: u8 = 0xff;

/// A cursor over bytes whose addresses are known.
#[derive(Clone, Copy, Debug)]
pub struct UnwindReader<'a> {
    data: &'a [u8],
    /// Address of the next byte.
    pub addr: u64,
}

impl<'a> UnwindReader<'a> {
    /// Reads `data`, whose first byte is at `addr`.
    pub fn new(data: &'a [u8], addr: u64) -> UnwindReader<'a> {
        UnwindReader { data, addr }
    }

    /// Bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.data
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        if len > self.data.len() {
            return None;
        }
        let (head, tail) = self.data.split_at(len);
        self.data = tail;
        self.addr = self.addr.wrapping_add(len as u64);
        Some(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// A little-endian number of 1 to 8 bytes.
    pub fn uint(&mut self, len: usize) -> Option<u64> {
        Some(
            self.take(len)?
                .iter()
                .rev()
                .fold(0, |v, &b| v << 8 | u64::from(b)),
        )
    }

    /// An unsigned LEB128 number.
    pub fn uleb(&mut self) -> Option<u64> {
        // Most numbers have one byte.
        if let [byte @ 0..0x80, ..] = self.data {
            return self.u8().map(|_| u64::from(*byte));
        }
        leb128::decode(u64::BITS, || self.u8())
    }

    /// A signed LEB128 number.
    pub fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift < 64 {
                value |= i64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift + 7 < 64 {
                    value |= -1 << (shift + 7);
                }
                return Some(value);
            }
        }
        None
    }

    /// A pointer in a `DW_EH_PE_*` encoding; function-relative ones count from `function`. Zero
    /// stays zero in any encoding. The indirect flag is not followed.
    pub fn pointer(&mut self, encoding: u8, function: u64) -> Option<u64> {
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => self.addr,
            0x40 => function,
            _ => return None,
        };
        let value = self.number(encoding)?;
        Some(if value == 0 {
            0
        } else {
            value.wrapping_add(base)
        })
    }

    /// The number in a `DW_EH_PE_*` encoding, without a base.
    pub fn number(&mut self, encoding: u8) -> Option<u64> {
        Some(match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.uint(8)?,
            0x01 => self.uleb()?,
            0x02 => self.uint(2)?,
            0x03 => self.uint(4)?,
            0x09 => self.sleb()? as u64,
            0x0a => self.uint(2)? as i16 as u64,
            0x0b => self.uint(4)? as i32 as u64,
            _ => return None,
        })
    }
}

/// Common information of several entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cie<'a> {
    /// True if the augmentation string starts with z: entries have sized augmentation data.
    pub augmented: bool,
    /// True for a signal frame.
    pub signal: bool,
    /// True if entries have an LSDA pointer.
    pub has_lsda: bool,
    /// True if the pointer is indirect (never seen, kept).
    pub lsda_indirect: bool,
    /// Personality routine: indirect flag and address.
    pub personality: Option<(bool, u64)>,
    /// Code alignment factor.
    pub code_align: u64,
    /// Data alignment factor.
    pub data_align: i64,
    /// Return address column.
    pub return_column: u64,
    /// Encoding of the entries' addresses.
    pub encoding: u8,
    /// Encoding of the LSDA pointers.
    pub lsda_encoding: u8,
    /// Initial instructions.
    pub instructions: &'a [u8],
}

impl Cie<'_> {
    /// The common part for code of our own without exception tables. `instructions` define the
    /// start of its frame.
    pub const fn plain(signal: bool, instructions: &[u8]) -> Cie<'_> {
        Cie {
            augmented: true,
            signal,
            has_lsda: false,
            lsda_indirect: false,
            personality: None,
            code_align: 1,
            data_align: -8,
            return_column: 16,
            encoding: ENC_PCREL4,
            lsda_encoding: ENC_OMIT,
            instructions,
        }
    }
}

/// Unwind information of one piece of code.
#[derive(Clone, Debug)]
pub struct Fde<'a> {
    /// Address of the entry.
    at: u64,
    /// Index into [`Tables::cies`].
    pub cie: usize,
    /// Code that it covers.
    pub range: Range<u64>,
    /// Address of its exception table.
    pub lsda: Option<u64>,
    /// Instructions.
    pub instructions: &'a [u8],
}

/// All of a file's unwind tables.
#[derive(Clone, Debug, Default)]
pub struct Tables<'a> {
    /// Common parts.
    pub cies: Vec<Cie<'a>>,
    /// Entries, sorted by start.
    pub fdes: Vec<Fde<'a>>,
    /// Exception tables by address, those that could be parsed.
    pub lsdas: HashMap<u64, Lsda>,
}

impl<'a> Tables<'a> {
    /// Reads the tables of a file; empty if it has none.
    pub fn read(elf: &Elf<'a>) -> Result<Tables<'a>, Refusal> {
        let Some((addr, data)) = section(elf) else {
            return Ok(Tables::default());
        };
        let mut tables = Tables::parse(data, addr).ok_or_else(|| {
            Refusal::declined("its unwind tables (.eh_frame) have a form that mgz does not understand, so exceptions could not be kept working")
        })?;
        tables.drop_superseded(|| search_table(elf));
        for fde in &tables.fdes {
            let Some(at) = fde.lsda else { continue };
            // Functions never share a table: its call sites are relative to the function.
            if let Some(lsda) = elf
                .at(at)
                .and_then(|bytes| Lsda::parse(bytes, at, fde.range.start))
            {
                tables.lsdas.insert(at, lsda);
            }
        }
        Ok(tables)
    }

    /// Parses the bytes of an `.eh_frame` section at `addr`.
    pub fn parse(data: &'a [u8], addr: u64) -> Option<Tables<'a>> {
        let mut tables = Tables::default();
        let mut by_offset: HashMap<u64, usize> = HashMap::new();
        let mut reader = UnwindReader::new(data, addr);
        while !reader.rest().is_empty() {
            let start = reader.addr;
            let mut length = reader.uint(4)?;
            if length == 0 {
                // A terminator; linkers may leave one between the parts of several inputs.
                continue;
            }
            if length == 0xffff_ffff {
                length = reader.uint(8)?;
            }
            let id_at = reader.addr;
            let mut entry = UnwindReader::new(reader.take(usize::try_from(length).ok()?)?, id_at);
            let id = entry.uint(4)?;
            if id == 0 {
                by_offset.insert(start, tables.cies.len());
                tables.cies.push(cie(entry)?);
                continue;
            }
            let cie = *by_offset.get(&id_at.wrapping_sub(id))?;
            let fde = fde(entry, &tables.cies[cie], cie, start)?;
            if !fde.range.is_empty() {
                tables.fdes.push(fde);
            }
        }
        tables.fdes.sort_by_key(|f| f.range.start);
        Some(tables)
    }

    /// If a function has several entries, keeps only the one in `used`, which unwinders find by
    /// function. Programs that move code in finished files (BOLT) add entries after the old ones.
    fn drop_superseded(&mut self, used: impl FnOnce() -> Option<HashMap<u64, u64>>) {
        let starts = self.fdes.iter().map(|f| f.range.start);
        let repeated: HashSet<u64> = starts
            .clone()
            .zip(starts.skip(1))
            .filter(|(a, b)| a == b)
            .map(|(a, _)| a)
            .collect();
        if repeated.is_empty() {
            return;
        }
        let used = used().unwrap_or_default();
        let ways: HashSet<u64> = self.fdes.iter().map(|f| f.at).collect();
        self.fdes.retain(|fde| {
            let start = fde.range.start;
            let named = used.get(&start).filter(|at| ways.contains(at));
            !repeated.contains(&start) || named.is_none_or(|at| *at == fde.at)
        });
    }

    /// Unwind ranges for the analysis, sorted by start.
    pub fn ranges(&self) -> Vec<UnwindRange> {
        let range = |fde: &Fde| {
            let lsda = fde.lsda.map(|at| self.lsdas.get(&at));
            let copied = cfi::is_understood(self.source(fde), fde.range.end);
            UnwindRange {
                range: fde.range.clone(),
                landing_pads: lsda.flatten().map_or_else(Vec::new, Lsda::landing_pads),
                // The code to which handlers return is entered one byte after its start, and
                // unwinders recognize it by its bytes.
                understood: copied && !matches!(lsda, Some(None)) && !self.cies[fde.cie].signal,
            }
        };
        self.fdes.iter().map(range).collect()
    }

    /// Source of an entry's instructions.
    pub fn source(&self, fde: &Fde<'a>) -> cfi::CfiSource<'a> {
        let cie = &self.cies[fde.cie];
        cfi::CfiSource {
            instructions: fde.instructions,
            start: fde.range.start,
            code_align: cie.code_align,
            encoding: cie.encoding,
        }
    }

    /// Numbers of the entries that cover part of `range`.
    pub fn covering(&self, range: &Range<u64>) -> Range<usize> {
        let end = self.fdes.partition_point(|f| f.range.start < range.end);
        let mut start = end;
        while start > 0 && self.fdes[start - 1].range.end > range.start {
            start -= 1;
        }
        start..end
    }
}

/// Address and bytes of `.eh_frame`: the section, or the bytes at the address in `PT_GNU_EH_FRAME`,
/// up to the terminator.
fn section<'a>(elf: &Elf<'a>) -> Option<(u64, &'a [u8])> {
    if let Some(s) = elf.section(".eh_frame") {
        return elf.section_bytes(s).map(|data| (s.addr, data));
    }
    let header = elf
        .segments
        .iter()
        .find(|s| s.kind == elf::PT_GNU_EH_FRAME.0)?;
    let mut reader = UnwindReader::new(elf.at(header.vaddr)?, header.vaddr);
    let (version, encoding) = (reader.u8()?, reader.u8()?);
    reader.take(2)?;
    let addr = reader.pointer(encoding, 0).filter(|_| version == 1)?;
    let data = elf.at(addr)?;
    let mut walk = UnwindReader::new(data, addr);
    loop {
        match walk.uint(4)? {
            0 => break,
            0xffff_ffff => return None,
            len => walk.take(len as usize)?,
        };
    }
    Some((addr, &data[..(walk.addr - addr) as usize]))
}

/// The table that unwinders search: the entry of each function, by the function's start. Only the
/// form that all linkers write is read.
fn search_table(elf: &Elf) -> Option<HashMap<u64, u64>> {
    const UDATA4: u8 = 0x03;
    const DATAREL_SDATA4: u8 = 0x3b;
    let header = elf
        .segments
        .iter()
        .find(|s| s.kind == elf::PT_GNU_EH_FRAME.0)?;
    let mut reader = UnwindReader::new(elf.at(header.vaddr)?, header.vaddr);
    let (version, encoding) = (reader.u8()?, reader.u8()?);
    if version != 1 || reader.take(2)? != [UDATA4, DATAREL_SDATA4] {
        return None;
    }
    reader.pointer(encoding, 0)?;
    let count = reader.uint(4)?;
    let mut address = || {
        let distance = reader.uint(4)? as u32 as i32;
        Some(header.vaddr.wrapping_add_signed(distance.into()))
    };
    (0..count).map(|_| Some((address()?, address()?))).collect()
}

fn cie(mut r: UnwindReader) -> Option<Cie> {
    let version = r.u8()?;
    let augmentation: Vec<u8> = std::iter::from_fn(|| r.u8().filter(|&b| b != 0)).collect();
    if !matches!(version, 1 | 3 | 4) {
        return None;
    }
    if version == 4 && r.take(2)? != [8, 0] {
        return None;
    }
    let mut cie = Cie {
        augmented: !augmentation.is_empty(),
        signal: false,
        has_lsda: false,
        lsda_indirect: false,
        personality: None,
        code_align: r.uleb()?,
        data_align: r.sleb()?,
        return_column: if version == 1 {
            u64::from(r.u8()?)
        } else {
            r.uleb()?
        },
        encoding: ENC_ABS,
        lsda_encoding: ENC_OMIT,
        instructions: &[],
    };
    let Some((&first, letters)) = augmentation.split_first() else {
        cie.instructions = r.rest();
        return Some(cie);
    };
    if first != b'z' {
        return None;
    }
    let len = usize::try_from(r.uleb()?).ok()?;
    let addr = r.addr;
    let mut data = UnwindReader::new(r.take(len)?, addr);
    for letter in letters {
        match letter {
            b'P' => {
                let encoding = data.u8()?;
                let address = data.pointer(encoding, 0)?;
                cie.personality = (encoding != ENC_OMIT && address != 0)
                    .then_some((encoding & ENC_INDIRECT != 0, address));
            }
            b'L' => {
                cie.lsda_encoding = data.u8()?;
                cie.has_lsda = cie.lsda_encoding != ENC_OMIT;
                cie.lsda_indirect = cie.has_lsda && cie.lsda_encoding & ENC_INDIRECT != 0;
            }
            b'R' => cie.encoding = data.u8()?,
            b'S' => cie.signal = true,
            _ => return None,
        }
    }
    cie.instructions = r.rest();
    Some(cie)
}

fn fde<'a>(mut r: UnwindReader<'a>, cie: &Cie<'a>, index: usize, at: u64) -> Option<Fde<'a>> {
    let start = r.pointer(cie.encoding, 0)?;
    let len = r.number(cie.encoding)?;
    let mut lsda = None;
    if cie.augmented {
        let len = usize::try_from(r.uleb()?).ok()?;
        let addr = r.addr;
        let mut data = UnwindReader::new(r.take(len)?, addr);
        if cie.has_lsda {
            lsda = Some(data.pointer(cie.lsda_encoding, start)?).filter(|&p| p != 0);
        }
    }
    Some(Fde {
        at,
        cie: index,
        range: start..start.checked_add(len)?,
        lsda,
        instructions: r.rest(),
    })
}

/// Unwind facts for the analysis (made by `unwind` from `.eh_frame` and the LSDAs).
#[derive(Clone, Debug)]
pub struct UnwindRange {
    /// Code that the FDE covers.
    pub range: Range<u64>,
    /// `(call range, landing pad)`; empty without LSDA.
    pub landing_pads: Vec<(Range<u64>, u64)>,
    /// False if there is an LSDA of unknown form, or if this is the code to which signal handlers
    /// return: the function must be left unchanged.
    pub understood: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_entries_for_one_function_the_used_one_stays() {
        const UDATA4: u8 = 0x03;
        let mut section: Vec<u8> = Vec::new();
        let mut add = |content: &[u8]| {
            let at = section.len() as u64;
            section.extend((content.len() as u32).to_le_bytes());
            section.extend(content);
            at
        };
        add(&[
            0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, UDATA4, 0, 0, 0,
        ]);
        let mut entry = |start: u32, size: u32, before: u32| {
            // (The distance to the common part at 0 counts from its own place.)
            let head = (before + 4).to_le_bytes();
            let range = [start.to_le_bytes(), size.to_le_bytes()].concat();
            add(&[&head[..], &range, &[0, 0, 0, 0]].concat())
        };
        let old = entry(0x1000, 0x20, 20);
        let only = entry(0x2000, 0x10, 40);
        let new = entry(0x1000, 0x18, 60);
        assert_eq!((old, only, new), (20, 40, 60));
        let of = |named: Option<u64>| {
            let mut tables = Tables::parse(&section, 0).unwrap();
            tables.drop_superseded(|| Some([(0x1000, named?)].into()));
            let ranges = tables.fdes.iter().map(|f| (f.range.start, f.range.end));
            ranges.collect::<Vec<_>>()
        };
        assert_eq!(of(Some(new)), [(0x1000, 0x1018), (0x2000, 0x2010)]);
        assert_eq!(of(Some(old)), [(0x1000, 0x1020), (0x2000, 0x2010)]);
        // If a table has neither of them, or is missing, both stay.
        assert_eq!(of(Some(7)).len(), 3);
        assert_eq!(of(None).len(), 3);
    }
}
