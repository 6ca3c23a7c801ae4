//! The process that is recorded.

pub mod proc_stat;
pub(crate) mod ptrace_call;
pub mod signals;
pub mod spawn;
pub mod thread_alive;
