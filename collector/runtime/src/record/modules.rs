//! Instrumented modules of this process: finding them, checking them, installing their patches, and
//! translating addresses between clone and original.

use crate::record::entry_patches;
use crate::record::entry_patches::Patches;
use crate::record::phases;
use crate::record::phases::traps;
use crate::record::thread_ring::exclusively;
use crate::sys::program_headers::{PhdrInfo, ProgramHeader, headers};
use crate::sys::syscall::map;
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};
use mgz_abi::address_map::{AddrMap, ProbeState};
use mgz_abi::linkage_stub::{StubScratch, follow_stub};
use mgz_abi::module_note::{ModuleNote, Prelude};
use mgz_abi::shared_memory::*;

/// A module whose patches are installed (or would be).
#[derive(Clone, Copy)]
struct Module {
    bias: u64,
    clone_start: u64,
    clone_end: u64,
    id_first: u32,
    id_count: u32,
    map: &'static [u8],
    /// Start of the jumps by which a translated clone is left; they end with the clone.
    thunks: u64,
    /// The original code.
    text: (u64, u64),
    patches: Patches,
    /// Original system calls with hooks in the clone, ascending; empty in programs with a loader,
    /// where wrappers do this work.
    calls: &'static [u32],
    /// Address of `mgz_abi::probe::HANDLER_CALL`, or 0.
    handlers: u64,
    /// The module has counters instead of records.
    counts: bool,
    /// `ModuleNote::displacements`, one per record.
    displacements: &'static [i32],
}

const EMPTY: Module = Module {
    bias: 0,
    clone_start: 0,
    clone_end: 0,
    id_first: 0,
    id_count: 0,
    map: &[],
    thunks: 0,
    text: (0, 0),
    patches: Patches::NONE,
    calls: &[],
    handlers: 0,
    counts: false,
    displacements: &[],
};

/// Source: Chosen.
const MAX_MODULES_PER_PROCESS: usize = 512;
static mut MODULES: [Module; MAX_MODULES_PER_PROCESS] = [EMPTY; MAX_MODULES_PER_PROCESS];
/// Modules in the table. Entries of modules that were unloaded have `clone_end` 0.
static LEN: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Address from which the program's handlers are called: a static executable's
/// `mgz_abi::probe::HANDLER_CALL`.
pub fn handler_call() -> Option<u64> {
    modules().iter().map(|m| m.handlers).find(|&at| at != 0)
}

/// In a new child: no other thread holds the lock.
pub fn unlock_modules() {
    LOCK.store(0, Ordering::Relaxed);
    crate::record::entry_patches::unlock_patches();
}

fn modules() -> &'static [Module] {
    let len = LEN.load(Ordering::Acquire);
    // SAFETY: entries below LEN are complete; unloading clears `clone_end`, and a module that
    // reuses the entry sets `clone_end` last.
    unsafe { core::slice::from_raw_parts(&raw const MODULES as *const Module, len) }
}

/// Adds modules that are new, and removes those that were unloaded.
pub fn scan() {
    let Some(iterate) = crate::sys::libc_symbols::dl_iterate_phdr() else {
        return;
    };
    let mut seen = [false; MAX_MODULES_PER_PROCESS];
    // SAFETY: the C library's function with a callback of its type.
    unsafe { iterate(visit, (&raw mut seen).cast()) };
    for (i, module) in modules().iter().enumerate() {
        if module.clone_end != 0 && !seen[i] {
            // SAFETY: only this word changes, and a reader sees the module or an empty range.
            unsafe { (&raw mut MODULES[i].clone_end).write_volatile(0) };
            crate::record::thread_ring::forget_code();
        }
    }
}

/// True if any module has a note of the rewriter, of any version.
pub fn any_instrumented() -> bool {
    let Some(iterate) = crate::sys::libc_symbols::dl_iterate_phdr() else {
        return true;
    };
    let mut found = false;
    // SAFETY: the C library's function with a callback of its type.
    unsafe { iterate(visit_note, (&raw mut found).cast()) };
    found
}

extern "C" fn visit_note(info: *const PhdrInfo, _size: usize, found: *mut u8) -> i32 {
    // SAFETY: the C library passes a valid description, and `found` is the caller's.
    let info = unsafe { &*info };
    if notes(info).next().is_none() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { *(found as *mut bool) = true };
    1
}

/// Adds the executable itself, in programs without a C library to list it.
pub fn add_executable(bias: u64, phdr: u64, phnum: u64) {
    add_loaded(&LoadedModule {
        bias,
        phdr,
        phnum,
        name: c"".as_ptr() as u64,
    });
}

