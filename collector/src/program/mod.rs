//! The program's file before it runs.

pub mod launch;
pub mod linked_files;
pub mod modules;
pub mod note;
pub mod path_search;
pub mod refusal;
