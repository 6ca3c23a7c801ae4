//! The next step for a program that generates its code at run time and cannot be instrumented.

use mgz_annotations_schema::shell;
use mgz_generated_code::runtimes;
use std::ffi::OsString;
use std::path::Path;

/// Commands that show where the program's time is spent. `command`: the user's program and
/// arguments.
pub fn next_step(program: &Path, command: &[OsString]) -> Option<String> {
    let path = program.to_str()?;
    let runtime = runtimes::find(std::iter::once(path))?;
    let words: Vec<&str> = command
        .iter()
        .map(|word| word.to_str())
        .collect::<Option<_>>()?;
    let (first, rest) = words.split_first()?;
    let flags: Vec<&str> = runtime.flags()?.collect();
    let words = std::iter::once(*first)
        .chain(flags)
        .chain(rest.iter().copied());
    let line = shell::line(words);
    Some(format!(
        "{} generates its code at run time: `mgz-record --hot -- {line}` shows the functions in which its time goes; `mgz-record --mode watch -o TRACE -- {line}` samples the reuses of its data",
        runtime.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_code() {
        let command = ["node", "app.js", "a b"].map(OsString::from);
        let said = next_step(Path::new("/usr/bin/node"), &command).unwrap();
        assert!(
            said.contains("`mgz-record --hot -- node --perf-basic-prof app.js 'a b'`"),
            "{said}"
        );
        assert_eq!(next_step(Path::new("/bin/ls"), &command), None);
        // LuaJIT names its code only in special builds.
        assert_eq!(next_step(Path::new("/usr/bin/luajit"), &command), None);
    }
}
