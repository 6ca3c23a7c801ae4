//! The runtime's part of translated clones: targets of returns, of indirect calls and jumps, and of
//! calls to code without a clone (see `abi`, "Translated clones").
//!
//! The difficulty: a hook may run between any two instructions of the program, so it must not
//! change any register, flag or stack word, and a signal may arrive at each of its own
//! instructions. So everything that it saves is in the control page, from where
//! [`settle_interrupted_hook`] can complete or undo it at any moment: an interrupted hook has
//! either reached its target or has not begun.
//!
//! A small table in each control page maps original addresses to their clones, and a larger one
//! maps the addresses that do not fit there ([`known`](crate::record::target_cache)); a miss in
//! both calls [`slow`], on a stack of its own.

use crate::record::target_cache::{Fact, KnownTargets, is_canonical};
use crate::record::thread_ring::Ring;
use crate::record::{modules, target_cache, thread_ring, window};
use crate::sys::errno::EEXIST;
use crate::sys::signal_frame::{Context, RIP};
use crate::sys::{flags, process, signal_frame, syscall};
use core::arch::global_asm;
use core::mem::offset_of;
use mgz_abi::shared_memory::*;

/// Offset of the near table of known addresses in a control page.
pub const CACHE: usize = PAGE_SIZE / 2;

const RAX: usize = offset_of!(Control, hold);
const RCX: usize = RAX + 8;
const FLAGS: usize = RAX + 16;
const TARGET: usize = RAX + 24;
const RSP: usize = RAX + 32;
const REST: usize = RAX + 40;
/// Location of the program's flags while [`slow`] runs: bytes below the top of the stack of hooks,
/// behind the vector registers. The word is 0 until the flags are stored.
const KEPT_FLAGS: usize = 96;
/// Index of r11 in [`Control::hold`].
const R11: usize = 13;

/// Reasons to call [`slow`]. [`Control::in_hook`] holds the number during the call.
const RETURN: u64 = 1;
const CALL: u64 = 2;
const JUMP: u64 = 3;
const BACK: u64 = 4;

const _: () = {
    assert!(offset_of!(Control, hooks) == mgz_abi::probe::GS_RETURN as usize);
    assert!(offset_of!(Control, hooks) + 8 == mgz_abi::probe::GS_CALL as usize);
    assert!(offset_of!(Control, hooks) + 16 == mgz_abi::probe::GS_JUMP as usize);
    assert!(offset_of!(Control, hooks) + 24 == mgz_abi::probe::GS_BACK as usize);
    assert!(size_of::<Control>() <= CACHE && CACHE + 16 * target_cache::NEAR_ENTRIES <= PAGE_SIZE);
};

