//! The instrumented form of a program: from the cache, or made by `mgz-instrument`.

use crate::cache::{self, SourceFile};
use crate::private_libraries::{self, PrivateLibrary, is_free, private_libraries};
use crate::{elsewhere, shell, tools};
use anyhow::Context;
use mgz_abi::module_note::{FLAVOUR_PT, ModuleNote};
use mgz_annotations_schema::tell;
use mgz_collector::program::note::instrumented_note;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Request to the instrumenter.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Libraries: none, all (an empty text), or a list.
    pub libs: Option<&'a str>,
    /// Instrument no libraries.
    pub alone: bool,
    /// Instrument stores as well.
    pub stores: bool,
    /// Debug information may come from servers.
    pub debuginfod: bool,
    /// Write the file beside the program.
    pub beside: bool,
    /// Libraries that took much of the time in an earlier run, with their shares. They are used if
    /// the user has not chosen libraries.
    pub known: &'a BTreeMap<String, f64>,
}

impl Asked<'_> {
    /// The user has chosen libraries, or none.
    fn chooses(&self) -> bool {
        self.libs.is_some() || self.alone
    }
}

/// Result of the instrumenter.
pub enum InstrumentOutcome {
    /// The file to be run.
    Ready {
        /// The file.
        file: PathBuf,
        /// The file was already in the cache.
        cached: bool,
    },
    /// The instrumenter has refused and printed the reason; its status.
    Refused(i32),
}

/// Result for a module that a program opens by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// Its instrumented form.
    Ready {
        /// The file.
        file: PathBuf,
        /// The file was already in the cache.
        cached: bool,
    },
    /// The module is opened unchanged, for this reason.
    Left(String),
}

impl Module {
    /// The file to be opened instead.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Module::Ready { file, .. } => Some(file),
            Module::Left(_) => None,
        }
    }
}

/// Instruments modules that programs open by themselves.
pub struct Modules {
    tool: PathBuf,
    cache: PathBuf,
    /// The user was told that this takes time.
    was_told: bool,
}

/// File in the entry of a module that the instrumenter declines, with the reason.
const DECLINED: &str = "declined";
/// The instrumenter's status if it declines a file.
const DECLINED_STATUS: i32 = 3;

impl Modules {
    /// Finds the instrumenter and the cache.
    pub fn new() -> anyhow::Result<Modules> {
        Ok(Modules {
            tool: tools::find_tool("mgz-instrument")?,
            cache: cache::folder()?,
            was_told: false,
        })
    }

    /// Instruments a module, or finds it in the cache. After any error the module is left
    /// unchanged.
    pub fn prepare(&mut self, module: &Path) -> Module {
        self.prepared(module)
            .unwrap_or_else(|error| Module::Left(format!("{error:#}")))
    }

    fn prepared(&mut self, module: &Path) -> anyhow::Result<Module> {
        let bytes = std::fs::read(module).context("cannot be read")?;
        if instrumented_note(module)
            .context("cannot be read")?
            .is_some()
        {
            return Ok(Module::Left("instrumented already".into()));
        }
        if let Some(why) = elsewhere::why_not(module, &bytes) {
            return Ok(Module::Left(why.into()));
        }
        let name = module.file_name().context("has no name")?;
        let maker = format!("module {:?}", SourceFile::of(&self.tool)?);
        let key = cache::key(&bytes, [module.as_os_str(), OsStr::new(&maker)]);
        let entry = self.cache.join(key);
        let file = entry.join(name);
        let cached = cache::look_up(&entry) && (file.exists() || entry.join(DECLINED).exists());
        if !cached {
            if !std::mem::replace(&mut self.was_told, true) {
                tell!(
                    "mgz: extension modules are instrumented as Python imports them, which takes time in this run; the next one finds them in the cache"
                );
            }
            self.add(module, &entry, name, &maker)?;
        }
        Ok(match std::fs::read_to_string(entry.join(DECLINED)) {
            Ok(why) => Module::Left(why),
            Err(_) => Module::Ready { file, cached },
        })
    }