/// Adds a module that the recorder has found.
pub fn add_loaded(module: &LoadedModule) {
    let info = PhdrInfo {
        addr: module.bias,
        name: module.name as *const u8,
        phdr: module.phdr as *const ProgramHeader,
        phnum: module.phnum as u16,
    };
    let mut seen = [false; MAX_MODULES_PER_PROCESS];
    visit(&info, size_of::<PhdrInfo>(), (&raw mut seen).cast());
}

/// Forgets all modules, because a new recorder knows none of them.
pub fn forget_all() {
    LEN.store(0, Ordering::Release);
}

/// The rewriter's notes in a module.
pub(crate) fn notes(info: &PhdrInfo) -> impl Iterator<Item = ModuleNote> {
    const PT_NOTE: u32 = 4;
    headers(info)
        .iter()
        .filter(|h| h.kind == PT_NOTE)
        .filter_map(|header| {
            // SAFETY: a PT_NOTE of a loaded module is in one of its mapped segments.
            parse_note(unsafe {
                core::slice::from_raw_parts(
                    (info.addr + header.vaddr) as *const u8,
                    header.memsz as usize,
                )
            })
        })
}

extern "C" fn visit(info: *const PhdrInfo, _size: usize, data: *mut u8) -> i32 {
    // SAFETY: the C library passes a valid description, and `data` is `scan`'s array.
    let (info, seen) = unsafe { (&*info, &mut *(data as *mut [bool; MAX_MODULES_PER_PROCESS])) };
    for note in notes(info) {
        let known = modules().iter().position(|m| {
            m.bias == info.addr && m.clone_start == note.clone_start + info.addr && m.clone_end != 0
        });
        match known {
            Some(i) => seen[i] = true,
            None => {
                if let Some(i) = exclusively(&LOCK, || add(info, headers(info), &note)) {
                    seen[i] = true;
                }
            }
        }
    }
    0
}

