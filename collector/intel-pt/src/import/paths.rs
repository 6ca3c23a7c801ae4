//! Call chains of samples, for the stretches of records that end in them.
//!
//! An AUX sample contains what its thread did *before* it was taken, so its call chain is the path
//! by which the thread reached the window's end, like the copy of a stack in `ring`. A stretch over
//! several windows has the chain of the last one.
//!
//! The kernel follows frame pointers. A function that uses the register for something else misleads
//! it, and the chain does not show that. So each caller must lie in a mapped file and, if that file
//! exists here, behind a call instruction; otherwise the path ends before it. If code, by its
//! file's unwind table, does not keep its caller at the frame pointer, the chain has skipped that
//! caller, and the path has a gap. Copies of stacks (`--call-graph=dwarf`) are unwound by the
//! files' tables. Files that have changed since are not used. If only the sidecar of a file exists,
//! it names the functions.

use crate::import::modules::{Modules, same_build_id};
use crate::import::threads::Stretch;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use mgz_collector::objects::heap::call_frame::CallFrame;
use mgz_collector::objects::heap::unwind::{Caller, Callers, PastUnwinders, Top, Unwound};
use mgz_collector::paths::tree::{NONE, gap};
use mgz_collector::paths::{Paths, WindowPath};
use mgz_collector::program::note;
use mgz_perf::records::MAX_CALL_CHAIN;
use mgz_perf_data::Session;
use mgz_perf_data::callchain::{CallChain, UserStack};
use mgz_perf_data::mapping::Mapping;
use mgz_perf_data::session::AuxWindow;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, elf};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of all stretches; `None` if no sample has a call chain.
pub fn of_stretches(
    session: &Session<'_>,
    modules: &Modules,
    stretches: &[Stretch],
) -> Option<Paths> {
    let tells = |w: &AuxWindow<'_>| w.chain.is_some() || w.stack.is_some();
    if !session.windows.iter().any(tells) {
        return None;
    }
    let mut paths = Paths {
        numbered: true,
        ..Paths::default()
    };
    let mut files = Files {
        session,
        modules,
        known: HashMap::new(),
        unwinders: PastUnwinders::default(),
    };
    for stretch in stretches {
        let (process, thread) = (stretch.thread.process, stretch.thread.thread);
        // (Windows are sorted by number.)
        let at = (session.windows).binary_search_by_key(&stretch.window, |w| w.number);
        let window = at.ok().and_then(|at| session.windows.get(at));
        // A window may have records of other threads, to which the sample does not apply.
        let window = window.filter(|w| w.identity.task.is_some_and(|(_, tid)| tid == thread));
        let time = window.and_then(|w| w.identity.time).unwrap_or(u64::MAX);
        let found = window.and_then(|w| match (&w.stack, &w.chain) {
            (Some(stack), _) => Some((stack.ip, files.unwound(process, time, stack))),
            (None, Some(chain)) => {
                let ip = chain.addresses.first().copied().unwrap_or(0);
                Some((ip, files.followed(process, time, chain)))
            }
            _ => None,
        });
        let ip = found.as_ref().map_or(0, |f| f.0);
        let node = found.map_or(NONE, |(_, (found, end))| {
            paths.odd += u64::from(end == End::Odd);
            paths.absent += u64::from(end == End::Absent);
            paths.tree.add(&found)
        });
        paths.windows.push(WindowPath {
            process,
            thread,
            time: 0,
            first_slot: stretch.last_segment,
            node,
            ip,
            python: NONE,
        });
    }
    paths.windows.sort_unstable();
    let elsewhere = files.known.into_iter();
    paths.elsewhere = elsewhere
        .filter(|(_, file)| matches!(file, Source::Sidecar(_)))
        .map(|(path, _)| path.into())
        .collect();
    Some(paths)
}

/// Reason for the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The chain ends.
    Chain,
    /// The address is not in a file: generated code, or the kernel's page.
    NoFile,
    /// The file does not exist here, or has changed since.
    Absent,
    /// The address is not behind a call, or is not mapped.
    Odd,
}

/// Source of facts about a mapped file.
enum Source {
    /// The file itself.
    Here(Box<File>),
    /// Its sidecar.
    Sidecar(Arc<PathBuf>),
    /// Neither exists.
    Nothing,
}

/// A file that exists here, unchanged since it was mapped.
struct File {
    path: Arc<PathBuf>,
    bytes: memmap2::Mmap,
    /// Executable segments: offset, address, length in the file.
    code: Vec<(u64, u64, u64)>,
    callers: Option<Callers>,
}

/// The mapped files, each examined once.
struct Files<'a> {
    session: &'a Session<'a>,
    modules: &'a Modules,
    known: HashMap<&'a str, Source>,
    unwinders: PastUnwinders,
}

