//! Probes that count: they add one to a counter in memory ([`mgz_abi::counters`]).
//!
//! ```text
//! mov  T, gs:[GS_COUNTERS]     unless a register has it
//! inc  qword [T + counter]     where flags are dead; else
//! mov  S, [T + counter]
//! lea  S, [S + 1]
//! mov  [T + counter], S
//! ```
//!
//! `T` is chosen like a cursor's register: a residency's, a dead one, or a borrowed one. Memory is
//! correct at each boundary. Between the last three instructions, the counts of a signal's handler
//! would be overwritten. There, the state's `slots_done` gives the number of instructions to go
//! back.

use crate::emit::emitter::{Emitter, MOV_LOAD, PLACE_ADDRESS, PLACE_CURSOR};
use crate::emit::probe::Hold;
use crate::emit::{EmitError, FixupKind, probe};
use crate::plan::types::RecordPlan;
use crate::x86::encode;
use crate::x86::encode::{Encoded, Mem};
use crate::x86::regs::Gpr;
use mgz_abi::address_map::NO_REG;
use mgz_abi::counters::GS_COUNTERS;

impl Emitter<'_> {
    /// Loads the address of the counters into a register.
    pub(crate) fn load_counters(&mut self, register: Gpr) {
        self.gs(true, MOV_LOAD, register, GS_COUNTERS);
    }

    /// Adds one to the counter of a region. `records` has its only record. `flags`: the flags are
    /// dead.
    pub(crate) fn count(&mut self, records: &[RecordPlan], flags: bool) -> Result<(), EmitError> {
        let [record] = records else {
            return Err(EmitError::Record);
        };
        match self.residencies.at(self.here()) {
            Some(residency) => self.holds.push(Hold {
                first: 0,
                last: 0,
                reg: residency.cursor.reg,
                spilled: false,
                resident: true,
                late: false,
            }),
            None => probe::plan_cursors(self.function, records, self.kept, &mut self.holds)?,
        }
        let &[hold] = &self.holds[..] else {
            return Err(EmitError::Record);
        };
        if !hold.resident {
            if hold.spilled {
                self.borrow(hold.reg, PLACE_CURSOR);
            }
            match self.kept.take() {
                None => self.load_counters(hold.reg),
                Some(kept) if kept == hold.reg => {}
                Some(kept) => self.sink.inserted(encode::move64(hold.reg, kept)),
            }
            self.sink.state(|s| s.with_base_reg(hold.reg.0));
        }
        let at = self.sink.buffer.pos();
        self.record_at.push(at);
        let number = self.number();
        // (The displacement is filled in later, and always takes four bytes.)
        let counter = Mem::base(hold.reg, i32::MAX);
        if flags {
            self.counter_field(encode::inc64(&counter), number);
        } else {
            let (register, borrowed) = self.second(record, hold.reg, false)?;
            if borrowed {
                self.borrow(register, PLACE_ADDRESS);
            }
            let (load, add) = (
                encode::load64(register, &counter),
                encode::lea64(register, &Mem::base(register, 1)),
            );
            self.counter_field(load, number);
            self.sink.state(|s| s.with_slots_done(load.size()));
            self.sink.inserted(add);
            self.sink
                .state(|s| s.with_slots_done(load.size() + add.size()));
            self.counter_field(encode::store64(hold.reg, i32::MAX, register), number);
            self.sink.state(|s| s.with_slots_done(0));
            if borrowed {
                self.give_back(register, PLACE_ADDRESS);
            }
        }
        if hold.spilled {
            self.sink.state(|s| s.with_base_reg(NO_REG));
            self.give_back(hold.reg, PLACE_CURSOR);
        } else if !hold.resident {
            self.kept = Some(hold.reg);
        }
        Ok(())
    }

    /// An instruction whose last four bytes are the displacement of a counter.
    fn counter_field(&mut self, code: Encoded, number: u32) {
        self.sink.put_open(0, code, FixupKind::Counter(number));
    }
}
