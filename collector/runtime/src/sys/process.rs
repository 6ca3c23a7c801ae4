//! State of the process as the runtime knows it, and the settings by which the runtime was loaded.

use crate::sys::syscall;
use crate::sys::syscall::{map, nr};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use mgz_abi::shared_memory::{
    Attachment, ENV_NAME, HEADER_BYTES, Header, MAGIC, PAGE_SIZE, PRELOAD_NAME, VERSION, count,
    name_hash, place_in_preload,
};

/// The mapped header of the shared memory, or null if nothing is recorded.
pub(crate) static HEADER: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());
/// The header if the process is [asleep](fall_asleep), else null.
static ASLEEP: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());
/// The process stays asleep regardless of the loaded code.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);
/// The runtime's own code, as far as it is known.
static OWN_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Location of [`owner_process`]: a page that the kernel clears in forked children.
pub(crate) static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Longest path of the shared memory and of the runtime itself.
const PATH: usize = 256;
/// `MGZ_RUNTIME=/proc/…`, zero-terminated: the environment entry for programs that are to be
/// recorded.
static mut SHARED_ENTRY: [u8; PATH] = [0; PATH];
/// Path of the runtime, zero-terminated.
static mut OWN_PATH: [u8; PATH] = [0; PATH];
/// Preload list before the recorder changed it (its hash), and the number of its bytes that the
/// recorder left before the runtime.
static mut PRELOADED: (u64, usize) = (0, 0);

/// Stores the address range of the runtime's own code.
pub fn note_own_code(code: core::ops::Range<u64>) {
    OWN_CODE[0].store(code.start, Ordering::Relaxed);
    OWN_CODE[1].store(code.end, Ordering::Relaxed);
}

/// True if an address is in the runtime's own code.
pub fn is_own_code(address: u64) -> bool {
    let [start, end] = [0, 1].map(|n| OWN_CODE[n].load(Ordering::Relaxed));
    (start..end).contains(&address)
}

/// The shared memory's header, if this process is recorded.
pub fn header() -> Option<&'static Header> {
    // SAFETY: null or a mapping that is never removed. The fields that others change are atomics.
    unsafe { HEADER.load(Ordering::Acquire).as_ref() }
}

/// The shared memory's header, also in a process that is asleep.
pub fn recorder() -> Option<&'static Header> {
    // SAFETY: as in `header`.
    header().or_else(|| unsafe { ASLEEP.load(Ordering::Acquire).as_ref() })
}

/// Puts a program without instrumentation to sleep: it is not recorded, and only the environment of
/// programs that it starts is changed. Wrappers pass on their arguments unchanged.
pub fn fall_asleep() {
    ASLEEP.store(
        HEADER.swap(core::ptr::null_mut(), Ordering::AcqRel),
        Ordering::Release,
    );
}

/// Wakes the process, because the program has loaded an instrumented library. Returns true if it
/// was asleep.
pub fn wake() -> bool {
    let header = ASLEEP.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !header.is_null() {
        HEADER.store(header, Ordering::Release);
    }
    !header.is_null()
}

/// Puts a process to sleep that cannot be recorded. Programs that it starts are still recorded.
pub fn fall_asleep_for_good() {
    FOR_GOOD.store(true, Ordering::Relaxed);
    fall_asleep();
}

/// True if the process is to be recorded as soon as it loads an instrumented file.
pub fn is_asleep() -> bool {
    !ASLEEP.load(Ordering::Acquire).is_null() && !FOR_GOOD.load(Ordering::Relaxed)
}

/// Id of the process to which the tables in this address space belong: 0 right after a fork, and
/// the creator's id in a process that shares its creator's memory (the child of a `vfork`, say).
pub fn owner_process() -> u32 {
    // SAFETY: null or a page that is never removed.
    unsafe { OWNER.load(Ordering::Relaxed).as_ref() }
        .map_or_else(syscall::getpid, |word| word.load(Ordering::Relaxed))
}

/// Makes this process the owner of the tables. Returns true if another one was the owner.
pub fn take_ownership() -> bool {
    let pid = syscall::getpid();
    // SAFETY: as above.
    unsafe { OWNER.load(Ordering::Relaxed).as_ref() }
        .is_some_and(|word| word.swap(pid, Ordering::Relaxed) != pid)
}

/// True if a fork made this process and the runtime has not yet handled that fork.
pub fn is_forked() -> bool {
    owner_process() == 0
}

/// True if the memory is that of another process.
pub fn borrows_memory() -> bool {
    let owner = owner_process();
    owner != 0 && owner != syscall::getpid()
}

