//! `mgz fix --source`, `--verify` and `--apply`: from findings to patches of the source.

use mgz_tests::programs;
use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Reads two members of structures in a random order. A long name between them puts each into its
/// own cache line.
const COLD: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BODIES = 1 << 19, PICKS = 1 << 20 };

/* A body. */
struct body {
    long mass;      /* in kilograms */
    char name[176]; // for people
    long charge;
};

static uint32_t picks[PICKS];
static struct body bodies[BODIES];

int main(int argc, char **argv) {
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < BODIES; i++) {
        bodies[i].mass = i % 7;
        bodies[i].charge = i % 11;
        bodies[i].name[0] = 'a' + i % 26;
    }
    for (int i = 0; i < PICKS; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        picks[i] = seed % BODIES;
    }
    long sum = 0;
    for (int round = 0; round < atoi(argv[1]); round++)
        for (int i = 0; i < PICKS; i++) {
            if (picks[i] % 64 != 63)
                sum += bodies[picks[i]].mass * bodies[picks[i]].charge;
        }
    printf("%ld %c\n", sum, bodies[5].name[0]);
    return 0;
}
"#;

/// The command that builds the program.
const BUILD: &str = "cc -O2 -g -o app app.c";

/// A folder with a program in it.
struct Place {
    dir: tempfile::TempDir,
    cache: tempfile::TempDir,
}

impl Place {
    fn new(source: &str) -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
            cache: tempfile::tempdir().unwrap(),
        };
        std::fs::write(place.path("app.c"), source).unwrap();
        place.build();
        place
    }

    fn build(&self) {
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(BUILD).current_dir(self.dir.path());
        tools::succeed(&mut sh, LIMIT).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn source(&self) -> String {
        std::fs::read_to_string(self.path("app.c")).unwrap()
    }

    fn mgz(&self, arguments: &[&str]) -> Output {
        let mut command = tools::tool("mgz");
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.cache.path())
            .env("MGZ_NO_MEASURE", "1");
        tools::run_limited(&mut command, 5 * LIMIT).unwrap()
    }

    /// Records the program into a folder.
    fn record(&self, folder: &str) {
        let output = self.mgz(&["run", "--no-open", "-o", folder, "--", "./app", "6"]);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    }

    /// Output of the program.
    fn run(&self) -> Vec<u8> {
        let mut command = Command::new(self.path("app"));
        tools::run_limited(command.arg("1"), LIMIT).unwrap().stdout
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_structure_with_cold_members_becomes_faster() {
    let place = Place::new(COLD);
    place.record("before.mgz");
    let output = place.mgz(&[
        "fix",
        "--verify",
        BUILD,
        "--trace",
        "before.mgz",
        "--pairs",
        "6",
        "--",
        "./app",
        "20",
    ]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(place.source(), COLD, "only --apply changes sources: {said}");
    // A busy machine may show no gain.
    if code(&output) == 4 {
        assert!(said.contains("kept 0 of "), "{said}");
        tools::skip("no gain was measured on this machine");
        return;
    }
    assert_eq!(code(&output), 0, "{said}");
    let document: Value =
        serde_json::from_slice(&std::fs::read(place.path("app.fix.json")).unwrap()).unwrap();
    let candidates = document["candidates"].as_array().unwrap();
    let kept: Vec<&str> = (candidates.iter())
        .filter(|c| c["outcome"] == "kept")
        .map(|c| c["remedy"].as_str().unwrap())
        .collect();
    assert!(
        kept.iter().any(|r| r.contains("of struct body (app.c:9)")),
        "{kept:?} {said}"
    );
    let patch = std::fs::read_to_string(place.path("app.patch")).unwrap();
    assert!(patch.contains("--- a/app.c\n+++ b/app.c\n@@"), "{patch}");

    let before = place.run();
    let applied = place.mgz(&["fix", "--apply"]);
    assert_eq!(code(&applied), 0, "{}", text(&applied.stderr));
    assert_ne!(place.source(), COLD);
    place.build();
    assert_eq!(place.run(), before);

    // A comparison shows the predicted gain next to the achieved gain.
    place.record("after.mgz");
    let compared = place.mgz(&[
        "compare",
        "--format",
        "json",
        "before.mgz",
        "--",
        "after.mgz",
    ]);
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(
        compared["fix"]["remedies"].as_array().unwrap().len(),
        kept.len()
    );
    assert_eq!(
        compared["fix"]["measured"]["saved_pct"],
        document["result"]["saved_pct"]
    );
    let first = compared["verdict"][0].as_str().unwrap();
    assert!(
        first.starts_with("fix (") && first.contains("achieved in these runs"),
        "{first}"
    );

    // The sources have now changed.
    let again = place.mgz(&["fix", "--apply", "app.patch"]);
    let said = text(&again.stderr);
    assert_eq!(code(&again), 1);
    assert!(
        said.contains("was changed after the patch was made"),
        "{said}"
    );
}

#[test]
fn a_layout_that_bytes_depend_on_gets_a_recipe() {
    let source = COLD.replace(
        "    printf(",
        "    if (argc > 2) fwrite(bodies, sizeof *bodies, 1, stdout);\n    printf(",
    );
    let place = Place::new(&source);
    place.record("app.mgz");
    let output = place.mgz(&["fix", "--source", "--trace", "app.mgz"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        said.contains("no patch: app.c:") && said.contains("calls fwrite"),
        "{said}"
    );
    assert!(
        said.contains("struct body: 192 bytes, 192 before"),
        "{said}"
    );
    assert_eq!(place.source(), source);
}

#[test]
fn programs_without_debug_information_are_refused() {
    let place = Place::new("int main(void) { return 0; }\n");
    programs::compile(&place.path("app.c"), &place.path("app"), &["-g0"]);
    let output = place.mgz(&["fix", "--source", "--", "./app"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("compile it with -g"));
}
