//! The recorder's commands that need Intel PT.

pub mod import;
pub mod record;
