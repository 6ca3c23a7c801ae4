//! Effects of instructions on an [`AbstractState`], and the states before every instruction of a
//! function.

use crate::ir::cfg::Cfg;
use crate::signals::abstract_state::{ARGUMENTS, AbstractState, FRAME, Value, memory_key};
use crate::signals::search::writes;
use crate::x86::regs::{CALLER_SAVED, RAX, RBP, RCX, RDI, RSP, reg_use};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;

/// Callees that neither keep nor change objects behind their pointers, except as described at
/// [`Follow::call`].
const HARMLESS_CALLEES: [&str; 12] = [
    "sigaction",
    "__sigaction",
    "sigemptyset",
    "sigfillset",
    "sigaddset",
    "sigdelset",
    "sigismember",
    "memset",
    "signal",
    "sigprocmask",
    "pthread_sigmask",
    "getenv",
];

/// Callees whose only effect on memory behind their pointers is to write this many bytes through
/// one argument (its number, bytes).
const WRITING_CALLEES: [(&str, usize, i64); 14] = [
    ("getrlimit", 1, 16),
    ("getrlimit64", 1, 16),
    ("setrlimit", 6, 0),
    ("setrlimit64", 6, 0),
    ("gettimeofday", 0, 16),
    ("clock_gettime", 1, 16),
    ("time", 0, 8),
    ("sigaltstack", 1, 24),
    ("setitimer", 2, 32),
    ("getitimer", 1, 32),
    ("uname", 0, 390),
    ("times", 0, 32),
    ("getrusage", 1, 144),
    ("sigpending", 0, 128),
];

/// True if a callee does not read memory behind its pointers, except for actions and sets of
/// signals.
pub fn only_writes(name: &str) -> bool {
    HARMLESS_CALLEES.contains(&name) || WRITING_CALLEES.iter().any(|w| w.0 == name)
}

/// Names callees: the imported function that a call goes to, if it is one.
pub struct Follow<'a> {
    /// Name of the imported function that a call instruction calls.
    pub callee: &'a dyn Fn(&Instruction) -> Option<&'a str>,
    /// True if a call goes to an imported function that may change all registers which the ABI lets
    /// it change.
    pub by_abi: &'a dyn Fn(&Instruction) -> bool,
    /// Effect of a call to a function of the file on actions: the argument that is an action which
    /// it only reads, and the arguments that receive the previous action (bit n: argument n).
    pub actions: &'a dyn Fn(&Instruction) -> (Option<u8>, u8),
    /// Arguments that a call to a function of the file may return (bit n: argument n).
    pub handed_back: &'a dyn Fn(&Instruction) -> u8,
    /// True if every possible use of an argument matters; otherwise only certain facts about values
    /// do.
    pub uses: bool,
}

/// Size of a `sigset_t`, bytes.
const SET_BYTES: i64 = 128;

