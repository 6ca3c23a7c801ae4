//! Interface of instrumented code, the runtime and the recorder, byte for byte.
//!
//! Both sides compile this crate: the instrumenter and the recorder as an ordinary dependency, the
//! runtime, which has no standard library, as a library built for it. It therefore uses `core` only
//! and holds plain constants and `repr(C)` structs.
//!
//! # The software probe
//!
//! The `%gs` base of every recording thread points at a control page. Its first words are:
//!
//! | offset | content |
//! |---|---|
//! | [`GS_CURSOR`](probe::GS_CURSOR) | cursor: address of the next free slot. Rings live below 4 GiB, so the upper half is always zero and 32-bit operations on it are exact |
//! | [`GS_SPILL`](probe::GS_SPILL) … | [`SPILL_SLOTS`](probe::SPILL_SLOTS) 8-byte places where a probe keeps a register that it borrows |
//!
//! A *region* is a part of a basic block without a call, system call or repeated string instruction
//! inside. Its records lie at `cursor + 16*i` for the i-th slot of the region; two records may
//! share a slot ([`ID_PAIR`](slot::ID_PAIR)). The cursor is advanced once, right after the region's
//! last record is written (*commit*). Until then the slots before the probe are *in flight*. For
//! every instruction boundary of the clone, [`ProbeState`](address_map::ProbeState) gives their
//! number, the register that holds the slot base, and the spill slots of borrowed registers. In
//! loops a register may be advanced instead; memory is updated when control leaves the loop
//! ([`STATE_LATE`](address_map::STATE_LATE)). No probe touches flags, the stack or the red zone.
//!
//! # Translated clones
//!
//! In files with [`FEATURE_TRANSLATED`](module_note::FEATURE_TRANSLATED) the stack holds only
//! original return addresses, so that control may pass from original code to the clone and back at
//! any instruction. A call pushes the original return address and jumps. A return jumps through
//! [`GS_RETURN`](probe::GS_RETURN), and indirect calls and jumps go through
//! [`GS_CALL`](probe::GS_CALL) and [`GS_JUMP`](probe::GS_JUMP). The runtime's code behind these
//! finds the clone of the target. Only for a call to code without a clone the runtime replaces the
//! return address, by that of the `call gs:[GS_BACK]` behind each call.
//!
//! Other clones of the soft flavour push their own return addresses. Their indirect calls and jumps
//! go through [`GS_CALL`](probe::GS_CALL) and [`GS_JUMP`](probe::GS_JUMP) as well, except for calls
//! of imported functions through the global offset table.
//!
//! # Full rings
//!
//! A store to a slot may hit the guard page behind the ring. The runtime's SIGSEGV handler then
//! publishes the full part, and *rebases* the region: the new base is chosen so that the faulting
//! slot is the first in the new ring (`base = start - 16*slots_done`), and the store is repeated.

#![cfg_attr(not(test), no_std)]

pub mod address_map;
pub mod counters;
pub mod heap_log;
pub mod leb128;
pub mod linkage_stub;
pub mod module_note;
pub mod phases;
pub mod probe;
pub mod python_frames;
pub mod seccomp;
pub mod shared_memory;
pub mod slot;
pub mod stack_log;

/// Length of the longest x86 instruction.
pub const MAX_INSTRUCTION_BYTES: usize = 15;
