//! A part of the appended segment under construction.

use crate::unwind::write::TooFar;
use mgz_elf::Refusal;

/// `int3`, between clones.
pub const FILLER: u8 = 0xcc;

/// The refusal of a file whose parts are too far apart.
pub fn out_of_reach() -> Refusal {
    Refusal::declined(
        "no room for instrumented code within 2 GiB of everything that it refers to; build the program with less static data or debug information",
    )
}

impl From<TooFar> for Refusal {
    fn from(_: TooFar) -> Refusal {
        out_of_reach()
    }
}

/// The segment under construction, or its part after the clones.
pub struct OutputSegment {
    /// Address of the first byte.
    pub vaddr: u64,
    /// Content so far.
    pub bytes: Vec<u8>,
}

impl OutputSegment {
    /// Adds zeros up to the next multiple of `to`, and returns that address.
    pub fn align(&mut self, to: u64) -> u64 {
        let at = self.end().next_multiple_of(to);
        self.bytes.resize((at - self.vaddr) as usize, 0);
        at
    }

    /// Adds bytes at the next multiple of `to`, and returns their address.
    pub fn append(&mut self, to: u64, bytes: &[u8]) -> u64 {
        let at = self.align(to);
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// Adds `len` bytes of one value at the next multiple of `to`, and returns their address.
    pub fn reserve(&mut self, to: u64, len: usize, value: u8) -> u64 {
        let at = self.align(to);
        self.bytes.resize(self.bytes.len() + len, value);
        at
    }

    /// Address after the last byte.
    pub fn end(&self) -> u64 {
        self.vaddr + self.bytes.len() as u64
    }

    /// Overwrites bytes at an address.
    pub fn put(&mut self, addr: u64, bytes: &[u8]) {
        let at = (addr - self.vaddr) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
