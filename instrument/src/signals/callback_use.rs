//! Uses of an argument by functions: the search checks if handlers look at their context,
//! themselves or in functions that they call.

use crate::ir::FunctionId;
use crate::ir::cfg::Cfg;
use crate::signals::abstract_state::{ARGUMENTS, AbstractState, FRAME, Value, memory_key};
use crate::signals::search::InstallerSearch;
use crate::signals::transfer;
use crate::signals::transfer::Follow;
use crate::x86::flow::direct_target;
use crate::x86::regs::{Gpr, RegSet, gpr};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// The instruction pointer in `ucontext_t`.
const REG_RIP: Range<u64> = 168..176;
/// `si_addr` in `siginfo_t`.
const SI_ADDR: Range<u64> = 16..24;
/// All arguments that come in registers.
pub const ALL: u8 = 0x3f;
/// Number of arguments of functions that handlers often call. Other functions may look at all six
/// argument registers.
const ARITIES: [(&str, u8); 34] = [
    ("abort", 0),
    ("__stack_chk_fail", 0),
    ("__errno_location", 0),
    ("getpid", 0),
    ("pthread_self", 0),
    ("pause", 0),
    ("fork", 0),
    ("getppid", 0),
    ("_exit", 1),
    ("exit", 1),
    ("_Exit", 1),
    ("raise", 1),
    ("sigemptyset", 1),
    ("sigfillset", 1),
    ("fflush", 1),
    ("puts", 1),
    ("strlen", 1),
    ("time", 1),
    ("sem_post", 1),
    ("alarm", 1),
    ("perror", 1),
    ("free", 1),
    ("malloc", 1),
    ("unlink", 1),
    ("close", 1),
    ("pthread_exit", 1),
    ("strsignal", 1),
    ("signal", 2),
    ("kill", 2),
    ("siglongjmp", 2),
    ("longjmp", 2),
    ("__longjmp_chk", 2),
    ("fputs", 2),
    ("psiginfo", 2),
];
/// Functions that write numbers and texts. They do not look at other memory.
const PRINTERS: [&str; 17] = [
    "printf",
    "fprintf",
    "dprintf",
    "sprintf",
    "snprintf",
    "syslog",
    "err",
    "errx",
    "warn",
    "warnx",
    "__printf_chk",
    "__fprintf_chk",
    "__dprintf_chk",
    "__sprintf_chk",
    "__snprintf_chk",
    "__syslog_chk",
    "__assert_fail",
];
/// Number of arguments of system calls, like [`ARITIES`]: pause, getpid, fork, getuid, getppid,
/// gettid; close, exit, exit_group; kill, tkill.
const SYSTEM_ARITIES: [(u64, usize); 11] = [
    (34, 0),
    (39, 0),
    (57, 0),
    (102, 0),
    (110, 0),
    (186, 0),
    (3, 1),
    (60, 1),
    (231, 1),
    (62, 2),
    (200, 2),
];

/// A query about a function: its use of an argument.
struct Asked {
    function: usize,
    param: u8,
    look: Look,
    /// Number of calls that may still be followed.
    depth: usize,
    /// True if it never puts the followed argument into that argument's register itself.
    idle: bool,
    is_variadic: bool,
    /// True if it loads the stack pointer and all callee-saved registers from memory.
    restores: bool,
}

impl Asked {
    fn bit(&self) -> u8 {
        1 << self.param
    }

    fn is_in(&self, value: Value) -> bool {
        value.taint() & self.bit() != 0
    }

