//! Progress of a pass over the rows, for users who wait.

use std::io::IsTerminal;

/// A progress bar on a terminal, nothing elsewhere.
pub fn bar(rows: u64) -> indicatif::ProgressBar {
    if !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(rows);
    if let Ok(style) = indicatif::ProgressStyle::with_template(
        "{bar:30} {human_pos} of {human_len} rows, {eta} left",
    ) {
        bar.set_style(style);
    }
    bar
}
