//! The rewritten file: the input's bytes, changed headers, one appended segment, and then new
//! symbol, string and section header tables. At the end is a copy of data that programs search from
//! their file's end.

use mgz_elf::image::{EHDR, Elf, PHDR, ProgramSegment, SHDR, SYM, Section};
use mgz_elf::payload::Payload;
use mgz_elf::{PAGE_SIZE, Refusal, bytes};
use object::elf;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{IoSlice, Seek, SeekFrom, Write};

/// A section of the appended segment, or after it.
#[derive(Clone, Debug)]
pub struct NewSection {
    /// Name. A section of the input with this name is redirected; otherwise one is added.
    pub name: &'static str,
    /// `SHT_*` for an added section.
    pub kind: u32,
    /// `SHF_*` for an added section.
    pub flags: u64,
    /// Link-time address.
    pub addr: u64,
    /// Size in bytes.
    pub size: u64,
    /// Alignment.
    pub align: u64,
}

/// A symbol for a clone.
#[derive(Clone, Debug)]
pub struct NewSymbol<'n> {
    /// Its name, followed by `suffix`.
    pub name: Cow<'n, str>,
    /// End of the name.
    pub suffix: &'static str,
    /// Address.
    pub addr: u64,
    /// Size in bytes.
    pub size: u64,
}

/// All additions to the input.
#[derive(Debug, Default)]
pub struct Additions<'n> {
    /// Address of the appended segment.
    pub vaddr: u64,
    /// Its content; [`assemble`] writes the program headers to its start.
    pub segment: Vec<u8>,
    /// The clones' code, which comes next.
    pub clones: Vec<Vec<u8>>,
    /// Content after the clones.
    pub behind: Vec<u8>,
    /// Offset in the segment (a multiple of [`PAGE_SIZE`]) at which a second, writable segment
    /// begins.
    pub writable_from: Option<usize>,
    /// Address and size of a dynamic array that replaces the old one.
    pub dynamic: Option<(u64, u64)>,
    /// Address and size of the note; size 0 if there is none.
    pub note: (u64, u64),
    /// Address and size of the new `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<(u64, u64)>,
    /// New entry point.
    pub entry: Option<u64>,
    /// Sections, `.mgz.text` among them.
    pub sections: Vec<NewSection>,
    /// Clone functions.
    pub symbols: Vec<NewSymbol<'n>>,
    /// Bytes of the input to be overwritten: file offset, bytes.
    pub overwrite: Vec<(u64, Vec<u8>)>,
    /// Data that programs search at the end of the input.
    pub payload: Option<Payload>,
}

impl Additions<'_> {
    /// Bytes of the segment.
    fn len(&self) -> usize {
        self.segment.len() + self.clones.iter().map(Vec::len).sum::<usize>() + self.behind.len()
    }
}

/// A complete file: the input with some bytes changed, and further pieces at ascending offsets,
/// with holes of zeros between them.
#[derive(Debug)]
pub struct Image<'a> {
    /// The input.
    pub input: &'a [u8],
    /// Changes to the input's bytes, in the order in which they are made: offset and bytes. Changes
    /// outside of the input are left out.
    pub changes: Vec<(u64, Vec<u8>)>,
    /// Offset and content of the pieces after the input.
    pub pieces: Vec<(u64, Cow<'a, [u8]>)>,
    /// Offset at which the input's payload is repeated.
    pub payload_at: Option<u64>,
}

/// Bytes copied at a time.
const CHUNK: usize = 1 << 18;

/// Pieces written at a time: the maximum of one call (`UIO_MAXIOV`).
const SLICES: usize = 1024;

