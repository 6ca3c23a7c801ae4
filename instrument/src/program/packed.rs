//! Files whose code is made at run time: packed or encrypted ones. The code in such a file is not
//! the code that runs, so nothing in it can be recorded. Its stub depends on the file's layout (it
//! finds packed data by the number of program headers, say), which a rewritten file does not keep.
//!
//! Packers are recognized by traits that they cannot avoid: missing code, or bytes that are no
//! code.

use crate::program::{Input, Program, uncovered};
use mgz_elf::image::Section;
use mgz_elf::{Elf, PAGE_SIZE, Refusal};
use object::elf;
use std::ops::Range;

/// Bytes with at least this many bits of information each are packed or encrypted. x86-64 code has
/// up to 6.7, even with tables and strings in between.
const MIN_PACKED_BITS_PER_BYTE: f64 = 7.2;
/// Fewer bytes are not tested. Source: Chosen.
const MIN_BYTES: usize = 512;
/// Further bytes of a section are not tested. Source: Chosen.
const MAX_BYTES: usize = 1 << 20;
/// A file is encrypted if at least the first number of functions does not decode, and at least one
/// in the second number.
const UNDECODED: (usize, usize) = (8, 4);

fn refusal(what: &str) -> Refusal {
    Refusal::declined(format!(
        "{what}: it seems to be packed or encrypted, so that the code in the file is not the code that runs; unpack it first, or instrument the program that was packed"
    ))
}

/// Refuses files without section headers and unwind tables (`bare`) that contain almost only bytes
/// that are no code. Also refuses files whose code sections contain no code.
pub fn refuse_packed(
    elf: &Elf,
    input: &Input,
    program: &Program,
    bare: bool,
) -> Result<(), Refusal> {
    if bare && elf.sections.is_empty() {
        let unpacks = elf.loads().any(|s| {
            let writes_code = s.flags & elf::PF_X.0 != 0 && s.flags & elf::PF_W.0 != 0;
            writes_code && s.memsz >= s.filesz.saturating_add(PAGE_SIZE)
        });
        if unpacks {
            return Err(refusal(
                "it has no section headers, and room for code that is not in the file",
            ));
        }
        let count = |ranges: &[Range<u64>]| {
            let mut count = Count::default();
            ranges
                .iter()
                .for_each(|r| count.add(input.slice(r).unwrap_or(&[])));
            count
        };
        let (whole, rest) = (
            count(&input.exec_ranges),
            count(&uncovered(input, &program.functions)),
        );
        if whole.is_dense() || rest.bytes > whole.bytes / 2 && rest.is_dense() {
            return Err(refusal(&format!(
                "it has no section headers, and of the {} bytes of its executable segments {} are in no function and look like packed data",
                whole.bytes, rest.bytes
            )));
        }
    }
    let is_code = |s: &&Section| {
        s.is_alloc() && s.flags & elf::SHF_EXECINSTR.0 != 0 && s.kind == elf::SHT_PROGBITS.0
    };
    for section in elf.sections.iter().filter(is_code) {
        let mut count = Count::default();
        let content = elf.section_bytes(section).unwrap_or(&[]);
        count.add(&content[..content.len().min(MAX_BYTES)]);
        if count.is_dense() {
            return Err(refusal(&format!(
                "what its section {} holds is no code",
                section.name
            )));
        }
    }
    Ok(())
}

/// Refuses a file in which many functions do not decode.
pub fn check_decoded(functions: usize, undecoded: usize) -> Result<(), Refusal> {
    if undecoded < UNDECODED.0 || undecoded * UNDECODED.1 < functions {
        return Ok(());
    }
    Err(refusal(&format!(
        "{undecoded} of its {functions} functions do not decode"
    )))
}

/// Number of times that each byte occurs.
struct Count {
    bytes: usize,
    of: [u64; 256],
}

impl Default for Count {
    fn default() -> Count {
        Count {
            bytes: 0,
            of: [0; 256],
        }
    }
}

impl Count {
    fn add(&mut self, data: &[u8]) {
        self.bytes += data.len();
        data.iter().for_each(|&b| self.of[usize::from(b)] += 1);
    }

    fn is_dense(&self) -> bool {
        self.bytes >= MIN_BYTES && self.bits() >= MIN_PACKED_BITS_PER_BYTE
    }

    /// Information per byte in bits, from 0 to 8. Few bytes do not show all values, so a
    /// first-order correction is added.
    fn bits(&self) -> f64 {
        if self.bytes == 0 {
            return 0.0;
        }
        let whole = self.bytes as f64;
        let seen = self.of.iter().filter(|&&n| n > 0);
        let plain: f64 = seen
            .clone()
            .map(|&n| -(n as f64 / whole) * (n as f64 / whole).log2())
            .sum();
        plain + (seen.count() as f64 - 1.0) / (2.0 * whole * std::f64::consts::LN_2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(data: &[u8]) -> f64 {
        let mut count = Count::default();
        count.add(data);
        count.bits()
    }

    #[test]
    fn code_and_packed_data_are_told_apart() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let text = elf.section(".text").unwrap();
        let code = elf.section_bytes(text).unwrap();
        let mut state = 7u64;
        let noise: Vec<u8> = (0..1 << 16)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for len in [MIN_BYTES, 4096, 1 << 16] {
            assert!(bits(&noise[..len]) > 7.6, "{len}: {}", bits(&noise[..len]));
            for at in (0..code.len() - len).step_by(len * 37) {
                let found = bits(&code[at..at + len]);
                assert!(found < MIN_PACKED_BITS_PER_BYTE, "{len} at {at}: {found}");
            }
        }
        assert_eq!((bits(&[]), bits(&[0; 4096])), (0.0, 0.0));
    }

    #[test]
    fn functions_that_do_not_decode() {
        assert!(check_decoded(20, 7).is_ok());
        assert!(check_decoded(20, 8).is_err());
        assert!(check_decoded(1000, 8).is_ok());
        assert!(check_decoded(1000, 250).is_err());
    }
}
