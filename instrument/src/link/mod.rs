//! Addresses, fault shim and the output file.

pub mod elf_writer;
pub mod fault_shim;
pub mod layout;
pub mod runpath;
