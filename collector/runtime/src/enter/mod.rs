//! The ways into a process: preloaded, attached.

#[cfg(not(test))]
pub mod attach;
#[cfg(not(test))]
pub mod preload;
#[cfg(not(test))]
pub mod static_exe;
