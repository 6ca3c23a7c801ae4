//! Decides if handlers of a program may look at its faults: at the address of a fault and at the
//! registers there.
//!
//! With the software backend the runtime shows every handler the original instruction and
//! registers. A program of the `pt` flavour runs without a runtime: its handlers see clones, whose
//! addresses and spare registers differ from the original's. Most handlers do not care. A few do:
//! they step over an instruction, repair a base register, or look the address up in a table. These
//! would break, so a file that may install one gets [`crate::link::fault_shim`], or is declined if
//! that is not possible.
//!
//! A file is accepted if each installation of a handler is known to be harmless. One of these
//! conditions must hold:
//!
//! - the signal is a known one other than SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS, and
//!   the handler is a function of this file that neither reads nor sets the instruction pointer in
//!   the context, nor passes that on (some handlers interrupt a system call in a specific piece of
//!   code, or restart such a piece). In a static executable, the handler of the C library's
//!   `profil` (SIGPROF) is accepted too, since it would exclude all static executables: its samples
//!   of clones are lost;
//! - the bit SA_SIGINFO of the flags is known to be clear: by contract the handler then gets only
//!   the signal's number (`signal` and similar functions install no others);
//! - the handler is a function of this file that neither reads through its third argument nor
//!   passes it on, nor reads the address of the failed instruction from its second (SIGILL,
//!   SIGTRAP, SIGFPE, SIGSYS);
//! - the action is one that was in force before. Its memory was not written by the function, nor
//!   passed to other code for writing. `sigaction` gets this memory (if it is static) or other
//!   untracked memory (if it is not) for the old action elsewhere in the file. And no function of
//!   the file writes a handler with SA_SIGINFO to such memory (`stored_actions`).
//!
//! Operations that cannot be followed (flags from a variable, `sigaction` called by pointer) count
//! as harmful. Handlers that other files of the process install are assumed to know only their own
//! code, so files are judged one by one. A number passed to `syscall()` counts if it is a constant.
//! So does a number passed to a function of the file that makes a system call with this number.

pub(crate) mod abstract_state;
pub(crate) mod callback_use;
mod handler_installer;
pub(crate) mod memory;
mod search;
pub(crate) mod sigaction_calls;
pub(crate) mod stored_actions;
pub(crate) mod transfer;

pub use crate::signals::handler_installer::{HandlerInstaller, Why};
pub use crate::signals::sigaction_calls::{THROUGH, Wrapped};
pub use memory::own_file_memory;

use crate::discover::recover::recover;
use crate::discover::scanner::pads_of;
use crate::ir::cfg::{Cfg, Entries};
use crate::program::imports::Imports;
use crate::program::{FunctionInfo, Input, Program, SegmentBytes};
use crate::signals::abstract_state::Value;
use crate::signals::search::{InstallPart, InstallerSearch, Kinds};
use crate::signals::stored_actions::Built;
use crate::x86::decode::{Body, CodeSource};
use iced_x86::InstructionInfoFactory;
use mgz_elf::Elf;
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
const FAULTS: [u64; 6] = [4, 5, 7, 8, 11, 31];
/// Fault signals whose `si_addr` (or `si_call_addr`) is an address in the code: SIGILL, SIGTRAP,
/// SIGFPE, SIGSYS.
const SHOW_PLACE: [u64; 4] = [4, 5, 8, 31];
const SIGPROF: u64 = 27;
const SA_SIGINFO: u64 = 4;
/// Offset of the flags in glibc's `struct sigaction`, and in the kernel's.
const FLAGS: i64 = 136;
const KERNEL_FLAGS: i64 = 8;
const RT_SIGACTION: u64 = 13;
/// Source: Chosen.
const MAX_CALL_DEPTH: usize = 8;

/// The first code in a file that may install a handler that looks at faults, if there is any.
pub fn inspected_faults(elf: &Elf, input: &Input, program: &Program) -> Option<HandlerInstaller> {
    first_installer(elf, input, program, false)
}

/// The calls of the C library's `sigaction` in a file, if [`crate::link::fault_shim`] can replace
/// it. This requires that its address is used only by calls, and that no other code installs
/// handlers that may look at faults.
pub fn wrapped(elf: &Elf, input: &Input, program: &Program) -> Option<Wrapped> {
    let wrapped = crate::signals::sigaction_calls::find_sigaction_calls(elf, input, program)?;
    first_installer(elf, input, program, true)
        .is_none()
        .then_some(wrapped)
}

