//! Progress of a pass over the rows, for users who wait.

use std::io::IsTerminal;

/// A progress bar on a terminal, nothing elsewhere.
pub fn bar(rows: u64) -> indicatif::ProgressBar {
    bar_of(rows, "{bar:30} {human_pos} of {human_len} rows, {eta} left")
}

/// A progress bar for the bytes of input files.
pub fn byte_bar(bytes: u64) -> indicatif::ProgressBar {
    bar_of(bytes, "{bar:30} {bytes} of {total_bytes}, {eta} left")
}

fn bar_of(length: u64, template: &str) -> indicatif::ProgressBar {
    if !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(length);
    if let Ok(style) = indicatif::ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
