//! The library's start: at the first call of one of its functions, or in its constructor.

use super::next::{self, NAMES, OPERATORS, REQUIRED};
use crate::heap::{self, lock};
use crate::params::CHUNK;
use crate::plan_format::{CAPACITY, PlanView};
use crate::sites;
use crate::sys::loader_list::{self, LoadedModule, ModuleSymbols};
use crate::sys::syscall;
use core::arch::{asm, global_asm};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

// Section for the plan, which the host writes into the file.
global_asm!(
    ".pushsection .mgz_plan, \"a\", @progbits",
    ".p2align 4",
    ".local mgz_plan",
    ".type mgz_plan, @object",
    "mgz_plan:",
    ".skip {bytes}",
    ".size mgz_plan, {bytes}",
    ".popsection",
    // Not the definition of another module.
    ".hidden _DYNAMIC",
    // The loader's list of modules, by its names in glibc and musl.
    ".weak _r_debug",
    ".weak _dl_debug_addr",
    bytes = const CAPACITY,
);

const NEW: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NEW);

/// Values of [`mgz_fix_state`].
mod state {
    /// There is no plan, or it is damaged.
    pub(super) const NO_PLAN: u32 = 1;
    /// Another module before or after this one defines functions of the allocator.
    pub(super) const OTHER_ALLOCATOR: u32 = 2;
    /// There is no memory for data, or no function to register handlers of forks.
    pub(super) const NO_MEANS: u32 = 3;
    /// Blocks of the plan's sites are placed.
    pub(super) const ACTIVE: u32 = 4;
}

/// Shows the library's state to tests and debuggers: 0 before the start, 4 if it places blocks, and
/// a reason otherwise.
#[unsafe(no_mangle)]
static mgz_fix_state: AtomicU32 = AtomicU32::new(0);

static OWN_OPERATORS: AtomicBool = AtomicBool::new(false);
static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);
static ITERATE: AtomicUsize = AtomicUsize::new(0);

/// True if the program calls this library's operators of C++.
pub(super) fn operators_are_own() -> bool {
    OWN_OPERATORS.load(Ordering::Relaxed)
}

/// The C library's `__errno_location`, or 0.
pub(super) fn errno_location() -> usize {
    ERRNO_LOCATION.load(Ordering::Relaxed)
}

/// Starts the library if it has not started yet. Afterwards the next definitions are known.
#[inline]
pub(super) fn ensure() {
    if STATE.load(Ordering::Acquire) != READY {
        start();
    }
}

#[cold]
fn start() {
    let begun = STATE.compare_exchange(NEW, STARTING, Ordering::Acquire, Ordering::Acquire);
    if begun.is_err() {
        while STATE.load(Ordering::Acquire) != READY {
            syscall::yield_now();
        }
        return;
    }
    know_list();
    next::find_all();
    let found = |name: &CStr| loader_list::of_c_library(name.to_bytes());
    ERRNO_LOCATION.store(found(c"__errno_location"), Ordering::Relaxed);
    ITERATE.store(found(c"dl_iterate_phdr"), Ordering::Relaxed);
    mgz_fix_state.store(begin_plan(), Ordering::Relaxed);
    STATE.store(READY, Ordering::Release);
}

/// Stores the address of the loader's list, found by a symbol that only loaders have.
fn know_list() {
    let (glibc, musl): (usize, usize);
    // SAFETY: reads addresses that the loader has written, or zeros.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            out(reg) glibc,
            out(reg) musl,
            options(nostack, readonly, preserves_flags)
        );
    }
    if glibc != 0 {
        loader_list::know_debug(glibc);
    } else if musl != 0 {
        // SAFETY: musl's variable, which holds the address.
        loader_list::know_debug(unsafe { *(musl as *const usize) });
    }
}

fn own_dynamic() -> usize {
    let own: usize;
    // SAFETY: computes an address.
    unsafe {
        asm!("lea {}, [rip + _DYNAMIC]", out(reg) own, options(nostack, nomem, preserves_flags))
    };
    own
}

fn plan() -> Option<PlanView<'static>> {
    let at: usize;
    // SAFETY: computes an address.
    unsafe {
        asm!("lea {}, [rip + mgz_plan]", out(reg) at, options(nostack, nomem, preserves_flags))
    };
    // SAFETY: the section's bytes, which do not change.
    PlanView::read(unsafe { core::slice::from_raw_parts(at as *const u8, CAPACITY) })
}

/// Begins to place blocks, if that is safe. Returns the library's state.
fn begin_plan() -> u32 {
    let Some(plan) = plan() else {
        return state::NO_PLAN;
    };
    let c_only = 0..OPERATORS;
    if !c_only.clone().all(is_first) || !c_only.clone().all(is_followed_by_c_library) {
        return state::OTHER_ALLOCATOR;
    }
    OWN_OPERATORS.store((OPERATORS..NAMES.len()).all(is_first), Ordering::Relaxed);
    let single = loader_list::first_of_all(b"__libc_single_threaded");
    if single != 0 {
        lock::know_single(single);
    }
    if !heap::begin(&plan) || !register_fork() {
        return state::NO_MEANS;
    }
    let find_object = loader_list::of_c_library(b"_dl_find_object");
    // SAFETY: the state is not READY, so no other thread uses the sites.
    unsafe { sites::begin(plan, find_object, loader_list::modules()) };
    state::ACTIVE
}

