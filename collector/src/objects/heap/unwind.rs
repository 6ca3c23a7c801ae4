//! From copies of stacks to call sites, by the unwind tables of the files that a process has
//! mapped.

use crate::objects::heap::call_frame::CallFrame;
use crate::objects::heap::generated_frames as generated;
use crate::objects::heap::log::HeapLogRecord;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use mgz_abi::shared_memory::PAGE_SIZE;
use mgz_elf::go_frames::{GoFrame, GoFrames};
use mgz_perf::proc_maps;
use object::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Source: Chosen.
const MAX_FRAMES: usize = 24;
/// Words closer to the stack pointer than this may be frame pointers. Source: Chosen.
const MAX_FRAME_DISTANCE: u64 = 1 << 20;
/// An address in no known file causes a new read of the mappings, at most this often. Source:
/// Chosen.
const MAPPINGS_INTERVAL: Duration = Duration::from_millis(5);
/// Minimum interval between reads of the mappings for call stacks that were found in part, which is
/// common with generated code.
const AGAIN_FOR_REST: Duration = Duration::from_millis(50);

/// Registers and stack of a thread at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Top<'a> {
    /// Process.
    pub pid: u32,
    /// The instruction that comes next.
    pub ip: u64,
    /// Stack pointer: address of the first word of `stack`.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
    /// The stack's top, in words.
    pub stack: &'a [u64],
}

/// The call stack of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// From the inside out.
    pub frames: Vec<CallFrame>,
    /// True if they reach the thread's first function.
    pub whole: bool,
    /// True if more frames would follow behind the copied part of the stack.
    pub short: bool,
}

/// Call stacks without repetition.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Stacks by number.
    pub list: Vec<Vec<CallFrame>>,
    numbers: HashMap<Vec<CallFrame>, u32>,
}

impl Stacks {
    /// Number of a stack.
    pub fn number(&mut self, frames: Vec<CallFrame>) -> u32 {
        if let Some(&number) = self.numbers.get(&frames) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(frames.clone());
        self.numbers.insert(frames, number);
        number
    }
}

type Bytes = Arc<[u8]>;

/// Data of a file for unwinding.
struct Image {
    path: Arc<PathBuf>,
    /// Page of the first loaded segment.
    base: u64,
    /// Executable addresses, as linked.
    code: Vec<Range<u64>>,
    hdr: (u64, Bytes),
    frame: (u64, Bytes),
    go: Option<GoFrames>,
}

