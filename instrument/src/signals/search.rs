//! Judges the places of a program that install handlers, function by function.

use crate::ir::cfg::Cfg;
use crate::program::imports::Imports;
use crate::program::{Input, Program};
use crate::signals::abstract_state::{ARGUMENTS, AbstractState, Value, memory_key};
use crate::signals::callback_use::{ALL, Look};
use crate::signals::handler_installer::{HandlerInstaller, Why};
use crate::signals::transfer::Follow;
use crate::signals::{
    FAULTS, FLAGS, KERNEL_FLAGS, MAX_CALL_DEPTH, Noted, Own, RT_SIGACTION, SA_SIGINFO, SHOW_PLACE,
    SIGPROF, graph, is_installer, is_other_system_call,
};
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use crate::x86::regs::{Gpr, reg_use};
use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};
use std::cell::RefCell;
use std::collections::HashMap;

/// Classifier of instructions by their role in the installation of handlers.
#[derive(Clone, Copy)]
pub(super) struct Kinds<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) imports: &'a Imports,
    /// True if calls of `sigaction` are ignored.
    pub(super) wrapped: bool,
}

impl Kinds<'_> {
    pub(super) fn of(&self, inst: &Instruction, own: &Own) -> InstallPart {
        if inst.mnemonic() == Mnemonic::Syscall {
            return InstallPart::SystemCall;
        }
        let installs = |name: &str| is_installer(name) && !self.wrapped;
        let jumps = !matches!(inst.flow_control(), FlowControl::Next);
        match self.imports.callee(inst) {
            Some(name) if installs(name) => return InstallPart::Installer(Some(0), 1),
            Some("syscall") => return InstallPart::CallOfSyscall(0),
            _ => {}
        }
        let callee = self.imports.own_callee(inst);
        if let Some(&(signal, action)) = callee.and_then(|t| own.installers.get(&t)) {
            return InstallPart::Installer(signal, action);
        }
        if let Some(&number) = callee.and_then(|t| own.calls.get(&t)) {
            return InstallPart::CallOfSyscall(number);
        }
        let ours = |at: u64| {
            own.installers
                .contains_key(self.imports.own.get(&at).unwrap_or(&at))
        };
        let named = |at: u64| {
            ours(at)
                || [&self.imports.stubs, &self.imports.slots]
                    .iter()
                    .any(|m| m.get(&at).is_some_and(|n| installs(n)))
        };
        let memory = inst.is_ip_rel_memory_operand() && named(inst.ip_rel_memory_address());
        let absolute = !self.input.pie
            && inst.memory_base() == iced_x86::Register::None
            && (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory)
            && named(inst.memory_displacement64());
        let immediate = !self.input.pie
            && !jumps
            && (0..inst.op_count()).any(|o| {
                !matches!(inst.op_kind(o), OpKind::Register | OpKind::Memory)
                    && inst.try_immediate(o).is_ok_and(named)
            });
        if memory || absolute || immediate {
            InstallPart::Taken
        } else {
            InstallPart::None
        }
    }
}

pub(super) struct InstallerSearch<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) program: &'a Program,
    pub(super) imports: &'a Imports,
    pub(super) kinds: Kinds<'a>,
    /// True if the file contains the C library, with its `profil`, which is rarely used (and takes
    /// no samples of clones).
    pub(super) is_static: bool,
    /// Results of [`InstallerSearch::uses`]. While a result is being computed, it counts as false.
    pub(super) asked: RefCell<HashMap<(u64, u8, Look), bool>>,
    /// Results of [`InstallerSearch::handed_back`].
    pub(super) returned: RefCell<HashMap<usize, u8>>,
}

impl<'a> InstallerSearch<'a> {
    pub(super) fn graph(&self, function: usize) -> Option<Cfg> {
        graph(self.input, self.program, function)
    }

    /// Judges the installing places in a function.
    pub(super) fn sites(
        &self,
        function: usize,
        own: &Own,
        noted: &mut Noted,
    ) -> Result<(), HandlerInstaller> {
        let Some(installing) = self.installing(function, own)? else {
            return Ok(());
        };
        let mut handed: Option<(Signal, u8)> = None;
        for number in 0..installing.graph.insns.len() {
            let Some(call) = installing.call(number, noted)? else {
                continue;
            };
            installing.note_old(&call, noted);
            installing.judge(&call, noted, &mut handed)?;
        }
        if let Some((signal, action)) = handed {
            let signal = match signal {
                Signal::Param(n) => Some(n),
                Signal::NoFault | Signal::Unknown => None,
            };
            let installers = &mut noted.hand_on.installers;
            installers.insert(installing.start, (signal, action));
        }
        Ok(())
    }