/// The descriptor of the mgz note, if this is one.
fn parse_note(note: &[u8]) -> Option<ModuleNote> {
    let word = |at: usize| {
        note.get(at..at + 4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let fits = word(0)? == 4
        && word(8)? == mgz_abi::module_note::NOTE_MODULE
        && note.get(12..16)? == mgz_abi::module_note::NOTE_NAME;
    // (The length depends on the version; the beginning does not.)
    let descriptor = note.get(16..)?.get(..word(4)? as usize)?;
    let mut whole = [0u8; size_of::<ModuleNote>()];
    let common = descriptor.len().min(whole.len());
    whole[..common].copy_from_slice(&descriptor[..common]);
    // SAFETY: ModuleNote is plain old data, and all of it is there.
    fits.then(|| unsafe { core::ptr::read_unaligned(whole.as_ptr() as *const ModuleNote) })
}

/// Reports a module to the recorder and installs its patches.
fn add(info: &PhdrInfo, headers: &[ProgramHeader], note: &ModuleNote) -> Option<usize> {
    let (mut path, mut sidecar) = ([0u8; PATH_BYTES], [0u8; PATH_BYTES]);
    module_path(info, &mut path);
    sidecar_path(info, note, &path, &mut sidecar);
    let (mut result, map) = open_map(note, &mut sidecar);
    let patches = if result == MODULE_OK {
        // SAFETY: the module is loaded, and its tables are those of this version.
        unsafe { Patches::of(info.addr, note) }
    } else {
        Patches::NONE
    };
    let len = LEN.load(Ordering::Relaxed);
    // Once all entries have been used, that of an unloaded module is reused.
    let place = if len < MAX_MODULES_PER_PROCESS {
        Some(len)
    } else {
        modules().iter().position(|m| m.clone_end == 0)
    };
    if result == MODULE_OK && place.is_none() {
        result = MODULE_TOO_MANY;
    }
    if let Some(place) = place.filter(|_| result == MODULE_OK) {
        let module = Module {
            bias: info.addr,
            clone_start: info.addr + note.clone_start,
            clone_end: info.addr + note.clone_end,
            id_first: note.id_first,
            id_count: note.id_count,
            map,
            thunks: info.addr + note.clone_end - u64::from(note.thunk_bytes),
            text: text(info, headers, note),
            patches,
            calls: calls(info.addr, note),
            handlers: if note.handlers == 0 {
                0
            } else {
                info.addr + note.handlers
            },
            counts: note.features & mgz_abi::module_note::FEATURE_COUNTS != 0,
            displacements: displacements(info.addr, note),
        };
        put(place, module);
        LEN.store(len.max(place + 1), Ordering::Release);
    }
    // Without its address map the clones cannot be interpreted, so the original runs.
    if result == MODULE_OK {
        result = install(info, headers, note, &patches);
    }
    // The recorder must know the module before its first record arrives. None of its code has run
    // yet.
    let row = tell(info.addr, note, result, &path, &sidecar);
    if result == MODULE_OK {
        let here = traps::LoadedModule {
            bias: info.addr,
            headers,
            note,
            patches: &patches,
        };
        phases::take_in(&here);
        if row.is_some_and(wait_for_functions) {
            phases::take_in_functions(&here);
        }
    }
    place.filter(|_| result == MODULE_OK)
}

/// Writes the path of a module.
#[inline(always)]
fn module_path(info: &PhdrInfo, path: &mut [u8; PATH_BYTES]) {
    // SAFETY: the loader's name is zero-terminated.
    let name = unsafe { process::c_bytes(info.name) };
    if name.is_empty() {
        read_link(c"/proc/self/exe".as_ptr().cast(), path);
    } else {
        let n = name.len().min(PATH_BYTES - 1);
        path[..n].copy_from_slice(&name[..n]);
    }
}

/// Checks a note and opens its sidecar. If the recorder keeps the sidecar, the path becomes that of
/// the kept one.
#[inline(always)]
fn open_map(note: &ModuleNote, sidecar: &mut [u8; PATH_BYTES]) -> (u32, &'static [u8]) {
    let bad = check(note);
    if bad != MODULE_OK {
        return (bad, &[]);
    }
    let mut kept = [0u8; PATH_BYTES];
    match open_sidecar(sidecar, note) {
        (MODULE_NO_SIDECAR | MODULE_OTHER_SIDECAR, _) if kept_sidecar(note, &mut kept) => {
            *sidecar = kept;
            open_sidecar(sidecar, note)
        }
        opened => opened,
    }
}

/// Writes a module into a free entry of the table. The lock is held.
#[inline(always)]
fn put(place: usize, module: Module) {
    let end = module.clone_end;
    // SAFETY: the lock is held; no reader uses the entry before `clone_end` is set.
    unsafe {
        (&raw mut MODULES[place]).write(Module {
            clone_end: 0,
            ..module
        });
        compiler_fence(Ordering::Release);
        (&raw mut MODULES[place].clone_end).write_volatile(end);
    }
}

/// Installs the patches that the mode needs. Returns `MODULE_OK` or the reason why that failed.
#[inline(always)]
fn install(
    info: &PhdrInfo,
    headers: &[ProgramHeader],
    note: &ModuleNote,
    patches: &Patches,
) -> u32 {
    let done = match process::header().map_or(MODE_OFF, |h| h.mode) {
        MODE_OFF => true,
        MODE_BURST => catch_calls(info, headers, note),
        _ if note.features & mgz_abi::module_note::FEATURE_READS_CODE != 0 => {
            return MODULE_READS_CODE;
        }
        _ if note.features & mgz_abi::module_note::FEATURE_BURST_ONLY != 0 => {
            return MODULE_BURST_ONLY;
        }
        _ => patches.install(headers),
    };
    if done { MODULE_OK } else { MODULE_UNPATCHED }
}

/// Displacements of a module's records: the number to add to each one's payload.
fn displacements(bias: u64, note: &ModuleNote) -> &'static [i32] {
    if note.displacements == 0 {
        return &[];
    }
    // SAFETY: the module is loaded, and its tables are those of this version.
    unsafe {
        core::slice::from_raw_parts(
            (bias + note.displacements) as *const i32,
            note.id_count as usize,
        )
    }
}

/// Number to add to a record's payload to get the address of its load. `None` if the payload alone
/// does not determine the address.
pub fn displacement(id: u32) -> Option<i32> {
    let module = modules()
        .iter()
        .find(|m| m.clone_end != 0 && id.wrapping_sub(m.id_first) < m.id_count)?;
    let displacement = *(module.displacements).get((id - module.id_first) as usize)?;
    (displacement != mgz_abi::module_note::NO_DISPLACEMENT).then_some(displacement)
}

/// Range of a module's original code: first byte and end.
fn text(info: &PhdrInfo, headers: &[ProgramHeader], note: &ModuleNote) -> (u64, u64) {
    let original = |h: &&ProgramHeader| {
        h.is_code() && !(h.vaddr..h.vaddr + h.memsz).contains(&note.clone_start)
    };
    let low = headers
        .iter()
        .filter(original)
        .map(|h| h.vaddr)
        .min()
        .unwrap_or(0);
    let high = headers
        .iter()
        .filter(original)
        .map(|h| h.vaddr + h.filesz)
        .max()
        .unwrap_or(0);
    (info.addr + low, info.addr + high)
}

fn check(note: &ModuleNote) -> u32 {
    if note.version != mgz_abi::module_note::ABI_VERSION {
        return MODULE_VERSION;
    }
    if note.flavour != mgz_abi::module_note::FLAVOUR_SOFT {
        return MODULE_FLAVOUR;
    }
    if note.features & mgz_abi::module_note::FEATURE_TRANSLATED == 0
        && process::header().is_some_and(|h| h.mode == MODE_BURST)
    {
        return MODULE_NOT_TRANSLATED;
    }
    if note.features & mgz_abi::module_note::FEATURE_COUNTS != 0
        && process::header().is_some_and(|h| !matches!(h.mode, MODE_OFF | MODE_COUNT))
    {
        return MODULE_COUNTS;
    }
    if note.features & mgz_abi::module_note::FEATURE_COUNTS != 0
        && process::header().is_some_and(|h| h.mode == MODE_COUNT)
        && !crate::record::counters::has_room()
    {
        return MODULE_NO_COUNTERS;
    }
    let overlaps = |m: &Module| {
        let (a, b) = (u64::from(m.id_first), u64::from(note.id_first));
        m.clone_end != 0 && a < b + u64::from(note.id_count) && b < a + u64::from(m.id_count)
    };
    if modules().iter().any(overlaps) {
        MODULE_OVERLAP
    } else {
        MODULE_OK
    }
}

fn sidecar_path(info: &PhdrInfo, note: &ModuleNote, path: &[u8], out: &mut [u8; PATH_BYTES]) {
    let append = |out: &mut [u8; PATH_BYTES], at: usize, text: &[u8]| {
        let n = text.len().min(PATH_BYTES - 1 - at);
        out[at..at + n].copy_from_slice(&text[..n]);
        at + n
    };
    if note.sidecar_path != 0 {
        // SAFETY: the rewriter put a zero-terminated string there.
        append(out, 0, unsafe {
            process::c_bytes((info.addr + note.sidecar_path) as *const u8)
        });
    } else {
        let at = append(out, 0, process::until_zero(path));
        append(out, at, b".mgza");
    }
}

/// Writes the path of the sidecar that the recorder keeps for a file, if it keeps one. A copy that
/// the program has made of its own file (in a memfd, say) has no sidecar beside it.
fn kept_sidecar(note: &ModuleNote, out: &mut [u8; PATH_BYTES]) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let folder = process::header().map_or(&[][..], |h| process::until_zero(&h.sidecars));
    let name = 1 + 2 * note.sidecar_id.len() + b".mgza".len();
    if folder.is_empty() || folder.len() + name >= PATH_BYTES {
        return false;
    }
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(folder);
    put(b"/");
    for byte in note.sidecar_id {
        put(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    put(b".mgza");
    true
}

/// The path of the file that a descriptor leads to.
pub fn path_of_descriptor(fd: isize, out: &mut [u8; PATH_BYTES]) {
    read_link(syscall::link_of_descriptor(fd as i32).as_ptr(), out);
}

fn read_link(link: *const u8, out: &mut [u8; PATH_BYTES]) {
    // SAFETY: the buffer is ours; one byte is left for the terminating zero.
    unsafe {
        syscall::call(
            syscall::nr::READLINK,
            link as usize,
            out.as_mut_ptr() as usize,
            PATH_BYTES - 1,
            0,
            0,
            0,
        )
    };
}

/// Maps the sidecar's address map, if the sidecar belongs to this file.
fn open_sidecar(path: &[u8; PATH_BYTES], note: &ModuleNote) -> (u32, &'static [u8]) {
    let fd = syscall::open_file(path.as_ptr(), false);
    if fd < 0 {
        return (MODULE_NO_SIDECAR, &[]);
    }
    let mut prelude = Prelude::default();
    // SAFETY: Prelude is plain old data.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(&raw mut prelude as *mut u8, size_of::<Prelude>())
    };
    let read = syscall::pread(fd, bytes, 0);
    let fits = read == size_of::<Prelude>() as isize
        && prelude.magic == mgz_abi::module_note::SIDECAR_MAGIC
        && prelude.version == mgz_abi::module_note::SIDECAR_VERSION
        && prelude.id == note.sidecar_id
        && syscall::file_size(fd).is_some_and(|size| {
            prelude
                .map_offset
                .checked_add(prelude.map_len)
                .is_some_and(|end| end <= size)
        });
    let mut result = (MODULE_OTHER_SIDECAR, &[][..]);
    if fits {
        let end = (prelude.map_offset + prelude.map_len) as usize;
        // SAFETY: a new shared read-only mapping; in low memory, so that the addresses of the
        // program's own mappings do not change.
        if let Ok(address) = unsafe {
            syscall::mmap(
                0,
                end,
                map::READ,
                map::SHARED | map::LOW | map::NORESERVE,
                fd,
                0,
            )
        } {
            // SAFETY: mapped for the life of the process.
            let map = unsafe {
                core::slice::from_raw_parts(
                    (address + prelude.map_offset as usize) as *const u8,
                    prelude.map_len as usize,
                )
            };
            result = (MODULE_OK, map);
        }
    }
    syscall::close(fd);
    result
}

/// Reports to the recorder that a program is not recorded. `result`: the reason.
pub fn tell_program(result: u32, path: &[u8; PATH_BYTES]) {
    let _ = tell(0, &ModuleNote::default(), result, path, &[0; PATH_BYTES]);
}

/// As [`tell_program`], for the running program.
pub fn tell_this_program(result: u32) {
    let mut path = [0u8; PATH_BYTES];
    read_link(c"/proc/self/exe".as_ptr().cast(), &mut path);
    tell_program(result, &path);
}

/// Writes a module into the recorder's table. Returns the number of the row.
fn tell(
    bias: u64,
    note: &ModuleNote,
    result: u32,
    path: &[u8; PATH_BYTES],
    sidecar: &[u8; PATH_BYTES],
) -> Option<u32> {
    let header = process::recorder()?;
    // Repeated if the recorder took this process for dead and skipped the row, because the process
    // was stopped while it wrote.
    let row = loop {
        let Some(index) = claim_row(header) else {
            process::count(count::MODULES_UNTOLD, 1);
            return None;
        };
        let (place, turn) = (index as usize % MAX_MODULES, index / MAX_MODULES as u32 + 1);
        let row = core::ptr::from_ref(&header.modules[place]) as *mut ModuleRow;
        // SAFETY: the row was claimed for this process alone; the recorder reads it once `ready` is
        // set.
        let told = unsafe {
            let before = (*row).ready.load(Ordering::Acquire);
            (*row).result = result;
            (*row).pid = syscall::getpid();
            (*row).id_first = note.id_first;
            (*row).id_count = note.id_count;
            (*row).bias = bias;
            (*row).sidecar_id = note.sidecar_id;
            (*row).path = *path;
            (*row).sidecar = *sidecar;
            before & !ROW_SKIPPED < turn
                && (*row)
                    .ready
                    .compare_exchange(before, turn, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        };
        if told {
            break index;
        }
    };
    header.doorbell.fetch_add(1, Ordering::Release);
    syscall::futex_wake(header.doorbell.as_ptr());
    Some(row)
}

/// Waits until the recorder has searched the module of a row for functions, if recording begins at
/// functions. Returns true if it has.
fn wait_for_functions(row: u32) -> bool {
    const WAIT_FOR_RECORDER_NS: u64 = 50_000_000;
    const MAX_ATTEMPTS: u32 = 100;
    let Some(header) = process::header() else {
        return false;
    };
    if header.phases.by_function.load(Ordering::Relaxed) == 0 {
        return false;
    }
    for _ in 0..MAX_ATTEMPTS {
        let read = header.modules_read.load(Ordering::Acquire);
        if read.wrapping_sub(row) as i32 > 0 {
            return true;
        }
        if !syscall::process_exists(header.recorder) {
            break;
        }
        syscall::futex_wait(header.modules_read.as_ptr(), read, WAIT_FOR_RECORDER_NS);
    }
    header.phases.unplaced.fetch_add(1, Ordering::Relaxed);
    false
}

/// Number of a free row of the recorder's table. Waits while the recorder has many rows to read;
/// `None` if that takes too long.
fn claim_row(header: &Header) -> Option<u32> {
    const WAIT_FOR_RECORDER_NS: u64 = 50_000_000;
    const MAX_ATTEMPTS: u32 = 100;
    let mut waited = 0;
    loop {
        let (read, index) = (
            header.modules_read.load(Ordering::Acquire),
            header.module_count.load(Ordering::Acquire),
        );
        if index.wrapping_sub(read) < MAX_MODULES as u32 {
            // A claimed row must be written at once, since the recorder reads rows in order.
            if header
                .module_count
                .compare_exchange(index, index + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Some(index);
            }
            continue;
        }
        waited += 1;
        if waited > MAX_ATTEMPTS
            || header.stop.load(Ordering::Relaxed) != 0
            || !syscall::process_exists(header.recorder)
        {
            return None;
        }
        header.doorbell.fetch_add(1, Ordering::Release);
        syscall::futex_wake(header.doorbell.as_ptr());
        syscall::futex_wait(header.modules_read.as_ptr(), read, WAIT_FOR_RECORDER_NS);
    }
}

/// The module's system calls with hooks.
fn calls(bias: u64, note: &ModuleNote) -> &'static [u32] {
    // SAFETY: the table is part of the module's own loaded segment, which is looked at only while
    // it is loaded.
    unsafe {
        core::slice::from_raw_parts((bias + note.calls) as *const u32, note.call_count as usize)
    }
}

/// `burst` in executables without a loader: replaces the original's system calls with hooks by
/// instructions that raise a signal ([`caught_call`]).
fn catch_calls(info: &PhdrInfo, headers: &[ProgramHeader], note: &ModuleNote) -> bool {
    const CALL: [u8; 2] = [0x0f, 0x05];
    if !calls(info.addr, note).is_empty() && !entry_patches::can_be_executed() {
        return false;
    }
    for &at in calls(info.addr, note) {
        let at = u64::from(at);
        let inside =
            |h: &&ProgramHeader| h.is_code() && at >= h.vaddr && at + 2 <= h.vaddr + h.filesz;
        let (start, place) = (
            (info.addr + at) as usize & !(PAGE_SIZE - 1),
            (info.addr + at) as *mut u8,
        );
        let end = (info.addr + at + 2).next_multiple_of(PAGE_SIZE as u64) as usize;
        if !headers.iter().any(|h| inside(&h)) {
            return false;
        }
        // SAFETY: code of this module, of which nothing runs yet; both bytes lie in it.
        unsafe {
            if [place.read(), place.add(1).read()] != CALL
                || syscall::mprotect(start, end - start, map::READ | map::WRITE) != 0
            {
                return false;
            }
            place.write(mgz_abi::probe::TRAP);
            syscall::mprotect(start, end - start, map::READ | map::EXEC);
        }
    }
    true
}

/// The clone address of a system call with hooks, if a fault at `ip` is that of the original's
/// call.
pub fn caught_call(ip: u64) -> Option<u64> {
    let module = original(ip)?;
    let at = u32::try_from(ip - module.bias).ok()?;
    module.calls.contains(&at).then(|| entry(ip)).flatten()
}

/// Original instruction and probe state of a clone address.
#[derive(Clone, Copy)]
pub struct ClonePoint {
    /// Run-time address of the original instruction.
    pub orig: u64,
    /// Link-time address in the clone.
    pub clone: u64,
    /// Registers that the probe has borrowed at this point, and records that it has written.
    pub state: ProbeState,
    /// Counter update that the probe is about to make.
    pub counting: Counting,
}

/// State of an interrupted probe in a file that has counters instead of records.
#[derive(Clone, Copy)]
pub struct Counting {
    /// Register that holds the address of the counters, or `NO_REG`.
    pub register: u8,
    /// Bytes back to the instruction that reads the counter to be written next.
    pub back: u8,
}

impl Counting {
    const NONE: Counting = Counting {
        register: mgz_abi::address_map::NO_REG,
        back: 0,
    };

    /// Lets an interrupted probe continue. It reads the counter again, which may have changed, at
    /// the present address of the thread's counters.
    pub fn resume(self, control: &Control, context: &mut crate::sys::signal_frame::Context) {
        context.registers[crate::sys::signal_frame::RIP] -= u64::from(self.back);
        if self.register != mgz_abi::address_map::NO_REG {
            *context.register(self.register) = control.counters.get();
        }
    }
}

impl Module {
    /// Splits the address map's state into the part on records and the part on counters.
    fn divided(&self, state: ProbeState) -> (ProbeState, Counting) {
        if !self.counts {
            return (state, Counting::NONE);
        }
        let counting = Counting {
            register: state.base_reg,
            back: state.slots_done,
        };
        let state = ProbeState {
            base_reg: mgz_abi::address_map::NO_REG,
            slots_done: 0,
            ..state
        };
        (state, counting)
    }
}

/// True if an address is in a clone.
pub fn in_clone(ip: u64) -> bool {
    modules()
        .iter()
        .any(|m| ip >= m.clone_start && ip < m.clone_end)
}

/// Looks a clone address up in its module's address map.
pub fn clone_point_at(ip: u64) -> Option<ClonePoint> {
    let module = modules()
        .iter()
        .find(|m| ip >= m.clone_start && ip < m.clone_end)?;
    let map = AddrMap::new(module.map)?;
    let (step, state) = map.at_clone(ip - module.bias)?;
    let (state, counting) = module.divided(state);
    Some(ClonePoint {
        orig: step.orig + module.bias,
        clone: ip - module.bias,
        state,
        counting,
    })
}

/// Id of the first of the two records in a slot, if only one of them is written at this point
/// ([`mgz_abi::address_map::STATE_HALF`]). The store of the pair's id follows in the same block.
pub fn half_id(place: &ClonePoint) -> Option<u32> {
    let module = modules()
        .iter()
        .find(|m| (m.clone_start..m.clone_end).contains(&(place.clone + m.bias)))?;
    for step in AddrMap::new(module.map)?
        .from_clone(place.clone)
        .filter(|s| s.orig_len == 0)
    {
        // SAFETY: an instruction of the module's clone.
        let code = unsafe {
            core::slice::from_raw_parts(
                (step.clone + module.bias) as *const u8,
                step.clone_len.into(),
            )
        };
        if let Some(id) = crate::sys::decode::stored_id(code) {
            return Some(id & !mgz_abi::slot::ID_PAIR);
        }
    }
    None
}

// ---- translated clones --------------------------------------------------------------------------

/// The module whose original code contains an address.
fn original(ip: u64) -> Option<&'static Module> {
    modules()
        .iter()
        .find(|m| ip >= m.text.0 && ip < m.text.1 && m.clone_end != 0)
}

