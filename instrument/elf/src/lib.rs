//! Reads ELF files. It keeps the input as bytes and trusts no offset, length or count in it.
//! (`mgz-instrument` writes the new file.)

pub mod archive;
pub mod debug_files;
pub mod demangle;
pub mod dynamic;
pub mod function_names;
pub mod go_frames;
/// ELF headers and notes.
pub mod headers;
pub mod image;
pub mod library_search;
pub mod own_folder;
pub mod payload;
pub mod symbols;
pub mod upx;
pub mod versions;

pub use crate::image::Elf;

/// Page size that segments are aligned to.
pub const PAGE_SIZE: u64 = mgz_abi::shared_memory::PAGE_SIZE as u64;

/// Reason why a file is not rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file cannot be instrumented safely, by its nature (exit status 3).
    #[error("{0}")]
    Declined(String),
    /// The file is damaged or something failed (exit status 1).
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    /// A [`Refusal::Declined`].
    pub fn declined(what: impl Into<String>) -> Refusal {
        Refusal::Declined(what.into())
    }

    /// A [`Refusal::Failed`].
    pub fn failed(what: impl Into<String>) -> Refusal {
        Refusal::Failed(what.into())
    }
}

/// Little-endian fields at unchecked offsets of a byte string.
pub mod bytes {
    /// The byte at `at`.
    pub fn u8(data: &[u8], at: usize) -> Option<u8> {
        data.get(at).copied()
    }

    /// Two bytes at `at`.
    pub fn u16(data: &[u8], at: usize) -> Option<u16> {
        data.get(at..at.checked_add(2)?)?
            .try_into()
            .ok()
            .map(u16::from_le_bytes)
    }

    /// Four bytes at `at`.
    pub fn u32(data: &[u8], at: usize) -> Option<u32> {
        data.get(at..at.checked_add(4)?)?
            .try_into()
            .ok()
            .map(u32::from_le_bytes)
    }

    /// Eight bytes at `at`.
    pub fn u64(data: &[u8], at: usize) -> Option<u64> {
        data.get(at..at.checked_add(8)?)?
            .try_into()
            .ok()
            .map(u64::from_le_bytes)
    }

    /// A zero-terminated string at `at`, without the zero.
    pub fn text(data: &[u8], at: usize) -> Option<&[u8]> {
        let rest = data.get(at..)?;
        memchr::memchr(0, rest).map(|end| &rest[..end])
    }

    /// `len` bytes at `at`.
    pub fn range(data: &[u8], at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        data.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
    }
}
