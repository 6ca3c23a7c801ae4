//! The three ways in which the runtime enters a process: preloaded, attached, and linked into a
//! static executable.

#[cfg(not(test))]
pub mod attach;
#[cfg(not(test))]
pub mod preload;
#[cfg(not(test))]
pub mod static_exe;
