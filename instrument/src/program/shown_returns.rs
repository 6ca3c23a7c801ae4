//! Search for code that looks at return addresses: profilers by calls (`-pg`, `-mfentry`),
//! functions that compiled code calls at both ends of each function (`-finstrument-functions`), and
//! functions that read their caller (`__builtin_return_address`).
//!
//! Calls of a direct clone push addresses of clones. In such files calls are translated as for
//! `burst`, for all modes, so that return addresses are the original's. A function of another file
//! that looks at its own return address returns to the original: control leaves the clone, and the
//! entry jump after the call leads back.
//!
//! Functions of other files are known by their names, those of this file by their code as well: a
//! load from the place of the return address. A function that jumps to the loaded address, or keeps
//! it to jump there later (`setjmp`), does not show it.

use crate::program::imports::Imports;
use crate::program::{FunctionInfo, Input, Program};
use crate::unwind::{Fde, Tables};
use crate::util::fast_hash::FastSet;
use crate::x86::flow::jump_target;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use mgz_elf::image::Elf;
use mgz_elf::library_search::is_c_library;
use rayon::prelude::*;

/// Functions of profilers and of `-finstrument-functions`. They look at the return address of
/// their caller, too.
const PROFILERS: [&str; 10] = [
    "mcount",
    "_mcount",
    "__fentry__",
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "__cyg_profile_func_enter_bare",
    "__sanitizer_cov_trace_pc",
    "__sanitizer_cov_trace_pc_guard",
    "__sanitizer_cov_trace_pc_indir",
    "mtrace",
];
/// Functions that return the return addresses of all callers.
const STACK_WALKERS: [&str; 1] = ["backtrace"];
/// Functions that report their callers once the program has called `mtrace`.
const TRACED_ALLOCATORS: [&str; 7] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
];
/// The function that the entry point calls and that never returns: its frame is the first of each
/// stack.
const STARTS_MAIN: &str = "__libc_start_main";
/// Name prefixes of functions that use a return address only to jump there: functions of the
/// unwinder, of split stacks and of contexts.
const GO_ON_THERE: [&str; 7] = [
    "_Unwind_",
    "__morestack",
    "_dl_",
    "__libc_dl",
    "__dl",
    "unw_",
    "__unw_",
];
/// The loader's functions that look up the file of their caller.
const ASK_FOR_THE_FILE: [&str; 6] = ["dlopen", "dlsym", "dlvsym", "dlmopen", "dladdr", "dladdr1"];
/// Maximum number of instructions of a function examined for loads relative to the stack pointer,
/// since compilers load the return address early.
const LOOKED_AT: usize = 64;
/// Maximum number of instructions after a load that are examined for its use.
const USE_SHOWS: usize = 24;
/// Maximum number of branch targets of a function whose stack depth is remembered.
const MAX_TARGETS: usize = 16;
/// Bytes of a return address, and of a saved register.
const WORD: i64 = 8;

/// Known facts about code that looks at return addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownReturns {
    /// Words and entries through which functions that look at return addresses are called, and
    /// functions of the file.
    pub places: FastSet<u64>,
    /// True if they look at return addresses of their callers, too.
    pub whole_stack: bool,
    /// The first reader, as text: its name, or its start address.
    pub first: String,
    /// True if the file would misbehave with return addresses of clones.
    pub matters: bool,
}

/// Searches for functions that look at return addresses. `None` if there are none. `is_watched`:
/// the compiler has made the code for a sanitizer, to which functions pass their return address.
pub fn find_readers(
    elf: &Elf,
    input: &Input,
    program: &Program,
    unwind: &Tables,
    is_watched: bool,
) -> Option<ShownReturns> {
    if is_c_library(elf.soname()) || elf.soname().starts_with("libgcc_s.so") {
        return None;
    }
    let imports = Imports::read(elf, input);
    // The C library may be part of the file, and reads return addresses for its own use.
    let is_named = |f: &FunctionInfo| !elf.is_static_executable() || !f.name.is_empty();
    let mut shown = ShownReturns::default();
    named(&imports, input, elf.is_static_executable(), &mut shown);
    let readers: Vec<&FunctionInfo> = program
        .functions
        .par_iter()
        .filter(|f| is_named(f) && is_called(f, unwind) && reads_return(input, f))
        .collect();
    shown.places.extend(readers.iter().map(|f| f.range.start));
    if let Some(f) = readers.first() {
        // In a static executable these include functions of the C library (`dlmopen`), which only
        // look for the file that holds the address. Clones are in the same file.
        shown.matters |= !elf.is_static_executable() && !is_watched;
        if shown.first.is_empty() {
            shown.first = match f.name.is_empty() {
                true => format!("the function at {:#x}", f.range.start),
                false => f.name.clone(),
            };
        }
    }
    (!shown.first.is_empty()).then_some(shown)
}

