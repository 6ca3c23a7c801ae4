//! The report as text.

use crate::report::{Libraries, Report};
use mgz_annotations_schema::ProbeFlavour;
use std::fmt::{Display, Write};

/// The text under construction.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Adds a line with a name in front of it.
    fn line(&mut self, name: &str, text: impl Display) {
        let _ = writeln!(self.0, "{name:<12}{text}");
    }
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = Text::default();
        out.line("input", &self.input);
        out.line(
            "output",
            format!(
                "{} ({} backend), annotations in {}",
                self.output, self.backend, self.annotations
            ),
        );
        for said in &self.debug_files {
            out.line("debug info", said);
        }
        self.functions_text(&mut out);
        self.loads_text(&mut out);
        self.code_text(&mut out);
        self.files_text(&mut out);
        self.calls_text(&mut out);
        self.payload_text(&mut out);
        self.size_text(&mut out);
        if let Some(libraries) = &self.libraries {
            self.libraries_text(libraries, &mut out.0);
        }
        out.0
    }

    /// Adds the lines on functions with clones, and on code that is not recorded.
    fn functions_text(&self, out: &mut Text) {
        let f = &self.functions;
        let share = |part: u64, whole: u64| {
            if whole == 0 {
                0.0
            } else {
                100.0 * part as f64 / whole as f64
            }
        };
        out.line(
            "functions",
            format!(
                "{} found, {} instrumented ({:.1}% of the code), {} left",
                f.found,
                f.instrumented,
                share(self.covered_bytes, self.text_bytes),
                f.left.total
            ),
        );
        for (reason, count) in &f.left.reasons {
            out.line("", format!("  {count} left: {reason}"));
        }
        if f.entered_late > 0 {
            out.line(
                "",
                format!(
                    "  {} begin without room for a jump: what code without a clone calls there runs in the original at first (with loads: {})",
                    f.entered_late, self.not_instrumented.entered_late
                ),
            );
        }
        let beside = &self.not_instrumented;
        if beside.stray_bytes > 0 {
            out.line(
                "",
                format!(
                    "  {} bytes of what may be code are in no known function, and are not recorded",
                    beside.stray_bytes
                ),
            );
        }
        if beside.before_start > 0 {
            out.line(
                "",
                format!(
                    "  {} are called by the loader before recording begins (resolvers of indirect functions)",
                    beside.before_start
                ),
            );
        }
    }

    /// Adds the lines on loads, stores and records.
    fn loads_text(&self, out: &mut Text) {
        let l = &self.loads;
        out.line(
            "loads",
            format!(
                "{}: {} constant ({} implied), {} strided, {} irregular; apart from them {} implicit stack reads",
                l.total,
                l.constant,
                l.implied,
                l.strided,
                l.irregular,
                self.implicit.pop + self.implicit.ret + self.implicit.leave
            ),
        );
        for (reason, count) in &l.unrecorded.reasons {
            out.line("", format!("  {count} not recorded: {reason}"));
        }
        if self.stores > 0 {
            out.line("stores", self.stores);
        }
        out.line(
            "records",
            format!(
                "{} ({:.2} per load)",
                self.records,
                self.records as f64 / l.total.max(1) as f64
            ),
        );
    }

    /// Adds the lines on handlers, on code that is read as data, and on the state of threads.
    fn code_text(&self, out: &mut Text) {
        if self.shows_faults {
            let how = if self.backend == ProbeFlavour::Pt {
                ", and are shown the original code by way of sigaction"
            } else {
                ""
            };
            out.line(
                "handlers",
                format!("may look at faults: probes change no register{how}"),
            );
        }
        if let Some(at) = self.reads_code {
            out.line(
                "own code",
                format!(
                    "is read as data (seen at {at:#x}): mgz-record serves this file with --mode burst alone, which changes none of it"
                ),
            );
        }
        if let Some(what) = &self.opens_memory {
            out.line(
                "own code",
                format!("may be read or changed by {what}: record with --mode burst"),
            );
        }
        if let Some(what) = &self.burst_only {
            out.line(
                "own state",
                format!("{what}: mgz-record serves this file with --mode burst alone"),
            );
        }
    }

    /// Adds the lines on the program's uses of its own file, map and folder.
    fn files_text(&self, out: &mut Text) {
        if let Some(at) = self.opens_itself {
            out.line(
                "own file",
                format!(
                    "is opened at {at:#x}: what it reads there is the rewritten file, which has the same at the same offsets but for headers{}, and is longer",
                    if self.backend == ProbeFlavour::Pt {
                        " and entry jumps"
                    } else {
                        ""
                    }
                ),
            );
        }
        if let Some(at) = self.opens_maps {
            out.line(
                "own map",
                format!(
                    "/proc/self/maps is opened at {at:#x}: what the program reads at addresses from there is not followed; if it reads its own code, record with --mode burst{}",
                    if self.backend == ProbeFlavour::Pt {
                        " after `mgz-instrument --backend soft`"
                    } else {
                        ""
                    }
                ),
            );
        }
        if let Some(path) = self.looks_beside.as_ref().filter(|_| self.is_elsewhere()) {
            out.line(
                "own folder",
                format!(
                    "may be where it looks for files ({path}): if it finds none, put the output into the folder of the original, as `mgz run --beside` does"
                ),
            );
        }
    }

    /// Adds the line on code that looks at return addresses.
    fn calls_text(&self, out: &mut Text) {
        if let Some(who) = &self.shows_returns {
            out.line(
                "calls",
                format!("push the original's return addresses in every mode: {who} looks at them"),
            );
        }
    }

    /// Adds the line on the payload.
    fn payload_text(&self, out: &mut Text) {
        if let Some(p) = &self.payload {
            let place = match &p.section {
                Some(name) => format!("from section {name} on"),
                None => "behind the ELF content".into(),
            };
            out.line(
                "payload",
                format!(
                    "{} bytes {place}, at offset {}: they stay there, and are repeated at the end of the output (offset {})",
                    p.bytes, p.offset, p.repeated_at
                ),
            );
        }
    }

    /// Adds the lines on the growth of the file and the time spent on it.
    fn size_text(&self, out: &mut Text) {
        out.line(
            "size",
            format!(
                "{} bytes of code and {} of unwind tables became {} and {} more (growth {:.2})",
                self.text_bytes,
                self.old_unwind_bytes,
                self.clone_bytes,
                self.unwind_bytes,
                self.growth
            ),
        );
        out.line("time", format!("{:.2} s", self.seconds));
    }

    /// True if the output is in another folder than the input.
    fn is_elsewhere(&self) -> bool {
        let folder = |path: &str| {
            let path = std::path::absolute(path).ok()?;
            std::fs::canonicalize(path.parent()?).ok()
        };
        folder(&self.input) != folder(&self.output)
    }

    /// Adds the lines on libraries that were instrumented, declined, missing and left out.
    fn libraries_text(&self, libraries: &Libraries, out: &mut String) {
        for report in &libraries.instrumented {
            let _ = writeln!(out, "\n{}", report.text().trim_end());
        }
        for (name, why) in &libraries.declined {
            let _ = writeln!(out, "{:<12}{name} declined: {why}", "library");
        }
        for name in &libraries.missing {
            let _ = writeln!(out, "{:<12}{name} was not found", "library");
        }
        if !libraries.left_out.is_empty() {
            let names: Vec<String> = libraries
                .left_out
                .iter()
                .map(|(n, b)| format!("{n} ({} KiB)", b / 1024))
                .collect();
            let _ = writeln!(
                out,
                "{:<12}left out: {}; {:.0}% of the program's code is in instrumented files{}",
                "libraries",
                names.join(", "),
                libraries.instrumented_text_pct,
                if libraries.instrumented.is_empty() {
                    " (--libs instruments libraries as well)"
                } else {
                    ""
                }
            );
        }
    }
}
