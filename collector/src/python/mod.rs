//! Python frames of windows.
//!
//! The recorder finds the interpreter of each process ([`interpreter`]) and the layout of its
//! structures ([`version`]). With that the runtime notes the frames at the start of a window
//! ([`mgz_abi::python_frames`]). Code objects are named here, while the process lives ([`code`]).
//! The fields of each are read again for each window, since CPython may free one and use its memory
//! for another.

pub mod code;
pub mod interpreter;
pub mod lines;
pub mod memory;
pub mod stacks;
pub mod version;

use code::{CodeHead, CodeLines, PythonCode};
use interpreter::InterpreterFile;
use memory::{Memory, ProcessMemory};
use mgz_abi::python_frames::{ENTRY_FRAME, FrameLayout, PYTHON_FRAMES, PYTHON_ROWS, PythonFrame};
use mgz_perf::proc_maps;
use stacks::{NO_FRAME, PythonNode, PythonStacks, UNKNOWN_FRAME};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use version::Layout;

/// A process without an interpreter is checked again after this time. The time doubles with each
/// check, since a program may load `libpython` later. Source: Chosen.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Source: Chosen.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// A row of the runtime's table that is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Number of the row.
    pub row: usize,
    /// Process.
    pub pid: u32,
    /// Its layout; `None` if it has no interpreter now.
    pub layout: Option<FrameLayout>,
}

/// A code object of a process.
struct KnownCode {
    head: CodeHead,
    /// Number in [`PythonStacks`].
    code: u32,
    lines: CodeLines,
}

/// The interpreter of a process.
struct Interpreter {
    layout: Layout,
    code_type: u64,
    /// Known code objects by address.
    codes: HashMap<u64, KnownCode>,
}

/// State of a process.
enum Process {
    /// The process has the interpreter.
    Python(Box<Interpreter>),
    /// The process had no interpreter at the last check.
    Other { next_look: Instant, wait: Duration },
}

/// The processes, and the stacks of their windows.
#[derive(Default)]
pub struct PythonProcesses {
    files: HashMap<PathBuf, Option<InterpreterFile>>,
    processes: HashMap<u32, Process>,
    /// Processes by row of the runtime's table.
    rows: Vec<u32>,
    changes: Vec<RowChange>,
    /// Stacks of all windows.
    pub stacks: PythonStacks,
}

impl PythonProcesses {
    /// A process has begun, or has executed a new program.
    pub fn begin(&mut self, pid: u32) {
        let before = self.processes.remove(&pid);
        self.look(pid, FIRST_WAIT);
        let has_row = self.rows.iter().position(|&of| of == pid);
        if let (Some(Process::Python(_)), Some(row)) = (before, has_row)
            && let Some(Process::Other { .. }) = self.processes.get(&pid)
        {
            let layout = None;
            self.changes.push(RowChange { row, pid, layout });
        }
    }

    /// A process was forked: the child has the interpreter and the code of its parent.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let Some(Process::Python(of_parent)) = self.processes.get(&parent) else {
            return self.begin(child);
        };
        let (layout, code_type) = (of_parent.layout, of_parent.code_type);
        self.add(child, layout, code_type);
    }

    /// Looks for an interpreter in a process that had none, if it is time for that.
    pub fn look_again(&mut self, pid: u32) {
        match self.processes.get(&pid) {
            None => self.look(pid, FIRST_WAIT),
            Some(Process::Other { next_look, wait }) if *next_look <= Instant::now() => {
                let wait = (*wait * 2).min(MAX_WAIT);
                self.look(pid, wait);
            }
            Some(_) => {}
        }
    }

    /// Rows of the runtime's table that are to change.
    pub fn take_changes(&mut self) -> Vec<RowChange> {
        std::mem::take(&mut self.changes)
    }

    fn look(&mut self, pid: u32, wait: Duration) {
        let memory = ProcessMemory(pid);
        match self.find(pid, &memory) {
            Some((layout, code_type)) => self.add(pid, layout, code_type),
            None => {
                let other = Process::Other {
                    next_look: Instant::now() + wait,
                    wait,
                };
                self.processes.insert(pid, other);
            }
        }
    }

    fn add(&mut self, pid: u32, layout: Layout, code_type: u64) {
        let interpreter = Interpreter {
            layout,
            code_type,
            codes: HashMap::new(),
        };
        self.processes
            .insert(pid, Process::Python(Box::new(interpreter)));
        if let Some(row) = self.row(pid) {
            self.changes.push(RowChange {
                row,
                pid,
                layout: Some(layout.frames),
            });
        }
    }

    /// A row for a process: its own, a new one, or that of a process that is gone.
    fn row(&mut self, pid: u32) -> Option<usize> {
        if let Some(own) = self.rows.iter().position(|&of| of == pid) {
            return Some(own);
        }
        if self.rows.len() < PYTHON_ROWS {
            self.rows.push(pid);
            return Some(self.rows.len() - 1);
        }
        let is_gone = |of: &u32| !Path::new(&format!("/proc/{of}")).exists();
        let free = self.rows.iter().position(is_gone)?;
        self.rows[free] = pid;
        Some(free)
    }

    /// The interpreter among the files that a process has mapped.
    fn find(&mut self, pid: u32, memory: &dyn Memory) -> Option<(Layout, u64)> {
        let text = proc_maps::read_process_maps(pid).unwrap_or_default();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let mut last = "";
        for line in proc_maps::lines(&text) {
            // The first mapping of a file begins with its first segment.
            if !line.name.starts_with('/') || line.name == last {
                continue;
            }
            last = line.name;
            let path = Path::new(line.name);
            if path != program && !is_named_python(path) {
                continue;
            }
            let file = self
                .files
                .entry(line.name.into())
                .or_insert_with_key(|path| InterpreterFile::read(path));
            let layout = file.and_then(|file| file.layout(line.start, memory));
            if layout.is_some() {
                return layout;
            }
        }
        None
    }

    /// The node of a window's frames, which are noted innermost first; [`NO_FRAME`] if there are
    /// none.
    pub fn node(&mut self, pid: u32, frames: &[PythonFrame]) -> u32 {
        let Some(Process::Python(process)) = self.processes.get_mut(&pid) else {
            return NO_FRAME;
        };
        process.node(frames, &ProcessMemory(pid), &mut self.stacks, &|file| {
            absolute(pid, file)
        })
    }
}

