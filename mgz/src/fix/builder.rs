//! A recipe applied to the file of a program.

use crate::fix::document::Recipe;
use crate::tools;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempPath;

/// Applies recipes to one program.
pub struct Builder {
    /// The program's file.
    pub program: PathBuf,
    /// Its build id.
    pub build_id: String,
    /// Folder of the result. Candidates are run there too, so that they find beside themselves what
    /// the result will find.
    pub folder: PathBuf,
}

/// A file with a recipe applied.
pub struct Built {
    /// The file, which is removed with this value.
    pub file: TempPath,
    /// The library that it needs, if it needs one.
    library: Option<TempPath>,
    /// Loads that were left alone, and why.
    pub refused: Vec<Refused>,
}

impl AsRef<Path> for Built {
    fn as_ref(&self) -> &Path {
        &self.file
    }
}

/// A load that the instrumenter left alone.
#[derive(Clone, Debug, Deserialize)]
pub struct Refused {
    /// Its address.
    pub address: String,
    /// The reason.
    pub reason: String,
}

/// Report of `mgz-instrument --prefetch`.
#[derive(Debug, Deserialize)]
struct Report {
    placed: Vec<serde_json::Value>,
    refused: Vec<Refused>,
}

impl Builder {
    /// Makes the file of a recipe. The inner error is the reason why there is none. `library`: name
    /// of the library beside it; a name of its own if it is not given.
    pub fn build(
        &self,
        recipe: &Recipe,
        library: Option<&OsStr>,
    ) -> anyhow::Result<Result<Built, String>> {
        let file = self.reserve("")?;
        let mut built = Built {
            file,
            library: None,
            refused: Vec::new(),
        };
        if !recipe.loads.is_empty() {
            let report = match self.prefetch(recipe, &built.file)? {
                Ok(report) => report,
                Err(why) => return Ok(Err(why)),
            };
            if report.placed.is_empty() {
                let why = report.refused.first().map(|r| r.reason.clone());
                return Ok(Err(why.unwrap_or_else(|| "no load is prefetched".into())));
            }
            built.refused = report.refused;
        }
        match recipe.has_library() {
            true => self.add_library(recipe, built, library),
            false => Ok(Ok(built)),
        }
    }

    /// Writes the library of a recipe, and lets the file need it.
    fn add_library(
        &self,
        recipe: &Recipe,
        built: Built,
        name: Option<&OsStr>,
    ) -> anyhow::Result<Result<Built, String>> {
        let bytes = match mgz_fix_library::shared_object(&recipe.library) {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let library = self.reserve(".so")?;
        std::fs::write(&library, bytes)
            .with_context(|| format!("{}: cannot be written", library.display()))?;
        let own = library.file_name().unwrap_or_default().to_owned();
        let mut needed = OsString::from("$ORIGIN/");
        needed.push(name.unwrap_or(&own));
        let input = match recipe.loads.is_empty() {
            true => self.program.as_path(),
            false => &built.file,
        };
        let output = self.reserve("")?;
        let done = Command::new(tools::find_tool("mgz-instrument")?)
            .arg("--needed")
            .arg(needed)
            .args(["--force", "-o"])
            .arg(&output)
            .arg("--")
            .arg(input)
            .stdin(Stdio::null())
            .output()
            .context("mgz-instrument cannot be executed")?;
        if !done.status.success() {
            return Ok(Err(last_line(&done.stderr)));
        }
        Ok(Ok(Built {
            file: output,
            library: Some(library),
            refused: built.refused,
        }))
    }

    /// A free name in the folder.
    fn reserve(&self, suffix: &str) -> anyhow::Result<TempPath> {
        let file = tempfile::Builder::new()
            .prefix(".mgz-fix-")
            .suffix(suffix)
            .tempfile_in(&self.folder)
            .with_context(|| {
                format!(
                    "{}: cannot write; choose a place that you may write to with -o",
                    self.folder.display()
                )
            })?;
        Ok(file.into_temp_path())
    }

    /// A result in another folder finds the libraries that the program finds.
    fn keep_origin(&self) -> Option<&'static str> {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let own = self.program.parent().and_then(real);
        (own != real(&self.folder)).then_some("--keep-origin")
    }

    /// Runs the instrumenter.
    fn prefetch(&self, recipe: &Recipe, output: &Path) -> anyhow::Result<Result<Report, String>> {
        let plan = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let content = json!({"version": 1, "build_id": self.build_id, "loads": recipe.loads});
        std::fs::write(plan.path(), content.to_string())
            .context("cannot write a temporary file")?;
        let done = Command::new(tools::find_tool("mgz-instrument")?)
            .arg("--prefetch")
            .arg(plan.path())
            .args(["--format", "json", "--force"])
            .args(self.keep_origin())
            .arg("-o")
            .arg(output)
            .arg("--")
            .arg(&self.program)
            .stdin(Stdio::null())
            .output()
            .context("mgz-instrument cannot be executed")?;
        if !done.status.success() {
            return Ok(Err(last_line(&done.stderr)));
        }
        let report = serde_json::from_slice(&done.stdout)
            .context("mgz-instrument has written no report that can be read")?;
        Ok(Ok(report))
    }
}

/// The reason in what the instrumenter has said.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().last().unwrap_or("no reason was given");
    line.trim_start_matches("mgz-instrument: ").to_owned()
}

/// Path of the library of a fixed program.
pub fn library_of(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".so");
    path.into()
}

/// Gives a built file and its library their names, in place of what had them. The library comes
/// first, so that the program never stands there without it.
pub fn place(built: Built, output: &Path) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot be written", output.display());
    if output.is_dir() {
        bail!("{}: is a folder; name a file with -o", output.display());
    }
    if let Some(library) = built.library {
        let path = library_of(output);
        let cannot = || format!("{}: cannot be written", path.display());
        library.persist(&path).with_context(cannot)?;
    }
    built.file.persist(output).with_context(cannot)
}
