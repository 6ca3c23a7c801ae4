//! `docs/reference/command-line.md` documents the programs' options and is generated from their
//! definitions.
//!
//! `MGZ_UPDATE=1 cargo test -p mgz-tests --test reference` rewrites the page. (Only the definitions
//! of the commands are used here, not their code.)

use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fmt::Write;
use std::path::Path;

const PAGE: &str = "../docs/reference/command-line.md";
const HEAD: &str = "\
# Command line

<!-- Made of the definitions of the commands. To make it anew:
     MGZ_UPDATE=1 cargo test --release --workspace --test reference -->

A size is a number of bytes, or a number with K, M, G or T (powers of 1024).
";

/// A cell of a table: one line, bars escaped.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|")
}

fn sentence(text: &str) -> String {
    let text = cell(text);
    match text.chars().last() {
        None | Some('.' | ':' | ';') => text,
        _ => text + ".",
    }
}

/// The notation of an option or argument.
fn written(arg: &Arg) -> String {
    let names: Vec<String> = match arg.get_value_names() {
        _ if !arg.get_action().takes_values() => Vec::new(),
        Some(names) => names.iter().map(|n| n.to_string()).collect(),
        None => vec![arg.get_id().as_str().to_uppercase()],
    };
    let many = arg.get_num_args().is_some_and(|n| n.max_values() > 1)
        || (arg.is_positional() && matches!(arg.get_action(), ArgAction::Append));
    let optional = arg.get_num_args().is_some_and(|n| n.min_values() == 0);
    let mut value = names.join(" ");
    if many && !value.ends_with('…') {
        value.push('…');
    }
    if arg.is_positional() {
        return value;
    }
    let join = if arg.is_require_equals_set() {
        "="
    } else {
        " "
    };
    let value = match (value.is_empty(), optional) {
        (true, _) => String::new(),
        (false, true) => format!("[{join}{value}]"),
        (false, false) => format!("{join}{value}"),
    };
    let short = arg.get_short().map(|c| format!("-{c}"));
    let long = arg.get_long().map(|l| format!("--{l}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("{}{value}", names.join(", "))
}

/// The meaning of an option, its values and its default.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let mut text = help.map_or_else(String::new, |h| sentence(&h.to_string()));
    let takes = arg.get_action().takes_values();
    let values = if takes {
        arg.get_possible_values()
    } else {
        Vec::new()
    };
    let described: Vec<String> = values
        .iter()
        .filter(|v| !v.is_hide_set())
        .map(|v| match v.get_help() {
            Some(help) => {
                let help = cell(&help.to_string());
                format!("`{}`: {}", v.get_name(), help.trim_end_matches('.'))
            }
            None => format!("`{}`", v.get_name()),
        })
        .collect();
    if !described.is_empty() {
        let explained = values.iter().any(|v| v.get_help().is_some());
        let separator = if explained { "<br>" } else { ", " };
        let _ = write!(text, "<br>{}", described.join(separator));
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|v| format!("`{}`", v.to_string_lossy()))
        .collect();
    if takes && !defaults.is_empty() {
        let _ = write!(text, "<br>Default: {}", defaults.join(", "));
    }
    let said = text.contains("several times");
    if matches!(arg.get_action(), ArgAction::Append) && !arg.is_positional() && !said {
        text.push_str("<br>May be given several times.");
    }
    text
}

fn table<'a>(out: &mut String, head: &str, args: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<String> = args
        .filter(|a| !a.is_hide_set() && !matches!(a.get_id().as_str(), "help" | "version"))
        .map(|a| format!("| `{}` | {} |\n", cell(&written(a)), meaning(a)))
        .collect();
    if !rows.is_empty() {
        let _ = write!(out, "\n| {head} | |\n|---|---|\n{}", rows.concat());
    }
}

/// A text whose long lines are broken between words; indented lines are commands and stay
/// unchanged.
fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for long in text.trim().lines() {
        if long.chars().count() <= COLUMNS || long.starts_with(' ') {
            lines.push(long.into());
            continue;
        }
        let mut line = String::new();
        for word in long.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// Text of a command that precedes or follows its help.
fn block(out: &mut String, text: Option<impl ToString>) {
    let text = text.map_or_else(String::new, |t| wrapped(&t.to_string()));
    if !text.trim().is_empty() {
        let _ = write!(out, "\n```\n{}\n```\n", text.trim());
    }
}

fn describe(command: &mut Command, path: &str, level: usize, out: &mut String) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage: Vec<&str> = usage.lines().map(str::trim).collect();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map_or_else(String::new, |a| sentence(&a.to_string()));
    let _ = write!(out, "\n{} {path}\n", "#".repeat(level));
    if !about.is_empty() {
        let _ = write!(out, "\n{about}\n");
    }
    let _ = write!(out, "\n```\n{}\n```\n", usage.join("\n"));
    block(out, command.get_before_help());
    table(out, "argument", command.get_positionals());
    table(
        out,
        "option",
        command.get_arguments().filter(|a| !a.is_positional()),
    );
    block(out, command.get_after_help());
    let inner: Vec<Command> = command.get_subcommands().cloned().collect();
    for mut sub in inner.into_iter().filter(|s| s.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        sub = sub.bin_name(path.clone());
        describe(&mut sub, &path, level + 1, out);
    }
}

/// Generates the page.
fn page() -> String {
    let commands = [
        mgz::cli::Cli::command(),
        mgz_instrument::cli::Args::command(),
        mgz_collector::options::args::Cli::command(),
        mgz_analyze::Cli::command(),
    ];
    let mut out = HEAD.to_owned();
    for mut command in commands {
        command.build();
        let name = command.get_name().to_owned();
        describe(&mut command, &name, 2, &mut out);
    }
    out
}

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("MGZ_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = page
        .lines()
        .zip(found.lines().chain(std::iter::repeat("")))
        .find(|(new, old)| new != old);
    assert!(
        page == found,
        "docs/reference/command-line.md is out of date; MGZ_UPDATE=1 writes it anew. First difference: {differing:?}"
    );
}

#[test]
fn every_option_is_explained() {
    let page = page();
    for line in page.lines().filter(|l| l.starts_with("| `")) {
        assert!(!line.ends_with("|  |"), "{line}");
    }
    for option in ["--libs[=LIST]", "--attach PID", "--zoom", "--mimic N"] {
        assert!(page.contains(option), "{option}");
    }
}
