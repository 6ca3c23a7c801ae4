//! `--pt`: the settings of Intel PT.

use crate::pt::plan::{CLOCK_NS, Keep, MAX_SAMPLE, Request, Timing, Trigger};

/// Bytes that a record takes: a `ptwrite` of eight bytes and its address, mostly compressed, and
/// its share of the rest.
const RECORD_BYTES: u64 = 16;
/// Before its first PSB nothing in a window can be read: half the shortest distance of PSBs, twice
/// for safety.
const HEAD_BYTES: u64 = 2048;

/// `--pt KEY[=VALUE],…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `tsc=0` leaves time stamps out.
    pub no_tsc: bool,
    /// `mtc[=N]`.
    pub mtc: Option<u32>,
    /// `cyc`.
    pub cyc: bool,
    /// `psb=N`.
    pub psb: u32,
    /// `bytes=N`: of PT data in a window.
    pub bytes: Option<u32>,
    /// `clock[=HZ]`: samples by CPU time.
    pub clock_hz: Option<u32>,
    /// `pause=0`.
    pub no_pause: bool,
    /// `keep`: the capture stays.
    pub keep: bool,
}

/// For the command line: the settings, or a sentence.
pub fn parse_pt_settings(text: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (key, value) = item
            .split_once('=')
            .map_or((item, None), |(key, value)| (key, Some(value)));
        let number = |least: u32, most: u32, without: Option<u32>| -> Result<u32, String> {
            let given = match value {
                None => without.ok_or_else(|| format!("{key} needs a value"))?,
                Some(text) => text
                    .parse()
                    .map_err(|_| format!("{key}={text}: not a number"))?,
            };
            if (least..=most).contains(&given) {
                Ok(given)
            } else {
                Err(format!("{key}={given}: {least} to {most} can be given"))
            }
        };
        match key {
            "tsc" => settings.no_tsc = number(0, 1, Some(1))? == 0,
            "mtc" => settings.mtc = Some(number(0, 15, Some(3))?),
            "cyc" => settings.cyc = number(0, 1, Some(1))? == 1,
            "psb" => settings.psb = number(0, 15, None)?,
            "bytes" => settings.bytes = Some(number(64, MAX_SAMPLE, None)?),
            "clock" => settings.clock_hz = Some(number(1, 20_000, Some(100))?),
            "pause" => settings.no_pause = number(0, 1, Some(1))? == 0,
            "keep" => settings.keep = number(0, 1, Some(1))? == 1,
            _ => {
                return Err(format!(
                    "{key}: unknown; there are tsc, mtc, cyc, psb, bytes, clock, pause, keep"
                ));
            }
        }
    }
    Ok(settings)
}

impl Settings {
    /// The request. `windows`: period (in loads, here) and window (in records); none for a full
    /// trace.
    pub fn request(&self, windows: Option<(u64, u64)>, filter: String) -> Request {
        let timing = Timing {
            tsc: !self.no_tsc,
            mtc: self.mtc,
            cyc: self.cyc,
            psb: self.psb,
        };
        let keep = match windows {
            None => Keep::Everything,
            Some((period, window)) => {
                let wanted = window
                    .saturating_mul(RECORD_BYTES)
                    .saturating_add(HEAD_BYTES << self.psb.min(15));
                let bytes = self
                    .bytes
                    .unwrap_or_else(|| u32::try_from(wanted).unwrap_or(MAX_SAMPLE).min(MAX_SAMPLE));
                let trigger = match self.clock_hz {
                    None => Trigger::Loads(period.max(1)),
                    Some(100) => Trigger::Clock(CLOCK_NS),
                    // No multiple of the timer tick.
                    Some(hz) => Trigger::Clock(1_000_000_000 / u64::from(hz) + 19),
                };
                // Windows are cut short where pausing follows too soon, which long periods make
                // rare.
                let rare = self.clock_hz.is_some() || period / 64 >= window;
                Keep::Windows {
                    bytes,
                    trigger,
                    pause: !self.no_pause && rare,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_checked() {
        assert_eq!(parse_pt_settings(""), Ok(Settings::default()));
        let all = Settings {
            no_tsc: true,
            mtc: Some(3),
            cyc: true,
            psb: 2,
            bytes: Some(8192),
            clock_hz: Some(250),
            no_pause: true,
            keep: true,
        };
        assert_eq!(
            parse_pt_settings("tsc=0,mtc,cyc,psb=2,bytes=8192,clock=250,pause=0,keep"),
            Ok(all)
        );
        for bad in [
            "x",
            "psb",
            "psb=16",
            "bytes=1",
            "bytes=99999999",
            "clock=0",
            "mtc=x",
            "tsc=2",
        ] {
            assert!(parse_pt_settings(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn windows_become_bytes() {
        let keep = |settings: Settings, period, window| {
            settings.request(Some((period, window)), String::new()).keep
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
            Settings::default().request(None, "f".into()),
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
