//! Assigns an address to every part of the appended segment and fills in fields that depend on
//! addresses.
//!
//! The segment holds, in this order: program headers, note, sidecar path, tables of patches, of the
//! code under them, of system calls, of markers and of displacements, code, jump tables, exception
//! tables, `.eh_frame`, `.eh_frame_hdr`, dynamic strings; then, on pages of its own and writable, a
//! dynamic array if the old one has no room. Each part's size is known before the next part's
//! address.

use crate::emit;
use crate::emit::Emitted;
use crate::link::elf_writer::{Additions, NewSection};
use crate::link::fixups::{
    CodeFixups, PlacedTables, Resolver, place_tables, redirected, table_bytes,
};
use crate::link::frames::{self, CloneFde, FrameInput};
use crate::link::segment::{FILLER, OutputSegment, out_of_reach};
use crate::link::{elf_writer, fault_shim};
use crate::program::sanitizers::Sanitizer;
use crate::program::syscalls;
use crate::signals::Wrapped;
use crate::unwind::Tables;
use mgz_abi::module_note::{
    ABI_VERSION, Cover, FEATURE_BURST_ONLY, FEATURE_COPIES, FEATURE_COUNTS, FEATURE_OWN_ALLOCATOR,
    FEATURE_READS_CODE, FEATURE_SANITIZER_INSIDE, FEATURE_TRANSLATED, FLAVOUR_PT, ModuleNote,
    NOTE_MODULE, NOTE_NAME, Patch,
};
use mgz_abi::phases::Marker;
use mgz_abi::probe::HANDLER_CALL;
use mgz_elf::image::Elf;
use mgz_elf::{PAGE_SIZE, Refusal};
use object::elf;
use rayon::prelude::*;
use std::ops::Range;

/// Inputs of the layout.
#[derive(Debug)]
pub struct LayoutInput<'a> {
    /// The input.
    pub elf: &'a Elf<'a>,
    /// Its unwind tables.
    pub unwind: &'a Tables<'a>,
    /// The clones, in order of their originals.
    pub clones: &'a [Box<Emitted>],
    /// Original code under entry jumps that the runtime may have to take back. Sorted.
    pub covers: &'a [Cover],
    /// The parts of each clone that unwind entries describe.
    pub pieces: &'a [Vec<CloneFde>],
    /// Number of records of each clone.
    pub record_counts: &'a [u32],
    /// Value that is added to each record's payload to get a load's address, see
    /// [`ModuleNote::displacements`], by clone; empty if not needed.
    pub displacements: &'a [Vec<i32>],
    /// `mgz_abi::module_note::FLAVOUR_*`.
    pub flavour: u32,
    /// True if the clones are translated.
    pub translated: bool,
    /// True if records only count, see [`FEATURE_COUNTS`].
    pub counts: bool,
    /// See [`FEATURE_COPIES`].
    pub copies: bool,
    /// Relation of a sanitizer to the file.
    pub sanitizer: Sanitizer,
    /// True if the original must stay unchanged, since the program reads it.
    pub reads_code: bool,
    /// See [`FEATURE_BURST_ONLY`].
    pub burst_only: bool,
    /// True if the entry point starts the runtime ([`syscalls::entry`]).
    pub enters_runtime: bool,
    /// First record id of the module.
    pub id_first: u32,
    /// Identity of the sidecar.
    pub sidecar_id: [u8; 16],
    /// Absolute path of the sidecar if it is not the file's own with `.mgza`.
    pub sidecar_path: Option<Vec<u8>>,
    /// Library search path to be put first.
    pub search_path: Option<crate::link::runpath::SearchPath>,
    /// Libraries that must be loaded before the runtime.
    pub before_runtime: &'a [String],
    /// Markers of phases, by address.
    pub markers: &'a [Marker],
    /// Words through which `sigaction` is called, if [`fault_shim`] replaces it.
    pub wrapped: Option<&'a Wrapped>,
}