/// Adds the readers known by name. `is_static`: the file contains the C library's functions.
fn named(imports: &Imports, input: &Input, is_static: bool, shown: &mut ShownReturns) {
    let imported = || imports.slots.iter().chain(&imports.stubs);
    let is_traced = imported().any(|(_, name)| name == "mtrace");
    // (A function of the program with the name of a stack walker need not be one.)
    let is_own = |name: &str| is_static || PROFILERS.contains(&name);
    let own = input.symbols.iter().map(|s| (&s.addr, &*s.name));
    let own = own.filter(|(_, name)| is_own(name));
    let all = imported().map(|(at, name)| (at, name.as_str())).chain(own);
    for (&at, name) in all {
        let name = name.split('@').next().unwrap_or(name);
        let (profiles, walks) = (PROFILERS.contains(&name), STACK_WALKERS.contains(&name));
        if name == STARTS_MAIN || is_traced && TRACED_ALLOCATORS.contains(&name) {
            shown.places.insert(at);
        }
        if !profiles && !walks {
            continue;
        }
        shown.places.insert(at);
        shown.whole_stack |= profiles || walks;
        shown.matters |= profiles;
        let is_better = profiles && !PROFILERS.contains(&&*shown.first);
        if shown.first.is_empty() || is_better {
            shown.first = name.to_owned();
        }
    }
}

/// True if a function begins with its return address on top of the stack. Rarely executed parts of
/// functions that are placed elsewhere do not.
fn is_called(function: &FunctionInfo, unwind: &Tables) -> bool {
    /// `DW_CFA_def_cfa` and the next two, and `DW_CFA_def_cfa_expression`.
    const SETS_FRAME: std::ops::RangeInclusive<u8> = 0x0c..=0x0f;
    let entry = function.unwind.and_then(|n| unwind.fdes.get(n as usize));
    let begins = |fde: &&Fde| fde.range.start == function.range.start;
    match entry.filter(begins) {
        Some(fde) => fde
            .instructions
            .first()
            .is_none_or(|first| !SETS_FRAME.contains(first)),
        None => function.exact && !function.name.contains(".cold"),
    }
}

/// True if a function loads its return address, or its caller's, and uses it for anything except a
/// jump there.
fn reads_return(input: &Input, function: &FunctionInfo) -> bool {
    let name = &function.name;
    if GO_ON_THERE.iter().any(|start| name.starts_with(start))
        || ASK_FOR_THE_FILE.contains(&name.as_str())
    {
        return false;
    }
    let Some(bytes) = input.slice(&function.range) else {
        return false;
    };
    if has_frame(bytes) && may_load_above_frame(bytes) {
        return loads_above_frame(bytes, function.range.start);
    }
    loads_by_stack_pointer(bytes, function.range.start)
}

/// True if a function begins by making a frame that rbp points to.
fn has_frame(bytes: &[u8]) -> bool {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let bytes = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
    // push rbp; mov rbp, rsp, in both encodings.
    bytes.starts_with(&[0x55, 0x48, 0x89, 0xe5]) || bytes.starts_with(&[0x55, 0x48, 0x8b, 0xec])
}

/// True if a function's bytes contain those of `mov reg, [rbp]` or `mov reg, [rbp+8]`.
fn may_load_above_frame(bytes: &[u8]) -> bool {
    bytes
        .windows(4)
        .any(|w| w[1] == 0x8b && w[0] & 0xfb == 0x48 && w[2] & 0xc7 == 0x45 && w[3] & 0xf7 == 0)
}

