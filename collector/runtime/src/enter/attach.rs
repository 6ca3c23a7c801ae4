//! Entry of the runtime into a process that is already running.
//!
//! The recorder has stopped all its threads (`ptrace`), has mapped the runtime's image there and
//! relocated it, as the entry point of a static executable would do. Then it lets one thread run
//! [`mgz_attach`] and each thread [`mgz_attach_thread`], on a stack that the recorder has
//! allocated, with all signals blocked. A preloaded runtime learns from its wrappers which signals
//! have handlers; here the kernel is asked. From then on the wrappers are called, because the
//! recorder redirects the global offset tables of all modules to them.
//!
//! The difficulty: threads may be at any instruction. A thread that is in a handler of the program
//! gets its old alternate stack back from the kernel when the handler returns. So
//! `record::attachment` checks each trigger's stack and corrects it.
//!
//! When recording is over the triggers end and everything else stays as it is, since a thread may
//! hold addresses of the runtime for as long as it lives. The process can be attached to again: the
//! recorder finds the image and calls the same functions.

use crate::enter::preload;
use crate::record::attachment::{ATTACHED, is_attached};
use crate::record::{modules, signals, stack_copy, thread_ring, trigger};
use crate::sys::{begin, libc_symbols, process, syscall, vdso};
use core::arch::naked_asm;
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::{Attachment, LoadedModule, attached};

/// `mgz_attach(request)`: the result in rax, then a breakpoint for the recorder.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn mgz_attach() {
    naked_asm!("call {attach}", "int3", "ud2", attach = sym attach)
}

/// `mgz_attach_thread(mask, stack pointer)`, as above.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn mgz_attach_thread() {
    naked_asm!("call {attach}", "int3", "ud2", attach = sym attach_thread)
}

/// Attaches the runtime to the process. No other thread of it runs.
unsafe extern "C" fn attach(request: *const Attachment) -> usize {
    // SAFETY: the recorder's structure.
    let request = unsafe { &*request };
    let again = is_attached();
    if !again {
        syscall::init_gs(request.hwcap2);
        // SAFETY: the address is from the process's own auxiliary vector.
        unsafe { vdso::init(request.vdso as usize) };
        crate::sys::clock::check_counter_access();
        libc_symbols::know(&request.functions);
    }
    // SAFETY: single-threaded in effect.
    if !unsafe { process::adopt(request) } {
        return attached::NO_MEMORY;
    }
    // SAFETY: the recorder passes the loader's own structures.
    let loaded = unsafe {
        core::slice::from_raw_parts(
            request.modules as *const LoadedModule,
            request.module_count as usize,
        )
    };
    if again {
        // Reservations have the size that the last recording needed.
        thread_ring::forget_reservations();
        modules::forget_all();
        crate::record::counters::set_up();
    } else {
        preload::tell_hooks();
        thread_ring::set_up_scrap();
        ATTACHED.store(true, Ordering::Relaxed);
        begin::is_first();
        signals::adopt();
        preload::hook(request.debug);
    }
    process::header().inspect(|h| stack_copy::begin_process(h));
    loaded.iter().for_each(modules::add_loaded);
    crate::record::phases::begin_phases(true);
    trigger::get_ready();
    attached::DONE
}

/// Attaches the calling thread. `mask`: its blocked signals; `stack`: its stack pointer.
unsafe extern "C" fn attach_thread(mask: u64, stack: u64) -> usize {
    if preload::shadow_stack() {
        return attached::SHADOW_STACK;
    }
    let gs = syscall::gs();
    let before = thread_ring::ring_at(gs);
    if gs != 0 && before.is_none() {
        return attached::GS_USED;
    }
    // A thread that the runtime does not know yet has the ring of its creator.
    let own = before.filter(|r| {
        r.control().tid.get() == syscall::gettid() && r.control().pid.get() == syscall::getpid()
    });
    let mut alternate = own.map_or([0, thread_ring::SS_DISABLE, 0], |r| r.private().stack.get());
    let (segv, triggered) = match own {
        Some(ring) => (
            ring.private().segv_blocked.get(),
            ring.private().trigger_blocked.get(),
        ),
        None => (mask & signals::SEGV_BIT != 0, mask & trigger::bit() != 0),
    };
    if own.is_none() {
        // SAFETY: fills the three words of a stack_t.
        unsafe {
            syscall::call(
                syscall::nr::SIGALTSTACK,
                0,
                alternate.as_mut_ptr() as usize,
                0,
                0,
                0,
                0,
            )
        };
        alternate[1] &= thread_ring::SS_DISABLE | thread_ring::SS_AUTODISARM;
    }
    if let Some(ring) = own {
        // The ring and its trigger are left over from a recorder that was killed.
        trigger::quiet(ring);
        trigger::disarm(ring);
    }
    // SAFETY: no clone of this thread is running, and its old control page is no longer used.
    unsafe { syscall::set_gs(0) };
    thread_ring::set_up();
    let Some(ring) = thread_ring::current() else {
        // SAFETY: restores the previous base.
        unsafe { syscall::set_gs(gs) };
        return attached::NO_RING;
    };
    let private = ring.private();
    private.stack.set(alternate);
    private.segv_blocked.set(segv);
    private.trigger_blocked.set(triggered);
    thread_ring::tell_stack(thread_ring::Stack::UNKNOWN, stack as usize);
    attached::DONE
}