    /// True if an instruction puts the followed argument into the register in which it came.
    fn is_set_by(&self, inst: &Instruction, state: &AbstractState) -> bool {
        let register = ARGUMENTS[usize::from(self.param)];
        if inst.op0_kind() != OpKind::Register
            || gpr(inst.op0_register()) != Some(Gpr(register))
            || matches!(
                inst.mnemonic(),
                Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
            )
        {
            return false;
        }
        let read =
            |address: Value| memory_key(address).is_some_and(|at| self.is_in(state.read(at, 8)));
        match inst.mnemonic() {
            Mnemonic::Pop => read(state.regs[4]),
            Mnemonic::Lea => self.is_in(state.address(inst)),
            _ => (1..inst.op_count()).any(|o| match inst.op_kind(o) {
                OpKind::Register => self.is_in(state.register(inst.op_register(o))),
                OpKind::Memory => read(state.address(inst)),
                _ => false,
            }),
        }
    }
}

/// True if a function loads rsp, rbx, rbp and r12 to r15 from memory, as `longjmp` does.
fn restores_all(graph: &Cfg) -> bool {
    const ALL_KEPT: RegSet = RegSet(1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12);
    let mut taken = RegSet::EMPTY;
    for inst in graph.insns.iter().map(|i| &i.inst) {
        if inst.mnemonic() == Mnemonic::Mov
            && inst.op0_kind() == OpKind::Register
            && inst.op0_register().size() == 8
            && inst.op1_kind() == OpKind::Memory
            && let Some(register) = gpr(inst.op0_register())
        {
            taken = taken.with(register);
        }
    }
    taken.0 & ALL_KEPT.0 == ALL_KEPT.0
}

/// True if a function is variadic. Compilers test the number of vector register arguments in such
/// functions before they store these.
fn is_variadic(graph: &Cfg) -> bool {
    let counts = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Test
            && i.op0_register() == Register::AL
            && i.op1_register() == Register::AL
    };
    let stores = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Memory
            && i.op1_register() == Register::R9
    };
    graph.insns.iter().take(32).any(|i| counts(&i.inst))
        && graph.insns.iter().take(32).any(|i| stores(&i.inst))
}

/// Kind of use of an argument that the search looks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Look {
    /// Use of the context: anything that depends on the program's position.
    Anything,
    /// Use of the context: reading or setting the interrupted position.
    Place,
    /// Use of the facts about a signal: reading the part with the interrupted position.
    Origin,
    /// Use of the address of some part of either, which may be the position.
    Part,
}