/// True if a function with a frame loads the word at `[rbp+8]`, or its caller's such word.
fn loads_above_frame(bytes: &[u8], at: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut above = Register::None;
    let mut takes_frame = false;
    while decoder.can_decode() {
        let inst = decoder.decode();
        let loaded = loaded_word(&inst);
        takes_frame |= is_frame_taken(&inst);
        // An unwinder begins in this way: it takes the frame of its caller, and the address at
        // which the caller continues.
        if takes_frame && loaded == Some((Register::RBP, WORD)) && writes(&inst, Register::RDX) {
            return false;
        }
        let is_return = |base: Register| {
            loaded == Some((base, WORD)) && is_shown(&inst, &bytes[decoder.position()..])
        };
        if is_return(Register::RBP) || above != Register::None && is_return(above) {
            return true;
        }
        above = match loaded {
            Some((Register::RBP, 0)) => inst.op0_register(),
            _ => Register::None,
        };
    }
    false
}

fn writes(inst: &Instruction, register: Register) -> bool {
    inst.op0_kind() == OpKind::Register && inst.op0_register() == register
}

/// True if an instruction passes the stack pointer of a function's caller as an argument, in a
/// function that has a frame: `lea rsi, [rbp+16]`.
fn is_frame_taken(inst: &Instruction) -> bool {
    inst.mnemonic() == Mnemonic::Lea
        && writes(inst, Register::RSI)
        && inst.memory_base() == Register::RBP
        && inst.memory_index() == Register::None
        && inst.memory_displacement64() == 2 * WORD as u64
}

/// Register and displacement of the word that a `mov` to a register loads.
fn loaded_word(inst: &Instruction) -> Option<(Register, i64)> {
    (inst.mnemonic() == Mnemonic::Mov
        && inst.op0_kind() == OpKind::Register
        && inst.op0_register().is_gpr64()
        && inst.op1_kind() == OpKind::Memory
        && inst.memory_index() == Register::None
        && inst.segment_prefix() == Register::None)
        .then(|| (inst.memory_base(), inst.memory_displacement64() as i64))
}

/// True if a function loads the word at which its stack pointer pointed at its start, as far as the
/// pointer is tracked.
fn loads_by_stack_pointer(bytes: &[u8], at: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut targets: Vec<(u64, i64)> = Vec::new();
    let mut depth = Some(0);
    for _ in 0..LOOKED_AT {
        if !decoder.can_decode() {
            return false;
        }
        let inst = decoder.decode();
        if depth.is_none() {
            let known = targets.iter().find(|t| t.0 == inst.ip());
            depth = known.map(|t| t.1);
        }
        let Some(here) = depth else {
            continue;
        };
        if loaded_word(&inst) == Some((Register::RSP, here))
            && is_shown(&inst, &bytes[decoder.position()..])
        {
            return true;
        }
        if let Some(target) = jump_target(&inst).filter(|&t| t > inst.ip())
            && targets.len() < MAX_TARGETS
        {
            targets.push((target, here));
        }
        depth = deeper(&inst).map(|by| here + by).filter(|&d| d >= 0);
    }
    false
}

/// Bytes by which the stack grows during an instruction; `None` if that is unknown, or control does
/// not continue at the next one.
fn deeper(inst: &Instruction) -> Option<i64> {
    let writes_pointer = inst.op_count() > 0 && writes(inst, Register::RSP);
    let number = || inst.try_immediate(1).ok().map(|n| n as i64);
    match (inst.mnemonic(), inst.flow_control()) {
        (_, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch) => None,
        (_, FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception) => None,
        (Mnemonic::Push, _) => Some(WORD),
        (Mnemonic::Pop, _) => Some(-WORD),
        (Mnemonic::Sub, _) if writes_pointer => number(),
        (Mnemonic::Add, _) if writes_pointer => number().map(|n| -n),
        (Mnemonic::Leave | Mnemonic::Enter, _) => None,
        // (A comparison writes no register.)
        (Mnemonic::Cmp | Mnemonic::Test, _) => Some(0),
        _ if writes_pointer => None,
        _ => Some(0),
    }
}