fn write_slices(file: &mut std::fs::File, mut slices: &mut [IoSlice]) -> std::io::Result<()> {
    // (This skips empty pieces at the beginning.)
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(bytes) => IoSlice::advance_slices(&mut slices, bytes),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Image<'_> {
    /// Writes the first part of the file: the input with its changes.
    pub fn write_front(&self, file: &mut std::fs::File) -> std::io::Result<()> {
        self.changed_input(|bytes| file.write_all(bytes))
    }

    /// Writes the rest; holes stay holes.
    pub fn write_behind(&self, file: &mut std::fs::File) -> std::io::Result<()> {
        let mut at = self.input.len() as u64;
        let mut rest = &self.pieces[..];
        while let Some((offset, _)) = rest.first() {
            if *offset != at {
                at = file.seek(SeekFrom::Start(*offset))?;
            }
            // Adjacent pieces are written together, since most are short.
            let mut slices = Vec::new();
            while let Some(((_, bytes), behind)) = rest
                .split_first()
                .filter(|(next, _)| next.0 == at && slices.len() < SLICES)
            {
                slices.push(IoSlice::new(bytes));
                (at, rest) = (at + bytes.len() as u64, behind);
            }
            write_slices(file, &mut slices)?;
        }
        Ok(())
    }

    /// The file as one string of bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = self.changed_input(|bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        });
        for (offset, bytes) in &self.pieces {
            out.resize(*offset as usize, 0);
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Passes the input with its changes, piece by piece, since a copy would double the memory.
    fn changed_input(
        &self,
        mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut of_chunk = vec![Vec::new(); self.input.len().div_ceil(CHUNK)];
        for (at, bytes) in &self.changes {
            let at = *at as usize;
            if bytes.is_empty()
                || at
                    .checked_add(bytes.len())
                    .is_none_or(|end| end > self.input.len())
            {
                continue;
            }
            of_chunk[at / CHUNK..=(at + bytes.len() - 1) / CHUNK]
                .iter_mut()
                .for_each(|chunk| chunk.push((at, &bytes[..])));
        }
        let mut buffer = Vec::new();
        for (n, (chunk, changes)) in self.input.chunks(CHUNK).zip(of_chunk).enumerate() {
            if changes.is_empty() {
                write(chunk)?;
                continue;
            }
            buffer.clear();
            buffer.extend_from_slice(chunk);
            let start = n * CHUNK;
            for (at, bytes) in changes {
                let (from, to) = (at.max(start), (at + bytes.len()).min(start + chunk.len()));
                buffer[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
            }
            write(&buffer)?;
        }
        Ok(())
    }
}

/// Room for the program headers at the segment's start, bytes.
pub fn headers_len(elf: &Elf) -> usize {
    (elf.segments.len() + 4) * PHDR
}

/// Link-time address of the file's first byte.
pub fn base(elf: &Elf) -> Result<u64, Refusal> {
    let base = elf
        .loads()
        .next()
        .and_then(|first| first.vaddr.checked_sub(first.offset))
        .filter(|b| b % PAGE_SIZE == 0);
    base.ok_or_else(|| {
        Refusal::declined(
            "its first segment lies below the file's base address; link it with the usual layout",
        )
    })
}

/// Address of the segment: the lowest page from which on both file and memory are free, at an
/// offset that equals its address minus the file's base. Kernels before 5.18 compute the program
/// headers' address from this.
pub fn segment_address(elf: &Elf) -> Result<u64, Refusal> {
    let no_room = || {
        Refusal::declined(
            "no room for instrumented code: addresses up to 4 GiB are taken; link the program at a lower address",
        )
    };
    let base = base(elf)?;
    let end = elf.loads().map(|s| s.vaddr + s.memsz).max().unwrap_or(0);
    let end = end.max(
        base.checked_add(elf.data.len() as u64)
            .ok_or_else(no_room)?,
    );
    let vaddr = end
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or_else(no_room)?;
    if vaddr < 1 << 32 {
        return Ok(vaddr);
    }
    match mgz_elf::payload::find_payload(elf) {
        Some(payload) if base + payload.range.start < 1 << 32 => Err(Refusal::declined(format!(
            "its payload of {} bytes leaves no room for instrumented code, which lies behind it and below 4 GiB; instrument the program before the payload is appended (head -c {})",
            payload.range.end - payload.range.start,
            payload.range.start
        ))),
        _ => Err(no_room()),
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = at
        .checked_add(value.len())
        .and_then(|end| bytes.get_mut(at..end))
    {
        field.copy_from_slice(value);
    }
}

fn program_header(s: &ProgramSegment) -> Vec<u8> {
    let mut out = Vec::with_capacity(PHDR);
    out.extend_from_slice(&s.kind.to_le_bytes());
    out.extend_from_slice(&s.flags.to_le_bytes());
    for field in [s.offset, s.vaddr, s.paddr, s.filesz, s.memsz, s.align] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out
}

fn section_header(s: &Section) -> Vec<u8> {
    let mut out = Vec::with_capacity(SHDR);
    out.extend_from_slice(&s.name_at.to_le_bytes());
    out.extend_from_slice(&s.kind.to_le_bytes());
    for field in [s.flags, s.addr, s.offset, s.size] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&s.link.to_le_bytes());
    out.extend_from_slice(&s.info.to_le_bytes());
    out.extend_from_slice(&s.align.to_le_bytes());
    out.extend_from_slice(&s.entsize.to_le_bytes());
    out
}

/// The program headers of the new file. Loadable segments stay in ascending order. `reach`: bytes
/// that the last of them covers after the additions.
fn program_headers(elf: &Elf, new: &Additions, offset: u64, reach: u64) -> Vec<ProgramSegment> {
    let mut headers = elf.segments.clone();
    let same = |kind: u32, flags: u32, at: u64, size: u64, align: u64| ProgramSegment {
        kind,
        flags,
        offset: at - new.vaddr + offset,
        vaddr: at,
        paddr: at,
        filesz: size,
        memsz: size,
        align,
    };
    let fixed = new.writable_from.unwrap_or(new.len());
    let last = headers
        .iter()
        .rposition(|h| h.kind == elf::PT_LOAD.0)
        .map_or(headers.len(), |i| i + 1);
    headers.insert(
        last,
        same(
            elf::PT_LOAD.0,
            elf::PF_R.0 | elf::PF_X.0,
            new.vaddr,
            fixed as u64,
            PAGE_SIZE,
        ),
    );
    if fixed < new.len() {
        let size = (new.len() - fixed) as u64;
        headers.insert(
            last + 1,
            same(
                elf::PT_LOAD.0,
                elf::PF_R.0 | elf::PF_W.0,
                new.vaddr + fixed as u64,
                size,
                PAGE_SIZE,
            ),
        );
    }
    let end = last + usize::from(fixed < new.len());
    headers[end].filesz += reach;
    headers[end].memsz += reach;
    if let (Some((at, size)), Some(old)) = (
        new.dynamic,
        headers.iter_mut().find(|h| h.kind == elf::PT_DYNAMIC.0),
    ) {
        *old = same(elf::PT_DYNAMIC.0, old.flags, at, size, 8);
    }
    if new.note.1 > 0 {
        headers.push(same(elf::PT_NOTE.0, elf::PF_R.0, new.note.0, new.note.1, 8));
    }
    if let Some((at, size)) = new.eh_frame_hdr {
        let header = same(elf::PT_GNU_EH_FRAME.0, elf::PF_R.0, at, size, 4);
        match headers
            .iter_mut()
            .find(|h| h.kind == elf::PT_GNU_EH_FRAME.0)
        {
            Some(old) => *old = header,
            None => headers.push(header),
        }
    }
    let size = (headers.len() * PHDR) as u64;
    if let Some(own) = headers.iter_mut().find(|h| h.kind == elf::PT_PHDR.0) {
        *own = same(elf::PT_PHDR.0, own.flags, new.vaddr, size, 8);
    }
    headers
}

/// Copies of string tables that grow, by section index.
#[derive(Default)]
struct Strings(BTreeMap<u32, Vec<u8>>);

impl Strings {
    /// Appends a name in several parts, and returns its offset.
    fn add(&mut self, elf: &Elf, table: u32, parts: &[&[u8]]) -> u32 {
        let bytes = self.0.entry(table).or_insert_with(|| {
            let old = elf
                .sections
                .get(table as usize)
                .and_then(|s| elf.section_bytes(s))
                .unwrap_or(&[]);
            if old.is_empty() {
                vec![0]
            } else {
                old.to_vec()
            }
        });
        let at = bytes.len() as u32;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.push(0);
        at
    }
}

/// Sections of the new file, and the content after the segment.
struct Tail {
    sections: Vec<Section>,
    names: u32,
    /// File offset of the tail's first byte.
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Appends content and returns its file offset.
    fn append(&mut self, bytes: &[u8]) -> u64 {
        let at = self.end().next_multiple_of(8);
        self.bytes.resize((at - self.start) as usize, 0);
        self.bytes.extend_from_slice(bytes);
        at
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Pads so that `len` bytes, starting at a multiple of eight, end just before an offset that is
    /// congruent to `like` modulo the page size.
    fn fill_before(&mut self, like: u64, len: u64) {
        let first = self.end().next_multiple_of(8) + len;
        let end = first + like.wrapping_sub(first) % PAGE_SIZE;
        self.bytes
            .resize(((end - len) / 8 * 8 - self.start) as usize, 0);
    }

    /// Pads to an offset that is congruent to `like` modulo the page size, since programs map their
    /// payload by pages.
    fn fill_to(&mut self, like: u64) -> u64 {
        let missing = like.wrapping_sub(self.end()) % PAGE_SIZE;
        self.bytes.resize(self.bytes.len() + missing as usize, 0);
        self.end()
    }
}

fn build_tail(elf: &Elf, new: &Additions, offset: u64) -> Tail {
    let mut tail = Tail {
        sections: elf.sections.clone(),
        names: elf.names,
        start: offset + new.len() as u64,
        bytes: Vec::new(),
    };
    let mut strings = Strings::default();
    let table = |kind: u32, size: u64| Section {
        kind,
        size,
        align: 1,
        ..Section::default()
    };
    if tail.sections.is_empty() {
        tail.sections.push(Section::default());
    }
    if elf
        .sections
        .get(elf.names as usize)
        .is_none_or(|s| s.kind != elf::SHT_STRTAB.0)
    {
        tail.names = tail.sections.len() as u32;
        tail.sections.push(table(elf::SHT_STRTAB.0, 0));
        tail.sections[tail.names as usize].name_at = strings.add(elf, tail.names, &[b".shstrtab"]);
    }
    let names = tail.names;
    let mut text_index = 0;
    for s in &new.sections {
        let at = elf.sections.iter().position(|old| old.name == s.name);
        let index = at.unwrap_or(tail.sections.len());
        if at.is_none() {
            let name_at = strings.add(elf, names, &[s.name.as_bytes()]);
            tail.sections.push(Section {
                name_at,
                kind: s.kind,
                flags: s.flags,
                align: s.align,
                ..Section::default()
            });
        }
        let section = &mut tail.sections[index];
        (section.addr, section.offset, section.size) =
            (s.addr, s.addr - new.vaddr + offset, s.size);
        if s.name == ".mgz.text" {
            text_index = index as u16;
        }
    }
    symbols(elf, new, text_index, &mut tail, &mut strings);
    for (index, bytes) in strings.0 {
        let at = tail.append(&bytes);
        let section = &mut tail.sections[index as usize];
        (section.offset, section.size) = (at, bytes.len() as u64);
    }
    tail
}

/// The old symbols and one for each clone. New ones are global and hidden, so they may come at the
/// end.
fn symbols(elf: &Elf, new: &Additions, text_index: u16, tail: &mut Tail, strings: &mut Strings) {
    if new.symbols.is_empty() {
        return;
    }
    // A symbol table without a string table for its names is useless; a new one is made beside it.
    let named = |s: &Section| {
        elf.sections
            .get(s.link as usize)
            .is_some_and(|t| t.kind == elf::SHT_STRTAB.0)
    };
    let old = elf
        .sections
        .iter()
        .position(|s| s.kind == elf::SHT_SYMTAB.0 && named(s));
    let (index, mut bytes) = match old {
        Some(i) => (
            i,
            elf.section_bytes(&elf.sections[i]).unwrap_or(&[]).to_vec(),
        ),
        None => {
            let strtab = tail.sections.len() as u32;
            let name_at = strings.add(elf, tail.names, &[b".strtab"]);
            tail.sections.push(Section {
                name_at,
                kind: elf::SHT_STRTAB.0,
                align: 1,
                ..Section::default()
            });
            let name_at = strings.add(elf, tail.names, &[b".symtab"]);
            let symtab = Section {
                name_at,
                kind: elf::SHT_SYMTAB.0,
                align: 8,
                entsize: SYM as u64,
                link: strtab,
                info: 1,
                ..Section::default()
            };
            tail.sections.push(symtab);
            (
                tail.sections.len() - 1,
                dynamic_symbols(elf, strtab, strings),
            )
        }
    };
    bytes.truncate(bytes.len() / SYM * SYM);
    let link = tail.sections[index].link;
    bytes.reserve(new.symbols.len() * SYM);
    for NewSymbol {
        name,
        suffix,
        addr,
        size,
    } in &new.symbols
    {
        let name_at = strings.add(elf, link, &[name.as_bytes(), suffix.as_bytes()]);
        bytes.extend_from_slice(&name_at.to_le_bytes());
        bytes.extend_from_slice(&[elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0, elf::STV_HIDDEN.0]);
        bytes.extend_from_slice(&text_index.to_le_bytes());
        bytes.extend_from_slice(&addr.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
    }
    let at = tail.append(&bytes);
    let section = &mut tail.sections[index];
    (section.offset, section.size) = (at, bytes.len() as u64);
}

/// The null symbol and the defined ones of the dynamic symbol table, for a file that has only that.
/// Debuggers that find a full table do not read the dynamic one.
fn dynamic_symbols(elf: &Elf, strtab: u32, strings: &mut Strings) -> Vec<u8> {
    let mut out = vec![0; SYM];
    let Some(dynsym) = elf.sections.iter().find(|s| s.kind == elf::SHT_DYNSYM.0) else {
        return out;
    };
    let names = elf
        .sections
        .get(dynsym.link as usize)
        .and_then(|s| elf.section_bytes(s))
        .unwrap_or(&[]);
    for symbol in elf
        .section_bytes(dynsym)
        .unwrap_or(&[])
        .chunks_exact(SYM)
        .skip(1)
    {
        let name = bytes::u32(symbol, 0)
            .and_then(|at| bytes::text(names, at as usize))
            .unwrap_or(b"");
        if bytes::u16(symbol, 6) == Some(0) || name.is_empty() {
            continue;
        }
        let name_at = strings.add(elf, strtab, &[name]);
        out.extend_from_slice(&name_at.to_le_bytes());
        out.extend_from_slice(&symbol[4..]);
    }
    out
}

/// Assembles the file.
pub fn assemble<'a>(elf: &Elf<'a>, mut new: Additions) -> Result<Image<'a>, Refusal> {
    let first = elf
        .loads()
        .next()
        .ok_or_else(|| Refusal::failed("no loadable segment"))?;
    let offset = new.vaddr - (first.vaddr - first.offset);
    let mut tail = build_tail(elf, &new, offset);
    if tail.sections.len() >= 0xff00 {
        return Err(Refusal::declined("too many sections"));
    }
    let table: Vec<u8> = tail.sections.iter().flat_map(section_header).collect();
    let payload = new.payload.take();
    if let Some(payload) = &payload {
        tail.fill_before(payload.range.start, table.len() as u64);
    }
    let sections_at = tail.append(&table);
    let payload_at = payload.as_ref().map(|p| tail.fill_to(p.range.start));
    let reach = payload_at
        .filter(|_| payload.as_ref().is_some_and(|p| p.follows_segments))
        .map_or(0, |at| at - tail.start);
    let headers = program_headers(elf, &new, offset, reach);
    if headers.len() * PHDR > headers_len(elf) || headers.len() * PHDR > PAGE_SIZE as usize {
        return Err(Refusal::declined("too many program headers for one page"));
    }
    for (i, h) in headers.iter().enumerate() {
        put(&mut new.segment, i * PHDR, &program_header(h));
    }

    let mut changes = new.overwrite;
    debug_assert!(elf.data.len() >= EHDR, "checked on reading");
    if let Some(entry) = new.entry {
        changes.push((24, entry.to_le_bytes().to_vec()));
    }
    changes.push((32, offset.to_le_bytes().to_vec()));
    changes.push((40, sections_at.to_le_bytes().to_vec()));
    let counts = [
        PHDR,
        headers.len(),
        SHDR,
        tail.sections.len(),
        tail.names as usize,
    ];
    changes.push((
        54,
        counts
            .iter()
            .flat_map(|&n| (n as u16).to_le_bytes())
            .collect(),
    ));
    let mut pieces = Vec::with_capacity(new.clones.len() + 3);
    let mut at = offset;
    for bytes in [new.segment]
        .into_iter()
        .chain(new.clones)
        .chain([new.behind])
    {
        let len = bytes.len() as u64;
        pieces.push((at, Cow::Owned(bytes)));
        at += len;
    }
    pieces.push((tail.start, Cow::Owned(tail.bytes)));
    if let Some((payload, at)) = payload.zip(payload_at) {
        let range = payload.range.start as usize..payload.range.end as usize;
        // The first copy keeps offsets from the file's first byte valid. A search from the end
        // finds this copy.
        let by = at - payload.range.start;
        match mgz_elf::archive::moved(elf.data, &payload.range, by) {
            Some(moved) => {
                let head = range.start..moved.from as usize;
                pieces.push((at, Cow::Borrowed(&elf.data[head])));
                pieces.push((moved.from + by, Cow::Owned(moved.bytes)));
            }
            None => pieces.push((at, Cow::Borrowed(&elf.data[range]))),
        }
    }
    Ok(Image {
        input: elf.data,
        changes,
        pieces,
        payload_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest file with one segment and a symbol table that takes its names from section
    /// `link`.
    fn with_symbols(link: u32) -> Vec<u8> {
        let segment = ProgramSegment {
            kind: elf::PT_LOAD.0,
            flags: 5,
            offset: 0,
            vaddr: 0x40_0000,
            paddr: 0,
            filesz: 0x200,
            memsz: 0x200,
            align: PAGE_SIZE,
        };
        let names = b"\0.symtab\0.strtab\0";
        let symtab = Section {
            name_at: 1,
            kind: elf::SHT_SYMTAB.0,
            offset: 0x180,
            size: SYM as u64,
            link,
            entsize: SYM as u64,
            ..Section::default()
        };
        let strtab = Section {
            name_at: 9,
            kind: elf::SHT_STRTAB.0,
            offset: 0x1c0,
            size: names.len() as u64,
            ..Section::default()
        };
        let mut data = vec![0; 0x200];
        put(&mut data, 0, b"\x7fELF\x02\x01\x01");
        put(&mut data, 16, &[2, 0, 62, 0, 1, 0, 0, 0]);
        put(&mut data, 32, &(EHDR as u64).to_le_bytes());
        put(&mut data, 40, &0xc0u64.to_le_bytes());
        for (at, value) in [
            (54, PHDR as u16),
            (56, 1),
            (58, SHDR as u16),
            (60, 3),
            (62, 2),
        ] {
            put(&mut data, at, &value.to_le_bytes());
        }
        put(&mut data, EHDR, &program_header(&segment));
        put(&mut data, 0xc0 + SHDR, &section_header(&symtab));
        put(&mut data, 0xc0 + 2 * SHDR, &section_header(&strtab));
        put(&mut data, 0x1c0, names);
        data
    }

    fn clone_names(link: u32) -> Vec<String> {
        let data = with_symbols(link);
        let parsed = Elf::parse(&data).unwrap();
        let vaddr = segment_address(&parsed).unwrap();
        let text = NewSection {
            name: ".mgz.text",
            kind: elf::SHT_PROGBITS.0,
            flags: 6,
            addr: vaddr + 0x800,
            size: 8,
            align: 16,
        };
        let symbols = vec![NewSymbol {
            name: "f".into(),
            suffix: ".mgz",
            addr: vaddr + 0x800,
            size: 8,
        }];
        let new = Additions {
            vaddr,
            segment: vec![0; 0x1000],
            note: (vaddr + 0x400, 64),
            sections: vec![text],
            symbols,
            ..Additions::default()
        };
        let image = assemble(&parsed, new).unwrap().to_bytes();
        let again = Elf::parse(&image).unwrap();
        mgz_elf::symbols::functions(&again)
            .into_iter()
            .map(|(name, ..)| name.into_owned())
            .collect()
    }

    #[test]
    fn clones_are_named_in_the_symbol_table() {
        assert_eq!(clone_names(2), ["f.mgz"]);
    }

    #[test]
    fn changes_are_made_in_their_order_wherever_they_lie() {
        let input: Vec<u8> = (0..2 * CHUNK + 100).map(|i| i as u8).collect();
        let last = input.len() as u64;
        let border = CHUNK as u64;
        let changes = vec![
            (4, vec![1, 2, 3, 4]),
            (border - 2, vec![9; 4]),
            (2, vec![7, 7, 7]),
            (last - 1, vec![5]),
            (last - 1, vec![6, 6]),
            (u64::MAX, vec![6]),
            (border, vec![8]),
        ];
        let mut wanted = input.clone();
        for (at, bytes) in &changes {
            put(&mut wanted, *at as usize, bytes);
        }
        wanted.resize(input.len() + 3, 0);
        wanted.push(1);
        let image = Image {
            input: &input,
            changes,
            pieces: vec![(last + 3, Cow::Owned(vec![1]))],
            payload_at: None,
        };
        assert!(image.to_bytes() == wanted);
        let mut file = tempfile::tempfile().unwrap();
        image.write_front(&mut file).unwrap();
        image.write_behind(&mut file).unwrap();
        let mut written = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        std::io::Read::read_to_end(&mut file, &mut written).unwrap();
        assert!(written == wanted);
    }

    #[test]
    fn a_symbol_table_without_names_is_left_alone() {
        // The index is out of range, or that of a section that is no string table.
        for link in [8216, 0] {
            clone_names(link);
        }
    }
}
