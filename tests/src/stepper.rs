//! The single-step reference: runs a program under ptrace, one instruction at a time, and logs
//! every load of the watched code. It computes the address from the registers right before the
//! load.
//!
//! - It logs only loads that retire. A load that faults is logged when it is executed again, and
//!   the fault is logged separately.
//! - The iterations of a repeated string instruction are one load.
//! - While a process with one thread runs code that is not watched, it is not stepped. The watched
//!   code is then overwritten with breakpoints, so that every entry into it is detected (return,
//!   callback, landing pad, `longjmp`, signal handler).
//! - It follows the processes and threads that the program creates. Processes that do not run the
//!   program itself (e.g. a recorder that starts it) are not stepped.
//! - It emulates `ptwrite` instead of executing it, so that binaries with it can be checked on a
//!   CPU without it.

mod image;
mod process;

use crate::events::{EventKind, StepperEvent, WatchedCode};
use crate::loads::{self, Read, Reads, RegisterState};
use crate::tracee::{Memory, Registers};
use anyhow::{Context, Result, bail};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpKind};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use image::{Image, linkage, original, same_form, segments};
use process::{CodeAddress, Process, entry_point, find_watched, group_of, parent_of};

/// The program to run and the code to watch.
pub struct StepperOptions {
    /// Command line.
    pub command: Vec<String>,
    /// The file whose process is stepped: the command itself, or a program that the command starts.
    pub program: PathBuf,
    /// Code under watch.
    pub watches: Vec<WatchedCode>,
    /// Switch address space randomisation off for the command.
    pub fixed_layout: bool,
    /// Step from the exec on, through the loader and all constructors; else from the program's
    /// entry point on.
    pub from_start: bool,
    /// Give up after this many steps.
    pub max_steps: u64,
}

/// The end of a stepped run.
#[derive(Clone, Copy, Debug)]
pub struct StepperOutcome {
    /// Wait status of the command.
    pub status: i32,
    /// Instructions stepped.
    pub steps: u64,
    /// Loads logged.
    pub loads: u64,
}

/// A decoded instruction under watch.
#[derive(Clone)]
struct Code {
    insn: Instruction,
    reads: Reads,
    place: CodeAddress,
    kind: EventKind,
    /// Link-time address to log.
    ip: u64,
    /// In a clone: the operand's registers differ from the original's.
    moved: bool,
    what: What,
}

/// The action at a watched address.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Log the load.
    Load,
    /// Emulate the `ptwrite`.
    PtWrite,
    /// A `lea` in a clone. It may compute the address of the following load into that load's own
    /// destination, so the stepper keeps the registers for the original's operand.
    Lea,
}

/// The code at a watched address.
#[derive(Clone)]
enum At {
    /// A load or a `ptwrite`.
    Load(Box<Code>),
    /// Another instruction.
    Other,
}

/// Loads of an instruction that has not retired yet.
struct Pending {
    address: u64,
    reads: Vec<Read>,
    kind: EventKind,
    watch: usize,
    ip: u64,
    /// Count register before the instruction, if it repeats.
    count: Option<u64>,
}

#[derive(Default)]
struct Thread {
    process: i32,
    pending: Option<Pending>,
    /// The initial stop of a new thread was seen.
    started: bool,
    /// Runs without steps until it hits a breakpoint.
    free: bool,
    /// Target and registers of the last `lea` in a clone, if there was no load since.
    lea: Option<(iced_x86::Register, libc::user_regs_struct)>,
    /// Its creator has not reported it yet.
    parked: bool,
}

/// The tracer.
pub struct Stepper<W: Write> {
    options: StepperOptions,
    program: PathBuf,
    images: Vec<Image>,
    processes: HashMap<i32, Process>,
    threads: HashMap<i32, Thread>,
    /// Threads reported by their creators, but not seen yet.
    expected: HashSet<i32>,
    factory: InstructionInfoFactory,
    out: W,
    buffer: Vec<u8>,
    steps: u64,
    loads: u64,
}

fn request(request: libc::c_uint, tid: i32, data: usize) -> std::io::Result<()> {
    // SAFETY: the requests made through this function take an integer in `data` and touch no memory of ours.
    if unsafe { libc::ptrace(request, tid, 0usize, data) } < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn event_message(tid: i32) -> std::io::Result<u64> {
    let mut value: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word to `value`.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0usize, &raw mut value) };
    if done < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

