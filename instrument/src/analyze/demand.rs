//! Finds the values that data flow has to follow: those that some address depends on, a few
//! percent.
//!
//! This is a backward flow like liveness, except that the inputs of an instruction are needed only
//! if its result is. The roots are the registers of addresses whose class is requested and, in
//! loops, of addresses that are stored to. So the forward pass of [`crate::analyze::dataflow`]
//! finds the same addresses if it visits only marked instructions. It makes fewer atoms, in the
//! same order.

use crate::analyze::dataflow::lost_in_call;
use crate::analyze::params::MAX_PASSES_OF_DEMAND;
use crate::analyze::reloads::ARGUMENTS;
use crate::analyze::stack_frame::{Effect, StackFrame, Touch};
use crate::ir::cfg::Cfg;
use crate::ir::loops::{Loops, NO_LOOP};
use crate::program::Input;
use crate::util::bit_set::{BitRow, BitRows, Bits};
use crate::x86::insn::Insn;
use crate::x86::operands::is_repeated_string;
use crate::x86::regs::{CALLER_SAVED, RSP, RegUse, gpr};
use iced_x86::{Mnemonic, OpKind, Register};
use std::ops::Range;

/// Variables that are needed at each point. Variables are numbered as in
/// [`crate::analyze::dataflow`]: registers first, then variables in memory.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Instructions that make a needed value, or whose addresses are requested.
    pub marks: Bits,
    /// Marked instructions that make a needed value.
    pub made: Bits,
    /// Per block: true if it loads a needed value.
    pub loads: Vec<bool>,
    /// Per block: variables that are needed at its start.
    pub variables: BitRows,
    /// Per block, and one more at the end: the number of needed variables in all blocks before.
    first: Vec<u32>,
}

/// Known facts about the function.
pub struct DemandView<'a> {
    /// The file.
    pub input: &'a Input<'a>,
    /// Its graph.
    pub graph: &'a Cfg,
    /// Its loops.
    pub loops: &'a Loops,
    /// Effect of each instruction on registers.
    pub uses: &'a [RegUse],
    /// Effect of each instruction on memory.
    pub frame: &'a StackFrame,
    /// The thread pointer's variable.
    pub thread: Option<usize>,
    /// Variables in memory that calls may change.
    pub changed_by_calls: &'a BitRow,
    /// True if the variables include cells behind pointers.
    pub has_cells: bool,
}

impl Needs {
    /// Finds the needed variables.
    pub fn find(view: &DemandView) -> Needs {
        let (blocks, insns, variables) = (
            view.graph.blocks.len(),
            view.graph.insns.len(),
            view.frame.variables(),
        );
        let mut needs = Needs {
            marks: Bits::new(insns),
            made: Bits::new(insns),
            loads: vec![false; blocks],
            variables: BitRows::new(blocks, variables),
            first: Vec::new(),
        };
        // Variables that are needed at the end of each block.
        let mut behind = BitRows::new(blocks, variables);
        let mut seen = Bits::new(blocks);
        let mut work = view.loops.order.clone();
        let mut waits = vec![true; blocks];
        let mut live = BitRow::new(variables);
        let mut budget = MAX_PASSES_OF_DEMAND
            * (insns
                + view
                    .graph
                    .blocks
                    .iter()
                    .map(|b| b.succs.len() + 1)
                    .sum::<usize>());
        while let Some(b) = work.pop() {
            let b = b as usize;
            waits[b] = false;
            let block = &view.graph.blocks[b];
            let Some(left) = budget.checked_sub(block.insns.len() + block.succs.len() + 1) else {
                return Needs::all(view);
            };
            budget = left;
            live.clear();
            block
                .succs
                .iter()
                .for_each(|s| needs.variables.add_to(s.0 as usize, &mut live));
            let again = seen.get(b);
            seen.set(b);
            if again {
                behind.take_from(b, &mut live);
            }
            behind.add(b, &live);
            // Variables that the block does not change pass through; most variables needed in loops
            // do.
            let makes = &view.frame.makes[b];
            if live.low() & makes.registers.0 != 0
                || makes.memory && live.has_high()
                || (makes.asks || view.has_cells && makes.calls) && !again
            {
                if again {
                    behind.add_to(b, &mut live);
                }
                view.through(b, &mut live, &mut needs);
            }
            if needs.variables.add(b, &live) {
                for p in block.preds.iter().map(|p| p.0) {
                    if !std::mem::replace(&mut waits[p as usize], true) {
                        work.push(p);
                    }
                }
            }
        }
        needs.marks.add(&needs.made);
        needs.number();
        needs
    }

    fn number(&mut self) {
        let mut sum = 0;
        self.first.reserve_exact(self.variables.rows() + 1);
        for b in 0..self.variables.rows() {
            self.first.push(sum);
            sum += self.variables.count(b);
        }
        self.first.push(sum);
    }

    /// The result in which everything is needed everywhere.
    pub fn all(view: &DemandView) -> Needs {
        let (blocks, variables) = (view.graph.blocks.len(), view.frame.variables());
        let (mut marks, mut row, mut rows) = (
            Bits::new(view.graph.insns.len()),
            BitRow::new(variables),
            BitRows::new(blocks, variables),
        );
        (0..view.graph.insns.len()).for_each(|i| marks.set(i));
        (0..variables).for_each(|v| row.set(v));
        (0..blocks).for_each(|b| _ = rows.add(b, &row));
        let mut all = Needs {
            marks: marks.clone(),
            made: marks,
            loads: vec![true; blocks],
            variables: rows,
            first: Vec::new(),
        };
        all.number();
        all
    }