/// The functions that install the handlers they are given.
fn is_installer(name: &str) -> bool {
    name == "sigaction" || name == "__sigaction"
}

/// See [`inspected_faults`]. `wrapped`: handlers that `sigaction` installs are shown original
/// addresses, so they do not count.
fn first_installer(
    elf: &Elf,
    input: &Input,
    program: &Program,
    wrapped: bool,
) -> Option<HandlerInstaller> {
    let imports = Imports::read(elf, input);
    if let Some(installer) = strange_use(&imports) {
        return Some(installer);
    }
    let sought = |name: &str| is_installer(name) && !wrapped || name == "syscall";
    let mut targets = imports.reach(sought);
    let first_places = match unseen(input, program, &imports, &targets) {
        Ok(places) => places,
        Err(installer) => return Some(installer),
    };
    let kinds = Kinds {
        input,
        imports: &imports,
        wrapped,
    };
    let search = InstallerSearch {
        input,
        program,
        imports: &imports,
        kinds,
        is_static: elf.is_static_executable(),
        asked: RefCell::default(),
        returned: RefCell::default(),
    };
    let mut first_places = Some(first_places);
    let mut own = Own::default();
    // Functions that pass their arguments on to an installer are installers; each round may find
    // more.
    loop {
        let places = first_places
            .take()
            .unwrap_or_else(|| places(input, &targets));
        let seen = match one_round(&search, &places, &own) {
            Ok(seen) => seen,
            Err(installer) => return Some(installer),
        };
        if seen.hand_on.is_in(&own) {
            return seen.unexplained(|| {
                crate::signals::stored_actions::find_built_actions(input, program)
            });
        }
        if let Some(&at) = seen
            .hand_on
            .installers
            .keys()
            .find(|&&f| stored(input, &imports, f))
        {
            return Some(HandlerInstaller {
                at,
                why: Why::InstallerInData,
            });
        }
        let found: BTreeSet<u64> = seen
            .hand_on
            .installers
            .keys()
            .chain(seen.hand_on.calls.keys())
            .copied()
            .collect();
        targets.extend(
            imports
                .own
                .iter()
                .filter(|w| found.contains(w.1))
                .map(|w| *w.0),
        );
        targets.extend(found);
        own.extend(seen.hand_on);
        search.asked.borrow_mut().clear();
    }
}

/// Finds a use of `sigaction` or `syscall` that is no call.
fn strange_use(imports: &Imports) -> Option<HandlerInstaller> {
    if imports.taken.iter().any(|n| is_installer(n)) {
        return Some(HandlerInstaller {
            at: 0,
            why: Why::SigactionInData,
        });
    }
    let mut strange = imports.strange.iter();
    let found = strange.find(|s| is_installer(&s.1) || s.1 == "syscall")?;
    Some(HandlerInstaller {
        at: found.0,
        why: Why::StrangeLinkage,
    })
}

/// Examines the functions that contain some places. `own`: functions of the file that are known to
/// install handlers.
fn one_round(
    search: &InstallerSearch,
    places: &[u64],
    own: &Own,
) -> Result<Noted, HandlerInstaller> {
    let InstallerSearch { input, program, .. } = *search;
    let functions: BTreeSet<usize> = places
        .iter()
        .filter_map(|&p| program.function_at(p))
        .map(|f| f.0 as usize)
        .collect();
    if let Some(&at) = places
        .iter()
        .find(|&&p| program.function_at(p).is_none() && is_reference(input, p) && !input.is_plt(p))
    {
        return Err(HandlerInstaller {
            at,
            why: Why::NoKnownFunction,
        });
    }
    let mut seen = Noted::default();
    // Most functions only have bytes that look like a system call, without an instruction that
    // could install anything.
    let kinds = search.kinds;
    let concerned = |f: &usize| {
        body(input, program, *f).is_none_or(|body| {
            body.insns
                .iter()
                .any(|i| kinds.of(&i.inst, own) != InstallPart::None)
        })
    };
    let functions: Vec<usize> = functions.into_par_iter().filter(concerned).collect();
    for f in functions {
        if let Err(installer) = search.sites(f, own, &mut seen) {
            let range = &program.functions[f].range;
            let mut inside = places.iter().filter(|p| range.contains(p));
            if installer.why != Why::NotUnderstood
                || !inside.all(|&p| is_other_system_call(input, p))
            {
                return Err(installer);
            }
        }
    }
    Ok(seen)
}

