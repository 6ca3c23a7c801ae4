//! Helpers that several parts of the recorder share.

pub mod cache_folder;
pub mod clock;
pub mod failure;
pub mod folder;
pub(crate) mod futex;
pub mod memfd;
pub(crate) mod memory_folder;
pub mod small_table;
pub mod text;