/// Makes the page for [`owner_process`].
fn note_owner() -> bool {
    if !OWNER.load(Ordering::Relaxed).is_null() {
        take_ownership();
        return true;
    }
    // SAFETY: a new mapping, which is then changed.
    unsafe {
        let Ok(page) = syscall::new_memory(PAGE_SIZE) else {
            return false;
        };
        if syscall::call(nr::MADVISE, page, PAGE_SIZE, map::WIPEONFORK, 0, 0, 0) != 0 {
            syscall::munmap(page, PAGE_SIZE);
            return false;
        }
        OWNER.store(page as *mut AtomicU32, Ordering::Relaxed);
        crate::sys::own_memory::add_own_range(page, PAGE_SIZE);
    }
    take_ownership();
    true
}

/// Adds to one of the header's counters.
pub fn count(what: usize, by: u64) {
    if let Some(header) = recorder() {
        header.counter(what).fetch_add(by, Ordering::Relaxed);
    }
}

/// The environment entry that leads to the shared memory.
pub fn shared_entry() -> &'static [u8] {
    // SAFETY: written once by `attach_process`, before any other code of the process runs.
    until_zero(unsafe { &*(&raw const SHARED_ENTRY) })
}

/// The path under which the loader found this runtime.
pub fn own_path() -> &'static [u8] {
    // SAFETY: as above.
    until_zero(unsafe { &*(&raw const OWN_PATH) })
}

/// True if blocks of the heap are logged.
pub fn logs_heap() -> bool {
    recorder().is_some_and(|h| h.heap_path[0] != 0)
}

/// Position of the runtime in a list of preloaded libraries. For `--heap` only the recorder knows
/// it, for one list. In any other list, a library that must be first takes precedence over the log
/// of its allocator.
pub fn place_among(list: &[u8]) -> usize {
    // SAFETY: as above.
    let (hash, at) = unsafe { *(&raw const PRELOADED) };
    let last = place_in_preload(list);
    if logs_heap() && name_hash(list) == hash {
        at.min(last)
    } else {
        last
    }
}

/// The part of a buffer before its first zero.
pub fn until_zero(bytes: &[u8]) -> &[u8] {
    until(bytes, 0)
}

/// A zero-terminated string as bytes, without the zero.
///
/// # Safety
/// `p` must point at a zero-terminated string that outlives the result.
pub unsafe fn c_bytes<'a>(p: *const u8) -> &'a [u8] {
    let mut n = 0;
    // SAFETY: the caller's contract.
    while unsafe { *p.add(n) } != 0 {
        n += 1;
    }
    // SAFETY: n bytes were just read.
    unsafe { core::slice::from_raw_parts(p, n) }
}

/// Opens the path of the shared memory; the result is −errno if the recorder is gone.
fn open_shared_path() -> isize {
    // SAFETY: written once by `attach_process`; zero-terminated since the last byte is never
    // written.
    let entry = unsafe { &*(&raw const SHARED_ENTRY) };
    syscall::open_file(entry[ENV_NAME.len() + 1..].as_ptr(), true)
}

/// Mapping of all the shared memory (address, length), in a process that was attached to.
static WHOLE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The shared memory, of which parts can be mapped. A process that was attached to may not be able
/// to open the recorder's files, so it takes them from a mapping of the whole.
pub struct SharedFile {
    /// −1 in a process that was attached to.
    descriptor: isize,
}

impl SharedFile {
    /// Opens it; `None` if the recorder is gone.
    pub fn open() -> Option<SharedFile> {
        if WHOLE[1].load(Ordering::Relaxed) != 0 {
            return Some(SharedFile { descriptor: -1 });
        }
        let descriptor = open_shared_path();
        (descriptor >= 0).then_some(SharedFile { descriptor })
    }

    /// Its descriptor; −1 if it has none.
    pub fn descriptor(&self) -> isize {
        self.descriptor
    }