    /// Follows a function with places that may install handlers; `None` for others.
    fn installing(
        &self,
        function: usize,
        own: &Own,
    ) -> Result<Option<Installing<'_, 'a>>, HandlerInstaller> {
        let start = self.program.functions[function].range.start;
        let harmful = |at, why| Err(HandlerInstaller { at, why });
        let Some(graph) = self.graph(function) else {
            return harmful(start, Why::NotUnderstood);
        };
        let kind = |i: &Insn| self.kinds.of(&i.inst, own);
        let kinds: Vec<InstallPart> = graph.insns.iter().map(kind).collect();
        if kinds.iter().all(|k| *k == InstallPart::None) {
            return Ok(None);
        }
        if let Some(i) = kinds.iter().position(|k| *k == InstallPart::Taken) {
            return harmful(graph.insns[i].ip, Why::Taken);
        }
        let actions = |inst: &Instruction| {
            let callee = self.imports.own_callee(inst);
            callee.map_or((None, 0), |t| own.actions(t))
        };
        let follow = Follow {
            callee: &|inst| self.imports.callee(inst),
            by_abi: &|inst| self.imports.callee_follows_abi(inst),
            actions: &actions,
            handed_back: &|_| ALL,
            uses: false,
        };
        let Some(states) = follow.solve(&graph, 0x3f) else {
            return harmful(start, Why::TooLarge);
        };
        Ok(Some(Installing::new(self, function, graph, kinds, states)))
    }

    /// Judges one place by its arguments. `describes`: its function seems to fill actions with
    /// SA_SIGINFO in its frame or in memory that is not tracked. `plain`: true if all of the
    /// function's own writes to this action's flags leave SA_SIGINFO clear.
    fn site(
        &self,
        state: &AbstractState,
        signal: Value,
        action: Value,
        kernel: bool,
        describes: bool,
        plain: &dyn Fn() -> bool,
    ) -> Verdict {
        if action.as_constant() == Some(0) {
            return Verdict::Harmless;
        }
        let known = signal.low(4).as_constant();
        let verdict = self.action(state, known, action, kernel, describes);
        match is_no_fault(known) {
            true if known == Some(SIGPROF)
                && self.is_static
                && self.is_histogram(state, action) =>
            {
                Verdict::Harmless
            }
            // (If its frame may have been lent, a register may still have its address. In that
            // case, the function's writes are more than a guess.)
            true if matches!(verdict, Verdict::Harmful(why) if if why == Why::Looks { self.reads_place(state, action) } else { !plain() }) => {
                verdict
            }
            true => Verdict::Harmless,
            false => verdict,
        }
    }

    /// Judges an action as if it were for a fault. `signal`: the signal, if known.
    fn action(
        &self,
        state: &AbstractState,
        signal: Option<u64>,
        action: Value,
        kernel: bool,
        describes: bool,
    ) -> Verdict {
        let Some(at) = memory_key(action) else {
            return if describes {
                Verdict::Harmful(Why::NotFollowed)
            } else {
                Verdict::Restored(None)
            };
        };
        let flags = at + if kernel { KERNEL_FLAGS } else { FLAGS };
        let (clear, set) = match state.read(flags, 4) {
            Value::Bits { zero, one } => (zero & SA_SIGINFO != 0, one & SA_SIGINFO != 0),
            _ => (false, false),
        };
        if clear || state.is_saved(at) && !set {
            return Verdict::Harmless;
        }
        if !state.wrote(at) && !set {
            if matches!(action, Value::Frame(_)) && state.is_lent(at) {
                return Verdict::Lent;
            }
            return Verdict::Restored(action.as_constant());
        }
        let handler = state.read(at, 8);
        // The value is the default or the request to ignore the signal: code that starts a child
        // resets all handlers to one of them.
        if handler.most() <= 1 {
            return Verdict::Harmless;
        }
        let Some(handler) = handler.as_constant() else {
            return Verdict::Harmful(Why::UnknownHandler);
        };
        match self
            .program
            .function_at(handler)
            .filter(|f| self.program.function(*f).range.start == handler)
        {
            Some(f) if !self.uses(f.0 as usize, 2, Look::Anything, MAX_CALL_DEPTH) => match signal
                .is_none_or(|s| SHOW_PLACE.contains(&s))
                && self.uses(f.0 as usize, 1, Look::Origin, MAX_CALL_DEPTH)
            {
                true => Verdict::Harmful(Why::Asks),
                false => Verdict::Harmless,
            },
            Some(_) => Verdict::Harmful(Why::Looks),
            None => Verdict::Harmful(Why::NoFunction),
        }
    }

