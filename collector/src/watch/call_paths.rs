//! Call paths of uses and reuses: contexts of RDX are call paths, not lines.
//!
//! The thread is stopped, so its stack is read in place, and unwound at once, since mappings vanish
//! with the process. An unknown path is [`NONE`], or begins at "callers unknown".

use crate::objects::heap::generated_frames as generated;
use crate::objects::heap::unwind::{Top, Unwinders};
use crate::paths::names::{self, Named};
use crate::paths::tree::{NONE, Tree};
use crate::watch::access::Registers;
use mgz_generated_code::watch::NamedProcesses;
use std::path::Path;

/// Source: Chosen.
const MAX_FRAMES: usize = 128;
/// Bytes of the stack that are read.
const STACK: usize = 16 << 10;
/// Numbers of general registers, as in the instruction encoding.
const RSP: usize = 4;
const RBP: usize = 5;

/// The call paths of a run.
#[derive(Default)]
pub struct CallPaths {
    unwinders: Unwinders,
    tree: Tree,
    bytes: Vec<u8>,
    words: Vec<u64>,
}

impl CallPaths {
    /// Drops what is known of a process that executes another program.
    pub fn forget(&mut self, process: i32) {
        self.unwinders.begin(process as u32);
    }

    /// The node of the path to a thread's current position. `read` reads its memory and returns the
    /// number of bytes read.
    pub fn of(
        &mut self,
        process: i32,
        at: &Registers,
        read: impl FnOnce(u64, &mut [u8]) -> usize,
    ) -> u32 {
        let sp = at.general[RSP];
        self.bytes.resize(STACK, 0);
        let got = read(sp, &mut self.bytes);
        self.words.clear();
        self.words.extend(
            self.bytes[..got]
                .chunks_exact(8)
                .map(|word| word.try_into().map_or(0, u64::from_le_bytes)),
        );
        let top = Top {
            pid: process as u32,
            ip: at.rip,
            sp,
            bp: at.general[RBP],
            stack: &self.words,
        };
        self.unwinders
            .unwind(&top, MAX_FRAMES)
            .map_or(NONE, |found| self.tree.add(&found))
    }

    /// All calls by name.
    pub fn named(&self, generated_code: &NamedProcesses) -> Named {
        let elsewhere =
            |path: &Path, address: u64| generated::function(generated_code, path, address);
        names::name_calls(&self.tree, &|_, _| None, &elsewhere)
    }
}
