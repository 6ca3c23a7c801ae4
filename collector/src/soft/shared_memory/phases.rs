//! Messages between recorder and runtime about phases.

use crate::soft::shared_memory::SharedMemory;
use mgz_abi::phases::{EVENTS, FUNCTIONS, GATE_OPEN, GATE_WAITS, Phases};
use std::sync::atomic::Ordering;

/// Counts of the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Slots that were written outside of phases.
    pub outside: u64,
    /// Slots in phases that were dropped.
    pub lost: u64,
    /// Markers and functions that are not watched.
    pub unplaced: u64,
    /// Markers of the modules that were loaded.
    pub markers: u64,
}

impl SharedMemory {
    fn phase_part(&self) -> &Phases {
        // SAFETY: part of the header in the mapping; all used fields are atomics.
        unsafe { &(*self.header()).phases }
    }

    /// Sets the parts of the run to record; to be called before the first process starts. `loads`:
    /// numbers of loads at which the gate opens and closes, 0 if not by loads.
    pub fn set_phases(&self, waits: bool, by_function: bool, ignore: bool, loads: [u64; 2]) {
        let phases = self.phase_part();
        let gate = if waits { GATE_WAITS } else { GATE_OPEN };
        phases
            .by_function
            .store(by_function.into(), Ordering::Relaxed);
        phases
            .ignore_markers
            .store(ignore.into(), Ordering::Relaxed);
        phases.start_loads.store(loads[0], Ordering::Relaxed);
        phases.stop_loads.store(loads[1], Ordering::Relaxed);
        phases.gate.store(gate, Ordering::Release);
    }

    /// Opens or closes the gate for all processes.
    pub fn set_gate(&self, gate: u32) {
        self.phase_part().gate.store(gate, Ordering::SeqCst);
    }

    /// Recording begins at this function. Returns false if there is no room.
    pub fn add_function(&self, sidecar: &[u8; 16], at: u64) -> bool {
        let phases = self.phase_part();
        let number = phases.function_count.load(Ordering::Relaxed);
        let Some(row) = phases.functions.get(number as usize) else {
            return false;
        };
        let [a, b, c, d, e, f, g, h, ..] = *sidecar;
        let identity = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let rows = &phases.functions[..number as usize];
        let known = rows.iter().any(|row| {
            row.sidecar.load(Ordering::Relaxed) == identity && row.at.load(Ordering::Relaxed) == at
        });
        if known {
            return true;
        }
        row.sidecar.store(identity, Ordering::Relaxed);
        row.at.store(at, Ordering::Relaxed);
        phases
            .function_count
            .store((number + 1).min(FUNCTIONS as u64), Ordering::Release);
        true
    }

    /// Number of events so far.
    pub fn phase_events(&self) -> u64 {
        self.phase_part().event_count.load(Ordering::Acquire)
    }

    /// Process, event, time, and the process's CPU time; `None` if the event is incomplete or
    /// overwritten.
    pub fn phase_event(&self, number: u64) -> Option<[u64; 4]> {
        let row = &self.phase_part().events[(number % EVENTS as u64) as usize];
        let complete = || row.ready.load(Ordering::SeqCst) == number + 1;
        if !complete() {
            return None;
        }
        let event = [
            row.pid.load(Ordering::Acquire).into(),
            row.what.load(Ordering::Acquire).into(),
            row.ns.load(Ordering::Acquire),
            row.cpu_ns.load(Ordering::Acquire),
        ];
        complete().then_some(event)
    }

    /// Counts of the runtime.
    pub fn phases(&self) -> Told {
        let phases = self.phase_part();
        Told {
            outside: phases.outside.load(Ordering::Relaxed),
            lost: phases.lost.load(Ordering::Relaxed),
            unplaced: phases.unplaced.load(Ordering::Relaxed),
            markers: phases.markers.load(Ordering::Relaxed),
        }
    }
}
