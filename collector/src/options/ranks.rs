//! Ranks of a job: the rank of this process, the choice of recorded ranks, and the place of the
//! trace. Launchers pass the rank to each process in environment variables.

use crate::options::args::Cli;
use crate::util::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A launcher's facts about a process that it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Its number in the job, from 0.
    pub rank: u32,
    /// Number of ranks in the job, if the launcher gives it.
    pub world_size: Option<u32>,
    /// Number among the job's ranks on this host, if the launcher gives it.
    pub local_rank: Option<u32>,
}

/// Variables of one launcher or process manager: rank, number of ranks, rank on the host.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    local: &'static str,
    /// A variable that only started ranks have, where a job's script has a rank too.
    only_with: Option<&'static str>,
}

/// Launchers in the order of search: a library's variables come before those of its launcher.
const LAUNCHERS: [Launcher; 7] = [
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        only_with: None,
    },
    Launcher {
        rank: "PMIX_RANK",
        size: "PMIX_SIZE",
        local: "PMIX_LOCAL_RANK",
        only_with: None,
    },
    Launcher {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        only_with: None,
    },
    Launcher {
        rank: "PALS_RANKID",
        size: "PALS_SIZE",
        local: "PALS_LOCAL_RANKID",
        only_with: None,
    },
    Launcher {
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local: "MV2_COMM_WORLD_LOCAL_RANK",
        only_with: None,
    },
    Launcher {
        rank: "FLUX_TASK_RANK",
        size: "FLUX_JOB_SIZE",
        local: "FLUX_TASK_LOCAL_ID",
        only_with: None,
    },
    Launcher {
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        only_with: Some("SLURM_STEP_NUM_TASKS"),
    },
];

/// The rank of a process with this environment.
pub fn rank_in_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Rank> {
    let number = |name: &str| variable(name)?.to_str()?.parse::<u32>().ok();
    LAUNCHERS.iter().find_map(|l| {
        if l.only_with.is_some_and(|name| variable(name).is_none()) {
            return None;
        }
        Some(Rank {
            rank: number(l.rank)?,
            world_size: number(l.size),
            local_rank: number(l.local),
        })
    })
}

/// This process's rank.
pub fn own_rank() -> Option<Rank> {
    rank_in_environment(|name| std::env::var_os(name))
}

/// Fills in what stands for numbers of this process in the name of a trace: `%r` (rank), `%h`
/// (host), `%p` (process id of mgz-record), `%q{NAME}` (environment variable), `%%` (a percent
/// sign).
///
/// # Errors
///
/// An unknown placeholder, no rank, or no such variable.
pub fn fill_in(
    pattern: &Path,
    rank: Option<Rank>,
    host: &str,
    pid: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, String> {
    let mut rest = pattern.as_os_str().as_bytes();
    let mut out = Vec::new();
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        out.extend_from_slice(&rest[..at]);
        let kind = rest.get(at + 1).copied();
        rest = rest.get(at + 2..).unwrap_or_default();
        match kind {
            Some(b'%') => out.push(b'%'),
            Some(b'h') => out.extend_from_slice(host.as_bytes()),
            Some(b'p') => out.extend_from_slice(pid.to_string().as_bytes()),
            Some(b'r') => {
                let Some(rank) = rank else {
                    return Err("%r is the rank, and no launcher has given one to this process; start mgz-record by it (mpirun -n 4 mgz-record …)".to_owned());
                };
                out.extend_from_slice(rank.rank.to_string().as_bytes());
            }
            Some(b'q') => {
                let name = rest
                    .strip_prefix(b"{")
                    .and_then(|r| Some(&r[..r.iter().position(|&b| b == b'}')?]))
                    .ok_or("%q needs the name of a variable: %q{NAME}")?;
                let shown = String::from_utf8_lossy(name);
                let value = variable(&shown).ok_or_else(|| {
                    format!("%q{{{shown}}}: the environment has no such variable")
                })?;
                // The value must be a folder's name, not a path.
                if value.as_bytes().contains(&b'/') {
                    return Err(format!("%q{{{shown}}}: the variable's value holds a slash"));
                }
                out.extend_from_slice(value.as_bytes());
                rest = &rest[name.len() + 2..];
            }
            _ => {
                return Err(
                    "behind a percent sign there may be r (rank), h (host), p (process), q{NAME} (variable) or another percent sign"
                        .to_owned(),
                );
            }
        }
    }
    out.extend_from_slice(rest);
    Ok(OsString::from_vec(out).into())
}