// Flags are saved by lahf and seto, which need no stack. The runtime uses only the legacy vector
// registers, and legacy instructions do not change their upper halves. They are saved in the layout
// of fxsave, which itself would take three times as long. Labels whose addresses
// `settle_interrupted_hook` knows: see `Hook`.
global_asm!(
    ".section .text.mgz_hooks, \"ax\", @progbits",
    ".p2align 6",
    ".macro mgz_hook name kind address pop",
    "mgz_\\name:",
    "mov gs:[{rax}], rax",
    "mgz_\\name\\()_1:",
    "mov gs:[{rcx}], rcx",
    "mgz_\\name\\()_2:",
    "lahf",
    "seto al",
    "mov gs:[{flags}], rax",
    "mgz_\\name\\()_3:",
    ".if \\kind != {back_kind}",
    "mov rax, \\address",
    "imul ecx, eax, {hash}",
    "shr ecx, {shift}",
    "shl ecx, 4",
    "cmp rax, gs:[rcx + {cache}]",
    "jne 1f",
    "mov rax, gs:[rcx + {cache} + 8]",
    "mov gs:[{to}], rax",
    "jmp 4f",
    "1:",
    "imul ecx, eax, {hash}",
    "shr ecx, {memory_shift}",
    "shl ecx, 5",
    "add rcx, gs:[{top}]",
    "cmp rax, [rcx - {memory}]",
    "je 3f",
    "cmp rax, [rcx - {memory} + 16]",
    "jne 2f",
    "add rcx, 16",
    "3:",
    "mov rax, [rcx - {memory} + 8]",
    "mov gs:[{to}], rax",
    "jmp 4f",
    ".endif",
    "2:",
    "mov gs:[{rsp}], rsp",
    "mov gs:[{rest}], rdx",
    "mov gs:[{rest} + 8], rbx",
    "mov gs:[{rest} + 16], rbp",
    "mov gs:[{rest} + 24], rsi",
    "mov gs:[{rest} + 32], rdi",
    "mov gs:[{rest} + 40], r8",
    "mov gs:[{rest} + 48], r9",
    "mov gs:[{rest} + 56], r10",
    "mov gs:[{rest} + 64], r11",
    "mov gs:[{rest} + 72], r12",
    "mov gs:[{rest} + 80], r13",
    "mov gs:[{rest} + 88], r14",
    "mov gs:[{rest} + 96], r15",
    "mov rcx, gs:[{top}]",
    "movups [rcx - 352], xmm0",
    "movups [rcx - 336], xmm1",
    "movups [rcx - 320], xmm2",
    "movups [rcx - 304], xmm3",
    "movups [rcx - 288], xmm4",
    "movups [rcx - 272], xmm5",
    "movups [rcx - 256], xmm6",
    "movups [rcx - 240], xmm7",
    "movups [rcx - 224], xmm8",
    "movups [rcx - 208], xmm9",
    "movups [rcx - 192], xmm10",
    "movups [rcx - 176], xmm11",
    "movups [rcx - 160], xmm12",
    "movups [rcx - 144], xmm13",
    "movups [rcx - 128], xmm14",
    "movups [rcx - 112], xmm15",
    "mov eax, \\kind",
    "mov qword ptr [rcx - {kept_flags}], 0",
    "mov gs:[{in_hook}], rax",
    "lea rsp, [rcx - 512]",
    "pushfq",
    "pop rbx",
    "mov [rcx - {kept_flags}], rbx",
    "test rbx, [rip + {cleared}]",
    "je 5f",
    "pushfq",
    "and qword ptr [rsp], {plain}",
    "popfq",
    "5:",
    "mov edi, eax",
    "mov rsi, rbx",
    "call {slow}",
    "mov gs:[{to}], rax",
    "test rbx, [rip + {cleared}]",
    "je 6f",
    "push rbx",
    "popfq",
    "6:",
    "mov rcx, gs:[{top}]",
    "movups xmm0, [rcx - 352]",
    "movups xmm1, [rcx - 336]",
    "movups xmm2, [rcx - 320]",
    "movups xmm3, [rcx - 304]",
    "movups xmm4, [rcx - 288]",
    "movups xmm5, [rcx - 272]",
    "movups xmm6, [rcx - 256]",
    "movups xmm7, [rcx - 240]",
    "movups xmm8, [rcx - 224]",
    "movups xmm9, [rcx - 208]",
    "movups xmm10, [rcx - 192]",
    "movups xmm11, [rcx - 176]",
    "movups xmm12, [rcx - 160]",
    "movups xmm13, [rcx - 144]",
    "movups xmm14, [rcx - 128]",
    "movups xmm15, [rcx - 112]",
    "mov r15, gs:[{rest} + 96]",
    "mov r14, gs:[{rest} + 88]",
    "mov r13, gs:[{rest} + 80]",
    "mov r12, gs:[{rest} + 72]",
    "mov r11, gs:[{rest} + 64]",
    "mov r10, gs:[{rest} + 56]",
    "mov r9, gs:[{rest} + 48]",
    "mov r8, gs:[{rest} + 40]",
    "mov rdi, gs:[{rest} + 32]",
    "mov rsi, gs:[{rest} + 24]",
    "mov rbp, gs:[{rest} + 16]",
    "mov rbx, gs:[{rest} + 8]",
    "mov rdx, gs:[{rest}]",
    "mov rsp, gs:[{rsp}]",
    "mov qword ptr gs:[{in_hook}], 0",
    "4:",
    "mov rax, gs:[{flags}]",
    "add al, 127",
    "sahf",
    "mov rcx, gs:[{rcx}]",
    "mov rax, gs:[{rax}]",
    ".if \\pop",
    "lea rsp, [rsp + 8]",
    ".endif",
    "mgz_\\name\\()_4:",
    "jmp gs:[{to}]",
    ".endm",
    "mgz_hooks:",
    "mgz_hook return, {return_kind}, [rsp], 1",
    "mgz_hook call, {call_kind}, gs:[{target}], 0",
    "mgz_hook jump, {jump_kind}, gs:[{target}], 0",
    "mgz_hook back, {back_kind}, [rsp], 1",
    // Hooks of clones that run outside of a window: they continue in the original.
    "mgz_plain_return:",
    "ret",
    "mgz_plain_call:",
    "jmp gs:[{target}]",
    "mgz_plain_jump:",
    "jmp gs:[{target}]",
    "mgz_hooks_end:",
    ".purgem mgz_hook",
    ".text",
    rax = const RAX,
    rcx = const RCX,
    flags = const FLAGS,
    to = const TARGET,
    rsp = const RSP,
    rest = const REST,
    top = const offset_of!(Control, hook_top),
    in_hook = const offset_of!(Control, in_hook),
    cache = const CACHE,
    hash = const target_cache::HASH as i32,
    shift = const 32 - target_cache::NEAR_ENTRIES.trailing_zeros(),
    memory_shift = const 32 - target_cache::FAR_SETS.trailing_zeros(),
    memory = const thread_ring::HOOK_STACK,
    target = const offset_of!(Control, spill) + 8 * mgz_abi::probe::PLACE_TARGET as usize,
    return_kind = const RETURN,
    call_kind = const CALL,
    jump_kind = const JUMP,
    back_kind = const BACK,
    slow = sym slow,
    kept_flags = const KEPT_FLAGS,
    cleared = sym flags::CLEARED,
    plain = const flags::KEPT_FLAGS,
);

