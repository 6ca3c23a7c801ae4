//! Time from TSC, TMA, MTC, CYC and CBR packets.
//!
//! A TSC packet gives the time stamp counter. A TMA right behind it relates it to the crystal
//! clock, of which MTC packets then carry eight bits at a fixed rate; between those, CYC packets
//! count core cycles, whose length follows from CBR. Time never decreases: an estimate that is
//! ahead stays until the clock has caught up.

use crate::packet::Packet;

/// Settings of the clocks from the hardware and the kernel (perf: AUXTRACE_INFO, `caps/` in sysfs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSettings {
    /// TSC ticks per crystal tick, numerator; 0 if unknown (MTC packets are not used then).
    pub tsc_per_ctc: u32,
    /// TSC ticks per crystal tick, denominator.
    pub tsc_per_ctc_divisor: u32,
    /// An MTC packet is written every 2^this crystal ticks.
    pub mtc_period: u8,
    /// Core to bus ratio at which cores and TSC run alike; 0 if unknown (CYC packets are not used
    /// then).
    pub nominal_ratio: u8,
}

/// The time stamp counter, derived from the packets so far.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    settings: ClockSettings,
    /// TSC at the last MTC packet, or at the point where one would have been.
    base: u64,
    /// TSC when `cycles` was 0.
    cycle_base: u64,
    /// Best estimate, never below an earlier one.
    now: u64,
    known: bool,
    /// Crystal counter at the last MTC (in units of MTC periods), with the mask of its known bits.
    mtc: Option<(u8, u8)>,
    /// Remainder of crystal ticks that did not make a whole TSC tick, in units of 1 / divisor.
    remainder: u64,
    cycles: u64,
    /// TSC ticks of a core cycle in units of 2^-32, rounded up; 0 if unknown.
    ticks_per_cycle: u64,
}

/// See [`Clock::ticks_per_cycle`]. Rounded up, a product is exact for a million cycles and never a
/// tick low.
fn ticks_per_cycle(nominal: u8, ratio: u8) -> u64 {
    (u64::from(nominal) << 32)
        .checked_add(u64::from(ratio).saturating_sub(1))
        .and_then(|n| n.checked_div(u64::from(ratio)))
        .unwrap_or(0)
}

impl Clock {
    /// A clock without a time.
    pub fn new(settings: ClockSettings) -> Self {
        let ticks_per_cycle = ticks_per_cycle(settings.nominal_ratio, settings.nominal_ratio);
        Clock {
            settings,
            base: 0,
            cycle_base: 0,
            now: 0,
            known: false,
            mtc: None,
            remainder: 0,
            cycles: 0,
            ticks_per_cycle,
        }
    }

    /// Forgets the time, until the next TSC packet.
    pub fn forget(&mut self) {
        *self = Clock::new(self.settings);
    }

    /// Current TSC; `None` before the first TSC packet.
    #[inline]
    pub fn tsc(&self) -> Option<u64> {
        self.known.then_some(self.now)
    }

    /// Updates the clock by a packet. Packets without time are ignored.
    #[inline]
    pub fn update(&mut self, packet: &Packet) {
        match *packet {
            Packet::Mtc(ctc) => self.mtc(ctc),
            Packet::Cyc(cycles) => self.cycles(cycles),
            Packet::Tsc(tsc) => self.set(tsc),
            Packet::Tma { ctc, fast } => self.relate(ctc, fast),
            Packet::Cbr(ratio) => {
                self.cycle_base = self.now;
                self.cycles = 0;
                self.ticks_per_cycle = ticks_per_cycle(self.settings.nominal_ratio, ratio);
            }
            Packet::Ovf => {
                // Any number of ticks may be in the lost data; the next TSC or TMA packet restores
                // the time.
                self.mtc = None;
                self.cycle_base = self.now;
                self.cycles = 0;
            }
            _ => {}
        }
    }

