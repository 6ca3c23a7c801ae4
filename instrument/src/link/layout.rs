//! Gives every part of the appended segment its address and fills in what depends on addresses.
//!
//! The segment holds, in this order: program headers, note, sidecar path, tables of patches, of
//! what they cover, of system calls, of markers and of displacements, code, jump tables, exception
//! tables, `.eh_frame`, `.eh_frame_hdr`, dynamic strings; then, on pages of its own and writable, a
//! dynamic array if the old one has no room. Each part's size is known before the next part's
//! address is.

use crate::emit;
use crate::emit::{Emitted, Fixup, FixupKind, Table};
use crate::ir::jump_table::TableForm;
use crate::link::elf_writer::{Additions, NewSection};
use crate::link::{elf_writer, fault_shim};
use crate::program::sanitizers::Sanitizer;
use crate::program::syscalls;
use crate::signals::{THROUGH, Wrapped};
use crate::unwind::lsda::CallSite;
use crate::unwind::write::{EhFrame, TooFar, header};
use crate::unwind::{Cie, Fde, Tables, cfi, merge};
use crate::util::range_index::Starts;
use crate::x86::flow::is_padding;
use iced_x86::{Decoder, DecoderOptions};
use mgz_abi::module_note::{
    ABI_VERSION, Cover, FEATURE_BURST_ONLY, FEATURE_COUNTS, FEATURE_OWN_ALLOCATOR,
    FEATURE_READS_CODE, FEATURE_SANITIZER_INSIDE, FEATURE_TRANSLATED, FLAVOUR_PT, ModuleNote,
    NOTE_MODULE, NOTE_NAME, Patch,
};
use mgz_abi::phases::Marker;
use mgz_abi::probe::HANDLER_CALL;
use mgz_elf::image::Elf;
use mgz_elf::{PAGE, Refusal};
use object::elf;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// [`ModuleNote::displacements`], by clone; empty if nobody asks.
    pub displacements: &'a [Vec<i32>],
    /// `mgz_abi::module_note::FLAVOUR_*`.
    pub flavour: u32,
    /// The clones are translated.
    pub translated: bool,
    /// Its records count only, see [`FEATURE_COUNTS`].
    pub counts: bool,
    /// Relation of a sanitizer to the file.
    pub sanitizer: Sanitizer,
    /// The original must stay as it is, since the program reads it.
    pub reads_code: bool,
    /// See [`FEATURE_BURST_ONLY`].
    pub burst_only: bool,
    /// The entry point lets the runtime in ([`syscalls::entry`]).
    pub enters_runtime: bool,
    /// First record id of the module.
    pub id_first: u32,
    /// Identity of the sidecar.
    pub sidecar_id: [u8; 16],
    /// Absolute path of the sidecar if it is not the file's own with `.mgza`.
    pub sidecar_path: Option<Vec<u8>>,
    /// Library search path to be put in front.
    pub search_path: Option<crate::link::runpath::SearchPath>,
    /// Libraries that the runtime is to come behind.
    pub before_runtime: &'a [String],
    /// Markers of phases, by address.
    pub markers: &'a [Marker],
    /// Through what `sigaction` is called, if [`fault_shim`] is to take its place.
    pub wrapped: Option<&'a Wrapped>,
}

/// Addresses that the sidecar needs.
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

/// Finds clones of original addresses.
struct Resolver<'a> {
    clones: &'a [Box<Emitted>],
    addrs: &'a [u64],
    /// The originals.
    starts: Starts,
    /// Per clone: where the original's first byte is in it. Nearly all calls lead there; asking the
    /// clones would be a miss of the cache each.
    entries: Vec<Option<u32>>,
    /// Translated clones: the ways out, by target and whether a call takes it.
    thunks: BTreeMap<(u64, bool), u64>,
}

