//! The settings of `--pt` as a request for events.

use crate::pt::plan::{CLOCK_NS, Keep, Request, Timing, Trigger};
use mgz_collector::options::pt_settings::{MAX_SAMPLE, Settings};
use mgz_collector::options::request::PtWindows;

/// Bytes per record: a `ptwrite` of eight bytes and its address, mostly compressed, and its share
/// of other packets.
const RECORD_BYTES: u64 = 16;
/// Extra bytes per window, since nothing before its first PSB can be read: half the shortest
/// distance of PSBs, doubled for safety.
const HEAD_BYTES: u64 = 2048;

/// The request for these settings. `windows`: period (in loads) and window (in records); none for a
/// full trace.
pub fn request(settings: &Settings, windows: PtWindows, filter: String) -> Request {
    let timing = Timing {
        tsc: !settings.no_tsc,
        mtc: settings.mtc,
        cyc: settings.cyc,
        psb: settings.psb,
    };
    let keep = match windows {
        None => Keep::Everything,
        Some((period, window)) => {
            let wanted = window
                .saturating_mul(RECORD_BYTES)
                .saturating_add(HEAD_BYTES << settings.psb.min(15));
            let bytes = settings
                .bytes
                .unwrap_or_else(|| u32::try_from(wanted).unwrap_or(MAX_SAMPLE).min(MAX_SAMPLE));
            let trigger = match settings.clock_hz {
                None => Trigger::Loads(period.max(1)),
                Some(100) => Trigger::Clock(CLOCK_NS),
                // Not a multiple of the timer tick.
                Some(hz) => Trigger::Clock(1_000_000_000 / u64::from(hz) + 19),
            };
            // A window is cut short if the pause comes too early, which is rare with long periods.
            let rare = settings.clock_hz.is_some() || period / 64 >= window;
            Keep::Windows {
                bytes,
                trigger,
                pause: !settings.no_pause && rare,
            }
        }
    };
    Request {
        keep,
        timing,
        filter,
        guests: false,
        stacks: false,
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use mgz_collector::options::pt_settings::parse_pt_settings;

    #[test]
    fn windows_become_bytes() {
        let keep = |settings: Settings, period, window| {
            request(&settings, Some((period, window)), String::new()).keep
        };
        assert_eq!(
            keep(Settings::default(), 1_000_000, 1000),
            Keep::Windows {
                bytes: 18_048,
                trigger: Trigger::Loads(1_000_000),
                pause: true
            }
        );
        assert_eq!(
            keep(Settings::default(), 10_000, 1000),
            Keep::Windows {
                bytes: 18_048,
                trigger: Trigger::Loads(10_000),
                pause: false
            }
        );
        assert!(matches!(
            keep(Settings::default(), u64::MAX, u64::MAX),
            Keep::Windows {
                bytes: MAX_SAMPLE,
                ..
            }
        ));
        let clock = parse_pt_settings("clock=1000,bytes=4096").unwrap();
        assert_eq!(
            keep(clock, 10, 10),
            Keep::Windows {
                bytes: 4096,
                trigger: Trigger::Clock(1_000_019),
                pause: true
            }
        );
        assert_eq!(
            request(&Settings::default(), None, "f".into()),
            Request {
                keep: Keep::Everything,
                timing: Timing::default(),
                filter: "f".into(),
                guests: false,
                stacks: false,
            }
        );
    }
}
