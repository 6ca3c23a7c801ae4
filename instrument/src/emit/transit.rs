//! Into stays and out of them: the code on the edges.
//!
//! Code that leads into a block stands before the block's label if control falls into the block from there, or enters from
//! outside; else at the branch: before a jump, and behind the inverse of a conditional jump. No such code touches flags, so
//! whoever is interrupted on such an edge may run the branch again: the code belongs to it.

use super::FixupKind;
use super::asm;
use super::code::{Emitter, MOV_LOAD};
use super::relax::{Flex, Label};
use crate::ir::{Insn, InsnId};
use crate::stay::Place;
use iced_x86::FlowControl;
use mgz_annotations_schema::abi::{GS_CURSOR, NO_REG};

impl Emitter<'_> {
    /// The stay of the block at hand.
    pub(super) fn here(&self) -> Place {
        self.stays.of(self.block)
    }

    fn label_before(&self, block: usize) -> Label {
        Label((self.function.insns.len() + block) as u32)
    }

    /// Begins the block at hand: the code before its label.
    pub(super) fn enter_block(&mut self) {
        let b = self.block;
        self.starts.push(self.sink.buffer.pos());
        self.sink.bind(self.label_before(b));
        if let Some(from) = self.stays.before(b) {
            let state = self.stays.state(from);
            self.sink.state(|s| *s = state);
            self.transit(from, self.here());
        }
        let state = self.stays.state(self.here());
        self.sink.state(|s| *s = state);
    }

    /// The code that leads from one place to another. The state afterwards is the latter's.
    pub(super) fn transit(&mut self, from: Place, to: Place) {
        if from == to {
            return;
        }
        if let Some(stay) = self.stays.at(from) {
            self.sink.state(|s| s.base_reg = NO_REG);
            for (reg, place) in stay.borrowed().rev() {
                self.give_back(reg, place);
            }
        }
        if let Some(stay) = self.stays.at(to) {
            for (reg, place) in stay.borrowed() {
                self.borrow(reg, place);
            }
            self.gs(false, MOV_LOAD, stay.cursor.reg, GS_CURSOR);
        }
        let state = self.stays.state(to);
        self.sink.state(|s| *s = state);
    }

    /// Gives a borrowed register back before an instruction that leaves the function.
    pub(super) fn leave_stay(&mut self, insn: &Insn) {
        let leaves = match insn.inst.flow_control() {
            FlowControl::Return => true,
            FlowControl::IndirectBranch => !self.function.tables.iter().any(|t| self.function.insn(t.jump).ip == insn.ip),
            _ => false,
        };
        if leaves {
            self.transit(self.here(), None);
        }
    }

    /// How a branch of the block at hand reaches an instruction: the label, and the place to be led to first.
    pub(super) fn way_to(&self, id: InsnId) -> (Label, Option<Place>) {
        let direct = (Label(id.0), None);
        if self.stays.is_empty() {
            return direct;
        }
        let Some(b) = self.function.block_at(self.function.insn(id).ip) else { return direct };
        let (from, to) = (self.here(), self.stays.of(b.0 as usize));
        if !self.stays.needs_code(from, to) {
            return direct;
        }
        if self.stays.before(b.0 as usize) == Some(from) {
            return (self.label_before(b.0 as usize), None);
        }
        (Label(id.0), Some(to))
    }

    /// A jump that stands for `orig` original bytes, to a label or to an address outside.
    pub(super) fn jump(&mut self, orig: u8, to: Result<Label, u64>) {
        match to {
            Ok(label) => self.sink.flex(orig, Flex::Jmp(label)),
            Err(target) => self.sink.insn(orig, Some(FixupKind::Code(target)), asm::jmp32),
        }
    }

    /// A conditional jump, through code that leads to another place if that is needed.
    pub(super) fn conditional(&mut self, orig: u8, condition: u8, to: Result<Label, u64>, transit: Option<Place>) {
        let Some(place) = transit else {
            match to {
                Ok(label) => self.sink.flex(orig, Flex::Jcc(condition, label)),
                Err(target) => self.sink.insn(orig, Some(FixupKind::Code(target)), |out| {
                    out.extend_from_slice(&[0x0f, 0x80 | condition, 0, 0, 0, 0]);
                    out.len() - 4
                }),
            }
            return;
        };
        let from = self.here();
        let on = self.sink.buffer.label();
        self.sink.flex(0, Flex::Jcc(condition ^ 1, on));
        self.transit(from, place);
        self.jump(orig, to);
        self.sink.bind(on);
        let state = self.stays.state(from);
        self.sink.state(|s| *s = state);
    }
}
