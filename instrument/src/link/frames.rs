//! Unwind tables of the clones and of the original code: exception tables, `.eh_frame`,
//! `.eh_frame_hdr`.

use crate::emit::Emitted;
use crate::link::fault_shim;
use crate::link::fixups::Resolver;
use crate::link::layout::{LayoutInput, Placed};
use crate::link::segment::{OutputSegment, out_of_reach};
use crate::program::syscalls;
use crate::unwind::lsda::CallSite;
use crate::unwind::write::{EhFrame, header};
use crate::unwind::{Cie, Fde, Tables, cfi, merge};
use crate::x86::flow::is_padding;
use iced_x86::{Decoder, DecoderOptions};
use mgz_abi::module_note::FLAVOUR_PT;
use mgz_abi::probe::HANDLER_CALL;
use mgz_elf::Refusal;
use object::elf;
use rayon::prelude::*;
use std::ops::Range;

/// The common part of the entry for [`HANDLER_CALL`].
const HANDLERS: Cie = Cie::plain(true, &[]);

/// Inputs of the unwind tables.
pub struct FrameInput<'a> {
    /// Inputs of the layout.
    pub parts: &'a LayoutInput<'a>,
    /// Places of the clones.
    pub placed: &'a Placed,
    /// Finds the landing pads.
    pub resolver: &'a Resolver<'a>,
    /// [`HANDLER_CALL`].
    pub handlers_at: Option<u64>,
    /// The code of [`fault_shim`].
    pub shown_at: Option<u64>,
}

/// Places of the unwind tables.
pub struct Frames {
    /// `.eh_frame`.
    pub frame: Range<u64>,
    /// `.eh_frame_hdr`.
    pub header: Range<u64>,
}

/// Writes exception tables and unwind tables, unless the file has none.
pub fn write_unwind_tables(
    input: &FrameInput,
    segment: &mut OutputSegment,
) -> Result<Option<Frames>, Refusal> {
    if input.parts.unwind.fdes.is_empty() {
        return Ok(None);
    }
    let pieces = input.pieces();
    let lsdas = input.write_lsdas(&pieces, segment)?;
    let frame_at = segment.align(8);
    let kept = input.kept_entries()?;
    if pieces.iter().any(|p| p.piece.instructions.is_none()) {
        return Err(Refusal::failed(
            "unwind instructions of a function that was taken for understood",
        ));
    }
    let moved = input.moved_entries(&pieces, lsdas);
    let unseen_code = input.unseen_code(&pieces);
    let mut frame = EhFrame::behind(std::mem::take(&mut segment.bytes), segment.vaddr);
    input.write_entries(&mut frame, kept.into_iter().chain(moved))?;
    let (bytes, mut entries) = frame.finish();
    entries.retain(|entry| !unseen_code.contains(&entry.0));
    segment.bytes = bytes;
    let frame_end = segment.end();
    let header_at = segment.align(4);
    let bytes = header(header_at, frame_at, &entries)?;
    segment.bytes.extend_from_slice(&bytes);
    Ok(Some(Frames {
        frame: frame_at..frame_end,
        header: header_at..segment.end(),
    }))
}

