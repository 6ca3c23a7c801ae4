//! Finds the site of a return address.

use crate::params::{REMEMBERED, SEARCHED_WORDS};
use crate::plan_format::{PlanView, SiteRecord};
use crate::sys::loader_list::{LoadedModule, ModuleSymbols};
use crate::sys::{process, syscall};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Cache of return addresses, by their lowest bits: the address, and above it the index plus one of
/// the first site with this innermost frame, or zero if the plan has none.
pub(crate) static SEEN: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];
const ADDRESS_BITS: u32 = 48;
const ADDRESS: usize = (1 << ADDRESS_BITS) - 1;

/// Maximum number of modules of a plan.
const MODULES: usize = 256;
/// By module of the plan: its load address plus one, or 0 while that is unknown.
static LOADED: [AtomicUsize; MODULES] = [const { AtomicUsize::new(0) }; MODULES];
/// The C library's `_dl_find_object`, or 0.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
static EXECUTABLE_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Known {
    plan: UnsafeCell<Option<PlanView<'static>>>,
    executable: UnsafeCell<[u8; 4096]>,
}
// SAFETY: written once, before any other thread reads it.
unsafe impl Sync for Known {}
static KNOWN: Known = Known {
    plan: UnsafeCell::new(None),
    executable: UnsafeCell::new([0; 4096]),
};

fn plan() -> Option<&'static PlanView<'static>> {
    // SAFETY: written once, before any other thread reads it.
    unsafe { (*KNOWN.plan.get()).as_ref() }
}

/// Sets the plan, for which the pools were created.
///
/// # Safety
/// To be called once, before any other thread looks up a site.
pub(crate) unsafe fn begin(
    plan: PlanView<'static>,
    find_object: usize,
    modules: impl Iterator<Item = &'static LoadedModule>,
) {
    // SAFETY: the caller's contract.
    unsafe { *KNOWN.plan.get() = Some(plan) };
    FIND_OBJECT.store(find_object, Ordering::Relaxed);
    // SAFETY: as above.
    let path = unsafe { &mut *KNOWN.executable.get() };
    let bytes = syscall::read_link(c"/proc/self/exe".as_ptr().cast(), path).max(0);
    EXECUTABLE_BYTES.store(bytes as usize, Ordering::Relaxed);
    modules.for_each(note);
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Stores the load address of a module if it is in the plan.
fn note(module: &LoadedModule) {
    let Some(plan) = plan() else {
        return;
    };
    let path: &[u8] = if module.name.is_null() {
        b""
    } else {
        // SAFETY: the loader's name of a module.
        unsafe { process::c_bytes(module.name) }
    };
    // SAFETY: written once before.
    let executable = unsafe { &*KNOWN.executable.get() };
    let executable = executable.get(..EXECUTABLE_BYTES.load(Ordering::Relaxed));
    let soname = ModuleSymbols::of(module).and_then(|symbols| symbols.soname());
    for index in 0..plan.modules().min(MODULES) {
        let name = plan.module(index);
        let same = if path.is_empty() {
            name.is_empty() || executable.is_some_and(|path| last_part(path) == name)
        } else {
            !name.is_empty() && (last_part(path) == name || soname == Some(name))
        };
        if same {
            LOADED[index].store(module.bias.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// Result of `_dl_find_object`.
#[repr(C)]
#[derive(Default)]
struct FoundObject {
    flags: u64,
    start: usize,
    end: usize,
    module: usize,
    rest: [usize; 12],
}

/// The loaded module with this code.
fn module_at(address: usize) -> Option<&'static LoadedModule> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return None;
    }
    let mut found = FoundObject::default();
    // SAFETY: the function's type, and room for its result.
    let status = unsafe {
        type Find = unsafe extern "C" fn(usize, *mut FoundObject) -> i32;
        core::mem::transmute::<usize, Find>(find)(address, &raw mut found)
    };
    if status != 0 {
        return None;
    }
    // SAFETY: the loader's entry for a module whose code is being executed, so it stays valid.
    unsafe { (found.module as *const LoadedModule).as_ref() }
}

/// The first site of the plan with this innermost return address.
fn search(plan: &PlanView, address: usize) -> Option<usize> {
    (0..plan.modules().min(MODULES)).find_map(|index| {
        let bias = LOADED[index].load(Ordering::Relaxed).checked_sub(1)?;
        plan.find(index as u16, address.wrapping_sub(bias) as u64)
    })
}

/// The site that represents all, if the plan has one.
fn any(plan: &PlanView) -> Option<usize> {
    let last = plan.sites.last()?;
    last.is_any().then(|| plan.sites.len() - 1)
}

#[cold]
fn look_up(address: usize) -> usize {
    let Some(plan) = plan() else {
        return 0;
    };
    let first = search(plan, address).or_else(|| {
        note(module_at(address)?);
        search(plan, address)
    });
    first.or_else(|| any(plan)).map_or(0, |index| index + 1)
}

/// The site of a call whose return address is at `slot`, with the caller's frames above it.
#[inline]
pub(crate) fn site(slot: *const usize) -> Option<&'static SiteRecord> {
    // SAFETY: the stub's stack pointer.
    let address = unsafe { *slot };
    if address > ADDRESS {
        return None;
    }
    let place = &SEEN[address & (REMEMBERED - 1)];
    let seen = place.load(Ordering::Relaxed);
    let index = if seen & ADDRESS == address {
        seen >> ADDRESS_BITS
    } else {
        let index = look_up(address);
        place.store(address | index << ADDRESS_BITS, Ordering::Relaxed);
        index
    };
    choose(index.checked_sub(1)?, slot)
}

/// The first site from `index` on, with the same innermost frame, whose outer frames are on the stack.
fn choose(index: usize, slot: *const usize) -> Option<&'static SiteRecord> {
    let plan = plan()?;
    let first = plan.sites.get(index)?;
    if first.frames == 1 {
        return Some(first);
    }
    let same = plan.sites[index..]
        .iter()
        .take_while(|site| site.key() == first.key());
    let found = same
        .into_iter()
        .find(|site| site.frames == 1 || has_outer_frames(site, slot));
    found.or_else(|| any(plan).map(|index| &plan.sites[index]))
}

/// True if the return addresses of a site's outer frames follow in the stack, in order. Stale
/// addresses of earlier calls may match as well. The only consequence is a block in the wrong pool.
#[cold]
fn has_outer_frames(site: &SiteRecord, slot: *const usize) -> bool {
    const PAGE: usize = 4096;
    let mut frame = 1;
    let mut wanted = return_address(site, frame);
    for word in 1..SEARCHED_WORDS {
        let at = slot as usize + word * size_of::<usize>();
        if at.is_multiple_of(PAGE) && !syscall::is_readable(at, size_of::<usize>()) {
            return false;
        }
        // SAFETY: above the stack pointer, in the same page or in a readable one.
        let value = unsafe { (at as *const usize).read_volatile() };
        if Some(value) == wanted {
            frame += 1;
            if frame == usize::from(site.frames) {
                return true;
            }
            wanted = return_address(site, frame);
        }
    }
    false
}

/// The return address of a frame, or `None` while its module is not loaded.
fn return_address(site: &SiteRecord, frame: usize) -> Option<usize> {
    let module = usize::from(site.modules[frame]);
    let bias = LOADED.get(module)?.load(Ordering::Relaxed).checked_sub(1)?;
    Some(bias.wrapping_add(site.offsets[frame] as usize))
}