impl<'a> Files<'a> {
    /// A call chain as calls in files, and the reason for its end.
    fn followed(&mut self, process: u32, time: u64, chain: &CallChain) -> (Unwound, End) {
        let mut found = Unwound::default();
        let mut end = if chain.odd { End::Odd } else { End::Chain };
        let (mut caller, mut passed, mut has_gap) = (Caller::Elsewhere, false, false);
        for (depth, &address) in chain.addresses.iter().enumerate() {
            let call = (depth > 0).then_some(chain.first_bytes);
            match self.frame(process, time, address, call) {
                Ok(frame) => {
                    if passed {
                        found.frames.push(gap());
                    }
                    has_gap |= passed;
                    caller = self.caller(&frame);
                    passed = caller == Caller::Elsewhere && !chain.first_bytes;
                    found.frames.push(frame);
                }
                Err(why) => {
                    end = why;
                    break;
                }
            }
        }
        let is_end = end == End::Chain && !chain.cut;
        found.whole = is_end && !has_gap && caller == Caller::Nobody;
        (found, end)
    }

    /// A copy of a stack as calls in files, and the reason for its end.
    fn unwound(&mut self, process: u32, time: u64, stack: &UserStack<'_>) -> (Unwound, End) {
        let mapped = self.session.spaces.at(process, time);
        for &number in &mapped {
            self.know(number);
        }
        let place = |&number: &usize| {
            let mapping = self.session.spaces.mappings().get(number)?;
            let Some(Source::Here(file)) = self.known.get(file_of(mapping)?) else {
                return None;
            };
            let bias = file.bias(mapping)?;
            Some((file.path.to_path_buf(), bias, mapping.end))
        };
        let files = || mapped.iter().filter_map(place).collect();
        let words = stack.words();
        let top = Top {
            pid: process,
            ip: stack.ip,
            sp: stack.sp,
            bp: stack.bp,
            stack: &words,
        };
        let (addresses, ended) = self
            .unwinders
            .unwind(mapped.clone(), files, &top, MAX_CALL_CHAIN);
        let mut found = Unwound::default();
        for (depth, &address) in addresses.iter().enumerate() {
            match self.frame(process, time, address, (depth > 0).then_some(false)) {
                Ok(frame) => {
                    let path = frame.file.to_str().unwrap_or("");
                    let is_here = matches!(self.known.get(path), Some(Source::Here(_)));
                    found.frames.push(frame);
                    // Without the file's unwind table the rest would be a guess.
                    if !is_here {
                        return (found, End::Absent);
                    }
                }
                Err(why) => return (found, why),
            }
        }
        found.whole = ended && !found.frames.is_empty();
        (found, End::Chain)
    }

    /// Examines a mapping's file, unless it was examined before.
    fn know(&mut self, number: usize) {
        let mapping = self.session.spaces.mappings().get(number);
        if let Some(path) = mapping.and_then(file_of)
            && !self.known.contains_key(path)
        {
            let source = self.look(path);
            self.known.insert(path, source);
        }
    }

    /// A location in a file. `call`: it must be the first (true) or last byte of a call.
    fn frame(
        &mut self,
        process: u32,
        time: u64,
        address: u64,
        call: Option<bool>,
    ) -> Result<CallFrame, End> {
        let spaces = &self.session.spaces;
        let number = spaces.find(process, time, address).ok_or(End::Odd)?;
        let mapping: &'a Mapping = spaces.mappings().get(number).ok_or(End::Odd)?;
        let Some(path) = file_of(mapping) else {
            return Err(End::NoFile);
        };
        let placed = self.modules.placed(number);
        self.know(number);
        match self.known.get(path) {
            Some(Source::Here(file)) => {
                let offset = (address - mapping.start).wrapping_add(mapping.offset);
                let within = |s: &&(u64, u64, u64)| offset.wrapping_sub(s.0) < s.2;
                let segment = file.code.iter().find(within).ok_or(End::Odd)?;
                if call.is_some_and(|first| !is_call(&file.bytes, offset, first)) {
                    return Err(End::Odd);
                }
                Ok(CallFrame {
                    file: file.path.clone(),
                    address: offset.wrapping_sub(segment.0).wrapping_add(segment.1),
                    python: None,
                })
            }
            Some(Source::Sidecar(path)) => Ok(CallFrame {
                file: path.clone(),
                address: address.wrapping_sub(placed.ok_or(End::Absent)?.bias),
                python: None,
            }),
            _ => Err(End::Absent),
        }
    }