impl<'a> FrameInput<'a> {
    /// The parts of all clones that unwind entries describe, with their places.
    fn pieces(&self) -> Vec<PlacedPiece<'a>> {
        let parts = self.parts;
        let mut pieces = Vec::with_capacity(parts.clones.len());
        for (number, ((own, clone), &at)) in parts
            .pieces
            .iter()
            .zip(parts.clones)
            .zip(&self.placed.clones)
            .enumerate()
        {
            pieces.extend(own.iter().map(|piece| PlacedPiece {
                piece,
                fde: &parts.unwind.fdes[piece.fde as usize],
                clone,
                number,
                at,
            }));
        }
        pieces
    }

    /// Writes the exception tables of clones, and returns their addresses by piece.
    fn write_lsdas(
        &self,
        pieces: &[PlacedPiece],
        segment: &mut OutputSegment,
    ) -> Result<Vec<Option<u64>>, Refusal> {
        let mut lsdas = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Some(old) = piece.fde.lsda else {
                lsdas.push(None);
                continue;
            };
            let at = segment.align(4);
            segment.bytes.extend_from_slice(
                &clone_lsda(self.parts.unwind, piece, old, at, self.resolver)
                    .ok_or_else(out_of_reach)?,
            );
            lsdas.push(Some(at));
        }
        Ok(lsdas)
    }

    /// Entries of the original code, in its order.
    fn kept_entries(&self) -> Result<Vec<merge::FrameEntry<'a>>, Refusal> {
        let unwind = self.parts.unwind;
        // Entries also give starts of functions (`_Unwind_FindEnclosingFunction`). Those of code
        // that still runs during recording stay unchanged.
        let all_run = self.parts.translated || self.shown_at.is_some();
        let is_unused = |fde: &Fde| !all_run && self.resolver.covers(&fde.range);
        let kept = |(n, fde): (usize, &Fde<'a>)| {
            let start = fde.range.start;
            let (instructions, effect) =
                match cfi::rewrite(unwind.source(fde), start, fde.range.end, |a| {
                    a.wrapping_sub(start)
                }) {
                    Some((instructions, effect)) => (instructions.into(), Some(effect)),
                    None if unwind.cies[fde.cie].code_align == 1 => {
                        (fde.instructions.into(), cfi::effect(fde.instructions))
                    }
                    None => {
                        return Err(Refusal::declined("unwind tables with unknown instructions"));
                    }
                };
            let before = n.checked_sub(1).map(|n| &unwind.fdes[n]);
            let adjoins = before.is_some_and(|before| {
                is_unused(fde)
                    && is_unused(before)
                    && self.is_unseen(fde) == self.is_unseen(before)
                    && follows(self.parts, before, fde)
            });
            Ok(merge::FrameEntry {
                cie: fde.cie,
                code: fde.range.clone(),
                lsda: fde.lsda,
                instructions,
                effect,
                adjoins,
            })
        };
        unwind.fdes.par_iter().enumerate().map(kept).collect()
    }

    /// Entries of the clones, in their order. `lsdas`: addresses of their exception tables.
    fn moved_entries<'p>(
        &'p self,
        pieces: &'p [PlacedPiece<'a>],
        lsdas: Vec<Option<u64>>,
    ) -> impl Iterator<Item = merge::FrameEntry<'a>> + use<'a, 'p> {
        let moved = |(n, (piece, lsda)): (usize, (&PlacedPiece<'a>, Option<u64>))| {
            let (instructions, effect) = piece.piece.instructions.as_ref()?;
            let before = n.checked_sub(1).map(|n| &pieces[n]);
            let adjoins = before.is_some_and(|before| {
                self.is_unseen(piece.fde) == self.is_unseen(before.fde) && piece.follows(before)
            });
            Some(merge::FrameEntry {
                cie: piece.fde.cie,
                code: piece.code(),
                lsda,
                instructions: instructions.into(),
                effect: Some(*effect),
                adjoins,
            })
        };
        pieces.iter().zip(lsdas).enumerate().filter_map(moved)
    }

    /// Starts of code whose entries the program does not find.
    fn unseen_code(&self, pieces: &[PlacedPiece]) -> Vec<u64> {
        let fdes = self.parts.unwind.fdes.iter();
        let kept = fdes
            .filter(|fde| self.is_unseen(fde))
            .map(|fde| fde.range.start);
        let moved = pieces
            .iter()
            .filter(|piece| self.is_unseen(piece.fde))
            .map(|piece| piece.code().start);
        kept.chain(moved).collect()
    }

    /// Writes the entries of originals and clones, then those of new code.
    fn write_entries(
        &self,
        frame: &mut EhFrame<'a>,
        entries: impl Iterator<Item = merge::FrameEntry<'a>>,
    ) -> Result<(), Refusal> {
        let most_bytes = if self.parts.flavour == FLAVOUR_PT {
            merge::MAX_BYTES_PT
        } else {
            merge::MAX_BYTES_SOFT
        };
        for entry in merge::merge_entries(entries, most_bytes) {
            frame.fde(
                &self.parts.unwind.cies[entry.cie],
                entry.code,
                entry.lsda,
                &entry.instructions,
            )?;
        }
        if let Some(at) = self.handlers_at {
            frame.fde(
                &HANDLERS,
                at..at + HANDLER_CALL.len() as u64,
                None,
                &syscalls::handler_frame(),
            )?;
        }
        for (code, instructions) in self.shown_at.map(fault_shim::unwind).into_iter().flatten() {
            frame.fde(&fault_shim::UNWIND, code, None, &instructions)?;
        }
        Ok(())
    }

    /// True if the program does not find an entry when it unwinds. Some files have no search table
    /// (static executables of gcc). Their start-up code registers the entries from `crtbeginT.o`
    /// on. The entries of `crt1.o`, which is linked before it, are not among them, so a backtrace
    /// has one frame less.
    fn is_unseen(&self, fde: &Fde) -> bool {
        let elf = self.parts.elf;
        fde.range.contains(&elf.entry)
            && !elf
                .segments
                .iter()
                .any(|s| s.kind == elf::PT_GNU_EH_FRAME.0)
    }
}

