//! `mgz-record … -- mpirun -n 4 ./app.inst`: the launcher starts a recorder for each rank.
//!
//! A recorder that followed the launcher would write all ranks into one trace, on its own host
//! only, and end with it. So `mgz-record` puts itself, with its options, before each instrumented
//! program in the launcher's command line, and becomes the launcher. Ranks are then recorded as by
//! `mpirun -n 4 mgz-record … -- ./app.inst`.

use crate::options::args::Cli;
use crate::options::ranks;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of programs that start ranks and give each its number. An extension behind a dot
/// (`mpirun.openmpi`) does not count.
const LAUNCHERS: [&str; 12] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "jsrun",
    "aprun",
    "ibrun",
    "mpirun_rsh",
    "hydra_mpiexec",
    "palsrun",
];

/// True if a program is a launcher, by its name. `flux` counts only as `flux run` and `flux
/// submit`.
fn is_launcher(program: &OsStr, next: Option<&OsString>) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    let name = name.as_bytes();
    let stem = name.split(|&b| b == b'.').next().unwrap_or_default();
    let runs = || next.is_some_and(|word| word == "run" || word == "submit");
    LAUNCHERS.iter().any(|l| l.as_bytes() == stem) || (stem == b"flux" && runs())
}

/// The recorder's command and options. Each recorder checks by itself that the trace's name differs
/// between ranks.
fn recorder(own: &OsStr, line: &[OsString], cli: &Cli) -> Vec<OsString> {
    let mut options = &line[1..line.len() - cli.program.len()];
    if options.last().is_some_and(|word| word == "--") {
        options = &options[..options.len() - 1];
    }
    let mut words = vec![own.to_owned()];
    words.extend_from_slice(options);
    words.push("--".into());
    words
}

/// The launcher's command line with a recorder before each program that `is_recorded`. `None` if
/// this is no launcher with such a program, or already a rank. `line` is the recorder's own command
/// line, `own` its file.
pub fn with_recorders(
    own: &OsStr,
    line: &[OsString],
    cli: &Cli,
    is_recorded: impl Fn(&OsStr) -> bool,
) -> Option<Vec<OsString>> {
    let (program, arguments) = cli.program.split_first()?;
    if line.len() <= cli.program.len()
        || !is_launcher(program, arguments.first())
        || ranks::own_rank().is_some()
        || cli.calibrate
    {
        return None;
    }
    let recorder = recorder(own, line, cli);
    let mut words = vec![program.clone()];
    // Colons separate several programs in one job. In each part the first recorded word is the
    // program, and the words behind it are its arguments.
    let (mut found, mut any) = (false, false);
    for word in arguments {
        if word == ":" {
            found = false;
        } else if !found && is_recorded(word) {
            (found, any) = (true, true);
            words.extend(recorder.iter().cloned());
        }
        words.push(word.clone());
    }
    any.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn made(line: &str) -> Option<String> {
        let line = words(line);
        let cli = Cli::read(line.iter().cloned()).unwrap();
        let made = with_recorders(OsStr::new("/bin/mgz-record"), &line, &cli, |word| {
            word.as_bytes().ends_with(b".inst")
        })?;
        let made: Vec<_> = made.iter().map(|w| w.to_string_lossy()).collect();
        Some(made.join(" "))
    }

    #[test]
    fn each_program_gets_a_recorder() {
        assert_eq!(
            made("mgz-record --mode ring -o out --heap -- mpirun -n 4 env A=1 ./a.inst x.inst")
                .unwrap(),
            "mpirun -n 4 env A=1 /bin/mgz-record --mode ring -o out --heap -- ./a.inst x.inst"
        );
        assert_eq!(
            made("mgz-record -o t.%h.%r --ranks 0,2 srun.x -n 2 ./a.inst : -n 1 ./b.inst").unwrap(),
            "srun.x -n 2 /bin/mgz-record -o t.%h.%r --ranks 0,2 -- ./a.inst : -n 1 /bin/mgz-record -o t.%h.%r --ranks 0,2 -- ./b.inst"
        );
        assert_eq!(
            made("mgz-record flux run -n2 ./a.inst").unwrap(),
            "flux run -n2 /bin/mgz-record -- ./a.inst"
        );
    }

    #[test]
    fn what_starts_no_ranks_is_recorded_as_it_is() {
        for line in [
            "mgz-record -- ./a.inst mpirun",
            "mgz-record -- env mpirun ./a.inst",
            "mgz-record -- mpirun -n 4 ./wrap.sh",
            "mgz-record -- flux jobs ./a.inst",
        ] {
            assert_eq!(made(line), None, "{line}");
        }
    }
}
