//! Code on the edges into and out of residencies.
//!
//! The code on an edge into a block stands before the block's label if control falls through from
//! there, or enters from outside. Otherwise it stands at the branch: before a jump, or after the
//! inverse of a conditional jump. It changes no flags, and belongs to the branch, so a thread that
//! is interrupted in it may run the branch again.

use crate::emit::FixupKind;
use crate::emit::code_buffer::PackedState;
use crate::emit::emitter::{Emitter, MOV_LOAD, MOV_STORE};
use crate::emit::relax::{Flex, Label};
use crate::plan::cursor::ResidencyId;
use crate::x86::encode;
use crate::x86::encode::Encoded;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::regs::Gpr;
use iced_x86::{FlowControl, Mnemonic};
use mgz_abi::address_map::{NO_REG, STATE_LATE};
use mgz_abi::probe::GS_CURSOR;

impl Emitter<'_> {
    /// The residency of the current block.
    pub(crate) fn here(&self) -> ResidencyId {
        self.residencies.of(self.piece)
    }

    fn label_before(&self, piece: usize) -> Label {
        Label((self.function.cfg.insns.len() + piece) as u32)
    }

    /// Begins the current piece with the code before its label. Returns the block that begins
    /// there, if any.
    pub(crate) fn enter_piece(&mut self) -> Option<usize> {
        let b = self.piece;
        self.starts.push(self.sink.buffer.pos());
        if !self.residencies.is_empty() {
            self.sink.bind(self.label_before(b));
        }
        let block = self.block_beginning();
        if let Some(from) = self.residencies.before(b) {
            self.kept = block.filter(|_| from.is_none()).and_then(|t| {
                self.arriving(t, |p| self.residencies.out(self.last_piece(p)).is_none())
            });
            let state = self.state_at(from);
            self.sink.state(|_| state);
            self.transit(from, self.here());
        }
        self.kept = block
            .filter(|_| self.here().is_none())
            .and_then(|t| self.arriving(t, |_| true));
        let state = self.state_here();
        self.sink.state(|_| state);
        block
    }

    /// The block that begins with the current piece, if any. Keeps the register state at the end of
    /// the previous block.
    fn block_beginning(&mut self) -> Option<usize> {
        let begins = self
            .function
            .cfg
            .blocks
            .get(self.block)
            .is_some_and(|b| b.insns.start == self.pieces[self.piece]);
        if !begins {
            return None;
        }
        self.block += 1;
        Some(self.block - 1)
    }

    /// Ends the current block, and keeps the register that holds the cursor for its successors.
    pub(crate) fn end_block(&mut self) {
        let residency = self.residencies.at(self.residencies.out(self.piece));
        self.left.push(match residency {
            Some(residency) => Some(residency.cursor).filter(|k| !k.spilled).map(|k| k.reg),
            None => self.kept,
        });
    }

    /// The last piece of a block. Without residencies, pieces are the blocks.
    fn last_piece(&self, block: usize) -> usize {
        if self.residencies.starts().is_empty() {
            block
        } else {
            self.pieces
                .partition_point(|&s| s < self.function.cfg.blocks[block].insns.end)
                - 1
        }
    }

    /// The register that holds the cursor on all edges into a block from the selected blocks.
    /// `None` if one of them comes later, or if control enters from outside.
    fn arriving(&self, block: usize, counts: impl Fn(usize) -> bool) -> Option<Gpr> {
        let to = &self.function.cfg.blocks[block];
        if block == 0 || to.external_entry {
            return None;
        }
        let mut found = None;
        for p in to.preds.iter().map(|p| p.0 as usize) {
            if !counts(p) {
                continue;
            }
            let kept = (*self.left.get(p)?)?;
            if found.is_some_and(|f| f != kept) {
                return None;
            }
            found = Some(kept);
        }
        found
    }

    /// State at the current position between regions.
    pub(crate) fn state_here(&self) -> PackedState {
        self.state_at(self.here())
    }

    #[inline]
    fn state_at(&self, place: ResidencyId) -> PackedState {
        let state = PackedState::between(self.residencies.at(place));
        self.kept.map_or(state, |kept| state.with_base_reg(kept.0))
    }

    /// From here on, no register is known to hold the cursor.
    pub(crate) fn forget(&mut self) {
        if self.kept.take().is_some() {
            self.sink.state(|s| s.with_base_reg(NO_REG));
        }
    }

    /// True if an instruction passes control to code that does not keep the cursor, or becomes
    /// several instructions in the clone.
    pub(crate) fn ends_keeping(&self, insn: &Insn) -> bool {
        insn.is_overlapped()
            || match insn.flow {
                FlowControl::Next => matches!(
                    insn.inst.mnemonic(),
                    Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Hlt
                ),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => false,
                FlowControl::IndirectBranch => !self
                    .function
                    .tables
                    .iter()
                    .any(|t| self.function.insn(t.jump).ip == insn.ip),
                _ => true,
            }
    }

    /// Emits the code that leads from one place to another. The state afterwards is that of the
    /// second.
    pub(crate) fn transit(&mut self, from: ResidencyId, to: ResidencyId) {
        if from == to {
            return;
        }
        // After leaving a residency for none, its register still holds the cursor. It stays correct
        // even if a handler writes records during this code.
        let keeps = self
            .residencies
            .at(from)
            .map(|residency| residency.cursor)
            .filter(|cursor| to.is_none() && !cursor.spilled);
        if let Some(residency) = self.residencies.at(from) {
            if residency.late {
                self.gs(false, MOV_STORE, residency.cursor.reg, GS_CURSOR);
                self.sink.state(|s| s.without(STATE_LATE));
            }
            if keeps.is_none() {
                self.sink.state(|s| s.with_base_reg(NO_REG));
            }
            for (reg, place) in residency.borrowed().rev() {
                self.give_back(reg, place);
            }
        }
        if let Some(residency) = self.residencies.at(to) {
            for (reg, place) in residency.borrowed() {
                self.borrow(reg, place);
            }
            match self.kept.filter(|_| from.is_none()) {
                None if self.function.plan.counts => self.load_counters(residency.cursor.reg),
                None => self.gs(false, MOV_LOAD, residency.cursor.reg, GS_CURSOR),
                Some(kept) if kept == residency.cursor.reg => {}
                Some(kept) if self.function.plan.counts => self
                    .sink
                    .inserted(encode::move64(residency.cursor.reg, kept)),
                Some(kept) => self
                    .sink
                    .inserted(encode::move32(residency.cursor.reg, kept)),
            }
        }
        let state = PackedState::between(self.residencies.at(to));
        self.sink
            .state(|_| keeps.map_or(state, |cursor| state.with_base_reg(cursor.reg.0)));
    }

    /// Restores borrowed registers before an instruction that leaves the function or the residency.
    pub(crate) fn leave_residency(&mut self, insn: &Insn) {
        let leaves = match insn.flow {
            FlowControl::Return => true,
            FlowControl::Call | FlowControl::IndirectCall => self.residencies.leaves(self.piece),
            FlowControl::IndirectBranch => {
                self.residencies.leaves(self.piece)
                    || !self
                        .function
                        .tables
                        .iter()
                        .any(|t| self.function.insn(t.jump).ip == insn.ip)
            }
            _ => false,
        };
        if leaves {
            self.transit(self.here(), None);
            self.sink.state(|s| s.with_base_reg(NO_REG));
        }
    }

    /// Target of a branch in the current block to an instruction: the label, and the place to which
    /// code must lead first.
    pub(crate) fn way_to(&self, id: InsnId) -> (Label, Option<ResidencyId>) {
        let direct = (Label(id.0), None);
        if self.residencies.is_empty() {
            return direct;
        }
        let Some(b) = self.piece_at.get(id.0.into()) else {
            return direct;
        };
        let (from, to) = (self.here(), self.residencies.of(b));
        if !self.residencies.needs_code(from, to) {
            return direct;
        }
        if self.residencies.before(b) == Some(from) {
            return (self.label_before(b), None);
        }
        (Label(id.0), Some(to))
    }

    /// A jump that stands for `orig` original bytes, to a label or to an address outside.
    pub(crate) fn jump(&mut self, orig: u8, to: Result<Label, u64>) {
        match to {
            Ok(label) => self.sink.flex(orig, Flex::Jmp(label)),
            Err(target) => self
                .sink
                .put_open(orig, encode::jmp32(), FixupKind::Code(target)),
        }
    }

    /// A conditional jump, through code that leads to another place if needed.
    pub(crate) fn conditional(
        &mut self,
        orig: u8,
        condition: u8,
        to: Result<Label, u64>,
        transit: Option<ResidencyId>,
    ) {
        let Some(place) = transit else {
            match to {
                Ok(label) => self.sink.flex(orig, Flex::Jcc(condition, label)),
                Err(target) => self.sink.put_open(
                    orig,
                    Encoded::of(&[0x0f, 0x80 | condition, 0, 0, 0, 0]),
                    FixupKind::Code(target),
                ),
            }
            return;
        };
        let from = self.here();
        let on = self.sink.buffer.label();
        self.sink.flex(0, Flex::Jcc(condition ^ 1, on));
        self.transit(from, place);
        self.jump(orig, to);
        self.sink.bind(on);
        let state = self.state_here();
        self.sink.state(|_| state);
    }
}
