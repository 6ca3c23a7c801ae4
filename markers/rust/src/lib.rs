//! Marks the phases of a program that `mgz-record` records: [`start`] begins one, [`stop`] ends it.
//!
//! They apply to the whole process, whichever thread calls them, and pairs do not nest: the last
//! call counts. A program that has a [`start`] anywhere is not recorded before the first one is
//! reached.
//!
//! Each is one instruction that does nothing, and a note (a USDT probe, provider `mgz`) with its
//! location. Without mgz it has no effect. On other platforms than x86-64 Linux nothing is emitted.

#![no_std]
#![warn(missing_docs)]

/// The note has the form of SystemTap's `sys/sdt.h`: address, base, semaphore; provider, name,
/// arguments.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
macro_rules! marker {
    ($name:literal) => {
        // SAFETY: an instruction that does nothing, and a section that is not loaded.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"mgz\"",
                concat!(".asciz \"", $name, "\""),
                ".asciz \"\"",
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                options(nostack, preserves_flags)
            )
        }
    };
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
macro_rules! marker {
    ($name:literal) => {};
}

/// Begins a phase.
#[inline(always)]
pub fn start() {
    marker!("start");
}

/// Ends the phase.
#[inline(always)]
pub fn stop() {
    marker!("stop");
}

/// A phase that lasts as long as this value.
#[derive(Debug)]
pub struct Phase(());

impl Phase {
    /// Begins a phase.
    #[inline(always)]
    #[must_use]
    pub fn begin() -> Phase {
        start();
        Phase(())
    }
}

impl Drop for Phase {
    #[inline(always)]
    fn drop(&mut self) {
        stop();
    }
}