/// Addresses for the sidecar.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// Base of the first clone's address, a multiple of the alignments of all clones.
    pub start: u64,
    /// Clone address per function.
    pub clones: Vec<u64>,
    /// First record (module-local) per function.
    pub records: Vec<u32>,
    /// Number of records.
    pub record_count: u32,
}

/// Sizes for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes of clone code and jump tables.
    pub clone_bytes: u64,
    /// Bytes of new unwind and exception tables.
    pub unwind_bytes: u64,
    /// Number of patches.
    pub patches: u64,
}

/// Note name, type and sizes before the descriptor.
const NOTE_HEAD: usize = 16;

/// Content before the clones, and the start and end of the clones.
pub struct Front {
    segment: OutputSegment,
    note_at: u64,
    path_at: u64,
    before_at: u64,
    patches_at: u64,
    covers_at: u64,
    calls_at: u64,
    call_count: u64,
    markers_at: u64,
    /// 0 if there are none.
    displacements_at: u64,
    /// [`HANDLER_CALL`].
    handlers_at: Option<u64>,
    /// The code of [`fault_shim`].
    shown_at: Option<u64>,
    code_at: u64,
    clones_end: u64,
}

/// Bytes of the note.
const NOTE_LEN: usize = NOTE_HEAD + size_of::<ModuleNote>();

/// Assigns places to the clones, so that the sidecar can be made in parallel with the rest of the
/// layout.
pub fn place_clones(parts: &LayoutInput) -> Result<(Front, Placed), Refusal> {
    let mut front = Front::write(parts)?;
    let mut placed = Placed {
        start: front.code_at,
        ..Placed::default()
    };
    let mut next = front.code_at;
    for (clone, records) in parts.clones.iter().zip(parts.record_counts) {
        // Clones are at least a byte apart, so that they can share an entry of the unwind tables.
        next = (next + 1).next_multiple_of(clone.align);
        placed.clones.push(next);
        placed.records.push(placed.record_count);
        next += u64::from(clone.len);
        placed.record_count += records;
    }
    if next >= 1 << 32 {
        return Err(out_of_reach());
    }
    front.clones_end = next;
    Ok((front, placed))
}

impl Front {
    /// Writes everything before the clones. Notes, patches and code are filled in later.
    fn write(parts: &LayoutInput) -> Result<Front, Refusal> {
        let mut segment = OutputSegment {
            vaddr: elf_writer::segment_address(parts.elf)?,
            bytes: vec![0; elf_writer::headers_len(parts.elf)],
        };
        let note_at = segment.reserve(8, NOTE_LEN, 0);
        let mut text = |text: &[u8]| {
            let at = segment.append(1, text);
            segment.bytes.push(0);
            at
        };
        let path_at = parts.sidecar_path.as_ref().map_or(0, |path| text(path));
        let before_at = match parts.before_runtime {
            [] => 0,
            names => text(names.join(":").as_bytes()),
        };
        let patch_count: usize = parts.clones.iter().map(|c| c.patches.len()).sum();
        let patches_at = segment.reserve(8, patch_count * size_of::<Patch>(), 0);
        let covers = parts.covers.iter();
        let covers: Vec<u8> = covers
            .flat_map(|c| [&c.at.to_le_bytes()[..], &c.bytes, &c.unused].concat())
            .collect();
        let covers_at = segment.append(8, &covers);
        let calls = parts.clones.iter().flat_map(|c| &c.calls);
        let calls: Vec<u8> = calls.flat_map(|&at| (at as u32).to_le_bytes()).collect();
        let calls_at = segment.append(8, &calls);
        let markers_at = segment.align(8);
        for marker in parts.markers {
            segment.bytes.extend_from_slice(&marker.at.to_le_bytes());
            segment
                .bytes
                .extend_from_slice(&[marker.length, marker.what, 0, 0]);
        }
        let displacements_at = match parts.displacements {
            [] => 0,
            all => {
                let at = segment.align(8);
                let bytes = all.iter().flatten().flat_map(|d| d.to_le_bytes());
                segment.bytes.extend(bytes);
                at
            }
        };
        // This code is not among the clones, since it has no probes to undo after an interruption.
        let handlers_at = parts
            .enters_runtime
            .then(|| segment.append(16, &HANDLER_CALL));
        let shown_at = parts
            .wrapped
            .map(|_| segment.reserve(16, fault_shim::code_len(), FILLER));
        let code_at = segment.align(64);
        Ok(Front {
            segment,
            note_at,
            path_at,
            before_at,
            patches_at,
            covers_at,
            calls_at,
            call_count: (calls.len() / 4) as u64,
            markers_at,
            displacements_at,
            handlers_at,
            shown_at,
            code_at,
            clones_end: code_at,
        })
    }
}