    /// Finds the source of facts about a file. The file is used only if all its mappings are of the
    /// version that exists here.
    fn look(&self, path: &'a str) -> Source {
        let mappings = self.session.spaces.mappings().iter().enumerate();
        let mut of_path = mappings.filter(|(_, m)| m.path == path).peekable();
        let is_placed = of_path
            .clone()
            .any(|(n, _)| self.modules.placed(n).is_some());
        let file = File::read(Path::new(path));
        let is_same = |file: &File| {
            let own = file.build_id();
            let noted = note::instrumented_note(&file.path).ok().flatten();
            let noted = noted.map(|note| hex(&note.sidecar_id));
            of_path.all(|(number, mapping)| {
                let recorded = mapping.build_id.as_ref();
                let recorded = recorded.or_else(|| self.session.build_ids.get(path));
                let sidecar = self.modules.placed(number);
                let sidecar = sidecar.and_then(|p| self.modules.sidecar(p.sidecar));
                recorded.is_none_or(|id| same_build_id(id, &own))
                    && sidecar.is_none_or(|s| noted.as_ref() == Some(&s.id_hex))
            })
        };
        match file.filter(is_same) {
            Some(file) => Source::Here(Box::new(file)),
            None if is_placed => Source::Sidecar(Arc::new(path.into())),
            None => Source::Nothing,
        }
    }

    /// Location of a frame's caller; `Elsewhere` if it is unknown.
    fn caller(&mut self, frame: &CallFrame) -> Caller {
        let path = frame.file.to_str().unwrap_or("");
        let Some(Source::Here(file)) = self.known.get_mut(path) else {
            return Caller::Elsewhere;
        };
        if file.callers.is_none() {
            file.callers = Callers::read(&frame.file);
        }
        let callers = file.callers.as_mut();
        callers.map_or(Caller::Elsewhere, |c| c.of(frame.address))
    }
}

/// The path of a mapping's file, if it has one.
pub(crate) fn file_of(mapping: &Mapping) -> Option<&str> {
    let path = mapping.path.as_str();
    let no_file = ["//", "/memfd:", "/dev/"];
    let is_file = path.starts_with('/') && !no_file.iter().any(|p| path.starts_with(p));
    is_file.then_some(path)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl File {
    fn read(path: &Path) -> Option<File> {
        // (Opening a pipe would wait for its writer.)
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let file = std::fs::File::open(path).ok()?;
        // SAFETY: the mapping is private and read-only. If another process shortens the file
        // meanwhile, access faults, as with every mapped input.
        let bytes = unsafe { memmap2::Mmap::map(&file) }.ok()?;
        let endian = LittleEndian;
        let header = elf::FileHeader64::<LittleEndian>::parse(&bytes[..]).ok()?;
        let segments = header.program_headers(endian, &bytes[..]).ok()?;
        let is_code = |s: &&elf::ProgramHeader64<LittleEndian>| {
            s.p_type(endian) == elf::PT_LOAD && s.p_flags(endian).contains(elf::PF_X)
        };
        let place = |s: &elf::ProgramHeader64<LittleEndian>| {
            (s.p_offset(endian), s.p_vaddr(endian), s.p_filesz(endian))
        };
        let code = segments.iter().filter(is_code).map(place).collect();
        Some(File {
            path: Arc::new(path.to_owned()),
            code,
            callers: None,
            bytes,
        })
    }

    /// Run-time address minus link-time address, for a mapping of its code.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let end = mapping.offset.saturating_add(mapping.end - mapping.start);
        let is_mapped =
            |s: &&(u64, u64, u64)| s.0 < end && mapping.offset < s.0.saturating_add(s.2);
        let (offset, address, _) = self.code.iter().find(is_mapped)?;
        let file = mapping.start.wrapping_sub(mapping.offset);
        Some(file.wrapping_add(*offset).wrapping_sub(*address))
    }

    /// Its build id, hex; empty if it has none.
    fn build_id(&self) -> String {
        let file = object::File::parse(&self.bytes[..]).ok();
        let id = file.as_ref().and_then(|f| f.build_id().ok().flatten());
        id.map_or(String::new(), hex)
    }
}

/// True if a call is at an offset, by its first byte or its last.
fn is_call(bytes: &[u8], offset: u64, first: bool) -> bool {
    let Ok(at) = usize::try_from(offset) else {
        return false;
    };
    if first {
        return bytes.get(at..).is_some_and(|code| call(code).is_some());
    }
    let end = at.saturating_add(1);
    (2..=mgz_abi::MAX_INSTRUCTION_BYTES.min(end)).any(|length| {
        let code = bytes.get(end - length..end);
        code.and_then(call) == Some(length)
    })
}

/// The length of the call that code begins with.
fn call(code: &[u8]) -> Option<usize> {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    let is_call = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    );
    is_call.then_some(instruction.len())
}
