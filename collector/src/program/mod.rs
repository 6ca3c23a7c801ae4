//! The program's file before it runs.

pub mod launch;
pub mod modules;
pub mod note;
