//! The line that counts while a program is recorded.
//!
//! It shares the terminal with the program, so by default it is shown only where the program's own
//! output goes elsewhere.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A line on standard error, or nothing.
pub struct Ticker(Option<ProgressBar>);

impl Ticker {
    /// `asked`: also where the program writes to the terminal.
    pub fn new(asked: bool) -> Ticker {
        let shown = std::io::stderr().is_terminal() && (asked || !std::io::stdout().is_terminal());
        Ticker(shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            if let Ok(style) = ProgressStyle::with_template("mgz-record: {elapsed_precise} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        }))
    }

    /// Shows the current counts. For `burst`, `windows` counts the windows that were begun, and
    /// `outside` counts the triggers that came outside of instrumented code.
    pub fn tell(&self, slots: u64, bytes: u64, windows: u64, outside: u64) {
        if let Some(bar) = &self.0 {
            bar.set_message(message(slots, bytes, windows, outside));
        }
    }
}

fn message(slots: u64, bytes: u64, windows: u64, outside: u64) -> String {
    let mut text = format!("{} records kept, {}", HumanCount(slots), HumanBytes(bytes));
    if windows + outside > 0 {
        let unit = if windows == 1 { "window" } else { "windows" };
        text.push_str(&format!(", {} {unit}", HumanCount(windows)));
        if outside > 0 {
            text.push_str(&format!(
                " ({}% of the time outside of instrumented code)",
                (100 * outside).div_ceil(windows + outside)
            ));
        }
    }
    text
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_line_says() {
        assert_eq!(
            message(1_234_567, 2 << 20, 0, 0),
            "1,234,567 records kept, 2.00 MiB"
        );
        assert_eq!(
            message(1_000, 512, 75, 25),
            "1,000 records kept, 512 B, 75 windows (25% of the time outside of instrumented code)"
        );
        assert_eq!(message(0, 0, 75, 0), "0 records kept, 0 B, 75 windows");
    }
}