impl Image {
    fn read(path: &Path) -> Option<Image> {
        let file = std::fs::File::open(path).ok()?;
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let data = unsafe { memmap2::Mmap::map(&file) }.ok()?;
        let header = object::elf::FileHeader64::<LittleEndian>::parse(&*data).ok()?;
        let endian = LittleEndian;
        let segments = header.program_headers(endian, &*data).ok()?;
        let loads = || {
            segments
                .iter()
                .filter(|s| s.p_type(endian) == object::elf::PT_LOAD)
        };
        let base = loads()
            .map(|s| s.p_vaddr(endian) & !(PAGE_SIZE as u64 - 1))
            .min()?;
        let code = loads()
            .filter(|s| s.p_flags(endian).0 & object::elf::PF_X.0 != 0)
            .map(|s| s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_memsz(endian)))
            .collect();
        let mut image = Image {
            path: Arc::new(path.to_owned()),
            base,
            code,
            hdr: (0, Arc::from([])),
            frame: (0, Arc::from([])),
            go: go_frames(header, &data),
        };
        let found = segments
            .iter()
            .find(|s| s.p_type(endian) == object::elf::PT_GNU_EH_FRAME);
        if let Some(hdr) =
            found.and_then(|s| Some((s.p_vaddr(endian), s.data(endian, &*data).ok()?)))
        {
            /// The table's address is stored relative to its own place, in four bytes.
            const RELATIVE: u8 = 0x1b;
            if let [1, RELATIVE, _, _, a, b, c, d, ..] = *hdr.1 {
                let at =
                    (hdr.0 + 4).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
                let inside = loads().find(|s| {
                    (s.p_vaddr(endian)..s.p_vaddr(endian) + s.p_filesz(endian)).contains(&at)
                });
                if let Some(bytes) = inside.and_then(|s| {
                    s.data(endian, &*data)
                        .ok()?
                        .get((at - s.p_vaddr(endian)) as usize..)
                }) {
                    image.frame = (at, Arc::from(bytes));
                    image.hdr = (hdr.0, Arc::from(hdr.1));
                }
            }
        }
        Some(image)
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    fn module(&self, start: u64, end: u64) -> Module<Bytes> {
        let (frame, hdr) = (&self.frame, &self.hdr);
        let known = !frame.1.is_empty();
        let info = ExplicitModuleSectionInfo {
            base_svma: self.base,
            eh_frame_svma: known.then(|| frame.0..frame.0 + frame.1.len() as u64),
            eh_frame: known.then(|| frame.1.clone()),
            eh_frame_hdr_svma: known.then(|| hdr.0..hdr.0 + hdr.1.len() as u64),
            eh_frame_hdr: known.then(|| hdr.1.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(self.path.display().to_string(), start..end, start, info)
    }
}

/// The frames of Go code in a file.
fn go_frames(header: &object::elf::FileHeader64<LittleEndian>, data: &[u8]) -> Option<GoFrames> {
    let sections = header.sections(LittleEndian, data).ok()?;
    let (_, section) = sections.section_by_name(LittleEndian, b".gopclntab")?;
    GoFrames::read(section.data(LittleEndian, data).ok()?)
}

/// The place of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nowhere: a thread begins there.
    Nobody,
    /// Behind the frame pointer, which the kernel follows.
    ByFrame,
    /// Elsewhere on the stack: a walk of frame pointers skips this caller.
    Elsewhere,
}

/// The callers, as a file's unwind table gives them.
pub struct Callers {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

impl Callers {
    /// Addresses of user code end here.
    const END: u64 = 1 << 47;

    /// Reads a file; `None` if it is none that could be mapped.
    pub fn read(path: &Path) -> Option<Callers> {
        let image = Image::read(path).filter(|image| image.base < Self::END)?;
        let mut unwinder = UnwinderX86_64::new();
        unwinder.add_module(image.module(image.base, Self::END));
        Some(Callers {
            unwinder,
            cache: CacheX86_64::new(),
        })
    }

    /// The place of the caller of the code at an address (as linked).
    pub fn of(&mut self, address: u64) -> Caller {
        // Two places so far apart that no offset leads from one to the other. The read address
        // shows where the table looks first; no memory is there.
        let stack = Self::END - (1 << 40);
        let frame = stack + (1 << 36);
        let by_frame = Cell::new(false);
        let mut read = |at: u64| {
            by_frame.set(at == frame || at == frame + 8);
            Err(())
        };
        let registers = UnwindRegsX86_64::new(address, stack, frame);
        let mut frames =
            (self.unwinder).iter_frames(address, registers, &mut self.cache, &mut read);
        let first = frames.next();
        match frames.next() {
            Ok(None) if matches!(first, Ok(Some(_))) => Caller::Nobody,
            _ if by_frame.get() => Caller::ByFrame,
            _ => Caller::Elsewhere,
        }
    }
}

struct Mapped {
    start: u64,
    end: u64,
    image: Arc<Image>,
}

struct Process {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    /// By address.
    mapped: Vec<Mapped>,
    /// Stacks by the relevant part of their copies.
    known: HashMap<u64, u32>,
    looked: Instant,
}

/// Unwinds copies of stacks of processes that are gone, whose mappings are known.
#[derive(Default)]
pub struct PastUnwinders {
    /// Processes by the numbers of their mapped files.
    processes: HashMap<Vec<usize>, Process>,
    images: HashMap<PathBuf, Option<Arc<Image>>>,
}

impl PastUnwinders {
    /// Addresses in calls from the inside out, `most` at most, and true if they reach the thread's
    /// first function. `files` gives the mapped files: path, load bias, end.
    pub fn unwind(
        &mut self,
        mapped: Vec<usize>,
        files: impl FnOnce() -> Vec<(PathBuf, u64, u64)>,
        top: &Top<'_>,
        most: usize,
    ) -> (Vec<u64>, bool) {
        let images = &mut self.images;
        let process = self.processes.entry(mapped).or_insert_with(|| {
            let place = |(path, bias, end): (PathBuf, u64, u64)| {
                let image = images.entry(path);
                let image = image
                    .or_insert_with_key(|path| Image::read(path).map(Arc::new))
                    .clone()?;
                let start = bias.wrapping_add(image.base);
                (start < end).then_some(Mapped { start, end, image })
            };
            let mut mapped: Vec<Mapped> = files().into_iter().filter_map(place).collect();
            // A file may have code in several places, and is one all the same.
            mapped.sort_by_key(|m| (m.start, std::cmp::Reverse(m.end)));
            mapped.dedup_by_key(|m| m.start);
            Process::new(mapped)
        });
        let registers = UnwindRegsX86_64::new(top.ip, top.sp, top.bp);
        let (addresses, ended, _) = process.addresses(top.ip, registers, (top.sp, top.stack), most);
        (addresses, ended)
    }
}

/// All processes, and the files that they have mapped.
#[derive(Default)]
pub struct Unwinders {
    processes: HashMap<u32, Process>,
    images: HashMap<PathBuf, Option<Arc<Image>>>,
}

impl Unwinders {
    /// A process has begun, or has executed a new program.
    pub fn begin(&mut self, pid: u32) {
        let process = self.look(pid);
        self.processes.insert(pid, process);
    }

