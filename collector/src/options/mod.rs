//! What the user asked for, and what follows from it alone.

pub mod amount;
pub mod args;
pub mod effect;
pub mod launcher;
pub mod pt_settings;
pub mod ranks;
pub mod request;