/// The address of a label of the hooks.
macro_rules! label {
    ($($name:literal)+) => {{
        let address: usize;
        // SAFETY: computes an address.
        unsafe { core::arch::asm!(concat!("lea {}, [rip + ", $($name,)+ "]"), out(reg) address, options(nomem, nostack, preserves_flags)) };
        address as u64
    }};
}

/// Behavior of a control page's hooks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    /// Continue in the original in any case, since no window is open.
    Closed,
    /// Continue in clones; code outside of clones is not accounted for (`full`, `ring`).
    Always,
    /// Continue in clones, inside a window.
    Window,
}

/// Sets the hooks of a control page.
pub fn set(control: &Control, hooks: Hooks) {
    control.hooks.set(match hooks {
        Hooks::Closed => [
            label!("mgz_plain_return"),
            label!("mgz_plain_call"),
            label!("mgz_plain_jump"),
            label!("mgz_back"),
        ],
        Hooks::Always => [
            label!("mgz_return"),
            label!("mgz_call"),
            label!("mgz_jump"),
            label!("mgz_plain_return"),
        ],
        Hooks::Window => [
            label!("mgz_return"),
            label!("mgz_call"),
            label!("mgz_jump"),
            label!("mgz_back"),
        ],
    });
}

/// A thread's tables: the near one in its control page, the far ones at the bottom of the stack of
/// hooks.
fn known(ring: Ring) -> KnownTargets {
    // SAFETY: the second half of a control page, and the bottom of the stack of hooks, are set
    // aside for them.
    unsafe { KnownTargets::at(ring.address + CACHE, ring.hook_stack()) }
}

/// Forgets the known addresses of a control page in the recorder's file. Its thread may be running.
pub fn forget_targets(ring: Ring) {
    known(ring).forget();
}

fn note(ring: Ring, key: u64, value: u64) {
    known(ring).note(key, value, &ring.private().noted);
}

fn note_fact(ring: Ring, fact: Fact, address: u64, value: u64) {
    known(ring).note_fact(fact, address, value, &ring.private().noted);
}

/// Cached [`modules::back_of`].
fn back_of(ring: Ring, original: u64) -> Option<u64> {
    known(ring)
        .recall_fact(Fact::ReturnedTo, original)
        .or_else(|| {
            let back = modules::back_of(original)?;
            note_fact(ring, Fact::ReturnedTo, original, back);
            Some(back)
        })
}

/// Cached [`modules::entry`].
fn entry(ring: Ring, original: u64) -> Option<u64> {
    known(ring).recall(original).or_else(|| {
        let clone = modules::entry(original)?;
        note(ring, original, clone);
        Some(clone)
    })
}

/// Returns the target of a hook whose address is not in the tables. `flags`: the program's.
extern "C" fn slow(kind: u64, flags: u64) -> u64 {
    let gs = syscall::gs();
    let Some(ring) = thread_ring::ring_at(gs) else {
        return 0;
    };
    // SAFETY: %gs points at this page: the ring's control page, or its spare one.
    let control = unsafe { &*(gs as *const Control) };
    let stack = control.hold[4].get();
    let target = control.spill[mgz_abi::probe::PLACE_TARGET as usize].get();
    let recording = gs == ring.address;
    let transfer = Transfer {
        recording,
        kind,
        stack,
        target,
        flags,
    };
    go(ring, control, &transfer)
}