impl Resolver<'_> {
    fn clone_of(&self, address: u64) -> Option<u64> {
        let (i, is_start) = self.starts.find_start(address)?;
        let offset = if is_start {
            self.entries[i]
        } else {
            self.clones[i].clone_of(address)
        };
        offset.map(|offset| self.addrs[i] + u64::from(offset))
    }

    /// Target of a clone's branch to an original address.
    fn branch(&self, address: u64, call: bool) -> u64 {
        self.clone_of(address)
            .or_else(|| self.thunks.get(&(address, call)).copied())
            .unwrap_or(address)
    }

    /// Gives places from `at` on to the ways to all addresses without clones.
    fn place_thunks(&mut self, at: u64) {
        let of_clone = |c: &Emitted| {
            let branches = c.fixups.iter().filter_map(|f| match f.kind {
                FixupKind::Code(target) => Some((target, false)),
                FixupKind::Call(target) => Some((target, true)),
                _ => None,
            });
            let tables = c
                .tables
                .iter()
                .flat_map(|t| &t.targets)
                .map(|&t| (t, false));
            branches
                .chain(tables)
                .filter(|&(target, _)| self.clone_of(target).is_none())
                .collect::<Vec<_>>()
        };
        let wanted: BTreeSet<(u64, bool)> = self
            .clones
            .par_iter()
            .flat_map_iter(|c| of_clone(c))
            .collect();
        self.thunks = wanted
            .into_iter()
            .zip((at..).step_by(emit::THUNK_BYTES))
            .collect();
    }
}

fn out_of_reach() -> Refusal {
    Refusal::declined(
        "no room for instrumented code within 2 GiB of everything that it refers to; build the program with less static data or debug information",
    )
}

impl From<TooFar> for Refusal {
    fn from(_: TooFar) -> Refusal {
        out_of_reach()
    }
}

/// The segment in the making.
struct Segment {
    vaddr: u64,
    bytes: Vec<u8>,
}

impl Segment {
    fn align(&mut self, to: u64) -> u64 {
        let at = self.end().next_multiple_of(to);
        self.bytes.resize((at - self.vaddr) as usize, 0);
        at
    }

    fn end(&self) -> u64 {
        self.vaddr + self.bytes.len() as u64
    }