    /// The packet holds 56 bits; the upper eight stay.
    fn set(&mut self, tsc: u64) {
        let tsc = if self.known {
            tsc | self.now >> 56 << 56
        } else {
            tsc
        };
        self.base = tsc;
        self.now = if self.known { self.now.max(tsc) } else { tsc };
        // If the estimate is far ahead, it is wrong, e.g. after a sleep, and the packet is right.
        if self.now - tsc > 1 << 32 {
            self.now = tsc;
        }
        self.known = true;
        self.mtc = None;
        self.remainder = 0;
        self.cycle_base = tsc;
        self.cycles = 0;
    }

    fn relate(&mut self, ctc: u16, fast: u16) {
        let ClockSettings {
            tsc_per_ctc,
            tsc_per_ctc_divisor,
            mtc_period,
            ..
        } = self.settings;
        if tsc_per_ctc == 0 || tsc_per_ctc_divisor == 0 || mtc_period >= 16 || !self.known {
            return;
        }
        // Go back from the TSC packet to the last crystal tick with an MTC.
        let past = u64::from(ctc) & ((1 << mtc_period) - 1);
        let ticks = past * u64::from(tsc_per_ctc);
        let divisor = u64::from(tsc_per_ctc_divisor);
        self.base = self
            .base
            .saturating_sub(u64::from(fast))
            .saturating_sub(ticks.div_ceil(divisor));
        self.remainder = (divisor - ticks % divisor) % divisor;
        let known_bits = 16 - mtc_period;
        let mask = if known_bits >= 8 {
            0xff
        } else {
            (1u16 << known_bits) as u8 - 1
        };
        self.mtc = Some(((ctc >> mtc_period) as u8, mask));
    }

    fn mtc(&mut self, ctc: u8) {
        let ClockSettings {
            tsc_per_ctc,
            tsc_per_ctc_divisor,
            mtc_period,
            ..
        } = self.settings;
        if tsc_per_ctc == 0 || tsc_per_ctc_divisor == 0 || mtc_period >= 16 {
            return;
        }
        if let Some((last, mask)) = self.mtc {
            let periods = u64::from(ctc.wrapping_sub(last) & mask);
            let ticks = (periods << mtc_period) * u64::from(tsc_per_ctc) + self.remainder;
            self.base = self
                .base
                .saturating_add(ticks / u64::from(tsc_per_ctc_divisor));
            self.remainder = ticks % u64::from(tsc_per_ctc_divisor);
            self.now = self.now.max(self.base);
            self.cycle_base = self.base;
            self.cycles = 0;
        }
        self.mtc = Some((ctc, 0xff));
    }