/// The part of a clone that one unwind entry describes.
#[derive(Clone, Debug)]
pub struct CloneFde {
    /// Number of the entry.
    fde: u32,
    /// Original code.
    start: u64,
    end: u64,
    /// Offsets of that code in the clone.
    offsets: (u32, u32),
    /// The entry's instructions for it, if they could be parsed.
    instructions: Option<(Vec<u8>, cfi::Effect)>,
}

impl CloneFde {
    /// True if the piece has an exception table.
    pub fn has_lsda(&self, unwind: &Tables) -> bool {
        unwind.fdes[self.fde as usize].lsda.is_some()
    }
}

/// The parts of a clone that unwind entries describe. It is best called while the clone still has
/// all of its marks.
pub fn clone_fdes(unwind: &Tables, clone: &Emitted) -> Vec<CloneFde> {
    let covering = unwind.covering(&clone.range);
    let mut pieces = Vec::with_capacity(covering.len());
    for (fde, n) in unwind.fdes[covering.clone()]
        .iter()
        .zip(covering.start as u32..)
    {
        let (start, end) = (
            fde.range.start.max(clone.range.start),
            fde.range.end.min(clone.range.end),
        );
        let to = if end == clone.range.end {
            clone.len
        } else {
            clone.clone_from(end)
        };
        let offsets = (clone.clone_from(start), to);
        if start < end && offsets.0 < offsets.1 {
            let map = |a: u64| u64::from(clone.clone_from(a) - offsets.0);
            pieces.push(CloneFde {
                fde: n,
                start,
                end,
                offsets,
                instructions: cfi::rewrite(unwind.source(fde), start, end, map),
            });
        }
    }
    pieces
}

/// A piece with its new place.
struct PlacedPiece<'a> {
    piece: &'a CloneFde,
    fde: &'a Fde<'a>,
    clone: &'a Emitted,
    /// Number of the clone.
    number: usize,
    /// Clone address of the function.
    at: u64,
}

/// True if only padding lies between the ranges of two original entries.
fn follows(parts: &LayoutInput, before: &Fde, next: &Fde) -> bool {
    let between = before.range.end..next.range.start;
    let signal = parts.unwind.cies[before.cie].signal || parts.unwind.cies[next.cie].signal;
    if signal || between.start > between.end || between.end - between.start >= 16 {
        return false;
    }
    let bytes = parts
        .elf
        .at(between.start)
        .and_then(|b| b.get(..(between.end - between.start) as usize));
    bytes.is_some_and(|bytes| {
        let mut decoder = Decoder::with_ip(64, bytes, between.start, DecoderOptions::NONE);
        decoder.iter().all(|inst| is_padding(&inst))
    })
}

impl PlacedPiece<'_> {
    /// Its addresses.
    fn code(&self) -> Range<u64> {
        let (from, to) = self.piece.offsets;
        self.at + u64::from(from)..self.at + u64::from(to)
    }

    /// True if only padding lies between another piece and this one.
    fn follows(&self, before: &PlacedPiece) -> bool {
        let (start, end) = (self.piece.offsets.0, before.piece.offsets.1);
        let joined = self.number == before.number && start == end;
        let next = self.number == before.number + 1 && start == 0 && end == before.clone.len;
        joined || next
    }
}

/// The exception table of a clone piece; `None` if something is out of reach.
fn clone_lsda(
    unwind: &Tables,
    placed: &PlacedPiece,
    old: u64,
    at: u64,
    resolver: &Resolver,
) -> Option<Vec<u8>> {
    let lsda = unwind.lsdas.get(&old)?;
    let piece = placed.piece;
    let place = |address: u64| {
        let offset = if address >= piece.end {
            piece.offsets.1
        } else {
            placed.clone.clone_from(address.max(piece.start))
        };
        placed.at + u64::from(offset)
    };
    let mut sites = Vec::with_capacity(lsda.sites.len());
    for site in &lsda.sites {
        let (start, end) = (place(site.start), place(site.end));
        if start < end {
            let pad = if site.pad == 0 {
                0
            } else {
                resolver.clone_of(site.pad).unwrap_or(site.pad)
            };
            sites.push(CallSite {
                start,
                end,
                pad,
                action: site.action,
            });
        }
    }
    lsda.write(at, placed.code().start, &sites)
}