/// Completes the layout. `codes`: the clones' code.
pub fn lay_out<'n>(
    parts: &LayoutInput,
    front: Front,
    placed: &Placed,
    codes: Vec<Vec<u8>>,
) -> Result<(Additions<'n>, Sizes), Refusal> {
    let mut layout = Layout::new(parts, front, placed, codes)?;
    layout.write_thunks()?;
    let tables = layout.write_jump_tables()?;
    let shown_table = layout.write_shown_table();
    layout.sizes.clone_bytes = layout.behind.end() - layout.front.code_at;
    layout.fill_code_and_write_frames(&tables)?;
    layout.write_entry();
    layout.add_search_path()?;
    if let (Some(wrapped), Some(code), Some(table)) =
        (parts.wrapped, layout.front.shown_at, shown_table)
    {
        layout.add_fault_shim(wrapped, code, table)?;
    }
    layout.write_patches()?;
    layout.write_note();
    let mut additions = layout.additions;
    additions.segment = layout.front.segment.bytes;
    additions.behind = layout.behind.bytes;
    Ok((additions, layout.sizes))
}

/// The layout under construction.
struct Layout<'a, 'n> {
    parts: &'a LayoutInput<'a>,
    placed: &'a Placed,
    front: Front,
    resolver: Resolver<'a>,
    /// Content after the clones.
    behind: OutputSegment,
    /// Address of [`syscalls::entry`].
    entry_at: Option<u64>,
    /// End of the clones and of the code after them.
    code_end: u64,
    additions: Additions<'n>,
    sizes: Sizes,
}

/// Table of the code of [`fault_shim`].
struct ShownTable {
    at: u64,
    groups: u32,
}

impl<'a, 'n> Layout<'a, 'n> {
    /// Assigns places to the code after the clones, and makes room for it.
    fn new(
        parts: &'a LayoutInput<'a>,
        mut front: Front,
        placed: &'a Placed,
        codes: Vec<Vec<u8>>,
    ) -> Result<Layout<'a, 'n>, Refusal> {
        let (vaddr, clones_end) = (front.segment.vaddr, front.clones_end);
        let mut next = clones_end;
        let mut resolver = Resolver::new(parts.clones, &placed.clones);
        let entry_at = parts.enters_runtime.then(|| next.next_multiple_of(16));
        if let Some(at) = entry_at {
            next = at + syscalls::ENTRY_BYTES as u64;
        }
        // The runtime expects this part last.
        if parts.translated {
            next = next.next_multiple_of(16);
            resolver.place_thunks(next);
            next += resolver.thunk_bytes() as u64;
        }
        let code_end = next;
        if code_end >= 1 << 32 {
            return Err(out_of_reach());
        }
        front.segment.bytes.resize(
            (placed.clones.first().copied().unwrap_or(clones_end) - vaddr) as usize,
            FILLER,
        );
        // Clones stay in place until they are written. (Untouched room takes no memory.)
        let mut behind = OutputSegment {
            vaddr: clones_end,
            bytes: Vec::with_capacity((code_end - vaddr) as usize / 4),
        };
        behind
            .bytes
            .resize((code_end - clones_end) as usize, FILLER);
        let note_at = front.note_at;
        let mut layout = Layout {
            parts,
            placed,
            resolver,
            behind,
            entry_at,
            code_end,
            additions: Additions {
                vaddr,
                clones: codes,
                note: (note_at, NOTE_LEN as u64),
                entry: entry_at,
                ..Additions::default()
            },
            sizes: Sizes::default(),
            front,
        };
        layout.add_section(
            ".mgz.note",
            elf::SHT_NOTE.0,
            0,
            note_at..note_at + NOTE_LEN as u64,
            8,
        );
        let code_at = layout.front.code_at;
        let text_at = layout
            .front
            .handlers_at
            .or(layout.front.shown_at)
            .unwrap_or(code_at);
        layout.add_section(
            ".mgz.text",
            elf::SHT_PROGBITS.0,
            elf::SHF_EXECINSTR.0,
            text_at..code_end,
            if text_at < code_at { 16 } else { 64 },
        );
        Ok(layout)
    }

