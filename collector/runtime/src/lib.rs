//! The shared object that the software backend puts into a traced process.
//!
//! What makes this hard: it runs inside a foreign program, before all of that program's code and
//! interleaved with it, and nobody may notice. So it has no standard library and no dependencies, makes its own
//! system calls, takes no lock and allocates nothing on the recording path, and hides itself from the
//! program's environment, file descriptors and signal handlers.
//!
//! Guarantees: a thread records into a ring of its own or not at all; nothing is dropped while the
//! recorder lives; if the recorder dies, recording ends and the program goes on.
//!
//! The path of a record: a probe (emitted by `mgz-instrument`, see [`abi`]) stores it into the ring that
//! `%gs` leads to ([`thread`]); at the guard page [`guard`] hands the ring's content to the recorder through the memory
//! that [`shared`] describes.
//!
//! Limits: a program with a loader that installs signal handlers by raw system
//! calls sees clone addresses in them; records that a fatal signal other than SIGSEGV finds in flight (those of one region) are lost.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(mgz_cdylib),
    allow(
        dead_code,
        unused_imports,
        reason = "most of it is reached from the constructor only"
    )
)]

pub mod enter;
pub mod record;
pub mod sys;
pub mod wrap;