    /// Makes the entry of a module, including its private libraries unless another module has them.
    fn add(&self, module: &Path, entry: &Path, name: &OsStr, maker: &str) -> anyhow::Result<()> {
        let mut libraries = private_libraries(module);
        libraries.retain(|library| is_free(&self.cache, library, module, maker));
        cache::add_cache_entry(entry, |folder| {
            // If a library cannot be instrumented, the module still is.
            if !libraries.is_empty() && self.fill(module, folder, name, &libraries).is_err() {
                libraries.clear();
            }
            if libraries.is_empty() {
                self.fill(module, folder, name, &[])?;
            }
            Ok(libraries.iter().map(|l| l.source.clone()).collect())
        })?;
        private_libraries::hold(&self.cache, &libraries, module, maker)
    }

    /// Writes the instrumented module into a folder, or the reason why there is none.
    fn fill(
        &self,
        module: &Path,
        folder: &Path,
        name: &OsStr,
        libraries: &[PrivateLibrary],
    ) -> anyhow::Result<()> {
        let mut command = Command::new(&self.tool);
        command.args(["--quiet", "--keep-origin", "--copies"]);
        if !libraries.is_empty() {
            let names: Vec<&str> = libraries.iter().map(|l| l.name.as_str()).collect();
            command.arg(format!("--libs={}", names.join(",")));
        }
        let done = command
            .arg("-o")
            .arg(folder.join(name))
            .arg("--")
            .arg(module)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{}: cannot be executed", self.tool.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let line = said.lines().last().unwrap_or("no reason was given");
            let path = format!("mgz-instrument: {}: ", module.display());
            let why = line.strip_prefix(&path).unwrap_or(line);
            // Other errors may not occur again, or not without the libraries, so they are not
            // stored.
            if done.status.code() != Some(DECLINED_STATUS) || !libraries.is_empty() {
                anyhow::bail!("{why}");
            }
            std::fs::write(folder.join(DECLINED), why)?;
        }
        Ok(())
    }
}

/// Instruments a program, or finds it in the cache.
pub fn prepare(program: &Path, asked: &Asked) -> anyhow::Result<InstrumentOutcome> {
    let program = std::fs::canonicalize(program)
        .with_context(|| format!("{}: cannot be found", program.display()))?;
    let bytes = std::fs::read(&program)
        .with_context(|| format!("{}: cannot be read", program.display()))?;
    let note = instrumented_note(&program)
        .with_context(|| format!("{}: cannot be read", program.display()))?;
    if let Some(note) = note {
        if is_fixed(&note) {
            anyhow::bail!(
                "{}: is a program of mgz fix with prefetches, which records no loads and cannot be instrumented again; record the original, or put the change into the source by mgz fix --source and record its build",
                program.display()
            );
        }
        return Ok(InstrumentOutcome::Ready {
            file: program,
            cached: true,
        });
    }
    let name = program.file_name().context("the program has no name")?;
    if asked.beside || elsewhere::finds_libraries_beside_itself(&bytes) {
        return beside(&program, asked);
    }
    let tool = tools::find_tool("mgz-instrument")?;
    let entry = cache::folder()?.join(entry_name(&program, &bytes, asked, &tool)?);
    let file = entry.join(name);
    if cache::look_up(&entry) && file.exists() {
        return Ok(InstrumentOutcome::Ready { file, cached: true });
    }
    let mut refused = None;
    let made = cache::add_cache_entry(&entry, |folder| {
        match instrument_with_libraries(&tool, &program, &folder.join(name), asked)? {
            Ok(report) => Ok(libraries(&report)),
            Err(status) => {
                refused = Some(status);
                anyhow::bail!("refused")
            }
        }
    });
    match (made, refused) {
        (_, Some(status)) => Ok(InstrumentOutcome::Refused(status)),
        (Err(error), None) => Err(error),
        (Ok(()), None) => Ok(InstrumentOutcome::Ready {
            file,
            cached: false,
        }),
    }
}

/// True for files of `mgz-instrument --prefetch`, which have clones and record nothing.
fn is_fixed(note: &ModuleNote) -> bool {
    note.flavour == FLAVOUR_PT && note.id_count == 0
}

fn entry_name(program: &Path, bytes: &[u8], asked: &Asked, tool: &Path) -> anyhow::Result<String> {
    let maker = format!("{:?}", SourceFile::of(tool)?);
    let mut libs = format!(
        "{:?} {} {} {}",
        asked.libs, asked.alone, asked.stores, asked.debuginfod
    );
    if !asked.chooses() {
        asked.known.keys().for_each(|name| {
            libs.push('\n');
            libs.push_str(name);
        });
    }
    // This variable determines which libraries are found.
    let search = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let parts: [&OsStr; 4] = [
        program.as_os_str(),
        OsStr::new(&maker),
        OsStr::new(&libs),
        &search,
    ];
    Ok(cache::key(bytes, parts))
}