    /// A process was forked: it has its parent's files, even if it is gone by now.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let Some(parent) = self.processes.get(&parent) else {
            return self.begin(child);
        };
        let mapped = parent
            .mapped
            .iter()
            .map(|m| Mapped {
                start: m.start,
                end: m.end,
                image: m.image.clone(),
            })
            .collect();
        let process = Process::new(mapped);
        self.processes.insert(child, process);
    }

    /// Reads the mappings of a process.
    fn look(&mut self, pid: u32) -> Process {
        let text = proc_maps::read_process_maps(pid).unwrap_or_default();
        let mut ranges: Vec<(PathBuf, u64, u64, bool)> = Vec::new();
        for line in proc_maps::lines(&text) {
            let (path, executable) = (line.name, line.is_executable());
            if !path.starts_with('/') || path.starts_with("/memfd:") || path.starts_with("/dev/") {
                continue;
            }
            match ranges.last_mut().filter(|r| r.0 == Path::new(path)) {
                Some(last) => (last.2, last.3) = (line.end, last.3 || executable),
                None => ranges.push((path.into(), line.start, line.end, executable)),
            }
        }
        let mut mapped = Vec::new();
        for (path, start, end, _) in ranges.into_iter().filter(|r| r.3) {
            if let Some(image) = self
                .images
                .entry(path)
                .or_insert_with_key(|path| Image::read(path).map(Arc::new))
            {
                mapped.push(Mapped {
                    start,
                    end,
                    image: image.clone(),
                });
            }
        }
        Process::new(mapped)
    }

    /// Number of the call stack of an allocation.
    pub fn stack(&mut self, record: &HeapLogRecord<'_>, stacks: &mut Stacks) -> u32 {
        let Some(&back) = record.stack.first() else {
            return stacks.number(Vec::new());
        };
        let process = self.processes.get(&record.pid);
        let stale = process
            .is_none_or(|p| p.file(back).is_none() && p.looked.elapsed() > MAPPINGS_INTERVAL);
        if stale {
            let fresh = self.look(record.pid);
            // The mappings of a process that is gone cannot be read; the known ones stay.
            if process_is_new(self.processes.get(&record.pid), &fresh) {
                self.processes.insert(record.pid, fresh);
            } else if let Some(process) = self.processes.get_mut(&record.pid) {
                process.looked = Instant::now();
            }
        }
        let Some(process) = self.processes.get_mut(&record.pid) else {
            return stacks.number(Vec::new());
        };
        let key = process.key(record);
        if let Some(&number) = process.known.get(&key) {
            return number;
        }
        let number = stacks.number(process.unwind(record));
        process.known.insert(key, number);
        number
    }
}