impl InstallerSearch<'_> {
    /// True if a function may make the use `look` of its argument number `param`, or pass the
    /// argument to unknown code.
    pub fn uses(&self, function: usize, param: u8, look: Look, depth: usize) -> bool {
        let key = (self.program.functions[function].range.start, param, look);
        if depth == 0 {
            return true;
        }
        if let Some(&known) = self.asked.borrow().get(&key) {
            return known;
        }
        self.asked.borrow_mut().insert(key, false);
        let used = self.find_use(function, param, look, depth);
        self.asked.borrow_mut().insert(key, used);
        used
    }

    /// The function of the file that is called.
    fn callee(&self, inst: &Instruction) -> Option<FunctionId> {
        let target = self.imports.own_callee(inst)?;
        self.program
            .function_at(target)
            .filter(|f| self.program.function(*f).range.start == target)
    }

    /// The arguments that a call to a function of the file may return. (Many functions return none.
    /// Values left over in registers do not count.)
    fn handed_back(&self, inst: &Instruction) -> u8 {
        let Some(function) = self.callee(inst) else {
            return ALL;
        };
        let function = function.0 as usize;
        if let Some(&known) = self.returned.borrow().get(&function) {
            return known;
        }
        let found = self.graph(function).and_then(|graph| {
            let callee = |inst: &Instruction| self.imports.callee(inst);
            let by_abi = |inst: &Instruction| self.imports.callee_follows_abi(inst);
            let states = Follow {
                callee: &callee,
                by_abi: &by_abi,
                actions: &|_| (None, 0),
                handed_back: &|_| ALL,
                uses: true,
            }
            .solve(&graph, ALL)?;
            graph
                .insns
                .iter()
                .zip(&states)
                .try_fold(0, |all, (insn, state)| match insn.inst.flow_control() {
                    FlowControl::Return => {
                        Some(all | state.as_ref().map_or(0, |s| s.regs[0].taint()))
                    }
                    FlowControl::IndirectBranch => None,
                    FlowControl::Call => Some(all),
                    _ if direct_target(&insn.inst)
                        .is_some_and(|t| !self.program.functions[function].range.contains(&t)) =>
                    {
                        None
                    }
                    _ => Some(all),
                })
        });
        *self
            .returned
            .borrow_mut()
            .entry(function)
            .or_insert(found.unwrap_or(ALL))
    }

    /// True if a function has arguments on the stack.
    fn takes_stack(&self, function: usize) -> bool {
        let Some(graph) = self.graph(function) else {
            return true;
        };
        let callee = |inst: &Instruction| self.imports.callee(inst);
        let by_abi = |inst: &Instruction| self.imports.callee_follows_abi(inst);
        let Some(states) = (Follow {
            callee: &callee,
            by_abi: &by_abi,
            actions: &|_| (None, 0),
            handed_back: &|_| ALL,
            uses: true,
        })
        .solve(&graph, 0) else {
            return true;
        };
        let above = |value: Value| match value {
            Value::Frame(at) => at >= 8,
            other => other.taint() & FRAME != 0,
        };
        graph.insns.iter().zip(&states).any(|(insn, state)| {
            state.as_ref().is_some_and(|s| {
                (0..insn.inst.op_count()).any(|o| insn.inst.op_kind(o) == OpKind::Memory)
                    && above(s.address(&insn.inst))
            })
        })
    }

    fn find_use(&self, function: usize, param: u8, look: Look, depth: usize) -> bool {
        let Some(graph) = self.graph(function) else {
            return true;
        };
        let callee = |inst: &Instruction| self.imports.callee(inst);
        let by_abi = |inst: &Instruction| self.imports.callee_follows_abi(inst);
        // The preceding arguments are tracked only if it matters whether a callee gets all of them.
        let named = if look == Look::Anything {
            1 << param
        } else {
            (2 << param) - 1
        };
        let handed_back = |inst: &Instruction| self.handed_back(inst);
        let Some(states) = (Follow {
            callee: &callee,
            by_abi: &by_abi,
            actions: &|_| (None, 0),
            handed_back: &handed_back,
            uses: true,
        })
        .solve(&graph, named) else {
            return true;
        };
        let steps = || {
            graph
                .insns
                .iter()
                .zip(&states)
                .filter_map(|(insn, state)| Some((&insn.inst, state.as_ref()?)))
        };
        let mut asked = Asked {
            function,
            param,
            look,
            depth,
            idle: false,
            is_variadic: look != Look::Anything && is_variadic(&graph),
            restores: restores_all(&graph),
        };
        asked.idle =
            look != Look::Anything && !steps().any(|(inst, state)| asked.is_set_by(inst, state));
        steps().any(|(inst, state)| self.gives_away(inst, state, &asked))
    }

    /// True if an instruction makes the searched use of the followed argument, or passes the
    /// argument to other code.
    fn gives_away(&self, inst: &Instruction, state: &AbstractState, asked: &Asked) -> bool {
        let taint = |r| asked.is_in(state.register(r));
        if matches!(
            inst.mnemonic(),
            Mnemonic::Nop | Mnemonic::Lea | Mnemonic::Endbr64
        ) {
            return false;
        }
        for op in 0..inst.op_count() {
            let through = match inst.op_kind(op) {
                OpKind::Memory if asked.look == Look::Anything && is_harmless_read(inst, state) => {
                    false
                }
                OpKind::Memory
                    if asked.look == Look::Place && is_elsewhere(inst, state, REG_RIP) =>
                {
                    false
                }
                OpKind::Memory
                    if asked.look == Look::Origin && is_elsewhere(inst, state, SI_ADDR) =>
                {
                    false
                }
                OpKind::Memory => taint(inst.memory_base()) || taint(inst.memory_index()),
                OpKind::MemorySegRSI | OpKind::MemorySegESI => {
                    asked.is_in(state.regs[6]) || state.leads_to(state.regs[6], asked.bit())
                }
                OpKind::MemoryESRDI | OpKind::MemoryESEDI | OpKind::MemorySegRDI => {
                    asked.is_in(state.regs[7])
                }
                _ => false,
            };
            if through {
                return true;
            }
        }
        if inst.mnemonic() == Mnemonic::Syscall {
            let number = state.regs[0].low(4).as_constant();
            let arity = SYSTEM_ARITIES
                .iter()
                .find(|a| Some(a.0) == number)
                .map_or(6, |a| a.1);
            return [7, 6, 2, 10, 8, 9]
                .iter()
                .take(arity)
                .any(|&r: &usize| asked.is_in(state.regs[r]));
        }
        let outside = direct_target(inst)
            .is_none_or(|t| !self.program.functions[asked.function].range.contains(&t));
        match inst.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                return self.call_gives_away(inst, state, asked);
            }
            FlowControl::IndirectBranch => {
                return !is_long_jump(state, asked) && self.call_gives_away(inst, state, asked);
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch if outside => {
                return leaves_with(state, asked) || self.call_gives_away(inst, state, asked);
            }
            _ => {}
        }
        // (Vector registers are not tracked.)
        if inst.op0_kind() == OpKind::Register
            && !inst.op0_register().is_gpr()
            && (1..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory)
            && self.reads(inst, state, asked)
        {
            return true;
        }
        // (Half of an address is useless.)
        let whole = |r: Register| asked.look == Look::Anything || r.size() >= 8;
        let given = (0..inst.op_count()).any(|o| {
            o > 0
                && inst.op_kind(o) == OpKind::Register
                && whole(inst.op_register(o))
                && taint(inst.op_register(o))
        });
        let kept = match inst.op0_kind() {
            // The value stays in the function's own frame, or in a tracked register.
            OpKind::Memory => {
                matches!(state.address(inst), Value::Frame(_))
                    || matches!(inst.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
            }
            OpKind::Register => inst.op0_register().is_gpr(),
            _ => true,
        };
        let shown = || {
            inst.op0_kind() == OpKind::Memory
                && inst.op_count() > 1
                && inst.op1_kind() == OpKind::Register
                && inst.op1_register().size() >= 8
                && state.leads_to(state.register(inst.op1_register()), asked.bit())
        };
        !kept && (given || shown())
    }

    /// True if a memory operand in the frame holds the followed argument.
    fn reads(&self, inst: &Instruction, state: &AbstractState, asked: &Asked) -> bool {
        let size = inst.memory_size().size().max(1) as i64;
        match memory_key(state.address(inst)) {
            Some(at) => (at..at + size)
                .step_by(8)
                .any(|at| asked.is_in(state.read(at, 8))),
            None => state.leads_to(state.address(inst), asked.bit()),
        }
    }

    fn call_gives_away(&self, inst: &Instruction, state: &AbstractState, asked: &Asked) -> bool {
        let argument = |n: usize| state.regs[usize::from(ARGUMENTS[n])];
        let inside = |n: usize| state.leads_to(argument(n), asked.bit());
        let mut all = (0..6).filter(|&n| asked.is_in(argument(n)));
        // In a callee with fewer arguments, the handler's argument may be left over in an unset
        // register. If all preceding arguments are passed on too, the argument counts as given.
        let handed_on = (0..usize::from(asked.param)).all(|n| argument(n) == Value::Param(n as u8));
        let left_over = |n: usize| asked.idle && n == usize::from(asked.param) && !handed_on;
        if let Some(name) = self.imports.callee(inst) {
            if PRINTERS.contains(&name) {
                return false;
            }
            let arity = ARITIES
                .iter()
                .find(|a| a.0 == name)
                .map(|a| usize::from(a.1));
            let known = arity.is_some() || transfer::only_writes(name);
            return all.any(|n| n < arity.unwrap_or(6))
                || !transfer::only_writes(name) && (0..arity.unwrap_or(6)).any(inside)
                || !known && state.passes_on_stack(asked.bit());
        }
        // (Pointers in an object in the frame are not followed. A variadic function keeps all of
        // its arguments in such an object.)
        if !asked.is_variadic && (0..6).any(inside) {
            return true;
        }
        let Some(callee) = self.callee(inst) else {
            return all.next().is_some() || state.passes_on_stack(asked.bit());
        };
        if state.passes_on_stack(asked.bit()) && self.takes_stack(callee.0 as usize) {
            return true;
        }
        all.any(|n| {
            // The address of some part of the context may be the address of that word.
            let look = if matches!(argument(n), Value::Param(_)) || asked.look == Look::Anything {
                asked.look
            } else {
                Look::Part
            };
            (asked.depth > 1 || !left_over(n))
                && self.uses(callee.0 as usize, n as u8, look, asked.depth - 1)
        })
    }
}

