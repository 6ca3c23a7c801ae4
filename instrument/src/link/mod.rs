//! Addresses, fault shim and the output file.

pub mod elf_writer;
pub mod fault_shim;
mod fixups;
pub mod frames;
pub mod layout;
pub mod needed;
pub mod runpath;
mod segment;
