//! Compiles `runtime/` into the shared object that `mgz-record` carries inside itself.
//!
//! Two steps, because rustc hands the linker a version script of its own for a `cdylib`, and the
//! linker takes only one: rustc makes a static library, the C compiler links it with
//! `runtime/exports.map`.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Runs a command; shows everything it said and stops the build if it fails.
fn run(what: &str, command: &mut Command) {
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

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let runtime = here.join("runtime");
    let exports = runtime.join("exports.map");
    let abi = here.join("../annotations-schema/abi/src");
    let heap_exports = runtime.join("exports-heap.map");
    for path in [
        runtime.join("src"),
        exports.clone(),
        heap_exports.clone(),
        abi.clone(),
    ] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rerun-if-env-changed=CC");

    // The runtime's only dependency, with the options that it is compiled with itself.
    let abi_library = out.join("libmgz_abi.rlib");
    let mut rustc = freestanding("mgz_abi", "rlib", &abi_library);
    rustc.arg(abi.join("lib.rs"));
    run("compiling the runtime's interface", &mut rustc);

    let archive = out.join("libmgz_runtime.a");
    let mut rustc = freestanding("mgz_runtime", "staticlib", &archive);
    rustc
        .arg("--extern")
        .arg(format!("mgz_abi={}", abi_library.display()))
        .arg(runtime.join("src/lib.rs"));
    run("compiling the runtime", &mut rustc);

    link(&archive, &exports, &out.join("libmgz_runtime.so"), "both");
    // The same with the allocator's functions, for `--heap`.
    // Its symbols get other names for `--heap-hook`, which the older kind of table can be made anew
    // for.
    link(
        &archive,
        &heap_exports,
        &out.join("libmgz_runtime_heap.so"),
        "sysv",
    );
}

/// A compiler for code that runs without a library, of any position.
fn freestanding(name: &str, kind: &str, output: &Path) -> Command {
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

fn link(archive: &Path, exports: &Path, output: &Path, hash: &str) {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-nostartfiles", "-nostdlib"]);
    for option in [
        "-z,initfirst",
        // The runtime's calls of its own exported functions stay its own, whatever the program
        // defines.
        "-Bsymbolic",
        "-z,now",
        "-z,relro",
        "-z,noexecstack",
        "-soname,libmgz_runtime.so",
        "--gc-sections",
        "--strip-debug",
        "--build-id",
    ] {
        cc.arg(format!("-Wl,{option}"));
    }
    cc.arg(format!("-Wl,--hash-style={hash}"));
    cc.arg(format!("-Wl,--version-script={}", exports.display()));
    cc.arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg("-o")
        .arg(output);
    run("linking the runtime", &mut cc);
}