    /// The function that is an action's handler.
    fn handler(&self, state: &AbstractState, action: Value) -> Option<usize> {
        let handler = state.read(memory_key(action)?, 8).as_constant()?;
        Some(self.program.function_at(handler)?.0 as usize)
    }

    /// True if an action's handler only counts in a table of 16-bit numbers, like the handler of
    /// the C library's `profil`.
    fn is_histogram(&self, state: &AbstractState, action: Value) -> bool {
        let Some(graph) = self.handler(state, action).and_then(|f| self.graph(f)) else {
            return false;
        };
        let mut factory = InstructionInfoFactory::new();
        let is_count = |inst: &Instruction| {
            inst.memory_size().size() == 2
                && (inst.mnemonic() == Mnemonic::Inc
                    || inst.mnemonic() == Mnemonic::Add
                        && inst.try_immediate(1).is_ok_and(|n| n == 1))
        };
        graph.insns.iter().all(|insn| {
            let stays = matches!(
                insn.inst.flow_control(),
                FlowControl::Next
                    | FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Return
            );
            let known =
                direct_target(&insn.inst).is_none_or(|t| graph.insns.iter().any(|i| i.ip == t));
            stays && known && (!writes(factory.info(&insn.inst)) || is_count(&insn.inst))
        })
    }

    /// True if an action's handler may read or set the interrupted position.
    fn reads_place(&self, state: &AbstractState, action: Value) -> bool {
        self.handler(state, action)
            .is_none_or(|f| self.uses(f, 2, Look::Place, MAX_CALL_DEPTH))
    }
}

/// A function with places that may install handlers.
struct Installing<'s, 'a> {
    search: &'s InstallerSearch<'a>,
    function: usize,
    start: u64,
    graph: Cfg,
    /// Kind of each instruction.
    kinds: Vec<InstallPart>,
    /// State before each instruction that control is known to reach.
    states: Vec<Option<AbstractState>>,
    /// True if it reads the flags of an action passed to it.
    reads_flags: bool,
    /// True if it seems to fill actions with SA_SIGINFO in its frame or in memory that is not
    /// tracked.
    describes: bool,
    /// True if it sets the register of a system call's fourth argument.
    sets_r10: bool,
}

/// A call that installs an action.
struct InstallingCall<'i> {
    at: u64,
    state: &'i AbstractState,
    signal: Value,
    action: Value,
    /// Address that receives the previous action; 0 if there is none.
    old: Value,
    /// True if the action has the kernel's form.
    kernel: bool,
}

impl<'s, 'a> Installing<'s, 'a> {
    fn new(
        search: &'s InstallerSearch<'a>,
        function: usize,
        graph: Cfg,
        kinds: Vec<InstallPart>,
        states: Vec<Option<AbstractState>>,
    ) -> Self {
        let known = || {
            let all = graph.insns.iter().zip(&states);
            all.filter_map(|(insn, state)| Some((&insn.inst, state.as_ref()?)))
        };
        let reads_flags = known().any(|(inst, state)| {
            state.register(inst.memory_base()) == Value::Param(1)
                && inst.memory_displacement64() as i64 == FLAGS
        });
        let program = search.program;
        let stores = |size: usize, is: &dyn Fn(u64) -> bool| {
            known().any(|(inst, state)| stored_constant(inst, state, size).is_some_and(is))
        };
        let is_function = |at: u64| {
            let function = program.function_at(at);
            function.is_some_and(|f| program.function(f).range.start == at)
        };
        let describes = stores(8, &is_function) && stores(4, &|flags| flags & SA_SIGINFO != 0);
        let mut factory = InstructionInfoFactory::new();
        let sets_r10 = graph.insns.iter().any(|i| {
            !matches!(
                i.inst.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) && reg_use(factory.info(&i.inst)).clobber.contains(Gpr(10))
        });
        Installing {
            search,
            function,
            start: program.functions[function].range.start,
            graph,
            kinds,
            states,
            reads_flags,
            describes,
            sets_r10,
        }
    }