    /// Writes the thunks from translated clones to code without clones.
    fn write_thunks(&mut self) -> Result<(), Refusal> {
        for (&(target, call), &at) in &self.resolver.thunks {
            let thunk = emit::thunk(at, target, call).ok_or_else(out_of_reach)?;
            self.behind.put(at, &thunk);
        }
        Ok(())
    }

    /// Writes the clones' copies of jump tables.
    fn write_jump_tables(&mut self) -> Result<PlacedTables, Refusal> {
        let tables = place_tables(self.parts, &mut self.behind);
        let bytes = self
            .parts
            .clones
            .par_iter()
            .zip(&tables.places)
            .flat_map_iter(|(clone, places)| clone.tables.iter().zip(places));
        let bytes: Vec<(u64, Vec<u8>)> = bytes
            .map(|(table, &place)| Ok((place, table_bytes(table, &self.resolver)?)))
            .collect::<Result<_, Refusal>>()?;
        bytes
            .iter()
            .for_each(|(place, bytes)| self.behind.put(*place, bytes));
        Ok(tables)
    }

    /// Writes the table of the code of [`fault_shim`], if the file has that code.
    fn write_shown_table(&mut self) -> Option<ShownTable> {
        self.parts.wrapped?;
        let table = fault_shim::ShimTable::new(self.parts.clones, &self.placed.clones);
        Some(ShownTable {
            at: self.behind.append(4, &table.bytes()),
            groups: table.groups(),
        })
    }

    /// Completes the clones' code, and adds the unwind tables after the jump tables.
    fn fill_code_and_write_frames(&mut self, tables: &PlacedTables) -> Result<(), Refusal> {
        let lsda_at = self.behind.align(4);
        let Front {
            handlers_at,
            shown_at,
            clones_end,
            ..
        } = self.front;
        let (parts, placed, resolver) = (self.parts, self.placed, &self.resolver);
        let frames = FrameInput {
            parts,
            placed,
            resolver,
            handlers_at,
            shown_at,
        };
        let code = CodeFixups {
            parts,
            placed,
            resolver,
            tables: &tables.places,
            end: clones_end,
            shown_at,
        };
        // Making the unwind tables mostly uses one core.
        let (frames, filled) = rayon::join(
            || frames::write_unwind_tables(&frames, &mut self.behind),
            || code.fill(&mut self.additions.clones),
        );
        let frames = filled.and(frames)?;
        let data_end = frames.as_ref().map_or(lsda_at, |f| f.frame.start);
        self.add_section(
            ".mgz.data",
            elf::SHT_PROGBITS.0,
            0,
            tables.start..data_end,
            8,
        );
        if let Some(f) = frames {
            let kind = elf::SHT_PROGBITS.0;
            self.add_section(".eh_frame", kind, 0, f.frame, 8);
            self.add_section(".eh_frame_hdr", kind, 0, f.header.clone(), 4);
            self.additions.eh_frame_hdr = Some((f.header.start, f.header.end - f.header.start));
            self.sizes.unwind_bytes = f.header.end - lsda_at;
        }
        Ok(())
    }