/// Makes `NAME.inst` beside the program. It is made each time, since the instrumenter is fast.
fn beside(program: &Path, asked: &Asked) -> anyhow::Result<InstrumentOutcome> {
    let mut file = program.as_os_str().to_owned();
    file.push(".inst");
    let file = PathBuf::from(file);
    let tool = tools::find_tool("mgz-instrument")?;
    Ok(
        match instrument_with_libraries(&tool, program, &file, asked)? {
            Ok(_) => InstrumentOutcome::Ready {
                file,
                cached: false,
            },
            Err(status) => InstrumentOutcome::Refused(status),
        },
    )
}

/// Instruments a program. Unless the user has chosen libraries, they are instrumented too if
/// together they have more code than the program, as are those that took much of the time in an
/// earlier run.
fn instrument_with_libraries(
    tool: &Path,
    program: &Path,
    output: &Path,
    asked: &Asked,
) -> anyhow::Result<Result<Value, i32>> {
    let done = instrument(tool, program, output, asked)?;
    let Ok(report) = &done else {
        return Ok(done);
    };
    if asked.chooses() {
        return Ok(done);
    }
    let mut wanted = shell::libraries(report);
    if !wanted.is_empty() {
        let (names, are, them) = enumerated(&wanted);
        tell!(
            "mgz: {} has little code of its own: {names} {are} instrumented too (--no-libs leaves {them} out)",
            program.display()
        );
    }
    let known: Vec<&String> = (asked.known.keys())
        .filter(|name| !wanted.contains(name))
        .collect();
    if !known.is_empty() {
        let shown: Vec<String> = known
            .iter()
            .map(|name| {
                format!(
                    "{name} ({:.0} % of the time before)",
                    100.0 * asked.known[*name]
                )
            })
            .collect();
        let (names, are, them) = enumerated(&shown);
        tell!("mgz: {names} {are} instrumented too (--no-libs leaves {them} out)");
    }
    wanted.extend(known.into_iter().cloned());
    if wanted.is_empty() {
        return Ok(done);
    }
    let list = wanted.join(",");
    let with = Asked {
        libs: Some(&list),
        ..*asked
    };
    match instrument(tool, program, output, &with)? {
        // If libraries cannot be found or instrumented, the program still is.
        Err(_) if !asked.known.is_empty() => instrument(tool, program, output, asked),
        done => Ok(done),
    }
}

/// A list as text, with the matching verb and pronoun.
fn enumerated(names: &[String]) -> (String, &'static str, &'static str) {
    match names {
        [first @ .., last] if !first.is_empty() => {
            (format!("{} and {last}", first.join(", ")), "are", "them")
        }
        _ => (names.concat(), "is", "it"),
    }
}

/// Runs the instrumenter, which prints its own errors. Returns its report or its status.
fn instrument(
    tool: &Path,
    program: &Path,
    output: &Path,
    asked: &Asked,
) -> anyhow::Result<Result<Value, i32>> {
    let mut arguments: Vec<OsString> = vec!["--format".into(), "json".into(), "-o".into()];
    arguments.push(output.into());
    if let Some(list) = asked.libs {
        arguments.push(match list {
            "" => "--libs".into(),
            list => format!("--libs={list}").into(),
        });
    }
    arguments.push("--copies".into());
    if asked.debuginfod {
        arguments.push("--debuginfod".into());
    }
    if asked.stores {
        arguments.push("--stores".into());
    }
    arguments.push("--".into());
    arguments.push(program.into());
    let done = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{}: cannot be executed", tool.display()))?;
    if !done.status.success() {
        return Ok(Err(done.status.code().unwrap_or(1)));
    }
    let report = serde_json::from_slice(&done.stdout)
        .context("mgz-instrument has written no report that can be read")?;
    Ok(Ok(report))
}

/// The libraries that were rewritten as well.
fn libraries(report: &Value) -> Vec<SourceFile> {
    let list = report["libraries"]["instrumented"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|library| SourceFile::of(Path::new(library["input"].as_str()?)).ok())
        .collect()
}