/// Clone address at which a thread from outside continues for an original address, if the probe
/// state there needs no register.
pub fn entry(ip: u64) -> Option<u64> {
    first_clone_instruction(ip)
        .filter(|(_, state)| *state == ProbeState::IDLE)
        .map(|(clone, _)| clone)
}

/// True if an entry jump is at an original address.
pub fn enters_clone(ip: u64) -> bool {
    let Some(module) = original(ip) else {
        return false;
    };
    let &[0xe9, a, b, c, d, ..] = code(ip) else {
        return false;
    };
    let to = (ip + 5).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
    (module.clone_start..module.clone_end).contains(&to)
}

/// Up to 64 bytes of the original code from an address on, or nothing if it is in no instrumented
/// file.
pub fn code(ip: u64) -> &'static [u8] {
    match original(ip) {
        // SAFETY: the range ends inside the module's code segments, one of which holds this
        // address; the bytes are read only as far as instructions follow each other.
        Some(module) => unsafe {
            core::slice::from_raw_parts(ip as *const u8, (module.text.1 - ip).min(64) as usize)
        },
        None => &[],
    }
}

/// The first clone instruction of an original one, with the state that probes expect there.
pub fn first_clone_instruction(ip: u64) -> Option<(u64, ProbeState)> {
    let module = original(ip)?;
    let (step, state) = AddrMap::new(module.map)?.at_original(ip - module.bias)?;
    Some((step.clone + module.bias, state))
}

