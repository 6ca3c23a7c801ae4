//! Writes `.eh_frame` and `.eh_frame_hdr`.

use crate::unwind::lsda::four_byte_distance;
use crate::unwind::{Cie, ENC_INDIRECT, ENC_PCREL4};
use gimli::leb128::write::Leb128;
use std::collections::HashMap;
use std::ops::Range;

/// Error for a field that does not reach its target, because the file is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unwind tables do not reach the code (more than 2 GiB apart)")]
pub struct TooFar;

/// An `.eh_frame` section under construction.
#[derive(Debug)]
pub struct EhFrame<'a> {
    addr: u64,
    bytes: Vec<u8>,
    cies: HashMap<Cie<'a>, u64>,
    /// The common part of the last entry, and its address. Most entries have the same one as the
    /// entry before.
    last: Option<(Cie<'a>, u64)>,
    /// `(code start, address of the entry)`.
    entries: Vec<(u64, u64)>,
}

impl<'a> EhFrame<'a> {
    /// A section to be placed at `addr`.
    pub fn new(addr: u64) -> EhFrame<'a> {
        EhFrame::behind(Vec::new(), addr)
    }

    /// A section after other bytes, which begin at `addr`.
    pub fn behind(bytes: Vec<u8>, addr: u64) -> EhFrame<'a> {
        EhFrame {
            addr,
            bytes,
            cies: HashMap::new(),
            last: None,
            entries: Vec::new(),
        }
    }

    fn here(&self) -> u64 {
        self.addr + self.bytes.len() as u64
    }

    fn pointer(&mut self, target: u64) -> Result<(), TooFar> {
        let field = if target == 0 {
            [0; 4]
        } else {
            four_byte_distance(target, self.here()).ok_or(TooFar)?
        };
        self.bytes.extend_from_slice(&field);
        Ok(())
    }

    fn close(&mut self, start: usize) {
        while !self.here().is_multiple_of(4) {
            self.bytes.push(0);
        }
        let len = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Writes a common part, unless the same one exists already; returns its address.
    pub fn cie(&mut self, cie: &Cie<'a>) -> Result<u64, TooFar> {
        if let Some(&at) = self.cies.get(cie) {
            return Ok(at);
        }
        let (at, start) = (self.here(), self.bytes.len());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes
            .push(if cie.return_column < 0x80 { 1 } else { 3 });
        let letters = [
            (true, b'z'),
            (cie.personality.is_some(), b'P'),
            (cie.has_lsda, b'L'),
            (true, b'R'),
            (cie.signal, b'S'),
        ];
        self.bytes
            .extend(letters.iter().filter(|l| l.0).map(|l| l.1));
        self.bytes.push(0);
        // Instructions are rewritten to code alignment 1.
        self.bytes.push(1);
        for number in [
            Leb128::signed(cie.data_align),
            Leb128::unsigned(cie.return_column),
        ] {
            self.bytes.extend_from_slice(number.bytes());
        }
        self.bytes
            .push(1 + u8::from(cie.has_lsda) + if cie.personality.is_some() { 5 } else { 0 });
        if let Some((indirect, address)) = cie.personality {
            self.bytes
                .push(ENC_PCREL4 | if indirect { ENC_INDIRECT } else { 0 });
            self.pointer(address)?;
        }
        if cie.has_lsda {
            self.bytes
                .push(ENC_PCREL4 | if cie.lsda_indirect { ENC_INDIRECT } else { 0 });
        }
        self.bytes.push(ENC_PCREL4);
        self.bytes.extend_from_slice(cie.instructions);
        self.close(start);
        self.cies.insert(cie.clone(), at);
        Ok(at)
    }

    /// Writes an entry for `code`.
    pub fn fde(
        &mut self,
        cie: &Cie<'a>,
        code: Range<u64>,
        lsda: Option<u64>,
        instructions: &[u8],
    ) -> Result<(), TooFar> {
        let cie_at = match &self.last {
            Some((last, at)) if last == cie => *at,
            _ => {
                let at = self.cie(cie)?;
                self.last = Some((cie.clone(), at));
                at
            }
        };
        let (at, start) = (self.here(), self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
        let back = u32::try_from(self.here() - cie_at).map_err(|_| TooFar)?;
        self.bytes.extend_from_slice(&back.to_le_bytes());
        let first = four_byte_distance(code.start, self.here()).ok_or(TooFar)?;
        self.bytes.extend_from_slice(&first);
        let len = code
            .end
            .checked_sub(code.start)
            .and_then(|l| u32::try_from(l).ok())
            .ok_or(TooFar)?;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        if cie.has_lsda {
            self.bytes.push(4);
            self.pointer(lsda.unwrap_or(0))?;
        } else {
            self.bytes.push(0);
        }
        self.bytes.extend_from_slice(instructions);
        self.close(start);
        self.entries.push((code.start, at));
        Ok(())
    }

    /// Ends the section; returns all bytes and the search table's entries.
    pub fn finish(mut self) -> (Vec<u8>, Vec<(u64, u64)>) {
        self.bytes.extend_from_slice(&[0; 4]);
        self.entries.sort_unstable();
        self.entries.dedup_by_key(|e| e.0);
        (self.bytes, self.entries)
    }
}

/// The `.eh_frame_hdr` at `addr` for the `.eh_frame` at `frame`.
pub fn header(addr: u64, frame: u64, entries: &[(u64, u64)]) -> Result<Vec<u8>, TooFar> {
    // Version 1; pcrel sdata4 pointer, udata4 count, table of sdata4 relative to the header.
    let mut out = vec![1, ENC_PCREL4, 0x03, 0x3b];
    out.extend_from_slice(&four_byte_distance(frame, addr + 4).ok_or(TooFar)?);
    out.extend_from_slice(
        &u32::try_from(entries.len())
            .map_err(|_| TooFar)?
            .to_le_bytes(),
    );
    for &(code, entry) in entries {
        out.extend_from_slice(&four_byte_distance(code, addr).ok_or(TooFar)?);
        out.extend_from_slice(&four_byte_distance(entry, addr).ok_or(TooFar)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Tables;
    use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, UnwindSection};

    const INITIAL: &[u8] = &[0x0c, 7, 8, 0x90, 1];

    fn cie(personality: Option<(bool, u64)>, has_lsda: bool) -> Cie<'static> {
        Cie {
            augmented: true,
            signal: false,
            has_lsda,
            lsda_indirect: false,
            personality,
            code_align: 1,
            data_align: -8,
            return_column: 16,
            encoding: ENC_PCREL4,
            lsda_encoding: ENC_PCREL4,
            instructions: INITIAL,
        }
    }

    #[test]
    fn gimli_and_our_reader_agree_on_what_was_written() {
        let mut frame = EhFrame::new(0x10_0000);
        let (plain, cpp) = (cie(None, false), cie(Some((true, 0x8_0000)), true));
        frame
            .fde(&cpp, 0x3000..0x3100, Some(0x9_0010), &[0x41, 0x0e, 16])
            .unwrap();
        frame.fde(&plain, 0x1000..0x1010, None, &[]).unwrap();
        frame.fde(&cpp, 0x2000..0x2001, None, &[]).unwrap();
        let (bytes, entries) = frame.finish();
        let ours = Tables::parse(&bytes, 0x10_0000).unwrap();
        assert_eq!(ours.cies.len(), 2, "equal common parts are shared");
        let got: Vec<_> = ours
            .fdes
            .iter()
            .map(|f| (f.range.clone(), f.lsda))
            .collect();
        assert_eq!(
            got,
            [
                (0x1000..0x1010, None),
                (0x2000..0x2001, None),
                (0x3000..0x3100, Some(0x9_0010))
            ]
        );
        assert_eq!(ours.cies[0].personality, Some((true, 0x8_0000)));

        let header_at = 0x10_0000 + bytes.len() as u64;
        let hdr = header(header_at, 0x10_0000, &entries).unwrap();
        let bases = BaseAddresses::default()
            .set_eh_frame(0x10_0000)
            .set_eh_frame_hdr(header_at);
        let parsed = EhFrameHdr::new(&hdr, LittleEndian)
            .parse(&bases, 8)
            .unwrap();
        let section = gimli::EhFrame::new(&bytes, LittleEndian);
        let table = parsed.table().unwrap();
        for address in [0x1000u64, 0x2000, 0x30ff] {
            let fde = table
                .fde_for_address(&section, &bases, address, gimli::EhFrame::cie_from_offset)
                .unwrap();
            assert!(fde.contains(address));
        }
        assert!(
            table
                .fde_for_address(&section, &bases, 0x2001, gimli::EhFrame::cie_from_offset)
                .is_err()
        );
    }

    #[test]
    fn code_out_of_reach_is_an_error() {
        let mut frame = EhFrame::new(0x1_0000_0000);
        assert_eq!(
            frame.fde(&cie(None, false), 0x1000..0x1010, None, &[]),
            Err(TooFar)
        );
    }
}
