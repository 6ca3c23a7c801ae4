//! `--pt`: the settings of Intel PT.

/// Maximum bytes of PT data in one sample. A record's size has 16 bits and includes other fields.
pub const MAX_SAMPLE: u32 = 60 << 10;

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
}