/// True if this process is to be recorded. Also settles the place of its trace.
///
/// # Errors
///
/// Several ranks would write one folder, or a placeholder in the path cannot be filled in.
pub fn settle_rank(cli: &mut Cli, host: &str) -> Result<bool, Failure> {
    let rank = own_rank();
    if let Some(list) = &cli.ranks {
        let Some(rank) = rank else {
            return Err(Failure::own(
                "--ranks: no launcher has given this process a rank; start mgz-record by it (mpirun -n 4 mgz-record --ranks 0 …)",
            ));
        };
        if !list.contains(rank.rank) {
            return Ok(false);
        }
    }
    let pattern = cli.output.as_os_str().as_bytes();
    if !pattern.contains(&b'%') {
        let many = rank.filter(|r| r.world_size != Some(1));
        let Some(rank) = many else { return Ok(true) };
        if cli.given.iter().any(|o| o == "output") {
            return Err(Failure::own(format!(
                "this is rank {}{}: all ranks would write into {}; give each a folder of its own, e.g. -o '{}.%r'",
                rank.rank,
                rank.world_size
                    .map_or(String::new(), |n| format!(" of {n}")),
                cli.output.display(),
                cli.output.display()
            )));
        }
        cli.output.as_mut_os_string().push(OsStr::new(".%r"));
    }
    cli.output = fill_in(&cli.output, rank, host, std::process::id(), |name| {
        std::env::var_os(name)
    })
    .map_err(|why| Failure::own(format!("-o {}: {why}", cli.output.display())))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::rank_list::RankList;

    fn environment(all: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| {
            let found = all.iter().find(|v| v.0 == name)?;
            Some(found.1.into())
        }
    }

    fn told(rank: u32, world_size: Option<u32>, local_rank: Option<u32>) -> Option<Rank> {
        Some(Rank {
            rank,
            world_size,
            local_rank,
        })
    }

    #[test]
    fn launchers_tell_the_rank_in_a_fixed_order() {
        assert_eq!(rank_in_environment(environment(&[])), None);
        let open_mpi = &[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("PMIX_RANK", "7"),
            ("SLURM_PROCID", "0"),
        ];
        assert_eq!(
            rank_in_environment(environment(open_mpi)),
            told(3, Some(8), Some(1))
        );
        let hydra = &[
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("MPI_LOCALRANKID", "2"),
        ];
        assert_eq!(
            rank_in_environment(environment(hydra)),
            told(2, Some(4), Some(2))
        );
        let flux = &[("FLUX_TASK_RANK", "5")];
        assert_eq!(rank_in_environment(environment(flux)), told(5, None, None));
        let step = &[
            ("SLURM_PROCID", "6"),
            ("SLURM_STEP_NUM_TASKS", "16"),
            ("SLURM_LOCALID", "2"),
        ];
        assert_eq!(
            rank_in_environment(environment(step)),
            told(6, Some(16), Some(2))
        );
    }

    #[test]
    fn a_job_script_is_no_rank_and_nonsense_is_none() {
        assert_eq!(
            rank_in_environment(environment(&[("SLURM_PROCID", "0")])),
            None
        );
        assert_eq!(
            rank_in_environment(environment(&[("PMI_RANK", "-1")])),
            None
        );
        assert_eq!(
            rank_in_environment(environment(&[("PMI_RANK", "x"), ("FLUX_TASK_RANK", "1")])),
            told(1, None, None)
        );
    }

    #[test]
    fn lists_of_ranks() {
        let list: RankList = "0,7,16-19".parse().unwrap();
        let found: Vec<u32> = (0..30).filter(|&r| list.contains(r)).collect();
        assert_eq!(found, [0, 7, 16, 17, 18, 19]);
        for wrong in ["", "a", "3-1", "1,,2", "1-", "-1", "4294967296"] {
            assert!(wrong.parse::<RankList>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_are_filled_in() {
        let variables = || environment(&[("JOB", "j17"), ("PATHLIKE", "a/b")]);
        let fill = |pattern: &str, rank| {
            fill_in(Path::new(pattern), rank, "node1", 99, variables())
                .map(|p| p.to_str().unwrap().to_owned())
        };
        let rank = told(4, Some(8), None);
        assert_eq!(fill("t.%r", rank).unwrap(), "t.4");
        assert_eq!(fill("%h/%q{JOB}-%r.%p%%", rank).unwrap(), "node1/j17-4.99%");
        assert_eq!(fill("plain", None).unwrap(), "plain");
        for (wrong, rank) in [
            ("t.%r", None),
            ("%", rank),
            ("a%x", rank),
            ("%q", rank),
            ("%q{JOB", rank),
            ("%q{NONE}", rank),
            ("%q{PATHLIKE}", rank),
        ] {
            assert!(fill(wrong, rank).is_err(), "{wrong}");
        }
    }
}
