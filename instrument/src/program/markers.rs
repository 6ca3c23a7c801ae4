//! Markers of phases: probes of provider `mgz` in the form of SystemTap and DTrace
//! (`.note.stapsdt`). At each is a no-operation, which the runtime replaces by a trap during
//! recording. The header in `markers/` makes them, and so does any other that makes such probes.

use crate::program::Input;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use mgz_abi::phases::{Marker, START, STOP};
use mgz_elf::headers;
use mgz_elf::image::Elf;

/// Name and type of the notes.
const OWNER: &[u8] = b"stapsdt\0";
const TYPE: u32 = 3;
/// Provider name of the probes.
const PROVIDER: &[u8] = b"mgz";

/// The markers of a file, by address. A marker without a no-operation at its address is ignored.
pub fn find_markers(elf: &Elf, input: &Input) -> Vec<Marker> {
    let Some(data) = elf
        .section(".note.stapsdt")
        .and_then(|section| elf.section_bytes(section))
    else {
        return Vec::new();
    };
    // Tools that move a whole file change this section's address, but not the notes.
    let base = elf.section(".stapsdt.base").map(|section| section.addr);
    let mut found: Vec<Marker> = headers::notes(data, 4)
        .into_iter()
        .filter(|(owner, kind, _)| *owner == OWNER && *kind == TYPE)
        .filter_map(|(_, _, descriptor)| probe(descriptor, base))
        .filter_map(|(at, what)| marker(input, at, what))
        .collect();
    found.sort_by_key(|m| m.at);
    found.dedup_by_key(|m| m.at);
    found
}

/// Address and meaning of a probe of ours: address, base and semaphore, then provider, name and
/// arguments, each with its zero.
fn probe(descriptor: &[u8], base: Option<u64>) -> Option<(u64, u8)> {
    let (numbers, texts) = descriptor.split_at_checked(24)?;
    let number = |n: usize| Some(u64::from_le_bytes(*numbers.get(8 * n..)?.first_chunk()?));
    let mut texts = texts.split(|&b| b == 0);
    if texts.next()? != PROVIDER {
        return None;
    }
    let what = match texts.next()? {
        b"start" => START,
        b"stop" => STOP,
        _ => return None,
    };
    let moved = base.map_or(0, |base| base.wrapping_sub(number(1).unwrap_or(base)));
    Some((number(0)?.wrapping_add(moved), what))
}

fn marker(input: &Input, at: u64, what: u8) -> Option<Marker> {
    let code = input
        .exec_ranges
        .iter()
        .any(|r| r.contains(&at))
        .then(|| input.bytes_at(at))??;
    let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
    (instruction.mnemonic() == Mnemonic::Nop).then_some(Marker {
        at: u32::try_from(at).ok()?,
        length: instruction.len() as u8,
        what,
        unused: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::SegmentBytes;

    fn descriptor(at: u64, base: u64, texts: &[u8]) -> Vec<u8> {
        [at, base, 0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .chain(texts.iter().copied())
            .collect()
    }

    #[test]
    fn probes_are_ours_by_provider_and_name() {
        let start = descriptor(0x1000, 0x2000, b"mgz\0start\0\0");
        assert_eq!(probe(&start, None), Some((0x1000, START)));
        assert_eq!(probe(&start, Some(0x2010)), Some((0x1010, START)));
        let stop = descriptor(0x1000, 0, b"mgz\0stop\0\0");
        assert_eq!(probe(&stop, None), Some((0x1000, STOP)));
        for other in [&b"libc\0start\0\0"[..], b"mgz\0setjmp\0\0", b"mgz", b""] {
            assert_eq!(probe(&descriptor(0, 0, other), None), None);
        }
        for length in 0..start.len() - 7 {
            assert_eq!(probe(&start[..length], None), None, "{length}");
        }
    }

    #[test]
    fn a_marker_stands_at_an_instruction_that_does_nothing() {
        let code = [0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xc3];
        let input = Input {
            segments: vec![SegmentBytes {
                vaddr: 0x1000,
                bytes: &code,
                writable: false,
                executable: true,
            }],
            exec_ranges: vec![0x1000..0x1007],
            ..Input::default()
        };
        let length = |at| marker(&input, at, START).map(|m| m.length);
        assert_eq!(
            [0x1000, 0x1001, 0x1006, 0x1007, 0xfff].map(length),
            [Some(1), Some(5), None, None, None]
        );
    }
}
