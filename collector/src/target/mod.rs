//! The process that is recorded.

pub mod proc_stat;
pub mod signals;
pub mod spawn;
pub mod status;
pub mod thread_alive;
