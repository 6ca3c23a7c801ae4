//! Cursor of a ring in a clone: slots that probes have written since the cursor was stored.

use crate::sys::signal_frame::Context;
use mgz_abi::address_map::{NO_REG, ProbeState};
use mgz_abi::shared_memory::Control;

/// Commits the slots of the current region to the control page at %gs.
pub fn commit_region(control: &Control, context: &mut Context, state: &ProbeState) {
    if state.base_reg != NO_REG {
        control.cursor.set(
            context
                .register(state.base_reg)
                .wrapping_sub(16 * u64::from(state.base_ahead))
                & 0xffff_ffff,
        );
    }
    control
        .cursor
        .set(control.cursor.get() + 16 * u64::from(state.slots_done));
}
