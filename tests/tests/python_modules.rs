//! `mgz run` with programs of CPython: it instruments their extension modules at import, without
//! visible effects. The output of the programs is compared with a run without mgz.

use mgz_tests::tools::{self, LIMIT, code};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A module of the old kind (`PyInit_` creates it completely), with a walk by columns and a state.
const WALK: &str = r#"
#include <Python.h>
enum { ROWS = 2048, COLUMNS = 512 };
double table[ROWS][COLUMNS];
int state;
static PyObject *walk(PyObject *self, PyObject *rounds) {
    double sum = 0;
    state++;
    for (long round = PyLong_AsLong(rounds); round > 0; round--)
        for (int c = 0; c < COLUMNS; c++)
            for (int r = 0; r < ROWS; r++)
                sum += table[r][c];
    return PyFloat_FromDouble(sum);
}
static PyMethodDef methods[] = {{"walk", walk, METH_O, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_walk", 0, -1, methods};
PyMODINIT_FUNC PyInit__walk(void) { return PyModule_Create(&module); }
"#;

/// A module of the new kind; `NAME` and `BODY` are replaced.
const SMALL: &str = r#"
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
int neighbour(void);
int nowhere(void);
static PyObject *value(PyObject *self, PyObject *none) { BODY }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {0}};
static PyModuleDef_Slot slots[] = {{0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", 0, 0, methods, slots};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModuleDef_Init(&module); }
"#;

const APP: &str = r#"
import os
import sys

print(sys.argv, sys.executable, sys.prefix, sys.path, sys.flags)
print(sorted(sys.modules), sorted(sys.path_importer_cache))
print(list(os.environ.items()), os.environ.get("PYTHONPATH"))
import sitecustomize

print(sitecustomize.__file__, sitecustomize.MARK)
import _json
import ctypes
import json
import math
import subprocess
import traceback
import _beside
import _walk
import _where

for module in (_json, math, _beside, _walk, _where):
    spec = module.__spec__
    print(module, getattr(module, "__file__", None), spec.name, spec.origin, getattr(spec.loader, "path", None))
print(_beside.value(), _where.value(), json.loads("[1, {}]"), _walk.walk(int(sys.argv[1])))
print(ctypes.c_int.in_dll(ctypes.PyDLL(_walk.__file__), "state"))
try:
    import _broken
except ImportError as error:
    print(error, error.path, error.name)
    traceback.print_exc(file=sys.stdout)
del sys.modules["_walk"]
import _walk

print(_walk.__file__, _walk.walk(1), ctypes.c_int.in_dll(ctypes.PyDLL(_walk.__file__), "state"))
sys.stdout.flush()
try:
    import _xxsubinterpreters as others

    other = "import os, sys, _json; print(_json.__file__, sys.path, os.environ['PYTHONPATH'], flush=True)"
    others.run_string(others.create(), other)
except ImportError:
    pass
print(os.environ["PYTHONPATH"], flush=True)
subprocess.run([sys.executable, "-c", "import os, sys; print(sys.path, os.environ.get('PYTHONPATH'))"])
subprocess.run(["env"])
sys.exit(5)
"#;

/// An app, its modules in a folder of `PYTHONPATH`, and a `sitecustomize` of the user in that
/// folder.
struct Place {
    dir: tempfile::TempDir,
    python: PathBuf,
    /// Suffix added to a module's name.
    suffix: String,
}

impl Place {
    /// Returns `None` if no Python is installed for which modules can be compiled.
    fn new() -> Option<Place> {
        if !tools::have("python3") {
            return None;
        }
        let ask = "import sys, sysconfig as s; print(sys.executable); print(s.get_config_var('EXT_SUFFIX')); print(s.get_path('include'))";
        let told = tools::succeed(Command::new("python3").args(["-c", ask]), LIMIT).unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let [python, suffix, include] = told.lines().collect::<Vec<_>>()[..] else {
            panic!("{told}");
        };
        if !Path::new(include).join("Python.h").exists() {
            return None;
        }
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
            python: python.into(),
            suffix: suffix.into(),
        };
        let folder = place.path("modules");
        std::fs::create_dir(&folder).unwrap();
        let include = format!("-I{include}");
        let library = folder.join("libneighbour.so");
        place.compile(&library, "int neighbour(void) { return 42; }", &[]);
        let module = |name: &str, text: &str, options: &[&str]| {
            let file = folder.join(format!("{name}{}", place.suffix));
            place.compile(&file, text, &[&[include.as_str()][..], options].concat());
        };
        module("_walk", WALK, &[]);
        let small = |name: &str, body: &str| SMALL.replace("NAME", name).replace("BODY", body);
        let beside = small("_beside", "return PyLong_FromLong(neighbour());");
        let search = [format!("-L{}", folder.display()), "-lneighbour".into()];
        module(
            "_beside",
            &beside,
            &[&search[0], &search[1], "-Wl,-rpath,$ORIGIN"],
        );
        let place_of = "Dl_info i; dladdr(value, &i); return PyUnicode_FromString(i.dli_fname);";
        module("_where", &small("_where", place_of), &[]);
        let broken = small("_broken", "return PyLong_FromLong(nowhere());");
        module("_broken", &broken, &["-Wl,-z,now"]);
        std::fs::write(folder.join("sitecustomize.py"), "MARK = 'own'\n").unwrap();
        std::fs::write(place.path("app.py"), APP).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self, file: &Path, text: &str, options: &[&str]) {
        let name = file.file_name().unwrap().to_string_lossy();
        let source = self.path(&format!("{}.c", name.split('.').next().unwrap()));
        std::fs::write(&source, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-shared", "-fPIC", "-o"])
            .arg(file)
            .arg(&source);
        tools::succeed(cc.args(options), LIMIT).unwrap();
    }

    /// Both runs have the same environment.
    fn run(&self, mut command: Command) -> Output {
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("ZOO", "last by name, first by place")
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", "modules")
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("MGZ_NO_MEASURE", "1");
        tools::run_limited(&mut command, LIMIT).unwrap()
    }

    fn python(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.python);
        command.args(arguments);
        self.run(command)
    }

    fn mgz(&self, options: &[&str], arguments: &[&str]) -> Output {
        let mut command = tools::tool("mgz");
        command.args(["run", "-o", "out"]).args(options).arg("--");
        command.arg(&self.python).args(arguments);
        self.run(command)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn modules_are_recorded_and_the_program_sees_the_originals() {
    let Some(place) = Place::new() else {
        tools::skip("no Python for which modules can be compiled");
        return;
    };
    let arguments = ["app.py", "60"];
    let plain = place.python(&arguments);
    assert_eq!(code(&plain), 5, "{}", text(&plain.stderr));
    let first = place.mgz(&[], &arguments);
    let said = text(&first.stderr);
    assert_eq!(code(&first), 5, "{said}");
    assert_eq!(text(&first.stdout), text(&plain.stdout), "{said}");
    // The report contains the module with its function and lines.
    assert!(said.contains("_walk.c:"), "{said}");
    assert!(said.contains("takes time in this run"), "{said}");
    let where_is = format!("_where{} (it asks which file", place.suffix);
    assert!(said.contains(&where_is), "{said}");
    let left = said.lines().find(|line| line.contains("left as they are"));
    assert!(!left.unwrap_or("").contains("_walk.cpython"), "{said}");
    let second = place.mgz(&[], &arguments);
    let said = text(&second.stderr);
    assert_eq!(text(&second.stdout), text(&plain.stdout), "{said}");
    assert!(said.contains("(all out of the cache)"), "{said}");
    assert!(!said.contains("takes time in this run"), "{said}");
}

#[test]
fn modules_are_left_where_that_is_asked_for() {
    let Some(place) = Place::new() else {
        tools::skip("no Python for which modules can be compiled");
        return;
    };
    let script = "import sys; sys.path.append('modules'); import _walk; print(_walk, sys.path); _walk.walk(60)";
    for (options, arguments, reason) in [
        (&["--no-modules"][..], &["-c", script][..], None),
        (
            &[],
            &["-I", "-c", script],
            Some("with -I Python ignores the hook"),
        ),
        (&[], &["-X", "dev", "-S", "-c", script], Some("with -S")),
    ] {
        let (plain, run) = (place.python(arguments), place.mgz(options, arguments));
        let said = text(&run.stderr);
        assert_eq!(code(&run), code(&plain), "{said}");
        assert_eq!(text(&run.stdout), text(&plain.stdout), "{said}");
        assert!(reason.is_none_or(|r| said.contains(r)), "{said}");
        assert!(!said.contains("were instrumented"), "{said}");
        assert!(!said.contains("was instrumented"), "{said}");
    }
}

#[test]
fn an_environment_is_found_by_the_name_of_its_interpreter() {
    let Some(place) = Place::new() else {
        tools::skip("no Python for which modules can be compiled");
        return;
    };
    let made = place.python(&["-m", "venv", "--without-pip", "venv"]);
    if code(&made) != 0 {
        tools::skip("Python makes no environments");
        return;
    }
    let python = place.path("venv/bin/python");
    let script = place.path("app");
    let source = format!(
        "#!{}\nimport sys, _json\nprint(sys.prefix, sys.executable, _json.__file__)\nfor i in range(3000000): pass\n",
        python.display()
    );
    tools::write_program(&script, source.as_bytes()).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let plain = place.run(Command::new(&script));
    let mut command = tools::tool("mgz");
    command.args(["run", "-o", "out", "--"]).arg(&script);
    let run = place.run(command);
    let said = text(&run.stderr);
    assert_eq!(text(&run.stdout), text(&plain.stdout), "{said}");
    assert!(
        text(&plain.stdout).contains("venv"),
        "{}",
        text(&plain.stderr)
    );
    assert!(said.contains("of Python was instrumented"), "{said}");
}