    /// The call by an instruction, if it may install an action.
    fn call(
        &self,
        number: usize,
        noted: &mut Noted,
    ) -> Result<Option<InstallingCall<'_>>, HandlerInstaller> {
        let insn = &self.graph.insns[number];
        let Some(state) = &self.states[number] else {
            return Ok(None);
        };
        let argument = |n: u8| state.regs[usize::from(ARGUMENTS[usize::from(n)])];
        let (signal, action, kernel) = match self.kinds[number] {
            InstallPart::Installer(signal, action) => {
                (signal.map_or(Value::ANY, argument), argument(action), false)
            }
            InstallPart::SystemCall if self.is_rt_sigaction(insn.ip, state, noted)? => {
                (argument(0), argument(1), true)
            }
            InstallPart::CallOfSyscall(n) => {
                self.by_function(insn.ip, argument(n), noted)?;
                return Ok(None);
            }
            InstallPart::SystemCall | InstallPart::None | InstallPart::Taken => return Ok(None),
        };
        // Functions of the file may have no third argument.
        let named = self.search.imports.callee(&insn.inst).is_some() || kernel;
        let old = match named {
            true => argument(2),
            false => Value::constant(0),
        };
        if [signal, action, old].contains(&Value::LEFT_OVER) {
            return Err(HandlerInstaller {
                at: insn.ip,
                why: Why::KeptOverCall,
            });
        }
        Ok(Some(InstallingCall {
            at: insn.ip,
            state,
            signal,
            action,
            old,
            kernel,
        }))
    }

    /// True if a system call may be `rt_sigaction`.
    fn is_rt_sigaction(
        &self,
        at: u64,
        state: &AbstractState,
        noted: &mut Noted,
    ) -> Result<bool, HandlerInstaller> {
        let number = state.regs[0];
        if let Some(number) = number.low(4).as_constant() {
            return Ok(number == RT_SIGACTION);
        }
        let r10 = state.regs[10];
        let is_other =
            // The C library's `syscall` and similar functions.
            noted.hands_number_on(self.start, number)
            // Decoding may have begun at the wrong byte.
            || is_other_system_call(self.search.input, at)
            // The kernel refuses rt_sigaction unless r10 is the size of its signal sets.
            || r10.as_constant().is_some_and(|size| size != 8)
            // r10 is left over from a call.
            || r10 == Value::LEFT_OVER
            // The function never sets r10, so it makes calls with at most three arguments.
            || !self.sets_r10;
        match is_other {
            true => Ok(false),
            false => Err(HandlerInstaller {
                at,
                why: Why::UnknownSystemCall,
            }),
        }
    }

    /// Judges a call of a function that makes a system call with the number passed to it.
    fn by_function(
        &self,
        at: u64,
        number: Value,
        noted: &mut Noted,
    ) -> Result<(), HandlerInstaller> {
        if number.low(4).as_constant() == Some(RT_SIGACTION) {
            let why = Why::ByFunction;
            return Err(HandlerInstaller { at, why });
        }
        noted.hands_number_on(self.start, number);
        Ok(())
    }

    /// Notes the address that receives the previous action.
    fn note_old(&self, call: &InstallingCall, noted: &mut Noted) {
        match call.old.as_constant() {
            Some(0) => {}
            Some(at) => {
                noted.saved_statics.insert(at);
            }
            None => {
                noted.saved_elsewhere = true;
                if let Value::Param(n) = call.old {
                    *noted.hand_on.savers.entry(self.start).or_default() |= 1 << n;
                }
            }
        }
    }

    /// Judges a call. `handed`: the arguments that the function passes on as signal and action.
    fn judge(
        &self,
        call: &InstallingCall,
        noted: &mut Noted,
        handed: &mut Option<(Signal, u8)>,
    ) -> Result<(), HandlerInstaller> {
        let of_param = match call.action {
            Value::Param(n) => Some(n),
            _ if call.kernel && self.reads_flags => Some(1),
            _ => None,
        };
        let flags = if call.kernel { KERNEL_FLAGS } else { FLAGS };
        let flags = memory_key(call.action).map(|at| at + flags);
        let plain = || flags.is_some_and(|at| always_clear(&self.graph, &self.states, at));
        let (signal, action) = (call.signal, call.action);
        let search = self.search;
        match search.site(
            call.state,
            signal,
            action,
            call.kernel,
            self.describes,
            &plain,
        ) {
            Verdict::Harmless => {}
            _ if of_param.is_some() => {
                return self.hand_on(call, of_param.unwrap_or(1), handed);
            }
            Verdict::Lent => noted.lent = noted.lent.or(Some(call.at)),
            Verdict::Restored(at) => noted.restored.push((call.at, at)),
            Verdict::Harmful(why) => return Err(HandlerInstaller { at: call.at, why }),
        }
        Ok(())
    }

    /// Notes that the function installs its argument `action` as an action.
    fn hand_on(
        &self,
        call: &InstallingCall,
        action: u8,
        handed: &mut Option<(Signal, u8)>,
    ) -> Result<(), HandlerInstaller> {
        let harmful = |at, why| Err(HandlerInstaller { at, why });
        let info = &self.search.program.functions[self.function];
        if !info.inner().called.is_empty() {
            return harmful(self.start, Why::SeveralEntries);
        }
        let signal = match call.signal {
            Value::Param(n) | Value::Half(n) => Signal::Param(n),
            other if is_no_fault(other.low(4).as_constant()) => Signal::NoFault,
            _ => Signal::Unknown,
        };
        let own = (signal, action);
        let all = handed.map_or(own, |before| (before.0.join(signal), before.1));
        if all.1 != own.1 {
            return harmful(call.at, Why::TwoActions);
        }
        *handed = Some(all);
        Ok(())
    }
}