impl Unwinders {
    /// The call stack of a thread, `most` frames of it at most. `None` if nothing is known of its
    /// process, which may be gone.
    pub fn unwind(&mut self, top: &Top<'_>, most: usize) -> Option<Unwound> {
        if !self.processes.contains_key(&top.pid) {
            let fresh = self.look(top.pid);
            if fresh.mapped.is_empty() {
                return None;
            }
            self.processes.insert(top.pid, fresh);
        }
        let process = self.processes.get_mut(&top.pid)?;
        let found = process.stack_of(top, most);
        if found.whole || process.looked.elapsed() < AGAIN_FOR_REST {
            return Some(found);
        }
        // A library may have been loaded since the last look.
        let fresh = self.look(top.pid);
        if process_is_new(self.processes.get(&top.pid), &fresh) {
            self.processes.insert(top.pid, fresh);
            return Some(self.processes.get_mut(&top.pid)?.stack_of(top, most));
        }
        self.processes.get_mut(&top.pid)?.looked = Instant::now();
        Some(found)
    }
}

/// True if a look has found unknown files.
fn process_is_new(known: Option<&Process>, fresh: &Process) -> bool {
    known.is_none_or(|known| {
        !fresh.mapped.is_empty()
            && !fresh
                .mapped
                .iter()
                .map(|m| (m.start, m.end))
                .eq(known.mapped.iter().map(|m| (m.start, m.end)))
    })
}

impl Process {
    fn new(mapped: Vec<Mapped>) -> Process {
        let mut unwinder = UnwinderX86_64::new();
        mapped
            .iter()
            .for_each(|m| unwinder.add_module(m.image.module(m.start, m.end)));
        Process {
            unwinder,
            cache: CacheX86_64::new(),
            mapped,
            known: HashMap::new(),
            looked: Instant::now(),
        }
    }

    fn file(&self, address: u64) -> Option<&Mapped> {
        let at = self
            .mapped
            .partition_point(|m| m.start <= address)
            .checked_sub(1)?;
        self.mapped.get(at).filter(|m| address < m.end)
    }

    /// A hash of everything that unwinding can depend on: words that may be code addresses, and
    /// words that may point into the stack, relative to it.
    fn key(&self, record: &HeapLogRecord<'_>) -> u64 {
        let code =
            self.mapped.first().map_or(0, |m| m.start)..self.mapped.last().map_or(0, |m| m.end);
        let mut hash = 0u64;
        let mut add =
            |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for &word in std::iter::once(&record.bp).chain(record.stack) {
            let near = word.wrapping_sub(record.sp);
            add(if near < MAX_FRAME_DISTANCE {
                near | 1 << 63
            } else if code.contains(&word) {
                word
            } else {
                0
            });
        }
        hash ^ hash >> 32
    }

    fn unwind(&mut self, record: &HeapLogRecord<'_>) -> Vec<CallFrame> {
        let Some(&back) = record.stack.first() else {
            return Vec::new();
        };
        // The caller's state after the call returned, except that the address lies in the call.
        let at = back.wrapping_sub(1);
        let registers = UnwindRegsX86_64::new(at, record.sp.wrapping_add(8), record.bp);
        let (addresses, ..) = self.addresses(at, registers, (record.sp, record.stack), MAX_FRAMES);
        addresses.into_iter().map(|a| self.frame(a)).collect()
    }

    /// See [`Unwinders::unwind`]. An address in no file is the last frame: its callers are unknown.
    fn stack_of(&mut self, top: &Top<'_>, most: usize) -> Unwound {
        let registers = UnwindRegsX86_64::new(top.ip, top.sp, top.bp);
        let (addresses, ended, short) =
            self.addresses(top.ip, registers, (top.sp, top.stack), most);
        let known = addresses.iter().take_while(|&&a| self.file(a).is_some());
        let mut frames: Vec<CallFrame> = known.map(|&a| self.frame(a)).collect();
        let (whole, short) = match addresses.get(frames.len()) {
            Some(&address) => {
                frames.push(generated::frame(top.pid, address));
                (false, false)
            }
            None => (ended && !frames.is_empty(), short),
        };
        Unwound {
            whole,
            short,
            frames,
        }
    }