/// The clone address to which code without a clone shall return instead of the original address
/// `ip`.
pub fn back_of(ip: u64) -> Option<u64> {
    let module = original(ip.checked_sub(1)?)?;
    Some(AddrMap::new(module.map)?.back_of(ip - module.bias)? + module.bias)
}

/// The original return address that a clone address of [`back_of`] stands for.
pub fn original_of_back(back: u64) -> Option<u64> {
    clone_point_at(back)
        .filter(|p| p.state.flags & mgz_abi::address_map::STATE_BACK != 0)
        .map(|p| p.orig)
}

/// The original call through a pointer before the original return address `back`, if the clone's
/// code behind the call is contiguous.
pub fn call_before(back: u64) -> Option<u64> {
    /// Bound on the bytes of such a call in the clone and of the jump that follows.
    const MAX_CALL_BYTES: u64 = 64;
    let (behind, _) = first_clone_instruction(back)?;
    let call = (1..=MAX_CALL_BYTES)
        .filter_map(|n| clone_point_at(behind - n))
        .map(|p| p.orig)
        .find(|&at| at != back)?;
    (crate::sys::decode::pointer_call(code(call)) == Some(back.checked_sub(call)? as usize))
        .then_some(call)
}

/// The original call through a pointer whose hook the clone calls directly, if `back` is the
/// clone's return address.
pub fn hooked_call_before(back: u64) -> Option<u64> {
    /// Length of `call gs:[hook]`, bytes.
    const HOOKED: u64 = 8;
    let call = clone_point_at(back.wrapping_sub(HOOKED))?.orig;
    crate::sys::decode::pointer_call(code(call)).map(|_| call)
}

