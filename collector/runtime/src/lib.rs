//! The shared object that the software backend puts into a traced process.
//!
//! The difficulty: the runtime runs inside a foreign program, before its code and interleaved with
//! it, and the program must not notice. So it has no standard library and no dependency but
//! `mgz-abi`, makes its own system calls, takes no lock and allocates nothing on the recording
//! path, and hides itself from the program's environment, file descriptors and signal handlers.
//!
//! Guarantees: a thread records into a ring of its own or not at all; nothing is dropped while the
//! recorder lives; if the recorder dies, recording ends and the program continues.
//!
//! The path of a record: a probe (emitted by `mgz-instrument`, see `mgz_abi`) stores it into the
//! ring that `%gs` leads to ([`record::thread_ring`]); at the guard page [`record::publish`] hands
//! the ring's content to the recorder through the memory that `mgz_abi::shared_memory` describes.
//!
//! Limits: a program with a loader that installs signal handlers by system calls in its own code
//! (not by a C library) sees clone addresses in them; the uncommitted records of one region are
//! lost if a signal other than SIGSEGV kills the program.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(mgz_cdylib),
    allow(
        dead_code,
        unused_imports,
        reason = "most of it is reached from the constructor only"
    )
)]
#![allow(
    clippy::deref_addrof,
    reason = "statics of the one process are read through pointers, never by references to them"
)]

pub mod enter;
pub mod record;
pub mod sys;
pub mod wrap;