    /// Addresses in calls from the inside out, true if they reach the thread's first function, and
    /// true if the next one lies behind the copy.
    fn addresses(
        &mut self,
        at: u64,
        registers: UnwindRegsX86_64,
        (sp, stack): (u64, &[u64]),
        most: usize,
    ) -> (Vec<u64>, bool, bool) {
        let short = Cell::new(false);
        let mut read = |address: u64| {
            let at = address
                .checked_sub(sp)
                .filter(|a| a.is_multiple_of(8))
                .ok_or(())?;
            let word = stack.get((at / 8) as usize).copied();
            short.set(word.is_none());
            word.ok_or(())
        };
        let mut addresses = Vec::new();
        let mut registers = registers;
        let mut frame = FrameAddress::from_instruction_pointer(at);
        while addresses.len() < most {
            addresses.push(frame.address_for_lookup());
            let caller = self.caller(frame, &mut registers, &mut read);
            match caller.map(|back| back.map(FrameAddress::from_return_address)) {
                // A word that is no return address was taken for one.
                Ok(Some(Some(next))) if self.is_data(next.address_for_lookup()) => break,
                Ok(Some(Some(next))) => frame = next,
                Ok(None) => return (addresses, true, false),
                Ok(Some(None)) | Err(()) => break,
            }
        }
        (addresses, false, short.get())
    }

    /// The return address of a frame, `None` if nobody has called its function. The registers are
    /// changed to those of the caller.
    fn caller(
        &mut self,
        frame: FrameAddress,
        registers: &mut UnwindRegsX86_64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Result<Option<u64>, ()> {
        match self.go_frame(frame.address_for_lookup()) {
            Some(GoFrame::Bytes(bytes)) => {
                let at = registers.sp().checked_add(bytes).ok_or(())?;
                let back = read(at)?;
                registers.set_sp(at.checked_add(8).ok_or(())?);
                registers.set_ip(back);
                Ok(Some(back))
            }
            Some(GoFrame::First) => Ok(None),
            Some(GoFrame::Unknown) => Err(()),
            None => (self.unwinder)
                .unwind_frame(frame, registers, &mut self.cache, read)
                .map_err(|_| ()),
        }
    }

    /// True for addresses in a file's data.
    fn is_data(&self, address: u64) -> bool {
        let file = self.file(address);
        file.is_some_and(|m| !m.image.is_code(address - m.start + m.image.base))
    }

    /// The frame of an instruction of Go code, `None` if it is other code.
    fn go_frame(&self, address: u64) -> Option<GoFrame> {
        let file = self.file(address)?;
        let go = file.image.go.as_ref()?;
        go.at(address - file.start + file.image.base)
    }

    fn frame(&self, address: u64) -> CallFrame {
        match self.file(address) {
            Some(m) => CallFrame {
                file: m.image.path.clone(),
                address: address - m.start + m.image.base,
                python: None,
            },
            None => CallFrame {
                address,
                ..CallFrame::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_file_is_no_code() {
        use object::{Object, ObjectSection};
        let exe = std::env::current_exe().unwrap();
        let data = std::fs::read(&exe).unwrap();
        let file = object::File::parse(&data[..]).unwrap();
        let image = Image::read(&exe).unwrap();
        assert!(image.is_code(file.entry()));
        for name in [".rodata", ".data", ".eh_frame"] {
            let section = file.section_by_name(name).unwrap();
            assert!(!image.is_code(section.address()), "{name}");
        }
    }

    #[test]
    fn a_program_begins_in_a_function_that_nobody_calls() {
        use object::{Object, ObjectSymbol};
        let exe = std::env::current_exe().unwrap();
        let data = std::fs::read(&exe).unwrap();
        let file = object::File::parse(&data[..]).unwrap();
        let mut callers = Callers::read(&exe).unwrap();
        assert_eq!(callers.of(file.entry() + 8), Caller::Nobody);
        let main = file.symbols().find(|s| s.name() == Ok("main")).unwrap();
        // No register is pushed at this address.
        assert_eq!(callers.of(main.address()), Caller::Elsewhere);
        assert!(Callers::read(Path::new("/proc/self/status")).is_none());
    }
}