/// True if a return address that an instruction has loaded may become visible. It does not if
/// control continues there by a jump or a return. It does not either if it is kept for that purpose
/// with the processor state (contexts) or mangled (`setjmp`).
fn is_shown(load: &Instruction, behind: &[u8]) -> bool {
    let register = load.op0_register();
    let behind = Decoder::with_ip(64, behind, load.next_ip(), DecoderOptions::NONE);
    for inst in behind.into_iter().take(USE_SHOWS) {
        let first_is = |register: Register| inst.op_count() > 0 && writes(&inst, register);
        match inst.mnemonic() {
            // See `loads_above_frame`.
            _ if register == Register::RDX && is_frame_taken(&inst) => return false,
            Mnemonic::Jmp if first_is(register) => return false,
            Mnemonic::Push if first_is(register) => return false,
            Mnemonic::Xor | Mnemonic::Mov if inst.segment_prefix() == Register::FS => {
                // The word of the thread's block with which pointers are mangled.
                const POINTER_GUARD_OFFSET: u64 = 0x30;
                if inst.memory_displacement64() == POINTER_GUARD_OFFSET {
                    return false;
                }
            }
            Mnemonic::Mov if inst.op1_kind() == OpKind::Immediate64 => {
                // Mark that gcc's unwinder puts on its contexts, whose first address is a return
                // address.
                const EXTENDED_CONTEXT: u64 = 1 << 62;
                if inst.immediate64() == EXTENDED_CONTEXT {
                    return false;
                }
            }
            Mnemonic::Fnstenv | Mnemonic::Fnstcw | Mnemonic::Fxsave => return false,
            _ => {}
        }
        if inst.flow_control() == FlowControl::Return || inst.is_invalid() {
            break;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(bytes: &[u8]) -> bool {
        if has_frame(bytes) && may_load_above_frame(bytes) {
            return loads_above_frame(bytes, 0x1000);
        }
        loads_by_stack_pointer(bytes, 0x1000)
    }

    #[test]
    fn loads_of_the_return_address_are_seen() {
        // mov rdi, [rsp]; jmp …
        assert!(reads(&[0x48, 0x8b, 0x3c, 0x24, 0xe9, 0, 0, 0, 0]));
        // push rbx; sub rsp, 0x10; mov rsi, [rsp+0x18]; ret
        assert!(reads(&[
            0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8b, 0x74, 0x24, 0x18, 0xc3
        ]));
        // test edi, edi; jne +1; ret; sub rsp, 8; mov rsi, [rsp+8]; ret
        assert!(reads(&[
            0x85, 0xff, 0x75, 0x01, 0xc3, 0x48, 0x83, 0xec, 0x08, 0x48, 0x8b, 0x74, 0x24, 0x08,
            0xc3
        ]));
        // push rbp; mov rbp, rsp; mov rax, [rbp+8]; pop rbp; ret
        assert!(reads(&[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0x08, 0x5d, 0xc3
        ]));
        // push rbp; mov rbp, rsp; mov rax, [rbp]; mov rax, [rax+8]; pop rbp; ret
        assert!(reads(&[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0x00, 0x48, 0x8b, 0x40, 0x08, 0x5d, 0xc3
        ]));
    }

    #[test]
    fn other_loads_and_jumps_to_it_are_none() {
        // push rbx; mov rsi, [rsp]; ret
        assert!(!reads(&[0x53, 0x48, 0x8b, 0x34, 0x24, 0xc3]));
        // mov rsi, [rsp+8]: an argument.
        assert!(!reads(&[0x48, 0x8b, 0x74, 0x24, 0x08, 0xc3]));
        // mov rdx, [rsp]; mov rsp, rsi; jmp rdx
        assert!(!reads(&[
            0x48, 0x8b, 0x14, 0x24, 0x48, 0x89, 0xf4, 0xff, 0xe2
        ]));
        // mov rdx, [rsp]; xor rdx, fs:[0x30]; mov [rdi], rdx; ret
        assert!(!reads(&[
            0x48, 0x8b, 0x14, 0x24, 0x64, 0x48, 0x33, 0x14, 0x25, 0x30, 0, 0, 0, 0x48, 0x89, 0x17,
            0xc3
        ]));
        // push rbp; mov rbp, rsp; lea rsi, [rbp+16]; mov rdx, [rbp+8]: an unwinder.
        assert!(!reads(&[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x75, 0x10, 0x48, 0x8b, 0x55, 0x08, 0x5d, 0xc3
        ]));
        // The same in the other order.
        assert!(!reads(&[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x55, 0x08, 0x48, 0x8d, 0x75, 0x10, 0x5d, 0xc3
        ]));
        // mov rax, [rbp+8], where rbp points to no frame.
        assert!(!reads(&[0x48, 0x8b, 0x45, 0x08, 0xc3]));
        // push rbp; mov rbp, rsp; mov rax, [rbp+16]: an argument.
        assert!(!reads(&[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0x10, 0x5d, 0xc3
        ]));
    }
}