/// Returns code if calls of `sigaction` may be invisible, because they go through registers or
/// the loader looks it up. Otherwise returns the [`places`] of `targets`, since one pass over the
/// code can find all.
fn unseen(
    input: &Input,
    program: &Program,
    imports: &Imports,
    targets: &BTreeSet<u64>,
) -> Result<Vec<u64>, HandlerInstaller> {
    let installers = imports.reach(is_installer);
    let asks = imports.reach(|name| name == "dlsym" || name == "dlvsym");
    let mark = b"\0sigaction\0";
    let in_segment = |s: &SegmentBytes| {
        memchr::memmem::find_iter(s.bytes, mark)
            .map(|at| s.vaddr + at as u64 + 1)
            .collect::<Vec<u64>>()
    };
    let names: BTreeSet<u64> = if asks.is_empty() {
        BTreeSet::new()
    } else {
        input.segments.iter().flat_map(in_segment).collect()
    };
    let all = places(
        input,
        &[targets, &installers, &asks, &names]
            .into_iter()
            .flatten()
            .copied()
            .collect(),
    );
    let of = |targets: &BTreeSet<u64>| {
        all.iter()
            .copied()
            .filter(|&p| is_system_call(input, p) || refers(input, p, targets))
            .collect::<Vec<u64>>()
    };
    let has_slot = imports.slots.values().any(|name| is_installer(name));
    if has_slot
        && of(&installers)
            .into_iter()
            .all(|p| is_system_call(input, p))
    {
        return Err(HandlerInstaller {
            at: 0,
            why: Why::Unseen,
        });
    }
    // Names in tables do not count, since code that looks up a name refers to it directly.
    let functions = |targets: &BTreeSet<u64>| {
        of(targets)
            .into_iter()
            .filter(|&p| !is_system_call(input, p))
            .filter_map(|p| program.function_at(p))
            .collect::<BTreeSet<_>>()
    };
    if let Some(&asking) = functions(&asks).intersection(&functions(&names)).next() {
        return Err(HandlerInstaller {
            at: program.function(asking).range.start,
            why: Why::ByLoader,
        });
    }
    Ok(of(targets))
}

/// True if the four bytes at a place may refer to one of the targets.
fn refers(input: &Input, at: u64, targets: &BTreeSet<u64>) -> bool {
    let Some(value) = input
        .bytes_at(at)
        .and_then(|b| b.first_chunk())
        .map(|b| u32::from_le_bytes(*b))
    else {
        return false;
    };
    targets.contains(&relative(at, value)) || !input.pie && targets.contains(&u64::from(value))
}

/// Target of a relative distance that ends four bytes behind a place.
fn relative(at: u64, distance: u32) -> u64 {
    at.wrapping_add(4).wrapping_add(distance as i32 as u64)
}

/// Functions of the file through which others install handlers, by address.
#[derive(Default)]
struct Own {
    /// Functions that install handlers passed to them, with two argument numbers: the signal (if it
    /// is an argument) and the action.
    installers: BTreeMap<u64, (Option<u8>, u8)>,
    /// Functions that make a system call, with the number of the argument that is the call's
    /// number.
    calls: BTreeMap<u64, u8>,
    /// Functions that store the previous action through their arguments (bit n: argument n).
    savers: BTreeMap<u64, u8>,
}

impl Own {
    fn is_in(&self, other: &Own) -> bool {
        let savers = self
            .savers
            .iter()
            .all(|(f, set)| set & !other.savers.get(f).copied().unwrap_or(0) == 0);
        savers
            && self
                .installers
                .keys()
                .all(|f| other.installers.contains_key(f))
            && self.calls.keys().all(|f| other.calls.contains_key(f))
    }

    /// Adds other functions.
    fn extend(&mut self, other: Own) {
        self.installers.extend(other.installers);
        self.calls.extend(other.calls);
        for (f, set) in other.savers {
            *self.savers.entry(f).or_default() |= set;
        }
    }

    /// The actions of a function: the argument that is an action to install, and the arguments that
    /// receive the previous action.
    fn actions(&self, function: u64) -> (Option<u8>, u8) {
        let installer = self.installers.get(&function);
        // A function that takes signal and action like `sigaction` takes its third argument, too.
        let third = u8::from(installer.is_some_and(|own| *own == (Some(0), 1))) << 2;
        (
            installer.map(|own| own.1),
            third | self.savers.get(&function).copied().unwrap_or(0),
        )
    }
}