/// Target of an entry of a procedure linkage table.
#[derive(Clone, Copy)]
pub struct LinkageTarget {
    /// The current content of the entry's word.
    pub target: u64,
    /// The value that the entry leaves in r11, if it changes r11.
    pub r11: Option<u64>,
}

/// Target of the entry of an instrumented file's procedure linkage table at an address, if there is
/// one.
pub fn linked(ip: u64) -> Option<LinkageTarget> {
    let module = original(ip)?;
    let stub = follow_stub(ip, |at| {
        // SAFETY: code of this module.
        (module.text.0..module.text.1)
            .contains(&at)
            .then(|| unsafe { (at as *const u8).read() })
    })?;
    // SAFETY: the word that the entry itself reads.
    let target = unsafe { (stub.word as *const u64).read_unaligned() };
    Some(LinkageTarget {
        target,
        r11: match stub.scratch {
            StubScratch::Untouched => None,
            StubScratch::Number(number) => Some(number),
            StubScratch::Target => Some(target),
        },
    })
}

/// True if control that goes to an address leaves its current file, or all instrumented files.
pub fn leaves(ip: u64) -> bool {
    original(ip).is_none() || linked(ip).is_some()
}

/// True if a number is the address of a function that has a clone.
pub fn is_function(ip: u64) -> bool {
    let Some(module) = original(ip) else {
        return false;
    };
    AddrMap::new(module.map).is_some_and(|map| map.is_function(ip - module.bias))
}