    fn cycles(&mut self, cycles: u64) {
        if self.ticks_per_cycle == 0 {
            return;
        }
        self.cycles = self.cycles.saturating_add(cycles);
        // The product exceeds 64 bits only for invalid packets.
        let ticks =
            u64::try_from((u128::from(self.cycles) * u128::from(self.ticks_per_cycle)) >> 32)
                .unwrap_or(u64::MAX);
        self.now = self.now.max(self.cycle_base.saturating_add(ticks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ClockSettings = ClockSettings {
        tsc_per_ctc: 234,
        tsc_per_ctc_divisor: 3,
        mtc_period: 3,
        nominal_ratio: 15,
    };

    fn run(packets: &[Packet]) -> Option<u64> {
        let mut clock = Clock::new(SETTINGS);
        packets.iter().for_each(|p| clock.update(p));
        clock.tsc()
    }

    #[test]
    fn nothing_is_known_before_the_first_tsc() {
        assert_eq!(run(&[Packet::Mtc(1), Packet::Cyc(5)]), None);
    }

    #[test]
    fn mtcs_count_from_the_crystal_tick_that_tma_names() {
        // CTC 0x13 is 3 ticks (of 78) behind the MTC 0x10 >> 3 = 2; fast counter 20.
        let start = [
            Packet::Tsc(10_000),
            Packet::Tma {
                ctc: 0x13,
                fast: 20,
            },
        ];
        assert_eq!(run(&start), Some(10_000));
        let base = 10_000 - 20 - 3 * 78;
        assert_eq!(
            run(&[start[0], start[1], Packet::Mtc(3)]),
            Some(base + 8 * 78)
        );
        assert_eq!(
            run(&[start[0], start[1], Packet::Mtc(3), Packet::Mtc(5)]),
            Some(base + 3 * 8 * 78)
        );
        // The counter has eight bits.
        assert_eq!(
            run(&[start[0], start[1], Packet::Mtc(0xff), Packet::Mtc(0x01)]),
            Some(base + (0xff - 2 + 2) * 8 * 78)
        );
    }

    #[test]
    fn cycles_are_scaled_by_the_core_ratio_and_time_never_goes_back() {
        let start = [
            Packet::Tsc(10_000),
            Packet::Tma { ctc: 0x10, fast: 0 },
            Packet::Cbr(30),
        ];
        assert_eq!(
            run(&[start[0], start[1], start[2], Packet::Cyc(100)]),
            Some(10_050)
        );
        let far = run(&[
            start[0],
            start[1],
            start[2],
            Packet::Cyc(100_000),
            Packet::Mtc(3),
        ]);
        assert_eq!(far, Some(60_000));
    }

    #[test]
    fn a_third_of_a_tick_thrice_is_a_tick() {
        let settings = ClockSettings {
            nominal_ratio: 10,
            ..ClockSettings::default()
        };
        for (ratio, cycles, ticks) in [
            (30, 3, 1),
            (30, 2, 0),
            (7, 7, 10),
            (255, 51_000_000, 2_000_000),
        ] {
            let mut clock = Clock::new(settings);
            clock.update(&Packet::Tsc(1000));
            clock.update(&Packet::Cbr(ratio));
            clock.update(&Packet::Cyc(cycles));
            assert_eq!(clock.tsc(), Some(1000 + ticks), "{ratio} {cycles}");
        }
    }

    /// CBR moved the base of MTCs forward once, so that time ran ahead from there on.
    #[test]
    fn a_change_of_the_core_ratio_does_not_move_the_crystal_clock() {
        let start = [
            Packet::Tsc(10_000),
            Packet::Tma {
                ctc: 0x13,
                fast: 20,
            },
            Packet::Cbr(15),
        ];
        let base = 10_000 - 20 - 3 * 78;
        assert_eq!(
            run(&[start[0], start[1], start[2], Packet::Mtc(3)]),
            Some(base + 8 * 78)
        );
        // Cycles count from the TSC packet, not from the crystal tick before it.
        assert_eq!(
            run(&[start[0], start[1], start[2], Packet::Cyc(7)]),
            Some(10_007)
        );
    }

    #[test]
    fn a_tsc_packet_keeps_the_bits_that_it_lacks() {
        let mut clock = Clock::new(SETTINGS);
        clock.update(&Packet::Tsc(1 << 55));
        assert_eq!(clock.tsc(), Some(1 << 55));
        clock.update(&Packet::Tsc((1 << 55) + 7));
        assert_eq!(clock.tsc(), Some((1 << 55) + 7));
    }

    #[test]
    fn fractions_of_a_tick_add_up() {
        let settings = ClockSettings {
            tsc_per_ctc: 10,
            tsc_per_ctc_divisor: 3,
            mtc_period: 0,
            nominal_ratio: 0,
        };
        let mut clock = Clock::new(settings);
        clock.update(&Packet::Tsc(1000));
        clock.update(&Packet::Tma { ctc: 0, fast: 0 });
        for n in 1..=30u8 {
            clock.update(&Packet::Mtc(n));
        }
        assert_eq!(clock.tsc(), Some(1100));
    }
}
