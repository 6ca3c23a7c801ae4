//! Compiles `runtime/` into the shared objects that are embedded in the crate: one with C's
//! functions, and one that also has C++'s operators.

#[path = "../collector/freestanding.rs"]
mod freestanding;

use freestanding::{freestanding, link, run, variable};
use std::path::PathBuf;

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let runtime = here.join("runtime");
    let shared = here.join("../collector/runtime/src/sys");
    for path in [
        runtime.join("src"),
        runtime.join("exports.map"),
        runtime.join("exports-operators.map"),
        shared.join("loader_list.rs"),
        shared.join("mem_builtins.rs"),
    ] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rerun-if-env-changed=CC");

    let archive = out.join("libmgz_fix.a");
    let mut rustc = freestanding("mgz_fix_runtime", "staticlib", &archive);
    rustc.arg(runtime.join("src/lib.rs"));
    run("compiling the library", &mut rustc);
    for (exports, library) in [
        ("exports.map", "libmgz_fix.so"),
        ("exports-operators.map", "libmgz_fix_operators.so"),
    ] {
        link(
            &archive,
            &runtime.join(exports),
            &out.join(library),
            "libmgz_fix.so",
            &["--hash-style=both"],
        );
    }
}