    /// Maps a part at a fixed address, with its pages.
    ///
    /// # Safety
    /// The range must be the runtime's own.
    pub unsafe fn map_at(&self, address: usize, bytes: usize, offset: u64) -> bool {
        if self.descriptor >= 0 {
            let flags = map::SHARED | map::FIXED | map::POPULATE;
            let protection = map::READ | map::WRITE;
            // SAFETY: the caller's contract.
            return unsafe {
                syscall::mmap(address, bytes, protection, flags, self.descriptor, offset).is_ok()
            };
        }
        let [whole, length] = [0, 1].map(|n| WHOLE[n].load(Ordering::Relaxed));
        let offset = offset as usize;
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            return false;
        }
        // SAFETY: the caller's contract. An old length of 0 makes a second mapping of the same
        // pages of a shared file. Where pages cannot be populated, they come at their first use.
        unsafe {
            let flags = map::MAYMOVE | map::MOVE_FIXED;
            let from = whole + offset;
            let moved = syscall::call(nr::MREMAP, from, 0, bytes, flags, address, 0);
            syscall::call(nr::MADVISE, address, bytes, map::POPULATE_WRITE, 0, 0, 0);
            moved == address as isize
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if self.descriptor >= 0 {
            syscall::close(self.descriptor);
        }
    }
}

/// Takes the settings out of the environment and maps the header. Returns whether this process is
/// recorded.
///
/// # Safety
/// `envp` must be the process's environment; nothing else may run yet.
pub unsafe fn attach_process(envp: *mut *mut u8) -> bool {
    // SAFETY: the caller's contract.
    if !unsafe { take_environment(envp) } {
        return false;
    }
    map_header()
}

/// As [`attach_process`], in a process that runs already: the settings come from the recorder.
///
/// # Safety
/// Nothing else may run.
pub unsafe fn adopt(request: &Attachment) -> bool {
    let (shared, bytes) = (request.shared as usize, request.shared_bytes as usize);
    let before = WHOLE[0].swap(shared, Ordering::Relaxed);
    let bytes_before = WHOLE[1].swap(bytes, Ordering::Relaxed);
    // SAFETY: the caller's contract. The mapping of the recording before is used no longer: rings
    // and header have mappings of their own.
    unsafe {
        SHARED_ENTRY = request.shared_entry;
        OWN_PATH = request.own_path;
        if bytes_before != 0 {
            syscall::munmap(before, bytes_before);
        }
        // A core dump would allocate all of its pages.
        syscall::call(nr::MADVISE, shared, bytes, map::DONTDUMP, 0, 0, 0);
    }
    map_header()
}

/// True if the recorder exists and accepts records. Otherwise programs that this process starts
/// must not be directed to its files.
pub fn is_recorded() -> bool {
    recorder()
        .is_some_and(|h| h.stop.load(Ordering::Relaxed) == 0 && syscall::process_exists(h.recorder))
}

/// True if a program that this process starts can open the recorder's files. It cannot as another
/// user, or if `/proc` is not visible. (The check opens the files with the effective user's rights,
/// as that program would.)
pub fn can_reach_recorder() -> bool {
    // SAFETY: as in `own_path`; zero-terminated.
    let own = unsafe { &*(&raw const OWN_PATH) };
    [open_shared_path(), syscall::open_file(own.as_ptr(), false)]
        .into_iter()
        .fold(true, |all, fd| {
            if fd >= 0 {
                syscall::close(fd);
            }
            all && fd >= 0
        })
}

/// True if this process and the recorder are in different namespaces of process ids, so that
/// neither can map the other's ids.
pub fn is_elsewhere(header: &Header) -> bool {
    header.process_namespace != 0 && namespace().is_some_and(|own| own != header.process_namespace)
}

/// Number of this process's namespace of process ids.
fn namespace() -> Option<u64> {
    const START: &[u8] = b"pid:[";
    let mut text = [0u8; 64];
    // SAFETY: a zero-terminated path; one byte of the buffer stays zero.
    let length = unsafe {
        syscall::call(
            nr::READLINK,
            c"/proc/self/ns/pid".as_ptr() as usize,
            text.as_mut_ptr() as usize,
            text.len() - 1,
            0,
            0,
            0,
        )
    };
    let digits = text
        .get(..usize::try_from(length).ok()?)?
        .strip_prefix(START)?;
    let digits = digits.iter().take_while(|c| c.is_ascii_digit());
    Some(digits.fold(0u64, |n, c| {
        n.wrapping_mul(10).wrapping_add(u64::from(c - b'0'))
    }))
}