impl Interpreter {
    fn node(
        &mut self,
        frames: &[PythonFrame],
        memory: &dyn Memory,
        stacks: &mut PythonStacks,
        absolute: &dyn Fn(String) -> String,
    ) -> u32 {
        self.refresh(frames, memory, stacks, absolute);
        let layout = &self.layout.objects;
        let known = |frame: &PythonFrame| {
            let known = self.codes.get(&frame.code)?;
            let instruction = frame.instruction & !ENTRY_FRAME;
            let line = known.lines.line(layout, frame.code, instruction);
            Some((known.code, line, frame.instruction & ENTRY_FRAME != 0))
        };
        // A frame without a valid code object ends the list: its callers are unknown.
        let found: Vec<_> = frames.iter().map_while(known).collect();
        if found.is_empty() {
            return NO_FRAME;
        }
        let is_whole = found.len() == frames.len() && frames.len() < PYTHON_FRAMES;
        let root = if is_whole { NO_FRAME } else { UNKNOWN_FRAME };
        let call = |parent, &(code, line, is_entry): &(u32, u32, bool)| {
            stacks.node(PythonNode {
                parent,
                code,
                line,
                is_entry,
            })
        };
        found.iter().rev().fold(root, call)
    }

    /// Reads the heads of all frames' code at once, and the rest of those that are new.
    fn refresh(
        &mut self,
        frames: &[PythonFrame],
        memory: &dyn Memory,
        stacks: &mut PythonStacks,
        absolute: &dyn Fn(String) -> String,
    ) {
        let layout = self.layout.objects;
        let mut addresses: Vec<u64> = frames.iter().map(|frame| frame.code).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut bytes = vec![0; addresses.len() * layout.code_bytes()];
        let chunks = bytes.chunks_exact_mut(layout.code_bytes());
        let mut places: Vec<(u64, &mut [u8])> = addresses.iter().copied().zip(chunks).collect();
        let mut read = memory.read_all(&mut places);
        if read == 0 {
            // The memory of a process that is gone cannot be read; its known code stays.
            return;
        }
        // An invalid address ends the call, but later ones may be valid.
        while read < places.len() {
            self.codes.remove(&places[read].0);
            places.remove(read);
            read += memory.read_all(&mut places[read..]);
        }
        for (at, bytes) in places {
            let Some(head) = CodeHead::parse(bytes, &layout, self.code_type) else {
                self.codes.remove(&at);
                continue;
            };
            if self.codes.get(&at).is_some_and(|known| known.head == head) {
                continue;
            }
            let Some(names) = head.names(memory, &layout) else {
                self.codes.remove(&at);
                continue;
            };
            let known = KnownCode {
                head,
                code: stacks.code(PythonCode {
                    file: absolute(names.file),
                    ..names
                }),
                lines: head.lines(memory, &layout).unwrap_or_default(),
            };
            self.codes.insert(at, known);
        }
    }
}

/// The function of the interpreter that runs Python code.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// True for the interpreter's loop, or a part that the compiler has split off.
pub fn is_loop(function: &str) -> bool {
    let rest = function.strip_prefix(LOOP);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// True if a file may be the interpreter by its name (`libpython3.11.so.1.0`).
fn is_named_python(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.to_ascii_lowercase().contains("python") && !name.contains("cpython-")
}

/// Path of a source file. A relative path starts at the process's folder, if that is known.
fn absolute(pid: u32, file: String) -> String {
    if file.starts_with('/') || file.starts_with('<') {
        return file;
    }
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd"));
    let whole = folder.map(|folder| folder.join(&file));
    match whole {
        Ok(whole) if whole.is_file() => whole.display().to_string(),
        _ => file,
    }
}

#[cfg(test)]
mod tests;
