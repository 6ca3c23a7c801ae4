//! `mgz report` of a trace of watchpoints: the output of `mgz-analyze` in one HTML file.
//!
//! Such a trace has use–reuse pairs and no rows of loads, so the viewer of loads has nothing to
//! show.

use crate::fix::FixCommand;
use crate::report::{Made, write_private};
use crate::tools;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Command, Stdio};

const STYLE: &str = "body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; } \
                     pre { font: 13px/1.4 ui-monospace, monospace; overflow-x: auto; } \
                     @media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }";

/// Analyses a trace and writes its report.
pub fn make_watch_report(trace: &Path, command: &[String], file: &Path) -> anyhow::Result<Made> {
    let place = std::path::absolute(trace)?;
    let output = Command::new(tools::find_tool("mgz-analyze")?)
        .arg(&place)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("mgz-analyze cannot be executed")?;
    let tables = String::from_utf8_lossy(&output.stdout);
    if tables.is_empty() {
        bail!("{}: could not be analysed", trace.display());
    }
    write_private(file, page(&place, command, &tables).as_bytes())?;
    Ok(Made {
        damaged: !output.status.success(),
        is_empty: false,
        fixes: FixCommand::Nothing,
    })
}

fn page(trace: &Path, command: &[String], tables: &str) -> String {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let title = format!("{} – use–reuse pairs", escaped(&name));
    let command = escaped(&command.join(" "));
    let recorded = match command.is_empty() {
        true => String::new(),
        false => format!("<p>Recorded program: <code>{command}</code></p>\n"),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n{recorded}\
         <p>Watchpoints saw these pairs of an access and the next one to the same words.</p>\n\
         <pre>{}</pre>\n</html>\n",
        escaped(tables)
    )
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_program_stay_text() {
        let command = ["./a<b>".to_string(), "1 & 2".to_string()];
        let page = page(Path::new("/tmp/w"), &command, "f<int>(x&) 3\n");
        assert!(page.contains("<h1>w – use–reuse pairs</h1>"), "{page}");
        assert!(
            page.contains("<code>./a&lt;b&gt; 1 &amp; 2</code>"),
            "{page}"
        );
        assert!(
            page.contains("<pre>f&lt;int&gt;(x&amp;) 3\n</pre>"),
            "{page}"
        );
    }
}