/// Facts shared by all places of a file.
#[derive(Default)]
struct Noted {
    hand_on: Own,
    /// Statics in which `sigaction` stores the previous action.
    saved_statics: BTreeSet<u64>,
    /// True if it also stores previous actions in other memory.
    saved_elsewhere: bool,
    /// Installed actions that the current function did not write: (place, address if it is a
    /// static).
    restored: Vec<(u64, Option<u64>)>,
    /// The first action in a frame that another function may have written. That function may still
    /// turn out to be one that saves the previous action.
    lent: Option<u64>,
}

impl Noted {
    /// Notes a function that makes a system call with a number passed to it. Returns true if this
    /// is one.
    fn hands_number_on(&mut self, function: u64, number: Value) -> bool {
        if let Value::Param(n) | Value::Half(n) = number {
            self.hand_on.calls.insert(function, n);
        }
        matches!(number, Value::Param(_) | Value::Half(_))
    }

    /// An action without a writer must be a previous one, and some code must save such actions.
    /// Otherwise, returns the code. `built`: finds actions that are written to such memory.
    fn unexplained(&self, built: impl FnOnce() -> Vec<Built>) -> Option<HandlerInstaller> {
        let saved =
            |at: Option<u64>| at.map_or(self.saved_elsewhere, |a| self.saved_statics.contains(&a));
        let found = self.restored.iter().find(|r| !saved(r.1)).map(|r| r.0);
        let written = || {
            let built = if self.restored.is_empty() {
                Vec::new()
            } else {
                built()
            };
            let may_be = |b: &&Built| {
                self.restored
                    .iter()
                    .any(|r| r.1.is_none() || b.action.is_none() || r.1 == b.action)
            };
            built.iter().find(may_be).map(|b| b.at)
        };
        self.lent
            .or(found)
            .or_else(written)
            .map(|at| HandlerInstaller {
                at,
                why: Why::NotFollowed,
            })
    }
}

/// True if a word of data holds this code address, except for the words through which code calls
/// it.
fn stored(input: &Input, imports: &Imports, address: u64) -> bool {
    let is_data = |at: u64| !imports.own.contains_key(&at);
    let word = |s: &SegmentBytes| {
        let first = s.vaddr.next_multiple_of(8);
        let words = s
            .bytes
            .get((first - s.vaddr) as usize..)
            .unwrap_or(&[])
            .chunks_exact(8);
        !s.executable
            && words
                .zip((first..).step_by(8))
                .any(|(word, at)| word == address.to_le_bytes() && is_data(at))
    };
    input
        .relative_targets
        .iter()
        .any(|t| t.1 == address && is_data(t.0))
        || !input.pie && input.segments.iter().any(word)
}

/// The bytes of `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// True if the two bytes at `at` are those of `syscall`.
fn is_system_call(input: &Input, at: u64) -> bool {
    input.bytes_at(at).is_some_and(|b| b.starts_with(&SYSCALL))
}

/// True if four bytes outside of functions look like the distance in a call, a jump or a memory
/// operand, or like an address. Padding before a function has zeros that would be the distance to
/// it.
fn is_reference(input: &Input, at: u64) -> bool {
    let Some(&[before, last, a, b, c, d]) = at
        .checked_sub(2)
        .and_then(|p| input.bytes_at(p))
        .and_then(|b| b.first_chunk::<6>())
    else {
        return false;
    };
    let operand =
        matches!(last, 0xe8 | 0xe9) || last & 0xc7 == 5 || before == 0x0f && last & 0xf0 == 0x80;
    !is_system_call(input, at) && (operand || [a, b, c, d] != [0; 4])
}

/// True if a `syscall` at `at` directly follows an instruction that sets another number than
/// rt_sigaction's.
fn is_other_system_call(input: &Input, at: u64) -> bool {
    let number = |opcode: &[u8]| {
        let code = input
            .bytes_at(at.checked_sub(opcode.len() as u64 + 4)?)?
            .strip_prefix(opcode)?;
        Some(u64::from(u32::from_le_bytes(
            code.get(..4)?.try_into().ok()?,
        )))
    };
    // mov rax, imm32; mov eax, imm32.
    let known = number(&[0x48, 0xc7, 0xc0]).or_else(|| number(&[0xb8]));
    is_system_call(input, at) && known.is_some_and(|n| n != RT_SIGACTION)
}

/// Possible last two bytes of a four-byte reference to one of a set of addresses. A short piece of
/// code has only a few, so a search for these replaces a test at each byte.
struct Ends<'a> {
    targets: &'a BTreeSet<u64>,
    /// True if addresses do not depend on a load bias, so that code may contain them.
    fixed: bool,
}