/// State of the thread at a hook.
struct Transfer {
    /// `%gs` points at the thread's own control page, not at the spare one.
    recording: bool,
    kind: u64,
    /// The program's stack pointer.
    stack: u64,
    /// The original address of a call or jump.
    target: u64,
    /// The program's flags.
    flags: u64,
}

/// The decision of [`slow`].
fn go(ring: Ring, control: &Control, transfer: &Transfer) -> u64 {
    let &Transfer {
        recording,
        kind,
        stack,
        target,
        flags,
    } = transfer;
    // SAFETY: the top of the stack is a return address that was just pushed or is about to be
    // popped.
    let top = unsafe { (stack as *const u64).read() };
    let burst = process::header().is_some_and(|h| h.mode == MODE_BURST);
    if burst && recording && window::keeps_out(flags) {
        window::close_in_hook(ring, window::Why::NoClone);
    }
    let open = recording && (!burst || window::is_open(ring));
    match kind {
        RETURN => {
            // The return address may be a clone address that the runtime put there.
            let original = if modules::in_clone(top) {
                modules::original_of_back(top).unwrap_or(top)
            } else {
                top
            };
            match entry(ring, original) {
                Some(clone) if open => {
                    if original == top {
                        known(ring).note_near(original, clone);
                    }
                    clone
                }
                _ if burst => {
                    window::close_in_hook(ring, window::Why::Returned);
                    original
                }
                _ => top,
            }
        }
        BACK => {
            let back = top.wrapping_sub(8);
            if open && (!burst || window::comes_back(ring, stack, back)) {
                return top;
            }
            if burst && recording {
                window::close_in_hook(ring, window::Why::Outside);
            }
            modules::original_of_back(back).unwrap_or(top)
        }
        _ => {
            if !open || !is_canonical(target) {
                return target;
            }
            let known = known(ring);
            if known.recall_fact(Fact::Outside, target).is_some() {
                leave(ring, control, burst, true, true, stack);
                return target;
            }
            let known_link = known.recall_fact(Fact::Linked, target).is_some();
            if !known_link && let Some(clone) = entry(ring, target) {
                known.note_near(target, clone);
                return clone;
            }
            let linked = modules::linked(target);
            if let Some(clone) = linked.and_then(|l| entry(ring, l.target)) {
                if !known_link {
                    note_fact(ring, Fact::Linked, target, 1);
                }
                if let Some(r11) = linked.and_then(|l| l.r11) {
                    control.hold[R11].set(r11);
                }
                return clone;
            }
            // (An unbound entry of a linkage table leads back into its own file.)
            let leaves = modules::leaves(target);
            let is_plain = if burst || leaves {
                leaves && linked.is_none_or(|l| modules::leaves(l.target))
            } else {
                // A function without a clone in this file: if no window has to end, it is treated
                // like one of another file.
                kind == CALL && linked.is_none()
            };
            if is_plain {
                note_fact(ring, Fact::Outside, target, 1);
            }
            if !burst && modules::first_clone_instruction(target).is_some() {
                process::count(count::JUMPS_UNSEEN, 1);
            }
            leave(ring, control, burst, kind == CALL, leaves, stack);
            target
        }
    }
}

/// Prepares for code without a clone: replaces its return address by one that leads back to the
/// clone. `leaves`: the code is in no instrumented file. In a window, code without a clone in an
/// instrumented file may call functions with clones unnoticed.
fn leave(ring: Ring, control: &Control, burst: bool, call: bool, leaves: bool, stack: u64) {
    // SAFETY: as in `go`.
    let top = unsafe { (stack as *const u64).read() };
    // A jump to code in an instrumented file need not be a tail call.
    let back = match call || leaves {
        // An address with an entry jump leads back to the clone anyway, so the stack keeps the
        // original address for the program to read.
        true if !burst && modules::enters_clone(top) => None,
        true => back_of(ring, top),
        false => None,
    };
    if burst {
        let arguments = [
            control.hold[9].get(),
            control.hold[8].get(),
            control.hold[5].get(),
            control.hold[1].get(),
            control.hold[10].get(),
            control.hold[11].get(),
        ];
        let why = if !leaves {
            Some(window::Why::NoClone)
        } else if arguments.iter().any(|&a| modules::is_function(a)) {
            Some(window::Why::Callback)
        } else if back.is_none() {
            Some(window::Why::Returned)
        } else {
            None
        };
        if let Some(why) = why {
            return window::close_in_hook(ring, why);
        }
    }
    if let Some(back) = back {
        if burst && !window::goes_away(ring, stack, back) {
            return;
        }
        // SAFETY: the return address of the call that is being made.
        unsafe { (stack as *mut u64).write(back) };
    }
}

