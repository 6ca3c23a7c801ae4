//! Output of programs on standard error.

/// Writes a line to standard error. A closed standard error is no failure: `eprintln!` would end
/// the program.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