/// True if a jump continues where `setjmp` was called, with the stack of that time, and the
/// followed argument is only left over in its register.
fn is_long_jump(state: &AbstractState, asked: &Asked) -> bool {
    let own = usize::from(ARGUMENTS[usize::from(asked.param)]);
    let elsewhere = || {
        let mut others = (0..16usize).filter(|&r| r != own).map(|r| state.regs[r]);
        others.any(|value| asked.is_in(value) || state.leads_to(value, asked.bit()))
    };
    // (The first two are the position and the value. A function that only changes the stack may
    // jump to one with the same arguments.)
    asked.param >= 2
        && asked.restores
        && matches!(state.regs[4], Value::Bits { .. })
        && state.regs[own] == Value::Param(asked.param)
        && !elsewhere()
}

/// True if a jump passes the followed argument to other code, but not as an argument. Rarely
/// executed code may have been moved out of the middle of a function; any register and the frame
/// may then hold the argument.
fn leaves_with(state: &AbstractState, asked: &Asked) -> bool {
    let is_end = state.regs[4] == Value::Frame(0);
    let hidden = (0..16u8)
        .filter(|r| !is_end || !ARGUMENTS.contains(r))
        .any(|r| asked.is_in(state.regs[usize::from(r)]));
    hidden || !is_end && state.frame_taint() & asked.bit() != 0
}