/// If an address is in a jump out of a clone: the original target address, whether rax is already
/// saved at that point, and whether the jump belongs to a call.
pub fn way_out(ip: u64) -> Option<(u64, bool, bool)> {
    /// Layout of such a jump: `mov gs:[rax's place], rax; lea rax, [rip+target]; …; jmp gs:[hook]`.
    const BYTES: u64 = 48;
    const DISTANCE_OFFSET: u64 = 12;
    const HOOK: u64 = 38;
    let module = modules()
        .iter()
        .find(|m| ip >= m.thunks && ip < m.clone_end)?;
    let start = ip - (ip - module.thunks) % BYTES;
    // SAFETY: inside the clone's segment.
    let (distance, hook) = unsafe {
        (
            ((start + DISTANCE_OFFSET) as *const i32).read_unaligned(),
            ((start + HOOK) as *const u32).read_unaligned(),
        )
    };
    Some((
        (start + DISTANCE_OFFSET + 4).wrapping_add_signed(distance.into()),
        ip != start,
        hook == mgz_abi::probe::GS_CALL,
    ))
}

/// If an address in original code is behind the first byte of a patch, which only a handler can
/// cause: the run-time address of the same instruction in the clone, and the probe state there.
pub fn behind_patch(ip: u64) -> Option<(u64, ProbeState, Counting)> {
    let module = original(ip).filter(|module| module.patches.stands_before(ip))?;
    let (clone, state) = first_clone_instruction(ip)?;
    let (state, counting) = module.divided(state);
    Some((clone, state, counting))
}

/// Removes the jumps that a handler of the program could see at an address, before the handler sees
/// that address.
pub fn show(ip: u64) {
    // (Handlers of a trap or a system call look at the bytes before the address.)
    if let Some(module) = (0..=2).find_map(|before| original(ip.checked_sub(before)?)) {
        module.patches.show(ip);
    }
}

/// Removes all removable jumps, because the code cannot be changed later.
pub fn take_all_back() {
    // A concurrent installation has written its patches by then, or starts after patching was given
    // up.
    exclusively(&LOCK, || {
        modules()
            .iter()
            .filter(|m| m.clone_end != 0)
            .for_each(|m| m.patches.take_all_back())
    });
}