/// If a hook or a jump out of a clone was interrupted, changes the registers as if it had been
/// completed or not begun: control is then at an original address, or at a clone address in the
/// address map. Returns true if one was interrupted.
pub fn settle_interrupted_hook(context: &mut Context) -> bool {
    let gs = syscall::gs();
    let Some(ring) = thread_ring::ring_at(gs) else {
        return false;
    };
    // SAFETY: %gs points at this page.
    let control = unsafe { &*(gs as *const Control) };
    let rip = context.registers[RIP];
    let inside = rip >= label!("mgz_hooks") && rip < label!("mgz_hooks_end");
    let recording = gs == ring.address;
    if let Some((target, saved, call)) = modules::way_out(rip) {
        if saved {
            *context.register(0) = control.spill[mgz_abi::probe::PLACE_RAX as usize].get();
        }
        let kind = if call { CALL } else { JUMP };
        end(ring, control, recording, kind, context, target);
        return true;
    }
    if !inside && control.in_hook.get() == 0 {
        return false;
    }
    let target = control.spill[mgz_abi::probe::PLACE_TARGET as usize].get();
    if control.in_hook.get() != 0 {
        let kind = control.in_hook.get();
        restore_all(control, context);
        control.in_hook.set(0);
        end(ring, control, recording, kind, context, target);
        return true;
    }
    if rip >= label!("mgz_plain_return") {
        end_plain(context, target);
        return true;
    }
    let Some(Hook { kind, steps, .. }) = Hook::at(rip) else {
        return false;
    };
    if rip >= steps[0] {
        *context.register(0) = control.hold[0].get();
    }
    if rip >= steps[1] {
        *context.register(1) = control.hold[1].get();
    }
    if rip >= steps[2] {
        restore_flags(control, context);
    }
    if rip >= steps[3] && matches!(kind, RETURN | BACK) {
        *context.register(4) -= 8;
    }
    end(ring, control, recording, kind, context, target);
    true
}

/// The addresses of a hook's labels.
struct Hook {
    kind: u64,
    start: u64,
    /// Addresses from which on rax is saved; rcx is saved; the flags are saved; the stack pointer
    /// is the target's.
    steps: [u64; 4],
}

impl Hook {
    /// The hook that contains an address.
    #[inline(always)]
    fn at(rip: u64) -> Option<Hook> {
        macro_rules! hook {
            ($kind:ident, $name:literal) => {
                Hook {
                    kind: $kind,
                    start: label!($name),
                    steps: [
                        label!($name "_1"),
                        label!($name "_2"),
                        label!($name "_3"),
                        label!($name "_4"),
                    ],
                }
            };
        }
        let hooks = [
            hook!(RETURN, "mgz_return"),
            hook!(CALL, "mgz_call"),
            hook!(JUMP, "mgz_jump"),
            hook!(BACK, "mgz_back"),
        ];
        hooks.into_iter().rfind(|hook| rip >= hook.start)
    }
}

/// Completes a hook that continues in the original.
#[inline(always)]
fn end_plain(context: &mut Context, target: u64) {
    let rip = context.registers[RIP];
    if rip == label!("mgz_plain_return") {
        let stack = *context.register(4);
        // SAFETY: the top of the stack is a return address that is about to be popped.
        context.registers[RIP] = unsafe { (stack as *const u64).read() };
        *context.register(4) = stack + 8;
    } else {
        context.registers[RIP] = target;
        if rip == label!("mgz_plain_call") {
            refuse(context, target);
        }
    }
}

/// Completes a hook by changing the registers.
fn end(
    ring: Ring,
    control: &Control,
    recording: bool,
    kind: u64,
    context: &mut Context,
    target: u64,
) {
    let stack = *context.register(4);
    // `go` reads the arguments from here, and changes r11.
    let looked_at = [(9, 7), (8, 6), (5, 2), (1, 1), (10, 8), (11, 9), (R11, 11)];
    for (slot, register) in looked_at {
        control.hold[slot].set(*context.register(register));
    }
    let transfer = Transfer {
        recording,
        kind,
        stack,
        target,
        flags: context.registers[signal_frame::FLAGS],
    };
    context.registers[RIP] = go(ring, control, &transfer);
    *context.register(11) = control.hold[R11].get();
    match kind {
        RETURN | BACK => *context.register(4) = stack + 8,
        CALL => refuse(context, target),
        _ => {}
    }
}