/// True unless another module's definition of a function is called in place of this library's. The
/// recorder's runtime calls this library's.
fn is_first(place: usize) -> bool {
    let name = NAMES[place].to_bytes();
    let mut definers = loader_list::modules().filter_map(|module| {
        let symbols = ModuleSymbols::of(module)?;
        symbols.definition(name)?;
        Some((module, symbols.soname()))
    });
    let first = definers.find(|(_, soname)| *soname != Some(b"libmgz_runtime.so"));
    first.is_none_or(|(module, _)| module.dynamic as usize == own_dynamic())
}

/// True if a function's next definition is the C library's, or there is none.
fn is_followed_by_c_library(place: usize) -> bool {
    let next = loader_list::first_behind(NAMES[place].to_bytes());
    let own = loader_list::of_c_library(NAMES[place].to_bytes());
    next == own && (next != 0 || !REQUIRED.contains(&place))
}

/// Registers the handlers of forks before any other handlers, so that they run last before a fork,
/// and first after it.
fn register_fork() -> bool {
    type Handler = extern "C" fn();
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, usize) -> i32;
    // glibc's function, and POSIX's, which has no last argument.
    let names = [c"__register_atfork", c"pthread_atfork"];
    let found = names
        .iter()
        .map(|name| loader_list::of_c_library(name.to_bytes()))
        .find(|&address| address != 0);
    found.is_some_and(|address| {
        // SAFETY: the function's type; the handlers stay.
        let register = unsafe { core::mem::transmute::<usize, Register>(address) };
        // SAFETY: as above.
        unsafe { register(before_fork, after_fork, in_child, own_dynamic()) == 0 }
    })
}

extern "C" fn before_fork() {
    lock::take_all(heap::locks());
}

extern "C" fn after_fork() {
    lock::release_all(heap::locks());
}

extern "C" fn in_child() {
    lock::forget_all(heap::locks());
}

/// The C library's `struct dl_phdr_info`, with the used fields.
#[repr(C)]
struct ProgramHeaders {
    bias: usize,
    name: *const u8,
    headers: *const ProgramHeader,
    count: u16,
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    bytes: u64,
    align: u64,
}

type Visit = unsafe extern "C" fn(*const ProgramHeaders, usize, *mut usize) -> i32;

/// Visits all loaded modules while the loader's lock is held, until one returns other than 0.
fn visit_modules(visit: Visit, data: &mut [usize; 2]) {
    let iterate = ITERATE.load(Ordering::Relaxed);
    if iterate != 0 {
        // SAFETY: the function's type.
        unsafe {
            type Iterate = unsafe extern "C" fn(Visit, *mut usize) -> i32;
            core::mem::transmute::<usize, Iterate>(iterate)(visit, data.as_mut_ptr());
        }
    }
}

impl ProgramHeaders {
    fn list(&self) -> &[ProgramHeader] {
        // SAFETY: the loader's list, which stays while the module is loaded.
        unsafe { core::slice::from_raw_parts(self.headers, self.count.into()) }
    }
}

/// The definition of a function in any module but this one, or 0. Modules that were loaded later
/// are included.
pub(super) fn search_loaded(name: &'static CStr) -> usize {
    unsafe extern "C" fn visit(module: *const ProgramHeaders, _: usize, data: *mut usize) -> i32 {
        const DYNAMIC: u32 = 2;
        // SAFETY: the loader's structure, and the caller's data below.
        let (module, data) = unsafe { (&*module, &mut *data.cast::<[usize; 2]>()) };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(data[0] as *const core::ffi::c_char) };
        let Some(header) = module.list().iter().find(|header| header.kind == DYNAMIC) else {
            return 0;
        };
        let dynamic = module.bias.wrapping_add(header.address as usize);
        if dynamic == own_dynamic() {
            return 0;
        }
        let loaded = LoadedModule {
            bias: module.bias,
            name: module.name,
            dynamic: dynamic as *const [u64; 2],
            next: core::ptr::null(),
        };
        let symbols = ModuleSymbols::of(&loaded);
        data[1] = symbols
            .and_then(|symbols| symbols.definition(name.to_bytes()))
            .unwrap_or(0);
        i32::from(data[1] != 0)
    }
    let mut data = [name.as_ptr() as usize, 0];
    visit_modules(visit, &mut data);
    data[1]
}

/// Requests large pages for the executable's large data.
unsafe extern "C" fn advise_executable(
    module: *const ProgramHeaders,
    _: usize,
    _: *mut usize,
) -> i32 {
    const LOAD: u32 = 1;
    const WRITABLE: u32 = 2;
    // SAFETY: the loader's structure.
    let module = unsafe { &*module };
    let data = module
        .list()
        .iter()
        .filter(|header| header.kind == LOAD && header.flags & WRITABLE != 0);
    for header in data {
        let start = module.bias.wrapping_add(header.address as usize);
        let first = start.next_multiple_of(CHUNK);
        let end = (start + header.bytes as usize) & !(CHUNK - 1);
        if first < end {
            // SAFETY: whole pages of the segment.
            unsafe { syscall::advise_huge(first, end - first) };
        }
    }
    // The executable is the first.
    1
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    ensure();
    if plan().is_some_and(|plan| plan.static_huge()) {
        visit_modules(advise_executable, &mut [0; 2]);
    }
}
