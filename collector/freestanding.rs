//! Functions of build scripts that make a shared object without the standard library.
//!
//! Two steps, because rustc hands the linker a version script of its own for a `cdylib`, and the
//! linker takes only one: rustc makes a static library, the C compiler links it.

use std::path::Path;
use std::process::{Command, exit};

/// Runs a command; shows everything it said and stops the build if it fails.
pub fn run(what: &str, command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("error: {what} failed ({}): {command:?}", output.status);
            eprintln!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            exit(1);
        }
        Err(error) => {
            eprintln!("error: {what} could not be started: {command:?}: {error}");
            exit(1);
        }
    }
}

/// A variable that cargo sets.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

/// A compiler for code that runs without a library, of any position.
pub fn freestanding(name: &str, kind: &str, output: &Path) -> Command {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--crate-name", name, "--crate-type", kind]);
    rustc.args(["--edition", "2024", "--cfg", "mgz_cdylib"]);
    for option in [
        "opt-level=3",
        "panic=abort",
        "relocation-model=pic",
        "overflow-checks=off",
        "codegen-units=1",
    ] {
        rustc.args(["-C", option]);
    }
    rustc.args(["--target", &variable("TARGET"), "--cap-lints", "warn"]);
    rustc.arg("-o").arg(output);
    rustc
}

/// Links a static library with its exported functions, a name for the loader and further options of
/// the linker.
pub fn link(archive: &Path, exports: &Path, output: &Path, soname: &str, further: &[&str]) {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-nostartfiles", "-nostdlib"]);
    for option in [
        // The library's calls of its own exported functions stay its own, whatever the program
        // defines.
        "-Bsymbolic",
        "-z,now",
        "-z,relro",
        "-z,noexecstack",
        "--gc-sections",
        "--strip-debug",
        "--build-id",
    ]
    .iter()
    .chain(further)
    {
        cc.arg(format!("-Wl,{option}"));
    }
    cc.arg(format!("-Wl,-soname,{soname}"));
    cc.arg(format!("-Wl,--version-script={}", exports.display()));
    cc.arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg("-o")
        .arg(output);
    run("linking the library", &mut cc);
}
