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
//! `T` is found as a cursor's register is: a residency's, one that is dead, or a borrowed one.
//! Memory is right at each boundary. A signal between the last three instructions would have
//! what its handler counts overwritten: there the state's `slots_done` says how far back to go.

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
    /// Takes the address of the counters into a register.
    pub(crate) fn load_counters(&mut self, register: Gpr) {
        self.gs(true, MOV_LOAD, register, GS_COUNTERS);
    }

    /// Adds one to the counter of a region. `records` has its only record; `flags`: they are dead.
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
        // (What it holds is filled in: four bytes whatever it is.)
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