fn map_header() -> bool {
    let Some(file) = SharedFile::open() else {
        return false;
    };
    let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE | map::LOW;
    // SAFETY: a new mapping, which a part of a file of at least this length (the recorder makes it)
    // then replaces.
    let mapped = unsafe {
        syscall::mmap(0, HEADER_BYTES, map::NONE, flags, -1, 0)
            .ok()
            .filter(|&address| file.map_at(address, HEADER_BYTES, 0))
    };
    let Some(address) = mapped else { return false };
    let header = address as *mut Header;
    // SAFETY: mapped above.
    let valid = unsafe { (*header).magic == MAGIC && (*header).version == VERSION };
    if !valid || !note_owner() {
        return false;
    }
    // SAFETY: mapped above.
    if is_elsewhere(unsafe { &*header }) {
        // SAFETY: an atomic of the header.
        unsafe { (*header).counter(count::FORBIDDEN) }.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    HEADER.store(header, Ordering::Release);
    true
}

/// Type of an entry of the auxiliary vector that is to be ignored.
const AT_IGNORE: usize = 1;

/// Removes `MGZ_RUNTIME` and `MGZ_PRELOAD`, and restores the value that `LD_PRELOAD` had before the
/// recorder changed it, so that the program and its children see nothing of the runtime.
///
/// # Safety
/// As for [`attach_process`].
unsafe fn take_environment(envp: *mut *mut u8) -> bool {
    // SAFETY: envp ends with a null pointer; entries are zero-terminated writable strings on the
    // initial stack.
    let entry = |i: usize| unsafe { *envp.add(i) };
    // SAFETY: as above.
    let value = |i: usize, name: &str| value_of(unsafe { c_bytes(entry(i)) }, name.as_bytes());
    let (mut n, mut found, mut preload, mut list) = (0, false, None, None);
    while !entry(n).is_null() {
        found |= value(n, ENV_NAME).is_some_and(|path| ENV_NAME.len() + 1 + path.len() < PATH);
        // The recorder changes the last one, which is the one that the loader uses.
        if value(n, "LD_PRELOAD").is_some() {
            preload = Some(n);
        }
        list = value(n, PRELOAD_NAME).or(list);
        n += 1;
    }
    if !found {
        return false;
    }
    let own = list.map_or(&b""[..], |list| until(list, b':'));
    if own.len() < PATH {
        // SAFETY: as above; nothing else runs.
        unsafe { (&raw mut OWN_PATH as *mut u8).copy_from(own.as_ptr(), own.len()) };
    }
    let before = list.and_then(|list| list.get(own.len() + 1..));
    // The entries behind the runtime in the loader's list are the original ones.
    let now = preload.and_then(|i| value(i, "LD_PRELOAD")).unwrap_or(b"");
    let at = now.windows(own.len().max(1)).rposition(|w| w == own);
    let behind = at.map_or(0, |at| now.len() - at - own.len());
    let old = before.unwrap_or(b"");
    // SAFETY: nothing else runs.
    unsafe {
        PRELOADED = (
            name_hash(old),
            old.len() - behind.saturating_sub(1).min(old.len()),
        )
    };
    let mut to = 0;
    for from in 0..n {
        let mut keep = value(from, PRELOAD_NAME).is_none();
        if let Some(path) = value(from, ENV_NAME)
            && ENV_NAME.len() + 1 + path.len() < PATH
        {
            let length = ENV_NAME.len() + 1 + path.len();
            // SAFETY: as above.
            unsafe { (&raw mut SHARED_ENTRY as *mut u8).copy_from(entry(from), length) };
            keep = false;
        } else if preload == Some(from) && list.is_some() {
            keep = before.is_some();
            if let Some(before) = before {
                // SAFETY: the recorder's list is longer than the original; the string behind
                // `before` is a different one.
                unsafe {
                    let value = entry(from).add(b"LD_PRELOAD=".len());
                    value.copy_from(before.as_ptr(), before.len());
                    *value.add(before.len()) = 0;
                }
            }
        }
        if keep {
            // SAFETY: as above; `to` is not beyond `from`.
            unsafe { *envp.add(to) = entry(from) };
            to += 1;
        }
    }
    // SAFETY: as above.
    unsafe { *envp.add(to) = core::ptr::null_mut() };
    // A reader that looks for the auxiliary vector behind the environment finds ignored entries,
    // and then the vector at its old address. (An even number of entries was removed, since the
    // vector has pairs.)
    for (k, at) in (to + 1..=n).enumerate() {
        let word = if k % 2 == 0 { AT_IGNORE } else { 0 };
        // SAFETY: as above.
        unsafe { *envp.add(at) = core::ptr::without_provenance_mut(word) };
    }
    true
}

/// The part of a list before a separator.
fn until(bytes: &[u8], separator: u8) -> &[u8] {
    &bytes[..bytes
        .iter()
        .position(|&b| b == separator)
        .unwrap_or(bytes.len())]
}

/// The value in `NAME=value`.
pub fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}
