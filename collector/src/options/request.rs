//! Requests to `mgz-record`. A command line becomes a request once, here. This step refuses options
//! that do not go together and reports options without effect ([`effect`]), as soon as the kind of
//! work is known. Checks that depend on the machine or the program come later: the trigger of
//! windows in `machine::trigger`, markers and flavours in `commands::record`.

use crate::machine::backend::Backend;
use crate::objects::heap::blocks::HeapBlocks;
use crate::options::args::{Cli, Mode};
use crate::options::effect;
use crate::options::effect::Way;
use crate::util::failure::Failure;
use std::path::Path;

/// All kinds of requests.
pub enum Request<'a> {
    /// Print a completion script.
    Completions(clap_complete::Shell),
    /// Print the manual page.
    Man,
    /// Report the recording capabilities of this machine.
    Probe,
    /// Make a trace of a perf.data file, or print its content.
    Import(&'a Path),
    /// Convert the files that a recording has left behind.
    Recover(&'a Path),
    /// Report where a program spends its time.
    Hot,
    /// Record.
    Record(RecordRequest<'a>),
}

impl<'a> Request<'a> {
    /// Reads it from a command line.
    pub fn new(cli: &'a Cli) -> Result<Request<'a>, Failure> {
        if let Some(shell) = cli.completions {
            return Ok(Request::Completions(shell));
        }
        if cli.man {
            return Ok(Request::Man);
        }
        let (request, way) = if cli.probe {
            (Request::Probe, Way::PROBE)
        } else if let Some(file) = &cli.import {
            let way = if cli.raw || cli.packets {
                Way::IMPORT_TEXT
            } else {
                Way::IMPORT
            };
            (Request::Import(file), way)
        } else if let Some(trace) = &cli.recover {
            (Request::Recover(trace), Way::RECOVER)
        } else if cli.hot {
            (Request::Hot, Way::HOT)
        } else {
            return RecordRequest::new(cli).map(Request::Record);
        };
        check_effects(cli, way)?;
        Ok(request)
    }
}

/// The kind of recording.
pub enum RecordRequest<'a> {
    /// A process that runs already.
    Attach(AttachRequest<'a>),
    /// A program, by hardware watchpoints.
    Watch(WatchRequest<'a>),
    /// A program that is instrumented, or starts such programs.
    Run(RunRequest<'a>),
}

impl<'a> RecordRequest<'a> {
    fn new(cli: &'a Cli) -> Result<RecordRequest<'a>, Failure> {
        if let Some(pid) = cli.attach {
            return AttachRequest::new(cli, pid).map(RecordRequest::Attach);
        }
        if cli.program.is_empty() {
            return Err(Failure::own("no program is given; see `mgz-record --help`"));
        }
        if cli.mode == Some(Mode::Watch) {
            return WatchRequest::new(cli).map(RecordRequest::Watch);
        }
        Ok(RecordRequest::Run(RunRequest { cli }))
    }
}

/// `--attach`.
#[derive(Clone, Copy)]
pub struct AttachRequest<'a> {
    /// The options.
    pub cli: &'a Cli,
    /// The process.
    pub pid: i32,
}

impl<'a> AttachRequest<'a> {
    fn new(cli: &'a Cli, pid: i32) -> Result<AttachRequest<'a>, Failure> {
        if cli.mode.is_some_and(|mode| mode != Mode::Burst) {
            return Err(Failure::own(
                "--attach records bursts (--mode burst): for the other modes a program must be recorded from its start",
            ));
        }
        if cli.backend == Backend::Pt {
            return Err(Failure::own(
                "--attach records by software; leave --backend out",
            ));
        }
        Ok(AttachRequest { cli, pid })
    }

    /// The trigger of windows is known: loads, or CPU time.
    pub fn settle(self, by_loads: bool) -> Result<(), Failure> {
        let way = if by_loads {
            Way::ATTACH_BY_LOADS
        } else {
            Way::ATTACH_BY_TIME
        };
        check_effects(self.cli, way)
    }
}

/// `--mode watch`.
#[derive(Clone, Copy)]
pub struct WatchRequest<'a> {
    /// The options.
    pub cli: &'a Cli,
}

impl<'a> WatchRequest<'a> {
    fn new(cli: &'a Cli) -> Result<WatchRequest<'a>, Failure> {
        if cli.backend != Backend::Auto || cli.functions.is_some() || cli.pt.is_some() {
            return Err(Failure::own(
                "--backend, --functions and --pt do not go with --mode watch, which records any program as it is",
            ));
        }
        Ok(WatchRequest { cli })
    }

    /// The trigger of samples is known: loads, or CPU time.
    pub fn settle(self, by_loads: bool) -> Result<(), Failure> {
        let way = if by_loads {
            Way::WATCH_BY_LOADS
        } else {
            Way::WATCH_BY_TIME
        };
        check_effects(self.cli, way)
    }
}

/// A program that is run from its start. Its mode and backend are settled when its files are known.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// The options.
    pub cli: &'a Cli,
}

impl<'a> RunRequest<'a> {
    /// The mode, given the best one for these files.
    pub fn with_mode(self, best: Mode) -> Result<ModedRequest<'a>, Failure> {
        let (cli, mode) = (self.cli, self.cli.mode.unwrap_or(best));
        if mode == Mode::Ring && (cli.window == 0 || cli.window > cli.records()) {
            return Err(Failure::own(format!(
                "--window {} does not fit --period {}: a window has at least one record and at most as many as the period",
                cli.window,
                cli.records()
            )));
        }
        Ok(ModedRequest { cli, mode })
    }
}

/// A run request with its mode.
#[derive(Clone, Copy)]
pub struct ModedRequest<'a> {
    /// The options.
    pub cli: &'a Cli,
    /// Never `watch`.
    pub mode: Mode,
}

/// Extent of an Intel PT recording. `None` records everything. Otherwise the pair holds the number
/// of loads in a period, and in the window at its end.
pub type PtWindows = Option<(u64, u64)>;

impl ModedRequest<'_> {
    /// Intel PT records it.
    pub fn by_pt(self) -> Result<PtWindows, Failure> {
        let cli = self.cli;
        if cli.heap.is_some_and(|blocks| blocks != HeapBlocks::Budget) {
            return Err(Failure::own(
                "--heap is for recording by software; add --backend soft with a file of `mgz-instrument --for burst`, or record without it",
            ));
        }
        check_effects(
            cli,
            if self.mode == Mode::Full {
                Way::PT_FULL
            } else {
                Way::PT_RING
            },
        )?;
        match cli.mode.unwrap_or(Mode::Ring) {
            Mode::Full => Ok(None),
            Mode::Ring => Ok(Some((cli.records(), cli.window))),
            Mode::Burst => Err(Failure::own(
                "--mode burst is for the software backend; with Intel PT, `--pt clock=HZ` takes samples by CPU time",
            )),
            Mode::Watch => Err(Failure::own(
                "--mode watch needs no Intel PT and no instrumentation; leave --backend out",
            )),
            Mode::Count => Err(Failure::own(
                "--count is for the software backend; run it on a file of `mgz-instrument --backend soft`",
            )),
            Mode::Off => Err(Failure::own("--mode off is for the software backend")),
        }
    }

    /// Software records it. (The trigger of windows in `burst` is known later.)
    pub fn by_software(self) -> Result<(), Failure> {
        match self.mode {
            Mode::Full => check_effects(self.cli, Way::FULL),
            Mode::Count => check_effects(self.cli, Way::COUNT),
            Mode::Ring => check_effects(self.cli, Way::RING),
            Mode::Burst | Mode::Watch | Mode::Off => Ok(()),
        }
    }

    /// The trigger of windows in `burst` is known: loads, or CPU time.
    pub fn with_trigger(self, by_loads: bool) -> Result<(), Failure> {
        let way = if by_loads {
            Way::BURST_BY_LOADS
        } else {
            Way::BURST_BY_TIME
        };
        check_effects(self.cli, way)
    }
}

fn check_effects(cli: &Cli, way: Way) -> Result<(), Failure> {
    effect::check_and_tell(cli, way).map_err(Failure::own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(arguments: &[&str]) -> Cli {
        let all = [&["mgz-record"], arguments].concat();
        Cli::read(all.iter().map(Into::into)).unwrap()
    }

    fn refusal(arguments: &[&str]) -> String {
        let cli = cli(arguments);
        let Err(failure) = Request::new(&cli) else {
            panic!("{arguments:?} was taken")
        };
        assert_eq!(failure.status, 125);
        failure.message
    }

    #[test]
    fn what_does_not_go_together_is_refused_before_anything_is_done() {
        for (arguments, why) in [
            (
                &["--attach", "1", "--mode", "full"][..],
                "--attach records bursts",
            ),
            (&["--attach", "1", "--backend", "pt"], "by software"),
            (&[], "no program is given"),
            (
                &["--mode", "watch", "--backend", "soft", "--", "x"],
                "--mode watch, which",
            ),
            (
                &["--recover", "t", "--window", "3"],
                "--window has no effect in --recover",
            ),
        ] {
            let said = refusal(arguments);
            assert!(said.contains(why), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn a_run_is_checked_with_its_mode_and_backend() {
        let run = |arguments: &[&str], best| {
            let cli = cli(&[arguments, &["--", "x"]].concat());
            let Ok(Request::Record(RecordRequest::Run(run))) = Request::new(&cli) else {
                panic!("{arguments:?} is no run")
            };
            let request = run.with_mode(best).map_err(|f| f.message)?;
            let pt = request.by_pt().map_err(|f| f.message);
            let soft = request.by_software().map_err(|f| f.message);
            Ok::<_, String>((request.mode, pt, soft))
        };
        let (mode, pt, soft) = run(&[], Mode::Burst).unwrap();
        assert_eq!(
            (mode, pt, soft),
            (Mode::Burst, Ok(Some((1_000_000, 1000))), Ok(()))
        );
        let (mode, pt, soft) = run(&["--mode", "full"], Mode::Burst).unwrap();
        assert_eq!((mode, pt, soft), (Mode::Full, Ok(None), Ok(())));
        let (_, pt, soft) = run(&["--heap", "--mode", "full"], Mode::Ring).unwrap();
        assert!(
            pt.unwrap_err()
                .contains("--heap is for recording by software")
        );
        assert_eq!(soft, Ok(()));
        let (_, pt, _) = run(&["--mode", "burst"], Mode::Ring).unwrap();
        assert!(pt.unwrap_err().contains("--pt clock=HZ"));
        let (_, _, soft) = run(&["--rate", "5"], Mode::Ring).unwrap();
        assert!(
            soft.unwrap_err()
                .contains("--rate has no effect in --mode ring")
        );
        assert!(
            run(&["--window", "0"], Mode::Ring)
                .unwrap_err()
                .contains("does not fit")
        );
        assert!(run(&["--window", "0"], Mode::Burst).is_ok());
    }
}