    fn put(&mut self, addr: u64, bytes: &[u8]) {
        let at = (addr - self.vaddr) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// ModRM of `call [rip + distance]`.
const CALL_THROUGH: u8 = 0x15;

/// `int3`, between clones.
const FILLER: u8 = 0xcc;

/// Note name, type and sizes before the descriptor.
const NOTE_HEAD: usize = 16;

/// Content before the clones, and the start and end of the clones.
pub struct Front {
    segment: Segment,
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

/// Gives the clones their places: the sidecar can be made of them while the rest is laid out.
pub fn place(parts: &LayoutInput) -> Result<(Front, Placed), Refusal> {
    let vaddr = elf_writer::place(parts.elf)?;
    let mut segment = Segment {
        vaddr,
        bytes: vec![0; elf_writer::headers_len(parts.elf)],
    };
    let note_at = segment.align(8);
    segment.bytes.resize(segment.bytes.len() + NOTE_LEN, 0);
    let mut text = |text: &[u8]| {
        let at = segment.align(1);
        segment.bytes.extend_from_slice(text);
        segment.bytes.push(0);
        at
    };
    let path_at = parts.sidecar_path.as_ref().map_or(0, |path| text(path));
    let before_at = match parts.before_runtime {
        [] => 0,
        names => text(names.join(":").as_bytes()),
    };
    let patches_at = segment.align(8);
    let patch_count: usize = parts.clones.iter().map(|c| c.patches.len()).sum();
    segment
        .bytes
        .resize(segment.bytes.len() + patch_count * size_of::<Patch>(), 0);
    let covers_at = segment.align(8);
    segment.bytes.extend(
        parts
            .covers
            .iter()
            .flat_map(|c| [&c.at.to_le_bytes()[..], &c.bytes, &c.unused].concat()),
    );
    let calls_at = segment.align(8);
    let calls: Vec<u8> = parts
        .clones
        .iter()
        .flat_map(|c| &c.calls)
        .flat_map(|&at| (at as u32).to_le_bytes())
        .collect();
    segment.bytes.extend_from_slice(&calls);
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

    // Not among the clones: what is interrupted there is no probe.
    let handlers_at = parts.enters_runtime.then(|| {
        let at = segment.align(16);
        segment.bytes.extend_from_slice(&HANDLER_CALL);
        at
    });
    let shown_at = parts.wrapped.map(|_| {
        let at = segment.align(16);
        segment
            .bytes
            .resize(segment.bytes.len() + fault_shim::code_len(), FILLER);
        at
    });
    let code_at = segment.align(64);
    let mut placed = Placed {
        start: code_at,
        ..Placed::default()
    };
    let mut next = code_at;
    for (clone, records) in parts.clones.iter().zip(parts.record_counts) {
        // At least a byte apart, so that they can share an entry of the unwind tables.
        next = (next + 1).next_multiple_of(clone.align);
        placed.clones.push(next);
        placed.records.push(placed.record_count);
        next += u64::from(clone.len);
        placed.record_count += records;
    }
    if next >= 1 << 32 {
        return Err(out_of_reach());
    }
    let call_count = (calls.len() / 4) as u64;
    Ok((
        Front {
            segment,
            note_at,
            path_at,
            before_at,
            patches_at,
            covers_at,
            calls_at,
            call_count,
            markers_at,
            displacements_at,
            handlers_at,
            shown_at,
            code_at,
            clones_end: next,
        },
        placed,
    ))
}

/// Lays everything out. `codes`: of the clones.
pub fn lay_out<'n>(
    parts: &LayoutInput,
    front: Front,
    placed: &Placed,
    mut codes: Vec<Vec<u8>>,
) -> Result<(Additions<'n>, Sizes), Refusal> {
    let Front {
        mut segment,
        note_at,
        handlers_at,
        shown_at,
        code_at,
        clones_end,
        ..
    } = front;
    let vaddr = segment.vaddr;
    let mut next = clones_end;
    let starts = Starts::of(parts.clones.iter().map(|c| &c.range));
    let entries = parts
        .clones
        .par_iter()
        .map(|c| c.clone_of(c.range.start))
        .collect();
    let mut resolver = Resolver {
        clones: parts.clones,
        addrs: &placed.clones,
        starts,
        entries,
        thunks: BTreeMap::new(),
    };
    let entry_at = next.next_multiple_of(16);
    if parts.enters_runtime {
        next = entry_at + syscalls::ENTRY_BYTES as u64;
    }
    // Last, where the runtime expects them.
    if parts.translated {
        next = next.next_multiple_of(16);
        resolver.place_thunks(next);
        next += (resolver.thunks.len() * emit::THUNK_BYTES) as u64;
    }
    let code_end = next;
    if code_end >= 1 << 32 {
        return Err(out_of_reach());
    }
    segment.bytes.resize(
        (placed.clones.first().copied().unwrap_or(clones_end) - vaddr) as usize,
        FILLER,
    );
    // Clones stay where they are until they are written. (Room that is not touched takes no
    // memory.)
    let mut behind = Segment {
        vaddr: clones_end,
        bytes: Vec::with_capacity((code_end - vaddr) as usize / 4),
    };
    behind
        .bytes
        .resize((code_end - clones_end) as usize, FILLER);
    let (tables_at, tables) = place_tables(parts, &mut behind);
    for (&(target, call), &at) in &resolver.thunks {
        behind.put(at, &emit::thunk(at, target, call).ok_or_else(out_of_reach)?);
    }
    let bytes = parts
        .clones
        .par_iter()
        .zip(&tables)
        .flat_map_iter(|(clone, places)| clone.tables.iter().zip(places));
    let bytes: Vec<(u64, Vec<u8>)> = bytes
        .map(|(table, &place)| Ok((place, table_bytes(table, &resolver)?)))
        .collect::<Result<_, Refusal>>()?;
    bytes
        .iter()
        .for_each(|(place, bytes)| behind.put(*place, bytes));
    let shown_table = parts.wrapped.map(|_| {
        let table = fault_shim::Table::new(parts.clones, &placed.clones);
        let at = behind.align(4);
        behind.bytes.extend_from_slice(&table.bytes());
        (at, table.groups())
    });
    let tables_end = behind.end();
    let lsda_at = behind.align(4);
    // Much of making the unwind tables is on one core.
    let (frames, filled) = rayon::join(
        || unwind(parts, placed, &resolver, handlers_at, shown_at, &mut behind),
        || {
            fill_code(
                parts, placed, &resolver, &tables, &mut codes, clones_end, shown_at,
            )
        },
    );
    let frames = filled.and(frames)?;
    if parts.enters_runtime {
        behind.put(entry_at, &syscalls::entry(entry_at, parts.elf.entry));
    }
    let mut sizes = Sizes {
        clone_bytes: tables_end - code_at,
        ..Sizes::default()
    };

    let text_at = handlers_at.or(shown_at).unwrap_or(code_at);
    let entry = parts.enters_runtime.then_some(entry_at);
    let mut additions = Additions {
        vaddr,
        note: (note_at, NOTE_LEN as u64),
        entry,
        ..Additions::default()
    };
    let mut sections = vec![
        section(
            ".mgz.note",
            elf::SHT_NOTE.0,
            0,
            note_at,
            note_at + NOTE_LEN as u64,
            8,
        ),
        section(
            ".mgz.text",
            elf::SHT_PROGBITS.0,
            elf::SHF_EXECINSTR.0,
            text_at,
            code_end,
            if text_at < code_at { 16 } else { 64 },
        ),
    ];
    sections.push(section(
        ".mgz.data",
        elf::SHT_PROGBITS.0,
        0,
        tables_at,
        frames.as_ref().map_or(lsda_at, |f| f.frame.0),
        8,
    ));
    if let Some(f) = frames {
        sections.push(section(
            ".eh_frame",
            elf::SHT_PROGBITS.0,
            0,
            f.frame.0,
            f.frame.1,
            8,
        ));
        sections.push(section(
            ".eh_frame_hdr",
            elf::SHT_PROGBITS.0,
            0,
            f.header.0,
            f.header.1,
            4,
        ));
        additions.eh_frame_hdr = Some((f.header.0, f.header.1 - f.header.0));
        sizes.unwind_bytes = f.header.1 - lsda_at;
    }
    if let Some(path) = &parts.search_path {
        let strings_at = behind.align(8);
        let change = crate::link::runpath::search_path(parts.elf, path, strings_at)?;
        behind.bytes.extend_from_slice(&change.strings);
        sections.push(section(
            ".dynstr",
            elf::SHT_STRTAB.0,
            0,
            strings_at,
            strings_at + change.strings.len() as u64,
            1,
        ));
        additions.overwrite = change.overwrite;
        if let Some(dynamic) = change.dynamic {
            let at = behind.align(PAGE);
            additions.writable_from = Some((behind.end() - vaddr) as usize);
            behind.bytes.extend_from_slice(&dynamic);
            additions.dynamic = Some((at, dynamic.len() as u64));
            sections.push(section(
                ".dynamic",
                elf::SHT_DYNAMIC.0,
                elf::SHF_WRITE.0,
                at,
                at + dynamic.len() as u64,
                8,
            ));
        }
    }
    if let (Some(wrapped), Some(code), Some((table, groups))) =
        (parts.wrapped, shown_at, shown_table)
    {
        if additions.writable_from.is_none() {
            behind.align(PAGE);
            additions.writable_from = Some((behind.end() - vaddr) as usize);
        }
        let memory = behind.align(8);
        behind
            .bytes
            .resize(behind.bytes.len() + fault_shim::MEMORY, 0);
        sections.push(section(
            ".mgz.handlers",
            elf::SHT_PROGBITS.0,
            elf::SHF_WRITE.0,
            memory,
            behind.end(),
            8,
        ));
        // Any of the words will do: the C library is in each of them, or what looks for it.
        let slot = wrapped.slots.first().copied().unwrap_or(0);
        let first = placed.clones.first().copied().unwrap_or(code_at);
        let loads = || {
            parts
                .elf
                .loads()
                .map(|s| (s.vaddr, s.vaddr.saturating_add(s.memsz)))
        };
        let whole = loads().map(|s| s.0).min().zip(loads().map(|s| s.1).max());
        // The executable of a process is never unloaded.
        let handlers = if parts.elf.interpreter().is_some() || !parts.elf.is_pie() {
            None
        } else {
            whole
        };
        let places = fault_shim::ShimAddresses {
            code,
            slot,
            memory,
            clones: (first, clones_end),
            table,
            groups,
            handlers,
        };
        segment.put(code, &fault_shim::code(&places).ok_or_else(out_of_reach)?);
        additions
            .overwrite
            .extend(redirected(parts.elf, wrapped, code)?);
    }
    let mut patches: Vec<Patch> = Vec::new();
    for (clone, &at) in parts.clones.iter().zip(&placed.clones) {
        let patch = |&(from, to): &(u64, u32)| {
            Some(Patch {
                at: u32::try_from(from).ok()?,
                to: u32::try_from(at + u64::from(to)).ok()?,
            })
        };
        patches.extend(clone.patches.iter().filter_map(patch));
    }
    patches.sort_by_key(|p| p.at);
    sizes.patches = patches.len() as u64;
    let table: Vec<u8> = patches
        .iter()
        .flat_map(|p| [p.at.to_le_bytes(), p.to.to_le_bytes()])
        .flatten()
        .collect();
    segment.put(front.patches_at, &table);
    if parts.flavour == FLAVOUR_PT {
        for p in &patches {
            let offset = parts
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
            additions.overwrite.push((offset, jump));
        }
    }
    let note = ModuleNote {
        version: ABI_VERSION,
        flavour: parts.flavour,
        id_first: parts.id_first,
        id_count: placed.record_count,
        clone_start: code_at,
        clone_end: code_end,
        patches: front.patches_at,
        patch_count: sizes.patches,
        sidecar_path: front.path_at,
        sidecar_id: parts.sidecar_id,
        features: [
            (parts.translated, FEATURE_TRANSLATED),
            (parts.counts, FEATURE_COUNTS),
            (parts.reads_code, FEATURE_READS_CODE),
            (parts.burst_only, FEATURE_BURST_ONLY),
            (parts.sanitizer.allocates, FEATURE_OWN_ALLOCATOR),
            (parts.sanitizer.linked_in, FEATURE_SANITIZER_INSIDE),
        ]
        .into_iter()
        .filter(|(is, _)| *is)
        .fold(0, |all, (_, feature)| all | feature),
        thunk_bytes: (resolver.thunks.len() * emit::THUNK_BYTES) as u32,
        calls: front.calls_at,
        call_count: front.call_count,
        handlers: handlers_at.unwrap_or(0),
        covers: front.covers_at,
        cover_count: parts.covers.len() as u64,
        before: front.before_at,
        markers: front.markers_at,
        marker_count: parts.markers.len() as u64,
        displacements: front.displacements_at,
    };
    segment.put(note_at, &note_bytes(&note));
    additions.sections = sections;
    additions.segment = segment.bytes;
    additions.clones = codes;
    additions.behind = behind.bytes;
    Ok((additions, sizes))
}

fn section(
    name: &'static str,
    kind: u32,
    flags: u64,
    start: u64,
    end: u64,
    align: u64,
) -> NewSection {
    NewSection {
        name,
        kind,
        flags: flags | elf::SHF_ALLOC.0,
        addr: start,
        size: end - start,
        align,
    }
}

/// The original's calls and jumps through the words of `wrapped`, made direct ones to the code at
/// `shown`: file offsets and bytes.
fn redirected(elf: &Elf, wrapped: &Wrapped, shown: u64) -> Result<Vec<(u64, Vec<u8>)>, Refusal> {
    let one = |&(end, is_call): &(u64, bool)| {
        let offset = elf
            .file_offset(end - THROUGH)
            .ok_or_else(|| Refusal::failed("a call of sigaction lies outside of the file"))?;
        Ok((
            offset,
            direct(end, is_call, shown)
                .ok_or_else(out_of_reach)?
                .to_vec(),
        ))
    };
    wrapped.uses.iter().map(one).collect()
}

/// In place of the call or jump through a word that ends at `end`: a direct one to what stands in
/// for `sigaction`. A call must end where it did, for its return address.
fn direct(end: u64, is_call: bool, shown: u64) -> Option<[u8; THROUGH as usize]> {
    const NOP: u8 = 0x90;
    let [a, b, c, d] = i32::try_from(fault_shim::sigaction(shown).wrapping_sub(end) as i64)
        .ok()?
        .to_le_bytes();
    Some([NOP, if is_call { 0xe8 } else { 0xe9 }, a, b, c, d])
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

/// Gives the jump tables their places. Returns the first one's address and each function's, in
/// order.
fn place_tables(parts: &LayoutInput, segment: &mut Segment) -> (u64, Vec<Vec<u64>>) {
    let start = segment.align(8);
    let size = |t: &Table| {
        t.targets.len()
            * if matches!(t.form, TableForm::Absolute8) {
                8
            } else {
                4
            }
    };
    let places = parts.clones.iter().map(|c| {
        // Interpreters jump through one table at many places: one copy serves all of them.
        let mut known: HashMap<(u64, TableForm, usize), u64> = HashMap::new();
        let mut place = |t: &Table| {
            *known
                .entry((t.original, t.form, t.targets.len()))
                .or_insert_with(|| {
                    let at = segment.align(if matches!(t.form, TableForm::Absolute8) {
                        8
                    } else {
                        4
                    });
                    segment.bytes.resize(segment.bytes.len() + size(t), 0);
                    at
                })
        };
        c.tables.iter().map(&mut place).collect()
    });
    let places = places.collect();
    (start, places)
}

fn table_bytes(table: &Table, resolver: &Resolver) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    for &original in &table.targets {
        let target = resolver.branch(original, false);
        match table.form {
            TableForm::Absolute8 => out.extend_from_slice(&target.to_le_bytes()),
            TableForm::Relative { anchor } => {
                let entry = i32::try_from(target.wrapping_sub(anchor) as i64)
                    .map_err(|_| out_of_reach())?;
                out.extend_from_slice(&entry.to_le_bytes());
            }
        }
    }
    Ok(out)
}

/// Resolves the fixups of all clones, and puts the filler before the next one behind each.
fn fill_code(
    parts: &LayoutInput,
    placed: &Placed,
    resolver: &Resolver,
    tables: &[Vec<u64>],
    codes: &mut [Vec<u8>],
    end: u64,
    shown_at: Option<u64>,
) -> Result<(), Refusal> {
    codes.par_iter_mut().enumerate().try_for_each(|(i, piece)| {
        let (clone, at) = (&parts.clones[i], placed.clones[i]);
        for f in clone.fixups.iter() {
            let value = match f.kind {
                FixupKind::RecordId(number) => {
                    // The field already tells if two records share the slot.
                    let at = f.at as usize;
                    let shares = u32::from_le_bytes([
                        piece[at],
                        piece[at + 1],
                        piece[at + 2],
                        piece[at + 3],
                    ]);
                    (shares | (parts.id_first + placed.records[i] + number)).to_le_bytes()
                }
                FixupKind::Counter(number) => {
                    mgz_abi::counters::displacement(parts.id_first + placed.records[i] + number)
                        .ok_or_else(out_of_reach)?
                        .to_le_bytes()
                }
                _ => fixup(&f, at, resolver, &tables[i], &clone.tables)
                    .ok_or_else(out_of_reach)?
                    .to_le_bytes(),
            };
            piece[f.at as usize..f.at as usize + 4].copy_from_slice(&value);
            if let (FixupKind::Original(slot), Some(wrapped), Some(shown)) =
                (f.kind, parts.wrapped, shown_at)
                && wrapped.slots.contains(&slot)
            {
                // Nothing else refers to the word.
                let through = &mut piece[f.end as usize - THROUGH as usize..f.end as usize];
                through.copy_from_slice(
                    &direct(at + u64::from(f.end), through[1] == CALL_THROUGH, shown)
                        .ok_or_else(out_of_reach)?,
                );
            }
        }
        piece.resize(
            (placed.clones.get(i + 1).copied().unwrap_or(end) - at) as usize,
            FILLER,
        );
        Ok::<(), Refusal>(())
    })
}

fn fixup(
    f: &Fixup,
    clone: u64,
    resolver: &Resolver,
    places: &[u64],
    tables: &[Table],
) -> Option<i32> {
    let end = clone + u64::from(f.end);
    let value = match f.kind {
        FixupKind::Original(target) => target.wrapping_sub(end) as i64,
        FixupKind::Code(target) => resolver.branch(target, false).wrapping_sub(end) as i64,
        FixupKind::Call(target) => resolver.branch(target, true).wrapping_sub(end) as i64,
        FixupKind::Table { table, disp } => {
            let moved = places
                .get(table as usize)?
                .wrapping_sub(tables.get(table as usize)?.original) as i64;
            moved.checked_add(disp.into())?
        }
        FixupKind::RecordId(_) | FixupKind::Counter(_) => return None,
    };
    i32::try_from(value).ok()
}

/// The common part of the entry for [`HANDLER_CALL`].
const HANDLERS: Cie = Cie::plain(true, &[]);

/// Places of the unwind tables (start, end).
struct Frames {
    frame: (u64, u64),
    header: (u64, u64),
}

/// Writes exception tables and unwind tables.
fn unwind<'a>(
    parts: &LayoutInput<'a>,
    placed: &Placed,
    resolver: &Resolver,
    handlers: Option<u64>,
    shown: Option<u64>,
    segment: &mut Segment,
) -> Result<Option<Frames>, Refusal> {
    if parts.unwind.fdes.is_empty() {
        return Ok(None);
    }
    let mut pieces = Vec::with_capacity(parts.clones.len());
    for (number, ((own, clone), &at)) in parts
        .pieces
        .iter()
        .zip(parts.clones)
        .zip(&placed.clones)
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
    let mut lsdas = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let Some(old) = piece.fde.lsda else {
            lsdas.push(None);
            continue;
        };
        let at = segment.align(4);
        segment.bytes.extend_from_slice(
            &clone_lsda(parts.unwind, piece, old, at, resolver).ok_or_else(out_of_reach)?,
        );
        lsdas.push(Some(at));
    }
    let frame_at = segment.align(8);
    let mut frame = EhFrame::behind(std::mem::take(&mut segment.bytes), segment.vaddr);
    let most_bytes = if parts.flavour == FLAVOUR_PT {
        merge::MOST_BYTES_PT
    } else {
        merge::MOST_BYTES_SOFT
    };
    // Entries also tell where functions begin (`_Unwind_FindEnclosingFunction`): those of code that
    // runs while it is recorded stay as they were.
    let all_run = parts.translated || shown.is_some();
    let is_unused = |fde: &Fde| !all_run && resolver.starts.covers(&fde.range);
    let unseen = |fde: &Fde| is_unseen(parts.elf, fde);
    let kept = |(n, fde): (usize, &Fde<'a>)| {
        let start = fde.range.start;
        let (instructions, effect) =
            match cfi::rewrite(parts.unwind.source(fde), start, fde.range.end, |a| {
                a.wrapping_sub(start)
            }) {
                Some((instructions, effect)) => (instructions.into(), Some(effect)),
                None if parts.unwind.cies[fde.cie].code_align == 1 => {
                    (fde.instructions.into(), cfi::effect(fde.instructions))
                }
                None => return Err(Refusal::declined("unwind tables with unknown instructions")),
            };
        let before = n.checked_sub(1).map(|n| &parts.unwind.fdes[n]);
        let adjoins = before.is_some_and(|before| {
            is_unused(fde)
                && is_unused(before)
                && unseen(fde) == unseen(before)
                && follows(parts, before, fde)
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
    let kept: Vec<merge::FrameEntry> = parts
        .unwind
        .fdes
        .par_iter()
        .enumerate()
        .map(kept)
        .collect::<Result<_, Refusal>>()?;
    if pieces.iter().any(|p| p.piece.instructions.is_none()) {
        return Err(Refusal::failed(
            "unwind instructions of a function that was taken for understood",
        ));
    }
    let moved = |(n, (piece, lsda)): (usize, (&PlacedPiece<'a>, Option<u64>))| {
        let (instructions, effect) = piece.piece.instructions.as_ref()?;
        let before = n.checked_sub(1).map(|n| &pieces[n]);
        let adjoins = before
            .is_some_and(|before| unseen(piece.fde) == unseen(before.fde) && piece.follows(before));
        Some(merge::FrameEntry {
            cie: piece.fde.cie,
            code: piece.code(),
            lsda,
            instructions: instructions.into(),
            effect: Some(*effect),
            adjoins,
        })
    };
    let moved = pieces.iter().zip(lsdas).enumerate().filter_map(moved);
    let unseen_kept = parts
        .unwind
        .fdes
        .iter()
        .filter(|fde| unseen(fde))
        .map(|fde| fde.range.start);
    let unseen_moved = pieces
        .iter()
        .filter(|piece| unseen(piece.fde))
        .map(|piece| piece.code().start);
    let unseen_code: Vec<u64> = unseen_kept.chain(unseen_moved).collect();
    for entry in merge::merge(kept.into_iter().chain(moved), most_bytes) {
        frame.fde(
            &parts.unwind.cies[entry.cie],
            entry.code,
            entry.lsda,
            &entry.instructions,
        )?;
    }
    if let Some(at) = handlers {
        frame.fde(
            &HANDLERS,
            at..at + HANDLER_CALL.len() as u64,
            None,
            &syscalls::handler_frame(),
        )?;
    }
    for (code, instructions) in shown.map(fault_shim::unwind).into_iter().flatten() {
        frame.fde(&fault_shim::UNWIND, code, None, &instructions)?;
    }
    let (bytes, mut entries) = frame.finish();
    entries.retain(|entry| !unseen_code.contains(&entry.0));
    segment.bytes = bytes;
    let frame_end = segment.end();
    let header_at = segment.align(4);
    let bytes = header(header_at, frame_at, &entries)?;
    segment.bytes.extend_from_slice(&bytes);
    Ok(Some(Frames {
        frame: (frame_at, frame_end),
        header: (header_at, header_at + bytes.len() as u64),
    }))
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
    /// The entry's instructions for it, if they are understood.
    instructions: Option<(Vec<u8>, cfi::Effect)>,
}

impl CloneFde {
    /// True if the piece has an exception table.
    pub fn has_lsda(&self, unwind: &Tables) -> bool {
        unwind.fdes[self.fde as usize].lsda.is_some()
    }
}

/// The parts of a clone that unwind entries describe. Best asked for while all of its marks are at
/// hand.
pub fn pieces(unwind: &Tables, clone: &Emitted) -> Vec<CloneFde> {
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

/// A piece, and where it went.
struct PlacedPiece<'a> {
    piece: &'a CloneFde,
    fde: &'a Fde<'a>,
    clone: &'a Emitted,
    /// Number of the clone.
    number: usize,
    /// Clone address of the function.
    at: u64,
}

/// True if the program does not find an entry when it unwinds. Some files have no search table
/// (static executables of gcc). Their start-up code registers the entries from `crtbeginT.o` on.
/// The entries of `crt1.o`, which is linked before it, are not among them, and a backtrace has one
/// frame less.
fn is_unseen(elf: &Elf, fde: &Fde) -> bool {
    fde.range.contains(&elf.entry)
        && !elf
            .segments
            .iter()
            .any(|s| s.kind == elf::PT_GNU_EH_FRAME.0)
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