    /// Writes the entry point that starts the runtime.
    fn write_entry(&mut self) {
        if let Some(at) = self.entry_at {
            let entry = syscalls::entry(at, self.parts.elf.entry);
            self.behind.put(at, &entry);
        }
    }

    /// Puts a library search path first: adds new dynamic strings, and a dynamic array if the old
    /// one has no room.
    fn add_search_path(&mut self) -> Result<(), Refusal> {
        let Some(path) = &self.parts.search_path else {
            return Ok(());
        };
        let strings_at = self.behind.align(8);
        let change = crate::link::runpath::search_path(self.parts.elf, path, strings_at)?;
        self.behind.bytes.extend_from_slice(&change.strings);
        let strings = strings_at..self.behind.end();
        self.add_section(".dynstr", elf::SHT_STRTAB.0, 0, strings, 1);
        self.additions.overwrite = change.overwrite;
        if let Some(dynamic) = change.dynamic {
            self.begin_writable();
            let at = self.behind.append(PAGE_SIZE, &dynamic);
            self.additions.dynamic = Some((at, dynamic.len() as u64));
            let end = self.behind.end();
            self.add_section(".dynamic", elf::SHT_DYNAMIC.0, elf::SHF_WRITE.0, at..end, 8);
        }
        Ok(())
    }

    /// Begins the writable part of the segment on a new page, unless it has begun.
    fn begin_writable(&mut self) {
        if self.additions.writable_from.is_none() {
            self.behind.align(PAGE_SIZE);
            let from = self.behind.end() - self.front.segment.vaddr;
            self.additions.writable_from = Some(from as usize);
        }
    }

    /// Writes [`fault_shim`] at `code` and adds its memory. The original's calls of `sigaction`
    /// lead there from now on.
    fn add_fault_shim(
        &mut self,
        wrapped: &Wrapped,
        code: u64,
        table: ShownTable,
    ) -> Result<(), Refusal> {
        self.begin_writable();
        let memory = self.behind.reserve(8, fault_shim::MEMORY, 0);
        let memory_end = self.behind.end();
        self.add_section(
            ".mgz.handlers",
            elf::SHT_PROGBITS.0,
            elf::SHF_WRITE.0,
            memory..memory_end,
            8,
        );
        // Any of the words will do: each holds the C library's function, or the loader's stub that
        // finds it.
        let slot = wrapped.slots.first().copied().unwrap_or(0);
        let clones = self.placed.clones.first();
        let first = clones.copied().unwrap_or(self.front.code_at);
        let elf = self.parts.elf;
        let loads = || {
            elf.loads()
                .map(|s| (s.vaddr, s.vaddr.saturating_add(s.memsz)))
        };
        let whole = loads().map(|s| s.0).min().zip(loads().map(|s| s.1).max());
        // The executable of a process is never unloaded.
        let handlers = if elf.interpreter().is_some() || !elf.is_pie() {
            None
        } else {
            whole
        };
        let places = fault_shim::ShimAddresses {
            code,
            slot,
            memory,
            clones: (first, self.front.clones_end),
            table: table.at,
            groups: table.groups,
            handlers,
        };
        let shim = fault_shim::code(&places).ok_or_else(out_of_reach)?;
        self.front.segment.put(code, &shim);
        let calls = redirected(elf, wrapped, code)?;
        self.additions.overwrite.extend(calls);
        Ok(())
    }