/// True if the processor accepts a jump to an address, mapped or not.
fn is_address(target: u64) -> bool {
    if matches!(target as i64 >> 47, 0 | -1) || !is_canonical(target) {
        return is_canonical(target);
    }
    // Such addresses exist only with five-level page tables, which no unprivileged instruction
    // detects.
    let page = target as usize & !(PAGE_SIZE - 1);
    // SAFETY: the mapping replaces nothing and is not used.
    match unsafe {
        syscall::mmap(
            page,
            PAGE_SIZE,
            syscall::map::NONE,
            syscall::map::PRIVATE
                | syscall::map::ANONYMOUS
                | syscall::map::NORESERVE
                | syscall::map::FIXED_NOREPLACE,
            -1,
            0,
        )
    } {
        Ok(mapped) => {
            // SAFETY: mapped above.
            unsafe { syscall::munmap(mapped, PAGE_SIZE) };
            mapped == page
        }
        Err(error) => error == EEXIST,
    }
}

/// A call to a non-canonical address faults at the call, which pushes nothing, so a handler may
/// repair the pointer and repeat the call. With a hook the hook's jump faults, so the state is set
/// back to the call. (The origin of a jump or return to such an address is unknown, so its target
/// is shown.)
fn refuse(context: &mut Context, target: u64) {
    if is_address(target) {
        return;
    }
    let stack = *context.register(4);
    // SAFETY: the return address of the call.
    let top = unsafe { (stack as *const u64).read() };
    let back = if modules::in_clone(top) {
        modules::original_of_back(top).unwrap_or(top)
    } else {
        top
    };
    let in_direct_clone = modules::in_clone(back).then(|| modules::hooked_call_before(back));
    if let Some(call) = in_direct_clone.unwrap_or_else(|| modules::call_before(back)) {
        context.registers[RIP] = call;
        *context.register(4) = stack + 8;
    }
}

const FLAG_BITS: u64 = 0x8d5;

fn restore_flags(control: &Control, context: &mut Context) {
    let kept = control.hold[2].get();
    let flags = &mut context.registers[signal_frame::FLAGS];
    *flags = *flags & !FLAG_BITS | kept >> 8 & 0xd5 | (kept & 1) << 11;
}

/// Restores all registers as they were before the hook; vector registers from the copy that it has
/// saved.
fn restore_all(control: &Control, context: &mut Context) {
    restore_flags(control, context);
    // SAFETY: the hook has saved the flags at the top of the stack of hooks.
    let kept = unsafe { ((control.hook_top.get() - KEPT_FLAGS as u64) as *const u64).read() };
    context.registers[signal_frame::FLAGS] |= flags::foreign(kept);
    let order: [u8; 13] = [2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let hold = control.hold.each_ref().map(core::cell::Cell::get);
    *context.register(0) = hold[0];
    *context.register(1) = hold[1];
    *context.register(4) = hold[4];
    for (i, &register) in order.iter().enumerate() {
        *context.register(register) = hold[5 + i];
    }
    const VECTORS: core::ops::Range<usize> = 160..416;
    const SOFTWARE: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    const SSE: u64 = 2;
    if context.extended != 0 {
        // SAFETY: the frame's extended state begins with the legacy area; the hook's is at the
        // end of its stack. If the software bytes say that a header follows, its first word
        // tells which parts are not in their initial state.
        unsafe {
            let area = context.extended as *mut u8;
            core::ptr::copy_nonoverlapping(
                (control.hook_top.get() - 512 + VECTORS.start as u64) as *const u8,
                area.add(VECTORS.start),
                VECTORS.len(),
            );
            if (area.add(SOFTWARE) as *const u32).read_unaligned() == MAGIC {
                *(area.add(512) as *mut u64) |= SSE;
            }
        }
    }
}

/// True if an address is in a hook, or a hook is running.
pub fn interrupted(rip: u64) -> bool {
    let gs = syscall::gs();
    if thread_ring::ring_at(gs).is_none() {
        return false;
    }
    // SAFETY: %gs points at this page.
    let control = unsafe { &*(gs as *const Control) };
    control.in_hook.get() != 0 || (rip >= label!("mgz_hooks") && rip < label!("mgz_hooks_end"))
}