impl<W: Write> Stepper<W> {
    /// Prepares a run.
    pub fn new(options: StepperOptions, out: W) -> Result<Stepper<W>> {
        let mut images = Vec::new();
        for watch in &options.watches {
            let bytes =
                std::fs::read(&watch.path).with_context(|| watch.path.display().to_string())?;
            let original = match &watch.original {
                Some(path) => std::fs::read(path).with_context(|| path.display().to_string())?,
                None => Vec::new(),
            };
            let original_segments = if original.is_empty() {
                Vec::new()
            } else {
                segments(&original)?
            };
            images.push(Image {
                segments: segments(&bytes)?,
                linkage: linkage(&bytes),
                original,
                original_segments,
            });
        }
        let program = options
            .program
            .canonicalize()
            .with_context(|| options.program.display().to_string())?;
        Ok(Stepper {
            options,
            program,
            images,
            processes: HashMap::new(),
            threads: HashMap::new(),
            expected: HashSet::new(),
            factory: InstructionInfoFactory::new(),
            out,
            buffer: Vec::new(),
            steps: 0,
            loads: 0,
        })
    }

    fn spawn(&self) -> Result<Child> {
        let (name, args) = self.options.command.split_first().context("no command")?;
        let mut command = Command::new(name);
        command.args(args);
        let fixed = self.options.fixed_layout;
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                if fixed && libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                request(libc::PTRACE_TRACEME, 0, 0)
            });
        }
        command
            .spawn()
            .with_context(|| format!("cannot run {name}"))
    }

    /// Runs the command to its end.
    pub fn run(mut self) -> Result<StepperOutcome> {
        let child = self.spawn()?;
        let root = child.id() as i32;
        let mut status = None;
        let mut first = true;
        loop {
            let mut raw = 0;
            // SAFETY: the kernel writes one int.
            let tid = unsafe { libc::waitpid(-1, &raw mut raw, libc::__WALL) };
            if tid < 0 {
                let error = std::io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => break,
                    _ => bail!("waitpid: {error}"),
                }
            }
            if libc::WIFEXITED(raw) || libc::WIFSIGNALED(raw) {
                self.threads.remove(&tid);
                self.processes.remove(&tid);
                if tid == root {
                    status = Some(raw);
                }
                continue;
            }
            if first {
                first = false;
                let options = libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEEXEC
                    | libc::PTRACE_O_EXITKILL;
                request(libc::PTRACE_SETOPTIONS, tid, options as usize)
                    .context("PTRACE_SETOPTIONS")?;
                self.threads.insert(
                    tid,
                    Thread {
                        process: tid,
                        started: true,
                        ..Thread::default()
                    },
                );
                self.exec(tid)?;
                self.resume(tid, 0)?;
                continue;
            }
            self.stopped(tid, raw)?;
            if self.steps > self.options.max_steps {
                // SAFETY: plain system call on our own child.
                unsafe { libc::kill(root, libc::SIGKILL) };
                bail!("more than {} steps", self.options.max_steps);
            }
        }
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        let status = status.context("the command's end was not seen")?;
        Ok(StepperOutcome {
            status,
            steps: self.steps,
            loads: self.loads,
        })
    }

    fn stopped(&mut self, tid: i32, raw: i32) -> Result<()> {
        if !self.threads.contains_key(&tid) {
            self.adopt(tid);
        }
        let signal = libc::WSTOPSIG(raw);
        let event = raw >> 16;
        if event == libc::PTRACE_EVENT_EXEC {
            // The thread that called exec takes the process id.
            let former = event_message(tid)? as i32;
            if former != tid {
                self.threads.remove(&former);
            }
            self.threads.insert(
                tid,
                Thread {
                    process: tid,
                    started: true,
                    ..Thread::default()
                },
            );
            self.exec(tid)?;
            return self.resume(tid, 0);
        }
        if event == libc::PTRACE_EVENT_FORK
            || event == libc::PTRACE_EVENT_VFORK
            || event == libc::PTRACE_EVENT_CLONE
        {
            self.born(tid, event, event_message(tid)? as i32)?;
        }
        if event != 0 {
            return self.resume(tid, 0);
        }
        let thread = self
            .threads
            .get_mut(&tid)
            .context("a stop of an unknown thread")?;
        if !thread.started && signal == libc::SIGSTOP {
            thread.started = true;
            return if thread.parked {
                Ok(())
            } else {
                self.resume(tid, 0)
            };
        }
        let process = thread.process;
        if signal == libc::SIGTRAP
            && self
                .processes
                .get(&process)
                .is_some_and(|p| p.stepped || p.breakpoint.is_some())
        {
            return self.trapped(tid, process);
        }
        // Any other signal: the current instruction did not retire. If it repeats, its iterations
        // so far count.
        if thread.pending.as_ref().is_some_and(|p| p.count.is_none()) {
            thread.pending = None;
        }
        self.faulted(tid, process, signal)?;
        self.resume(tid, signal)
    }

    /// Logs a fault of a watched instruction.
    fn faulted(&mut self, tid: i32, pid: i32, signal: i32) -> Result<()> {
        if !matches!(
            signal,
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL
        ) || !self.processes.get(&pid).is_some_and(|p| p.stepped)
        {
            return Ok(());
        }
        // SAFETY: all-zero bytes are a valid value of this plain struct, and it is large enough for
        // the data that the request writes.
        let (done, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (
                libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0usize, &raw mut info),
                info,
            )
        };
        if done < 0 || info.si_code <= 0 {
            return Ok(());
        }
        let ip = Registers::read(tid)?.user.rip;
        let process = self
            .processes
            .get_mut(&pid)
            .context("a fault in an unknown process")?;
        let place = find_watched(
            process,
            &self.program,
            &self.options.watches,
            &self.images,
            pid,
            ip,
        )?;
        match place {
            Some(place) => self.put(
                tid,
                pid,
                StepperEvent {
                    kind: EventKind::Fault,
                    ip: ip.wrapping_sub(place.bias),
                    value: signal as u64,
                    ..blank(place.watch)
                },
            ),
            None => Ok(()),
        }
    }

    /// A new thread or process whose parent is traced.
    fn adopt(&mut self, tid: i32) {
        let group = group_of(tid).unwrap_or(tid);
        if !self.processes.contains_key(&group)
            && let Some(parent) = parent_of(group)
            && self.processes.get(&parent).is_some_and(|p| p.stepped)
            && let Ok(memory) = Memory::open(group)
        {
            self.processes.insert(group, Process::new(memory));
        }
        // Until its creator's report is seen, it is unknown what it shares with its creator.
        let parked =
            self.processes.get(&group).is_some_and(|p| p.stepped) && !self.expected.remove(&tid);
        self.threads.insert(
            tid,
            Thread {
                process: group,
                parked,
                ..Thread::default()
            },
        );
    }

    /// Handles a thread's report that it has created a thread or a process.
    fn born(&mut self, tid: i32, event: i32, child: i32) -> Result<()> {
        let pid = self.threads.get(&tid).map_or(tid, |t| t.process);
        let Some(parent) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        if event != libc::PTRACE_EVENT_FORK {
            // With another thread, or a child in the same memory, only stepping sees everything
            // from here on.
            parent.mine(false)?;
            parent.alone = false;
        }
        if !parent.stepped {
            return Ok(());
        }
        let (mines, mined, alone) = (parent.mines.clone(), parent.mined, parent.alone);
        if group_of(child) != Some(pid) {
            if !self.processes.contains_key(&child)
                && let Ok(memory) = Memory::open(child)
            {
                self.processes.insert(child, Process::new(memory));
            }
            if let Some(process) = self.processes.get_mut(&child) {
                (process.mines, process.mined, process.alone) = (mines, mined, alone);
            }
        }
        match self.threads.get_mut(&child) {
            Some(thread) if thread.parked => {
                thread.parked = false;
                if thread.started {
                    self.resume(child, 0)
                } else {
                    Ok(())
                }
            }
            Some(_) => Ok(()),
            None => {
                self.expected.insert(child);
                Ok(())
            }
        }
    }

    /// Lets a thread outside the watched code run until it returns there, if nothing can be missed.
    fn let_go(&mut self, tid: i32, pid: i32) -> Result<bool> {
        let Some(process) = self.processes.get_mut(&pid).filter(|p| p.alone) else {
            return Ok(false);
        };
        if process.mines.is_none() {
            let mut mines: Vec<(u64, Vec<u8>)> = Vec::new();
            for (watch, bias) in process.mappings.iter().filter_map(|m| m.module) {
                for &(start, end, _) in &self.options.watches[watch].ranges {
                    let (start, mut bytes) =
                        (start.wrapping_add(bias), vec![0; (end - start) as usize]);
                    let n = process.memory.read(start, &mut bytes);
                    bytes.truncate(n);
                    mines.push((start, bytes));
                }
            }
            mines.sort();
            mines.dedup();
            // None of the watched code is mapped yet: try again later.
            if mines.is_empty() {
                return Ok(false);
            }
            process.mines = Some(mines);
        }
        process.mine(true)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.free = true;
        }
        Ok(true)
    }

    /// Handles an exec: the process has a new image.
    fn exec(&mut self, pid: i32) -> Result<()> {
        self.processes.remove(&pid);
        let image = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        if image.as_deref() != Some(self.program.as_path()) {
            return Ok(());
        }
        let memory = Memory::open(pid)?;
        let mut process = Process::new(memory);
        if !self.options.from_start {
            let entry = entry_point(pid).context("no entry point in the auxiliary vector")?;
            let mut byte = [0u8];
            if process.memory.read(entry, &mut byte) != 1 {
                bail!("the entry point {entry:#x} cannot be read");
            }
            process.memory.write(entry, &[0xcc])?;
            process.breakpoint = Some((entry, byte[0]));
            process.stepped = false;
        }
        self.processes.insert(pid, process);
        Ok(())
    }

    fn trapped(&mut self, tid: i32, pid: i32) -> Result<()> {
        let process = self
            .processes
            .get_mut(&pid)
            .context("a trap in an unknown process")?;
        if let Some((entry, byte)) = process.breakpoint.take() {
            let mut registers = Registers::read(tid)?;
            if registers.user.rip != entry + 1 {
                bail!("a trap at {:#x} before the entry point", registers.user.rip);
            }
            process.memory.write(entry, &[byte])?;
            registers.user.rip = entry;
            registers.write()?;
            process.stepped = true;
            return self.resume(tid, 0);
        }
        let free = self
            .threads
            .get_mut(&tid)
            .is_some_and(|t| std::mem::take(&mut t.free));
        if free && process.mined {
            let mut registers = Registers::read(tid)?;
            let at = registers.user.rip.wrapping_sub(1);
            let hit = process
                .mines
                .iter()
                .flatten()
                .any(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&at));
            if !hit {
                // A trap of the program itself.
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.free = true;
                }
                return self.resume(tid, libc::SIGTRAP);
            }
            process.mine(false)?;
            registers.user.rip = at;
            registers.write()?;
        } else {
            self.steps += 1;
        }
        self.resume(tid, 0)
    }

    /// Continues a thread: by one instruction if its process is stepped.
    fn resume(&mut self, tid: i32, signal: i32) -> Result<()> {
        let pid = self.threads.get(&tid).map_or(tid, |t| t.process);
        let stepped = self.processes.get(&pid).is_some_and(|p| p.stepped);
        let mut how = if stepped {
            libc::PTRACE_SINGLESTEP
        } else {
            libc::PTRACE_CONT
        };
        if stepped && signal != 0 && self.threads.get(&tid).is_some_and(|t| t.free) {
            how = libc::PTRACE_CONT;
        } else if stepped && signal == 0 {
            match self.before_step(tid, pid) {
                Ok(false) if self.let_go(tid, pid)? => how = libc::PTRACE_CONT,
                Ok(_) => {}
                // The thread was killed while it was stopped; its end will be reported.
                Err(error) if gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match request(how, tid, signal as usize) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                bail!("cannot resume thread {tid}: {error}")
            }
            _ => Ok(()),
        }
    }

    /// Logs the retired instruction and prepares the next step. Returns true if that starts in
    /// watched code.
    fn before_step(&mut self, tid: i32, pid: i32) -> Result<bool> {
        let mut registers = Registers::read(tid)?;
        if let Some(pending) = self.threads.get_mut(&tid).and_then(|t| t.pending.take()) {
            if pending.count.is_some() && registers.user.rip == pending.address {
                // One more iteration of the same instruction.
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.pending = Some(pending);
                }
                return Ok(true);
            }
            self.log(tid, pid, &pending, &registers);
        }
        loop {
            let ip = registers.user.rip;
            let code = match self.code(tid, pid, ip)? {
                Some(At::Load(code)) => code,
                Some(At::Other) => return Ok(true),
                None => return Ok(false),
            };
            if code.what == What::PtWrite {
                let value = operand(&code.insn, &registers);
                self.put(
                    tid,
                    pid,
                    StepperEvent {
                        kind: EventKind::PtWrite,
                        value,
                        ip: code.ip,
                        ..blank(code.place.watch)
                    },
                )?;
                registers.user.rip += code.insn.len() as u64;
                registers.write()?;
                continue;
            }
            if code.what == What::Lea {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.lea = Some((code.insn.op0_register(), registers.user));
                }
                return Ok(true);
            }
            let mut reads = Vec::new();
            let kept = self.threads.get_mut(&tid).and_then(|t| t.lea.take());
            match kept {
                Some((register, user)) if code.moved && register == code.insn.memory_base() => {
                    if let Some(original) = self.original(&code) {
                        loads::evaluate(
                            &original,
                            &code.reads,
                            &mut Registers::at(tid, user),
                            &mut reads,
                        );
                    }
                }
                _ => loads::evaluate(&code.insn, &code.reads, &mut registers, &mut reads),
            }
            let repeats = matches!(code.reads, Reads::String { repeated: true, .. });
            let count = repeats.then(|| loads::register(count_register(&code.insn), &registers));
            if let Some(thread) = self.threads.get_mut(&tid)
                && !reads.is_empty()
            {
                thread.pending = Some(Pending {
                    address: ip,
                    reads,
                    kind: code.kind,
                    watch: code.place.watch,
                    ip: code.ip,
                    count,
                });
            }
            return Ok(true);
        }
    }

    /// The original of a load in a clone.
    fn original(&self, code: &Code) -> Option<Instruction> {
        original(&self.images[code.place.watch], code.ip, code.place.bias)
    }

    fn log(&mut self, tid: i32, pid: i32, pending: &Pending, after: &Registers) {
        // No compiler uses an address-size prefix on a repeated instruction, so the count is rcx.
        let times = pending
            .count
            .map_or(1, |before| before.wrapping_sub(after.gpr(1)));
        if times == 0 {
            return;
        }
        for read in &pending.reads {
            self.loads += 1;
            let event = StepperEvent {
                kind: pending.kind,
                ip: pending.ip,
                value: read.address,
                size: (read.size * times) as u32,
                ..blank(pending.watch)
            };
            // Failure to write is found at the final flush.
            let _ = self.put(tid, pid, event);
        }
    }

    fn put(&mut self, tid: i32, pid: i32, event: StepperEvent) -> Result<()> {
        StepperEvent {
            process: pid as u32,
            thread: tid as u32,
            ..event
        }
        .put(&mut self.buffer);
        if self.buffer.len() > 1 << 20 {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// The instruction at `ip`, if it is watched.
    fn code(&mut self, tid: i32, pid: i32, ip: u64) -> Result<Option<At>> {
        let process = self
            .processes
            .get_mut(&pid)
            .context("a step in an unknown process")?;
        if let Some(known) = process.code.get(&ip) {
            return Ok(known.clone());
        }
        let found = find_watched(
            process,
            &self.program,
            &self.options.watches,
            &self.images,
            pid,
            ip,
        )?;
        let code = match found {
            None => None,
            Some(place) => {
                let process = self
                    .processes
                    .get_mut(&pid)
                    .context("a step in an unknown process")?;
                if !process.announced.contains(&place.watch) {
                    process.announced.push(place.watch);
                    self.put(
                        tid,
                        pid,
                        StepperEvent {
                            kind: EventKind::Module,
                            value: place.bias,
                            ..blank(place.watch)
                        },
                    )?;
                }
                Some(
                    self.decode(pid, ip, place)?
                        .map_or(At::Other, |code| At::Load(Box::new(code))),
                )
            }
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.code.insert(ip, code.clone());
        }
        Ok(code)
    }

    fn decode(&mut self, pid: i32, ip: u64, place: CodeAddress) -> Result<Option<Code>> {
        let process = &self.processes[&pid];
        let mut bytes = [0u8; 15];
        let n = process.memory.read(ip, &mut bytes);
        let mut insn = Decoder::with_ip(64, &bytes[..n], ip, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            bail!(
                "{ip:#x}: an instruction that cannot be decoded: {:02x?}",
                &bytes[..n]
            );
        }
        if insn.mnemonic() == iced_x86::Mnemonic::Ptwrite {
            let code = Code {
                insn,
                reads: Reads::None,
                place,
                kind: EventKind::PtWrite,
                ip: ip - place.bias,
                moved: false,
                what: What::PtWrite,
            };
            return Ok(Some(code));
        }
        if place.clone && insn.mnemonic() == iced_x86::Mnemonic::Lea {
            return Ok(Some(Code {
                insn,
                reads: Reads::None,
                place,
                kind: EventKind::Clone,
                ip: ip - place.bias,
                moved: false,
                what: What::Lea,
            }));
        }
        let link = ip - place.bias;
        let mut reads = loads::classify(&insn, &mut self.factory);
        if matches!(reads, Reads::None) {
            match self.by_linkage(pid, &insn, link, place) {
                Some(word) => reads = Reads::Linkage(word),
                None => return Ok(None),
            }
        }
        let thread_pointer = insn.mnemonic() == iced_x86::Mnemonic::Mov
            && insn.memory_segment() == iced_x86::Register::FS
            && insn.memory_base() == iced_x86::Register::None
            && insn.memory_index() == iced_x86::Register::None
            && insn.memory_displacement64() == 0;
        let listed = self.options.watches[place.watch]
            .copies
            .binary_search_by_key(&link, |c| c.0)
            .is_ok();
        if place.clone && thread_pointer && !listed {
            // The load by which a probe finds the base of fs (ARCHITECTURE.md, "Soft probe"); a
            // load of the program would be listed.
            return Ok(None);
        }
        let (mut kind, mut at, mut moved) = (
            if place.clone {
                EventKind::Unlisted
            } else {
                EventKind::Original
            },
            link,
            false,
        );
        if place.clone {
            let watch = &self.options.watches[place.watch];
            if let Ok(i) = watch.copies.binary_search_by_key(&link, |c| c.0) {
                at = watch.copies[i].1;
                kind = EventKind::Clone;
                if let Some(original) = original(&self.images[place.watch], at, place.bias)
                    && !matches!(reads, Reads::Linkage(_))
                {
                    if same_form(&insn, &original) {
                        // Only literals differ: the read of the original instruction counts.
                        insn = original;
                    } else {
                        moved = true;
                    }
                }
            }
        }
        Ok(Some(Code {
            insn,
            reads,
            place,
            kind,
            ip: at,
            moved,
            what: What::Load,
        }))
    }
}

/// Calls and jumps through linkage tables.
impl<W: Write> Stepper<W> {
    /// The word that an instruction reads through a linkage table. In a clone it is the original's
    /// word, because the clone may have several instructions for the original's call.
    fn by_linkage(
        &self,
        pid: i32,
        insn: &Instruction,
        link: u64,
        place: CodeAddress,
    ) -> Option<u64> {
        let image = &self.images[place.watch];
        let insn = match place.clone {
            true => {
                let copies = &self.options.watches[place.watch].copies;
                let i = copies.binary_search_by_key(&link, |c| c.0).ok()?;
                original(image, copies[i].1, place.bias)?
            }
            false => *insn,
        };
        let entry = loads::branches_to(&insn)?;
        let table = entry.wrapping_sub(place.bias);
        if !image.linkage.iter().any(|r| (r.0..r.1).contains(&table)) {
            return None;
        }
        let mut bytes = [0; 11];
        let n = self.processes.get(&pid)?.memory.read(entry, &mut bytes);
        loads::linkage_word(&bytes[..n], entry)
    }
}

fn gone(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.raw_os_error() == Some(libc::ESRCH))
}

fn blank(watch: usize) -> StepperEvent {
    StepperEvent {
        process: 0,
        thread: 0,
        kind: EventKind::Original,
        watch: watch as u16,
        size: 0,
        ip: 0,
        value: 0,
    }
}

fn count_register(insn: &Instruction) -> iced_x86::Register {
    let short = (0..insn.op_count())
        .any(|i| matches!(insn.op_kind(i), OpKind::MemorySegESI | OpKind::MemoryESEDI));
    if short {
        iced_x86::Register::ECX
    } else {
        iced_x86::Register::RCX
    }
}

/// The value that a `ptwrite` with a register operand would send.
fn operand(insn: &Instruction, registers: &Registers) -> u64 {
    loads::register(insn.op0_register(), registers)
}
