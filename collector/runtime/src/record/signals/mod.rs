//! Signals: what the program asks for, what the kernel is told, and what the program's handlers see.
//!
//! The guard page needs SIGSEGV: it is never really blocked, and its action is always the runtime's; the
//! program keeps its own view of both ([`actions`], [`calls`]). The runtime's own signals are its faults and triggers ([`own`]). Every handler of the program is
//! entered through [`delivery`], which shows it the original instruction and registers if a clone was interrupted, and puts things back afterwards.

pub(crate) mod actions;
pub(crate) mod delivery;
pub(crate) mod entry;
pub(crate) mod internal;
pub(crate) mod segv_mask;

pub use crate::record::signals::internal::go_on;
pub use crate::record::signals::segv_mask::Shield;
pub use crate::wrap::signal_calls::{alternate_stack, system_sigprocmask};
pub use actions::{
    adopt, install, is_used, system_sigaction, take_segv_back, unlock, wrap_internal,
};
pub use delivery::{REPEAT, commit, take_back};

const SIGSEGV: usize = 11;
/// The guard page's signal.
pub const SEGV_BIT: u64 = 1 << (SIGSEGV - 1);
const EINVAL: isize = 22;
/// glibc's own two signals: programs may neither catch nor block them.
const INTERNAL: u64 = 3 << 31;

const SA_NOCLDSTOP: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