/// True if a signal is known, and is no fault signal.
fn is_no_fault(signal: Option<u64>) -> bool {
    signal.is_some_and(|s| !FAULTS.contains(&s))
}

/// The signal for which a function installs the action passed to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// Its argument with this number.
    Param(u8),
    /// A known one that is no fault.
    NoFault,
    Unknown,
}

impl Signal {
    /// Joins the signals of two places in a function. (An action that is harmless for any signal is
    /// also harmless for one that is no fault: musl's `sigaction` has a separate call for SIGABRT.)
    fn join(self, other: Signal) -> Signal {
        match (self, other) {
            (a, b) if a == b => a,
            (Signal::NoFault, Signal::Param(n)) | (Signal::Param(n), Signal::NoFault) => {
                Signal::Param(n)
            }
            _ => Signal::Unknown,
        }
    }
}

/// Judgement of a place that installs a handler.
#[derive(PartialEq)]
enum Verdict {
    Harmless,
    /// It installs an action that the function did not write, perhaps a saved one. The address, if
    /// it is a static.
    Restored(Option<u64>),
    Harmful(Why),
    /// The action is in the frame, and other code may have written it.
    Lent,
}

/// True if an instruction writes memory.
pub(super) fn writes(info: &InstructionInfo) -> bool {
    info.used_memory().iter().any(|m| {
        matches!(
            m.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    })
}

/// True if a function writes the flags of an action at this place (see [`memory_key`]), and all of
/// these writes are constants with SA_SIGINFO clear.
fn always_clear(graph: &Cfg, states: &[Option<AbstractState>], flags: i64) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let mut found = false;
    for (insn, state) in graph.insns.iter().zip(states) {
        let Some(state) = state else { continue };
        let inst = &insn.inst;
        if inst.op0_kind() != OpKind::Memory || !writes(factory.info(inst)) {
            continue;
        }
        let Some(at) = memory_key(state.address(inst)) else {
            continue;
        };
        if at >= flags + 4 || at + inst.memory_size().size() as i64 <= flags {
            continue;
        }
        let whole = at == flags && inst.mnemonic() == Mnemonic::Mov;
        if !whole || stored_constant(inst, state, 4).is_none_or(|value| value & SA_SIGINFO != 0) {
            return false;
        }
        found = true;
    }
    found
}

/// The constant of this many bytes that an instruction writes to the frame, or to memory that is
/// not tracked.
fn stored_constant(inst: &Instruction, state: &AbstractState, size: usize) -> Option<u64> {
    let address = state.address(inst);
    // (If the stack pointer is unknown, writes through it are nearly always arguments, or other
    // kinds of locals.)
    let elsewhere = matches!(address, Value::Frame(_))
        || inst.memory_base() != iced_x86::Register::RSP && memory_key(address).is_none();
    if inst.mnemonic() != Mnemonic::Mov
        || inst.op0_kind() != OpKind::Memory
        || !elsewhere
        || inst.memory_size().size() != size
    {
        return None;
    }
    match inst.op1_kind() {
        OpKind::Register => state.register(inst.op1_register()).as_constant(),
        _ => inst.try_immediate(1).ok(),
    }
}

/// Role of an instruction in the installation of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstallPart {
    None,
    /// Calls `sigaction`, or a function that passes its arguments on to it. The numbers of the
    /// arguments for signal and action.
    Installer(Option<u8>, u8),
    SystemCall,
    CallOfSyscall(u8),
    /// Takes the address of an installer.
    Taken,
}