impl Ends<'_> {
    /// Maximum number of endings, since each costs time in the search. Source: Chosen.
    const MAX_ENDS: usize = 16;

    /// Last two bytes of values that may refer to a target from anywhere in `code`, which is no
    /// longer than 64 KiB. `None` if there are many.
    fn of(&self, code: &Range<u64>) -> Option<Vec<[u8; 2]>> {
        let mut ends: Vec<[u8; 2]> = Vec::new();
        for target in self.targets {
            // The smallest and the largest distance differ by at most one in these bytes.
            let distances =
                [code.start, code.end].map(|at| target.wrapping_sub(at).wrapping_sub(4) as u32);
            for value in distances
                .into_iter()
                .chain(self.fixed.then_some(*target as u32))
            {
                let [_, _, end @ ..] = value.to_le_bytes();
                if !ends.contains(&end) {
                    ends.push(end);
                }
            }
            if ends.len() > Self::MAX_ENDS {
                return None;
            }
        }
        Some(ends)
    }
}

/// Places in code that may refer to one of the targets, by distance or as an immediate, or that may
/// be a system call. Each byte is tested, so that none is missed; most places found are no
/// references.
fn places(input: &Input, targets: &BTreeSet<u64>) -> Vec<u64> {
    const BYTES_PER_PART: usize = 1 << 16;
    let ends = Ends {
        targets,
        fixed: !input.pie,
    };
    let mut found = Vec::new();
    for range in &input.exec_ranges {
        let Some(code) = input.slice(range) else {
            continue;
        };
        // Each part searches for the places that begin in it.
        let parts = (0..code.len().div_ceil(BYTES_PER_PART))
            .into_par_iter()
            .flat_map_iter(|part| {
                let (from, to) = (
                    part * BYTES_PER_PART,
                    code.len().min((part + 1) * BYTES_PER_PART),
                );
                let whole = &code[from..code.len().min(to + 3)];
                let base = range.start + from as u64;
                let mut all: Vec<u64> = match ends.of(&(base..range.start + to as u64)) {
                    Some(ends) => {
                        let referring = ends
                            .into_iter()
                            .flat_map(|end| everywhere(whole.get(2..).unwrap_or(&[]), end));
                        referring
                            .chain(everywhere(whole, SYSCALL).filter(|&i| i + 4 <= whole.len()))
                            .map(|i| base + i as u64)
                            .collect()
                    }
                    None => (base..).take(whole.len().saturating_sub(3)).collect(),
                };
                all.retain(|&at| is_system_call(input, at) || refers(input, at, targets));
                all.sort_unstable();
                all.dedup();
                all
            });
        found.par_extend(parts);
    }
    found
}

/// Positions of two bytes in others.
fn everywhere(bytes: &[u8], two: [u8; 2]) -> impl Iterator<Item = usize> {
    let finder = memchr::memmem::Finder::new(&two).into_owned();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(bytes.get(from..)?)?;
        from = at + 1;
        Some(at)
    })
}

/// Places where control enters a function.
fn entries_of(input: &Input, info: &FunctionInfo) -> Entries {
    Entries {
        called: info.inner().called.clone(),
        outside: info.inner().branched.clone(),
        pads: pads_of(input, info),
        suspected: info.suspected(),
    }
}

/// The source that a function is decoded from.
fn source<'a>(input: &'a Input, info: &FunctionInfo, entries: &Entries) -> Option<CodeSource<'a>> {
    let mut certain: Vec<u64> = entries
        .called
        .iter()
        .chain(&entries.outside)
        .copied()
        .collect();
    certain.extend(entries.pads.iter().map(|p| p.1));
    Some(CodeSource {
        bytes: input.slice(&info.range)?,
        base: info.range.start,
        entries: certain,
    })
}

/// The instructions of a function, if it can be analysed, including filler.
fn body(input: &Input, program: &Program, function: usize) -> Option<Body> {
    let info = &program.functions[function];
    source(input, info, &entries_of(input, info))?.decode().ok()
}

/// The blocks of a function, if it can be analysed.
fn graph(input: &Input, program: &Program, function: usize) -> Option<Cfg> {
    let info = &program.functions[function];
    let entries = entries_of(input, info);
    let source = source(input, info, &entries)?;
    let mut factory = InstructionInfoFactory::new();
    let graph = recover(
        input,
        source.decode().ok()?,
        &source,
        &info.range,
        &entries,
        &info.inner().words,
        &mut factory,
    )
    .graph;
    (!graph.blocks.is_empty() && graph.insns[0].ip == info.range.start).then_some(graph)
}
