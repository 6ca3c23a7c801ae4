//! Program headers of loaded modules.

/// One program header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProgramHeader {
    /// `PT_*`.
    pub kind: u32,
    /// `PF_*`.
    pub flags: u32,
    offset: u64,
    /// Link-time address.
    pub vaddr: u64,
    paddr: u64,
    /// Bytes in the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    align: u64,
}

impl ProgramHeader {
    /// True for the header of loaded code.
    pub fn is_code(&self) -> bool {
        const PT_LOAD: u32 = 1;
        const PF_X: u32 = 1;
        self.kind == PT_LOAD && self.flags & PF_X != 0
    }
}

/// The C library's `dl_phdr_info`: what `dl_iterate_phdr` passes about a module.
#[repr(C)]
pub struct PhdrInfo {
    /// Difference of run-time and link-time addresses.
    pub addr: u64,
    /// Path, ended by a zero byte.
    pub name: *const u8,
    /// Program headers in memory.
    pub phdr: *const ProgramHeader,
    /// Their number.
    pub phnum: u16,
}

/// A module's program headers.
pub fn headers(info: &PhdrInfo) -> &[ProgramHeader] {
    // SAFETY: the module's program headers are mapped.
    unsafe { core::slice::from_raw_parts(info.phdr, info.phnum as usize) }
}
