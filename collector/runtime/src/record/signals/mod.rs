//! Signals: the program's requests, the actions that the kernel gets, and the view of the program's
//! handlers.
//!
//! The guard page needs SIGSEGV, so the kernel never blocks it, and its action is always the
//! runtime's; the program keeps its own view of both ([`actions`], [`segv_mask`]). The runtime's
//! own signals are its faults and triggers ([`internal`]). Every handler of the program is entered
//! through [`delivery`], which shows it the original instruction and registers if a clone was
//! interrupted, and restores the clone's state afterwards.

pub(crate) mod actions;
pub(crate) mod delivery;
pub(crate) mod entry;
pub(crate) mod internal;
pub(crate) mod kept;
pub(crate) mod program_stack;
pub(crate) mod segv_mask;

pub(crate) use crate::record::signals::internal::READS_MASK;
pub use crate::record::signals::internal::go_on;
pub use crate::record::signals::kept::KeptPlaces;
pub use crate::record::signals::segv_mask::Shield;
pub(crate) use actions::NEVER_BLOCKED;
pub use actions::{
    adopt, install, is_used, return_without_kernel, system_sigaction, take_segv_back,
    unlock_actions, wrap_internal,
};
pub use delivery::{SECOND_ONLY_MARK, take_back};

pub(crate) const SIGSEGV: usize = 11;
/// The guard page's signal.
pub const SEGV_BIT: u64 = 1 << (SIGSEGV - 1);
/// glibc's own two signals: programs may neither catch nor block them.
pub(crate) const INTERNAL: u64 = 3 << 31;

pub(crate) const SA_NOCLDSTOP: u64 = 1;
pub(crate) const SA_SIGINFO: u64 = 4;
pub(crate) const SA_RESTORER: u64 = 0x0400_0000;
pub(crate) const SA_ONSTACK: u64 = 0x0800_0000;
pub(crate) const SA_RESTART: u64 = 0x1000_0000;
pub(crate) const SA_NODEFER: u64 = 0x4000_0000;
pub(crate) const SA_RESETHAND: u64 = 0x8000_0000;
pub(crate) const SIG_DFL: usize = 0;
pub(crate) const SIG_IGN: usize = 1;