/// True if an instruction reads or writes the handler's argument outside of this part.
fn is_elsewhere(inst: &Instruction, state: &AbstractState, part: Range<u64>) -> bool {
    let plain = matches!(state.register(inst.memory_base()), Value::Param(_))
        && inst.memory_index() == Register::None;
    let (start, size) = (
        inst.memory_displacement64(),
        inst.memory_size().size() as u64,
    );
    plain
        && size > 0
        && (start >= part.end || start.checked_add(size).is_some_and(|end| end <= part.start))
}

/// Reads a part of the context, at a constant offset, that is the same in clones as in the
/// original: neither the instruction pointer, nor a register that a probe may change.
fn is_harmless_read(inst: &Instruction, state: &AbstractState) -> bool {
    /// Parts of `ucontext_t`: flags, link and stack; rbp; rsp; flags, segments, error, trap, fault
    /// address, floating-point state, signal mask.
    const UNCHANGED_PARTS: [std::ops::Range<u64>; 4] =
        [0..0x28, 0x78..0x80, 0xa0..0xa8, 0xb0..0x3c8];
    let reads = inst.op0_kind() != OpKind::Memory
        || matches!(
            inst.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        );
    let plain = state.register(inst.memory_base()) == Value::Param(2)
        && inst.memory_index() == Register::None;
    let (start, size) = (
        inst.memory_displacement64(),
        inst.memory_size().size() as u64,
    );
    reads
        && plain
        && size > 0
        && UNCHANGED_PARTS
            .iter()
            .any(|r| r.start <= start && start < r.end && start + size <= r.end)
}