    /// Number of variables that are needed at the starts of all blocks.
    pub fn total(&self) -> usize {
        self.first.last().map_or(0, |&n| n as usize)
    }

    /// Range of a block's variables in the list of all.
    pub fn of_block(&self, block: usize) -> Range<usize> {
        self.first[block] as usize..self.first[block + 1] as usize
    }

    /// Index of a block's variable in the list of all. The variable must be needed there.
    pub fn place(&self, block: usize, v: usize) -> usize {
        (self.first[block] + self.variables.count_below(block, v)) as usize
    }
}

impl DemandView<'_> {
    /// Goes from the variables needed at a block's end to those needed at its start.
    fn through(&self, b: usize, live: &mut BitRow, needs: &mut Needs) {
        let of = self.loops.of_block[b];
        let follows_stores = of != NO_LOOP;
        let insns = &self.graph.blocks[b].insns;
        let steps = &self.frame.steps[insns.start as usize..insns.end as usize];
        for (n, step) in steps.iter().enumerate().rev() {
            let i = insns.start as usize + n;
            let touches = match step.effect {
                Effect::None if live.low() & step.clobber.0 == 0 => continue,
                Effect::None => &[],
                _ => self.frame.touches_of(i),
            };
            let made = match step.effect {
                Effect::None => {
                    live.take_low(step.clobber.0);
                    self.add_inputs(i, live);
                    true
                }
                Effect::Call => self.call(&self.graph.insns[i], of != NO_LOOP, live),
                Effect::String => self.string(i, touches, live),
                Effect::Accesses | Effect::Push | Effect::Pop => {
                    self.accesses(i, touches, follows_stores, live)
                }
            };
            if made {
                needs.made.set(i);
            }
            for touch in touches {
                if touch.address {
                    self.add_address(touch, live);
                    needs.marks.set(i);
                    needs.loads[b] |= made && touch.read && touch.plain;
                }
            }
        }
    }

    /// Adds the inputs of an instruction's result.
    fn add_inputs(&self, i: usize, live: &mut BitRow) {
        // The stack pointer's value is never used.
        let mut read = self.uses[i].read;
        let inst = &self.graph.insns[i].inst;
        // See [`RegUse::without_idle_read`]: data flow sees no constants there.
        if matches!(inst.mnemonic(), Mnemonic::And | Mnemonic::Or)
            && inst.op0_kind() == OpKind::Register
            && let Some(r) = gpr(inst.op0_register())
        {
            read = read.with(r);
        }
        live.add_low(read.without(RSP).0);
        if inst.segment_prefix() == Register::FS {
            self.thread.into_iter().for_each(|v| live.set(v));
        }
    }

    /// Adds the inputs of an address.
    fn add_address(&self, touch: &Touch, live: &mut BitRow) {
        live.add_low(touch.registers().0);
        if touch.thread {
            self.thread.into_iter().for_each(|v| live.set(v));
        }
    }

    fn call(&self, insn: &Insn, in_loop: bool, live: &mut BitRow) -> bool {
        let registers =
            live.low() & CALLER_SAVED.0 != 0 && live.take_low(lost_in_call(insn, self.input).0);
        // A call may change objects that are passed to it.
        let passes = in_loop && self.has_cells;
        if passes {
            live.add_low(ARGUMENTS.0);
        }
        live.take_all(self.changed_by_calls) || registers || passes
    }

    fn string(&self, i: usize, touches: &[Touch], live: &mut BitRow) -> bool {
        let before = live.low();
        let needed = live.take_low(self.frame.steps[i].clobber.0);
        if needed && !is_repeated_string(&self.graph.insns[i].inst) {
            // The only register of a string step is its pointer.
            touches
                .iter()
                .for_each(|t| live.add_low(t.registers().0 & before));
        }
        needed
    }

    fn accesses(
        &self,
        i: usize,
        touches: &[Touch],
        follows_stores: bool,
        live: &mut BitRow,
    ) -> bool {
        let mut needed = live.take_low(self.frame.steps[i].clobber.0);
        let mut stored = false;
        for touch in touches.iter().filter(|t| t.write) {
            if touch.has_key() {
                self.frame.touched(touch, |v| needed |= live.take(v));
            } else {
                stored |= follows_stores && touch.plain;
            }
        }
        if stored {
            touches
                .iter()
                .filter(|t| t.write && t.plain && !t.has_key())
                .for_each(|t| self.add_address(t, live));
        }
        if needed {
            // The address shows which object a cell belongs to.
            if self.has_cells {
                touches
                    .iter()
                    .filter(|t| t.write && t.plain && t.has_key())
                    .for_each(|t| self.add_address(t, live));
            }
            self.add_inputs(i, live);
            touches
                .iter()
                .filter(|t| t.read)
                .filter_map(Touch::variable)
                .for_each(|v| live.set(v));
        }
        needed || stored
    }
}
