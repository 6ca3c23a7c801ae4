//! A folder in which `mgz fix` works on one program.

use crate::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Gathers from 128 MiB in a random order. The loads do not wait for each other, but because of the
/// work between them the processor can issue only few of them at a time.
///
/// Arguments: number of rounds; optionally a file for [`COUNT_RUNS`], and the run that waits for a
/// signal. From run 4 on, the output contains the number of the run.
pub const GATHER: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
enum { ELEMENTS = 1 << 24, INDICES = 1 << 21 };
int main(int argc, char **argv) {
    long run = argc > 2 ? count_run(argv[2]) : 0;
    if (argc > 3 && run == atoi(argv[3]))
        pause();
    uint32_t *index = malloc(INDICES * sizeof *index);
    uint64_t *table = malloc(ELEMENTS * sizeof *table);
    uint64_t seed = 88172645463325252u, sum = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
        table[i] = i;
    for (size_t i = 0; i < INDICES; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        index[i] = seed % ELEMENTS;
    }
    for (int round = 0; round < atoi(argv[1]); round++)
        for (size_t i = 0; i < INDICES; i++) {
            uint64_t value = table[index[i]];
            for (int n = 0; n < 24; n++)
                value ^= value >> 31, value *= 0x7fb5d329728ea185u;
            sum += value;
        }
    printf("%lu %ld\n", sum, run < 4 ? 0 : run);
    return 0;
}
"#;

/// A function for all programs: the number of the run, counted in a file.
const COUNT_RUNS: &str = r#"
#include <stdio.h>
static inline long count_run(const char *file) {
    FILE *runs = fopen(file, "a");
    fputc('x', runs);
    fflush(runs);
    long run = ftell(runs);
    fclose(runs);
    return run;
}
"#;

/// A folder with a program `app` in it.
pub struct FixFolder {
    dir: tempfile::TempDir,
    /// Files that are not results of `mgz fix`.
    others: tempfile::TempDir,
}

impl FixFolder {
    /// Builds a program from C.
    pub fn new(source: &str) -> FixFolder {
        let folder = FixFolder {
            dir: tempfile::tempdir().unwrap(),
            others: tempfile::tempdir().unwrap(),
        };
        folder.build(source);
        folder
    }

    /// Builds another program in place of the first one.
    pub fn build(&self, source: &str) {
        std::fs::write(self.path("app.c"), COUNT_RUNS.to_owned() + source).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-g", "-Wl,--build-id", "-o"])
            .arg(self.path("app"))
            .arg(self.path("app.c"));
        tools::succeed(&mut cc, LIMIT).unwrap();
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// A file in another folder, which also holds the cache.
    pub fn other(&self, name: &str) -> PathBuf {
        self.others.path().join(name)
    }

    /// A command of `mgz` in the folder.
    pub fn mgz(&self, arguments: &[&str]) -> Command {
        let mut command = tools::tool("mgz");
        command
            .args(arguments)
            .current_dir(self.dir())
            .env("XDG_CACHE_HOME", self.other("cache"))
            .env("MGZ_NO_MEASURE", "1");
        command
    }

    /// Runs `mgz fix`.
    pub fn fix(&self, arguments: &[&str]) -> Output {
        let mut command = self.mgz(&["fix"]);
        tools::run_limited(command.args(arguments), 5 * LIMIT).unwrap()
    }

    /// Names in the folder, except those of the program.
    pub fn written(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir()).unwrap();
        let mut names: Vec<String> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| !["app", "app.c"].contains(&n.as_str()))
            .collect();
        names.sort();
        names
    }
}