impl Follow<'_> {
    /// The state before each reachable instruction, by number. `None` if it cannot be found in
    /// reasonable time, or (with `uses`) if control may enter from unknown places.
    pub fn solve(&self, graph: &Cfg, params: u8) -> Option<Vec<Option<AbstractState>>> {
        let mut factory = InstructionInfoFactory::new();
        let mut before: Vec<Option<AbstractState>> = vec![None; graph.blocks.len()];
        // The lowest address first, which mostly is the order of control flow.
        let mut work = BTreeSet::new();
        for (b, block) in graph.blocks.iter().enumerate() {
            let pad = graph.pads.iter().any(|p| p.1.0 as usize == b);
            if b != 0 && (!block.external_entry || pad && !graph.roots[b]) {
                continue;
            }
            if b != 0 && self.uses {
                return None;
            }
            before[b] = Some(if b == 0 {
                AbstractState::entry(params)
            } else {
                AbstractState::unknown()
            });
            work.insert(b);
        }
        let mut left = 64 * graph.blocks.len() + 256;
        while let Some(b) = work.pop_first() {
            left = left.checked_sub(1)?;
            let Some(mut state) = before[b].clone() else {
                continue;
            };
            let mut arrive = |s: usize, state: &AbstractState, work: &mut BTreeSet<usize>| {
                let changed = match &mut before[s] {
                    Some(known) => known.join(state),
                    none => {
                        *none = Some(state.clone());
                        true
                    }
                };
                if changed {
                    work.insert(s);
                }
            };
            for insn in graph.insns_of(b) {
                self.step(&mut state, &insn.inst, &mut factory);
                if matches!(
                    insn.inst.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                ) {
                    for (_, pad) in graph.pads.iter().filter(|p| p.0.0 as usize == b) {
                        arrive(pad.0 as usize, &state, &mut work);
                    }
                }
            }
            for s in &graph.blocks[b].succs {
                arrive(s.0 as usize, &state, &mut work);
            }
        }
        let mut all = vec![None; graph.insns.len()];
        for (b, block) in graph.blocks.iter().enumerate() {
            let Some(mut state) = before[b].clone() else {
                continue;
            };
            for (i, insn) in block.insns.clone().zip(graph.insns_of(b)) {
                all[i as usize] = Some(state.clone());
                self.step(&mut state, &insn.inst, &mut factory);
            }
        }
        Some(all)
    }

    fn operand(&self, state: &AbstractState, inst: &Instruction, op: u32) -> Value {
        match inst.op_kind(op) {
            OpKind::Register => state.register(inst.op_register(op)),
            OpKind::Memory => match memory_key(state.address(inst)) {
                Some(at) => state.read(at, inst.memory_size().size() as u32),
                None => Value::from_taint(self.behind(state, state.address(inst)))
                    .low(inst.memory_size().size() as u32),
            },
            _ => inst.try_immediate(op).map_or(Value::ANY, Value::constant),
        }
    }

    /// Origins of a value read at an untracked address. If the address comes from one in the frame,
    /// they are those of the whole frame.
    fn behind(&self, state: &AbstractState, address: Value) -> u8 {
        if self.uses && address.taint() & FRAME != 0 {
            state.frame_taint()
        } else {
            0
        }
    }

    fn assign(&self, state: &mut AbstractState, inst: &Instruction, value: Value) {
        match inst.op0_kind() {
            OpKind::Register => state.set_register(inst.op0_register(), value),
            OpKind::Memory => self.store(
                state,
                state.address(inst),
                inst.memory_size().size() as u32,
                value,
            ),
            _ => {}
        }
    }

    fn store(&self, state: &mut AbstractState, address: Value, size: u32, value: Value) {
        let known = memory_key(address);
        if known.is_none_or(|at| at > 1 << 32) && matches!(value, Value::Frame(_)) {
            state.escaped = true;
        }
        match known {
            Some(at) if size > 0 => state.write(at, size, value),
            Some(_) => state.forget_all(self.uses),
            None => {
                state.forget_statics();
                if state.escaped {
                    state.forget_all(self.uses);
                }
            }
        }
    }

    /// Executes an instruction.
    fn step(
        &self,
        state: &mut AbstractState,
        inst: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) {
        self.execute(state, inst, factory);
        if !self.uses {
            // Origins give no information on bits.
            for v in state
                .regs
                .iter_mut()
                .filter(|v| matches!(v, Value::Derived(_)) && **v != Value::LEFT_OVER)
            {
                *v = Value::ANY;
            }
        }
    }

    /// Executes an instruction. Values may have origins.
    fn execute(
        &self,
        state: &mut AbstractState,
        inst: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) {
        use Mnemonic as M;
        if inst.mnemonic() == M::Syscall {
            return self.system_call(state);
        }
        if matches!(
            inst.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            return self.call(state, inst);
        }
        let two = inst.op_count() >= 2;
        let same = two
            && inst.op0_kind() == OpKind::Register
            && inst.op1_kind() == OpKind::Register
            && inst.op0_register() == inst.op1_register();
        let size = match inst.op0_kind() {
            OpKind::Register => inst.op0_register().size() as u32,
            _ => inst.memory_size().size() as u32,
        };
        let general = inst.op0_kind() == OpKind::Memory || inst.op0_register().is_gpr();
        match inst.mnemonic() {
            M::Mov | M::Movzx if general => self.move_value(state, inst, size),
            M::Movsx | M::Movsxd if general => {
                let v = match self.operand(state, inst, 1) {
                    half @ Value::Half(_) if inst.mnemonic() == M::Movsxd => half,
                    other => Value::from_taint(other.taint()),
                };
                self.assign(state, inst, v.low(size));
            }
            M::Lea => {
                let v = state.address(inst);
                self.assign(state, inst, v);
            }
            M::Xor | M::Sub if same => self.assign(state, inst, Value::constant(0)),
            M::Add | M::Sub if general => {
                let v = self
                    .operand(state, inst, 0)
                    .add(self.operand(state, inst, 1), inst.mnemonic() == M::Sub);
                self.assign(state, inst, v.low(size));
            }
            M::And if general => {
                let v = self
                    .operand(state, inst, 0)
                    .bitwise(self.operand(state, inst, 1), |a, b| (a.0 | b.0, a.1 & b.1));
                self.assign(state, inst, v.low(size));
            }
            M::Or if general => {
                let v = self
                    .operand(state, inst, 0)
                    .bitwise(self.operand(state, inst, 1), |a, b| (a.0 & b.0, a.1 | b.1));
                self.assign(state, inst, v.low(size));
            }
            M::Xor if general => {
                let v = self
                    .operand(state, inst, 0)
                    .bitwise(self.operand(state, inst, 1), |a, b| {
                        (a.0 & b.0 | a.1 & b.1, a.0 & b.1 | a.1 & b.0)
                    });
                self.assign(state, inst, v.low(size));
            }
            M::Shl | M::Shr if general && two && inst.op1_kind() == OpKind::Immediate8 => {
                self.shift(state, inst, size)
            }
            m if is_set(m) => self.assign(state, inst, Value::Bits { zero: 0xfe, one: 0 }),
            m if is_conditional_move(m) => {
                let v = self
                    .operand(state, inst, 0)
                    .join(self.operand(state, inst, 1))
                    .low(size);
                self.assign(state, inst, v);
            }
            M::Cmp | M::Test | M::Nop | M::Endbr64 => {}
            M::Push => self.push(state, inst),
            M::Pop | M::Leave => self.pop(state, inst),
            _ => self.other(state, inst, size, factory),
        }
    }

    /// Executes a system call.
    fn system_call(&self, state: &mut AbstractState) {
        // The kernel writes through its arguments and replaces rax, rcx and r11.
        if [7, 6, 2, 10, 8, 9]
            .iter()
            .any(|&r: &usize| matches!(state.regs[r], Value::Frame(_)))
        {
            state.forget_all(self.uses);
        }
        state.forget_statics();
        for r in [0, 1, 11] {
            state.regs[r] = Value::ANY;
        }
    }

    /// Copies a value, and clears the bits above.
    fn move_value(&self, state: &mut AbstractState, inst: &Instruction, size: u32) {
        let v = self
            .operand(state, inst, 1)
            .low(if inst.op1_kind() == OpKind::Register {
                inst.op1_register().size() as u32
            } else {
                size.max(1)
            });
        self.assign(state, inst, v);
    }

    /// Shifts a value by a number.
    fn shift(&self, state: &mut AbstractState, inst: &Instruction, size: u32) {
        let n = u32::from(inst.immediate8()) & if size == 8 { 63 } else { 31 };
        let v = match self.operand(state, inst, 0).low(size) {
            Value::Bits { zero, one } if inst.mnemonic() == Mnemonic::Shl => Value::Bits {
                zero: zero << n | ((1u64 << n) - 1),
                one: one << n,
            },
            Value::Bits { zero, one } => Value::Bits {
                zero: zero >> n | !(u64::MAX >> n),
                one: one >> n,
            },
            other => Value::from_taint(other.taint()),
        };
        self.assign(state, inst, v.low(size));
    }

    /// Puts a value on the stack.
    fn push(&self, state: &mut AbstractState, inst: &Instruction) {
        let v = self.operand(state, inst, 0);
        let rsp = state.regs[usize::from(RSP.0)].add(Value::constant(8), true);
        state.regs[usize::from(RSP.0)] = rsp;
        self.store(state, rsp, 8, v);
    }

    /// Takes a value from the stack.
    fn pop(&self, state: &mut AbstractState, inst: &Instruction) {
        if inst.mnemonic() == Mnemonic::Leave {
            state.regs[usize::from(RSP.0)] = state.regs[usize::from(RBP.0)];
        }
        let rsp = state.regs[usize::from(RSP.0)];
        let v = if let Value::Frame(at) = rsp {
            state.read(at, 8)
        } else {
            Value::ANY
        };
        state.regs[usize::from(RSP.0)] = rsp.add(Value::constant(8), false);
        if inst.mnemonic() == Mnemonic::Leave {
            state.regs[usize::from(RBP.0)] = v
        } else {
            self.assign(state, inst, v)
        }
    }

    /// Executes any other instruction. Vector stores of zeros and repeated stores are handled
    /// specially.
    fn other(
        &self,
        state: &mut AbstractState,
        inst: &Instruction,
        size: u32,
        factory: &mut InstructionInfoFactory,
    ) {
        let vector = |r: Register| r.is_xmm() || r.is_ymm() || r.is_zmm();
        let number = |r: Register| r.number() as u32 & 31;
        if vector(inst.op0_register()) && inst.op0_kind() == OpKind::Register {
            let last = inst.op_count() - 1;
            let zeroing = matches!(
                inst.mnemonic(),
                Mnemonic::Pxor
                    | Mnemonic::Xorps
                    | Mnemonic::Xorpd
                    | Mnemonic::Vpxor
                    | Mnemonic::Vxorps
                    | Mnemonic::Vxorpd
            );
            let bit = 1 << number(inst.op0_register());
            let same = inst.op_register(last) == inst.op_register(last - u32::from(last > 0));
            if zeroing && same {
                state.zero_vectors |= bit
            } else {
                state.zero_vectors &= !bit
            }
            return;
        }
        let stored = inst.op0_kind() == OpKind::Memory
            && inst.op_count() == 2
            && inst.op1_kind() == OpKind::Register
            && vector(inst.op1_register());
        if stored
            && state.zero_vectors >> number(inst.op1_register()) & 1 == 1
            && is_vector_store(inst.mnemonic())
            && let Some(at) = memory_key(state.address(inst))
        {
            return state.fill(at, u64::from(size), 0);
        }
        let info = factory.info(inst);
        let written = writes(info);
        let used = reg_use(info);
        let mut taint = used
            .read
            .iter()
            .fold(0, |t, r| t | state.regs[usize::from(r.0)].taint());
        if (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory) {
            let address = state.address(inst);
            taint |= memory_key(address).map_or_else(
                || self.behind(state, address),
                |at| {
                    state
                        .read(at, inst.memory_size().size().clamp(1, 8) as u32)
                        .taint()
                },
            );
        }
        if written {
            if inst.op0_kind() == OpKind::Memory {
                self.store(state, state.address(inst), size, Value::from_taint(taint));
            } else {
                self.string_store(state, inst, size);
            }
        }
        for r in used.clobber.iter() {
            state.regs[usize::from(r.0)] = Value::from_taint(taint);
        }
    }

    /// `stos`, `movs` and other instructions that write through rdi.
    fn string_store(&self, state: &mut AbstractState, inst: &Instruction, size: u32) {
        let repeated = inst.has_rep_prefix();
        let count = if repeated {
            state.regs[usize::from(RCX.0)].as_constant()
        } else {
            Some(1)
        };
        let stos = matches!(
            inst.mnemonic(),
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq
        );
        match (memory_key(state.regs[usize::from(RDI.0)]), count) {
            (Some(at), Some(n)) if n < 1 << 32 => {
                let zero =
                    stos && state.regs[usize::from(RAX.0)].low(size).as_constant() == Some(0);
                if zero {
                    state.fill(at, n * u64::from(size), 0)
                } else {
                    state.forget(at, (n * u64::from(size)) as i64)
                }
            }
            (None, _) if !state.escaped => state.forget_statics(),
            _ => state.forget_all(self.uses),
        }
    }

    fn call(&self, state: &mut AbstractState, inst: &Instruction) {
        let arguments = ARGUMENTS.map(|r| state.regs[usize::from(r)]);
        let argument = |n: usize| arguments[n];
        let name = (self.callee)(inst).filter(|n| only_writes(n));
        let frame_given = (0..6).any(|n| matches!(argument(n), Value::Frame(_)));
        let back = if self.uses {
            (self.handed_back)(inst)
        } else {
            0
        };
        let taint = (0..6)
            .filter(|n| back >> n & 1 == 1)
            .fold(0, |t, n| t | argument(n).taint());
        match name {
            Some("memset") => match (
                memory_key(argument(0)),
                argument(1).as_constant(),
                argument(2).as_constant(),
            ) {
                (Some(at), Some(byte), Some(n)) => state.fill(at, n, byte as u8),
                _ => state.forget_all(self.uses),
            },
            Some("sigaction" | "__sigaction") => match memory_key(argument(2)) {
                // The previous action was judged where it was installed.
                Some(at) => state.save(at),
                None if argument(2).as_constant() != Some(0) => state.forget_statics(),
                None => {}
            },
            Some(name) if WRITING_CALLEES.iter().any(|w| w.0 == name) => {
                for &(_, n, bytes) in WRITING_CALLEES.iter().filter(|w| w.0 == name && w.2 > 0) {
                    match memory_key(argument(n)) {
                        Some(at) => state.forget(at, bytes),
                        None => state.forget_statics(),
                    }
                }
            }
            Some(_) => {
                for at in [0, 2].into_iter().filter_map(|n| memory_key(argument(n))) {
                    state.forget(at, SET_BYTES);
                }
            }
            None => {
                state.forget_statics();
                state.escaped |= frame_given;
                if state.escaped {
                    state.forget_all(self.uses);
                }
                let frame = |v: Value| {
                    if let Value::Frame(at) = v {
                        Some(at)
                    } else {
                        None
                    }
                };
                let (read, saved) = (self.actions)(inst);
                let changed = (0..6)
                    .filter(|&n| read.map(usize::from) != Some(n))
                    .filter_map(|n| frame(argument(n)));
                changed.for_each(|at| state.lend(at));
                let filled = (0..6)
                    .filter(|n| saved >> n & 1 == 1)
                    .filter_map(|n| frame(argument(n)));
                filled.for_each(|at| state.save_perhaps(at));
            }
        }
        // Compilers know which registers a function of the same file preserves, and may keep values
        // in them. Imported functions may have conventions of their own.
        let imported = (self.callee)(inst).is_some();
        let by_abi = (self.by_abi)(inst);
        for r in CALLER_SAVED.iter() {
            let place = &mut state.regs[usize::from(r.0)];
            *place = match self.uses {
                true if by_abi => Value::ANY,
                true => Value::from_taint(place.taint()),
                false => Value::LEFT_OVER,
            };
        }
        // A callee may return its arguments. (Passing something to an imported one is a use in
        // itself. A value left over in the register of a missing argument is not returned.)
        state.regs[usize::from(RAX.0)] =
            Value::from_taint(if self.uses && !imported { taint } else { 0 });
        state.zero_vectors = 0;
    }
}

fn is_vector_store(m: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        m,
        M::Movaps
            | M::Movups
            | M::Movdqa
            | M::Movdqu
            | M::Movapd
            | M::Movupd
            | M::Movq
            | M::Movlps
            | M::Movhps
            | M::Movd
            | M::Vmovaps
            | M::Vmovups
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vmovapd
            | M::Vmovupd
            | M::Vmovq
            | M::Vmovdqu64
            | M::Vmovdqa64
    )
}

fn is_set(m: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        m,
        M::Sete
            | M::Setne
            | M::Seta
            | M::Setae
            | M::Setb
            | M::Setbe
            | M::Setg
            | M::Setge
            | M::Setl
            | M::Setle
            | M::Sets
            | M::Setns
            | M::Setp
            | M::Setnp
            | M::Seto
            | M::Setno
    )
}

fn is_conditional_move(m: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        m,
        M::Cmove
            | M::Cmovne
            | M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovs
            | M::Cmovns
            | M::Cmovp
            | M::Cmovnp
            | M::Cmovo
            | M::Cmovno
    )
}