    /// Writes the table of entry jumps. The PT flavour also has the jumps in the file.
    fn write_patches(&mut self) -> Result<(), Refusal> {
        let mut patches: Vec<Patch> = Vec::new();
        for (clone, &at) in self.parts.clones.iter().zip(&self.placed.clones) {
            let patch = |&(from, to): &(u64, u32)| {
                Some(Patch {
                    at: u32::try_from(from).ok()?,
                    to: u32::try_from(at + u64::from(to)).ok()?,
                })
            };
            patches.extend(clone.patches.iter().filter_map(patch));
        }
        patches.sort_by_key(|p| p.at);
        self.sizes.patches = patches.len() as u64;
        let table: Vec<u8> = patches
            .iter()
            .flat_map(|p| [p.at.to_le_bytes(), p.to.to_le_bytes()])
            .flatten()
            .collect();
        self.front.segment.put(self.front.patches_at, &table);
        if self.parts.flavour != FLAVOUR_PT {
            return Ok(());
        }
        for p in &patches {
            let offset = self
                .parts
                .elf
                .file_offset(p.at.into())
                .ok_or_else(|| Refusal::failed("an entry jump lies outside of the file"))?;
            let distance = i64::from(p.to) - (i64::from(p.at) + 5);
            let mut jump = vec![0xe9];
            jump.extend_from_slice(
                &i32::try_from(distance)
                    .map_err(|_| out_of_reach())?
                    .to_le_bytes(),
            );
            self.additions.overwrite.push((offset, jump));
        }
        Ok(())
    }

    /// Writes the note, by which the runtime finds everything else.
    fn write_note(&mut self) {
        let (parts, front) = (self.parts, &self.front);
        let note = ModuleNote {
            version: ABI_VERSION,
            flavour: parts.flavour,
            id_first: parts.id_first,
            id_count: self.placed.record_count,
            clone_start: front.code_at,
            clone_end: self.code_end,
            patches: front.patches_at,
            patch_count: self.sizes.patches,
            sidecar_path: front.path_at,
            sidecar_id: parts.sidecar_id,
            features: [
                (parts.translated, FEATURE_TRANSLATED),
                (parts.counts, FEATURE_COUNTS),
                (parts.copies, FEATURE_COPIES),
                (parts.reads_code, FEATURE_READS_CODE),
                (parts.burst_only, FEATURE_BURST_ONLY),
                (parts.sanitizer.allocates, FEATURE_OWN_ALLOCATOR),
                (parts.sanitizer.linked_in, FEATURE_SANITIZER_INSIDE),
            ]
            .into_iter()
            .filter(|(is, _)| *is)
            .fold(0, |all, (_, feature)| all | feature),
            thunk_bytes: self.resolver.thunk_bytes() as u32,
            calls: front.calls_at,
            call_count: front.call_count,
            handlers: front.handlers_at.unwrap_or(0),
            covers: front.covers_at,
            cover_count: parts.covers.len() as u64,
            before: front.before_at,
            markers: front.markers_at,
            marker_count: parts.markers.len() as u64,
            displacements: front.displacements_at,
        };
        self.front
            .segment
            .put(self.front.note_at, &note_bytes(&note));
    }

    /// Adds a section that is loaded.
    fn add_section(
        &mut self,
        name: &'static str,
        kind: u32,
        flags: u64,
        range: Range<u64>,
        align: u64,
    ) {
        self.additions.sections.push(NewSection {
            name,
            kind,
            flags: flags | elf::SHF_ALLOC.0,
            addr: range.start,
            size: range.end - range.start,
            align,
        });
    }
}

/// The note as it stands in the file.
fn note_bytes(n: &ModuleNote) -> Vec<u8> {
    let mut out = Vec::with_capacity(NOTE_HEAD + size_of::<ModuleNote>());
    for word in [
        NOTE_NAME.len() as u32,
        size_of::<ModuleNote>() as u32,
        NOTE_MODULE,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(NOTE_NAME);
    for word in [n.version, n.flavour, n.id_first, n.id_count] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for word in [
        n.clone_start,
        n.clone_end,
        n.patches,
        n.patch_count,
        n.sidecar_path,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&n.sidecar_id);
    out.extend_from_slice(&n.features.to_le_bytes());
    out.extend_from_slice(&n.thunk_bytes.to_le_bytes());
    for word in [
        n.calls,
        n.call_count,
        n.handlers,
        n.covers,
        n.cover_count,
        n.before,
        n.markers,
        n.marker_count,
        n.displacements,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}
