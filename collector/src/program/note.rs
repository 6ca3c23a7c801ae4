//! Finds out whether a file is instrumented: reads the note that the rewriter left in it.

use mgz_abi::module_note::{
    FEATURE_BURST_ONLY, FEATURE_READS_CODE, ModuleNote, NOTE_MODULE, NOTE_NAME,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_NOTE: u32 = 4;
const EHDR: usize = 64;
const PHDR: usize = 56;
/// Longest note segment that is read, bytes.
const MAX_NOTES: u64 = 1 << 20;

fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    bytes(data, at).map(u16::from_le_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    bytes(data, at).map(u32::from_le_bytes)
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    bytes(data, at).map(u64::from_le_bytes)
}

/// Reads up to `length` bytes at an offset; fewer if the file ends there.
fn read(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; length];
    let mut have = 0;
    while have < length {
        // The kernel rejects an offset beyond this. Here it counts as one behind the end of the
        // file.
        let Some(at) = offset.checked_add(have as u64).filter(|&at| {
            i64::try_from(at).is_ok_and(|at| at.checked_add(length as i64).is_some())
        }) else {
            break;
        };
        match file.read_at(&mut data[have..], at) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    data.truncate(have);
    Ok(data)
}

/// The note of an instrumented file. `None` for every other file, whatever it holds.
///
/// Errors: the file cannot be opened or read.
pub fn instrumented_note(path: &Path) -> io::Result<Option<ModuleNote>> {
    let file = File::open(path)?;
    let header = read(&file, 0, EHDR)?;
    // 64-bit, little-endian.
    if header.len() < EHDR || header[..4] != *b"\x7fELF" || header[4] != 2 || header[5] != 1 {
        return Ok(None);
    }
    let (Some(offset), Some(size), Some(count)) = (
        u64_at(&header, 32),
        u16_at(&header, 54),
        u16_at(&header, 56),
    ) else {
        return Ok(None);
    };
    if usize::from(size) < PHDR {
        return Ok(None);
    }
    let table = read(&file, offset, usize::from(size) * usize::from(count))?;
    for entry in table.chunks_exact(usize::from(size)) {
        let (Some(PT_NOTE), Some(at), Some(length)) =
            (u32_at(entry, 0), u64_at(entry, 8), u64_at(entry, 32))
        else {
            continue;
        };
        let align = if u64_at(entry, 48) == Some(8) { 8 } else { 4 };
        let notes = read(&file, at, length.min(MAX_NOTES) as usize)?;
        if let Some(note) = find(&notes, align) {
            return Ok(Some(note));
        }
    }
    Ok(None)
}

/// True if a file can be recorded in windows of `burst` only. False if it cannot be read.
pub fn is_for_windows_only(path: &Path) -> bool {
    let note = instrumented_note(path).ok().flatten();
    note.is_some_and(|note| note.features & (FEATURE_BURST_ONLY | FEATURE_READS_CODE) != 0)
}

/// Finds our note among the notes of one segment.
fn find(notes: &[u8], align: usize) -> Option<ModuleNote> {
    let mut at = 0;
    loop {
        let (name_len, desc_len, kind) = (
            u32_at(notes, at)? as usize,
            u32_at(notes, at + 4)? as usize,
            u32_at(notes, at + 8)?,
        );
        let name = notes.get(at + 12..at.checked_add(12)?.checked_add(name_len)?)?;
        let desc_at = (at + 12 + name_len).next_multiple_of(align);
        let desc_end = desc_at.checked_add(desc_len)?;
        let desc = notes.get(desc_at..desc_end)?;
        if kind == NOTE_MODULE && name == NOTE_NAME {
            return parse(desc);
        }
        at = desc_end.next_multiple_of(align);
    }
}

fn parse(desc: &[u8]) -> Option<ModuleNote> {
    Some(ModuleNote {
        version: u32_at(desc, 0)?,
        flavour: u32_at(desc, 4)?,
        id_first: u32_at(desc, 8)?,
        id_count: u32_at(desc, 12)?,
        clone_start: u64_at(desc, 16)?,
        clone_end: u64_at(desc, 24)?,
        patches: u64_at(desc, 32)?,
        patch_count: u64_at(desc, 40)?,
        sidecar_path: u64_at(desc, 48)?,
        sidecar_id: bytes(desc, 56)?,
        features: u32_at(desc, 72)?,
        thunk_bytes: u32_at(desc, 76)?,
        // Older versions have none; readers of `version` report that they are older.
        calls: u64_at(desc, 80).unwrap_or(0),
        call_count: u64_at(desc, 88).unwrap_or(0),
        handlers: u64_at(desc, 96).unwrap_or(0),
        covers: u64_at(desc, 104).unwrap_or(0),
        cover_count: u64_at(desc, 112).unwrap_or(0),
        before: u64_at(desc, 120).unwrap_or(0),
        markers: u64_at(desc, 128).unwrap_or(0),
        marker_count: u64_at(desc, 136).unwrap_or(0),
        displacements: u64_at(desc, 144).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal ELF with one PT_NOTE that holds a foreign note and ours.
    fn elf(align: usize) -> Vec<u8> {
        let mut notes = Vec::new();
        let mut add = |name: &[u8], kind: u32, desc: &[u8]| {
            for word in [name.len() as u32, desc.len() as u32, kind] {
                notes.extend_from_slice(&word.to_le_bytes());
            }
            notes.extend_from_slice(name);
            notes.resize(notes.len().next_multiple_of(align), 0);
            notes.extend_from_slice(desc);
            notes.resize(notes.len().next_multiple_of(align), 0);
        };
        add(b"GNU\0", 3, &[7; 20]);
        add(b"mgz\0", 9, &[1; 3]);
        let mut desc = Vec::new();
        for word in [1u32, 1, 5000, 77] {
            desc.extend_from_slice(&word.to_le_bytes());
        }
        for word in [0x9000u64, 0x9100, 0xa000, 3, 0xb000] {
            desc.extend_from_slice(&word.to_le_bytes());
        }
        desc.extend_from_slice(&[0xab; 16]);
        desc.extend_from_slice(&[1, 0, 0, 0, 96, 0, 0, 0]);
        for word in [
            0xc000u64, 5, 0xd000, 0xe000, 7, 0xf000, 0x1_0000, 2, 0x1_1000,
        ] {
            desc.extend_from_slice(&word.to_le_bytes());
        }
        assert_eq!(desc.len(), size_of::<ModuleNote>());
        add(b"mgz\0", NOTE_MODULE, &desc);
        let mut out = vec![0; EHDR];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        out[32..40].copy_from_slice(&(EHDR as u64).to_le_bytes());
        out[54..58].copy_from_slice(&[PHDR as u8, 0, 1, 0]);
        let mut phdr = [0; PHDR];
        phdr[0] = PT_NOTE as u8;
        phdr[8..16].copy_from_slice(&((EHDR + PHDR) as u64).to_le_bytes());
        phdr[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        phdr[48] = align as u8;
        out.extend_from_slice(&phdr);
        out.extend_from_slice(&notes);
        out
    }

    fn note(data: &[u8]) -> Option<ModuleNote> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, data).unwrap();
        instrumented_note(&path).unwrap()
    }

    #[test]
    fn our_note_is_found_behind_others() {
        for align in [4, 8] {
            let found = note(&elf(align)).unwrap();
            assert_eq!(
                (
                    found.id_first,
                    found.id_count,
                    found.clone_end,
                    found.patch_count,
                    found.call_count,
                    found.handlers,
                    found.covers,
                    found.cover_count,
                    found.before,
                    found.markers,
                    found.marker_count,
                    found.displacements
                ),
                (
                    5000, 77, 0x9100, 3, 5, 0xd000, 0xe000, 7, 0xf000, 0x1_0000, 2, 0x1_1000
                )
            );
            assert_eq!(found.sidecar_id, [0xab; 16]);
        }
    }

    #[test]
    fn other_files_have_none_and_damage_does_no_harm() {
        assert_eq!(note(b""), None);
        assert_eq!(note(b"#!/bin/sh\n"), None);
        assert_eq!(
            instrumented_note(Path::new("/proc/self/exe")).unwrap(),
            None
        );
        let good = elf(4);
        for length in 0..good.len() {
            assert_eq!(note(&good[..length]), None, "{length} bytes");
        }
        for at in 0..good.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = note(&bad);
            }
        }
        assert!(instrumented_note(Path::new("/nonexistent")).is_err());
    }
}
