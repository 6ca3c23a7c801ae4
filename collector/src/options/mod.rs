//! The user's request, and facts that follow from it alone.

pub mod amount;
pub mod args;
pub mod effect;
pub mod launcher;
pub mod pt_settings;
pub mod rank_list;
pub mod ranks;
pub mod request;
