//! Applies a recipe to the file of a program.

use crate::fix::document::Recipe;
use crate::tools;
use anyhow::{Context, bail};
use mgz_fix_library::{EXECUTABLE, Frame, Plan, SitePolicy};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempPath;

/// Applies recipes to one program.
pub struct Builder {
    /// The program's file.
    pub program: PathBuf,
    /// Its build id.
    pub build_id: String,
    /// Folder of the result. Candidates are run there too, so that they find the same files beside
    /// themselves as the result will.
    pub folder: PathBuf,
}

/// A file with a recipe applied.
pub struct Built {
    /// The file, which is removed with this value.
    pub file: TempPath,
    /// The library that the file needs, if any.
    library: Option<TempPath>,
    /// Loads that were not changed, and the reasons.
    pub refused: Vec<Refused>,
}

impl AsRef<Path> for Built {
    fn as_ref(&self) -> &Path {
        &self.file
    }
}

/// A load that the instrumenter did not change.
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
    #[serde(default)]
    moved: Vec<Moved>,
}

/// A return address that differs in the new file.
#[derive(Debug, Deserialize)]
struct Moved {
    address: String,
    clone: String,
}

/// Return addresses of the original, and those of the same calls in the new file.
type Clones = BTreeMap<u64, u64>;

fn clones(moved: &[Moved]) -> Clones {
    let parse = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let pairs = moved.iter();
    pairs
        .filter_map(|m| Some((parse(&m.address)?, parse(&m.clone)?)))
        .collect()
}

/// The plan with additional sites for calls that prefetches have moved. The original sites stay,
/// since the original code may run, too.
fn with_clones(plan: &Plan, clones: &Clones) -> Plan {
    let mut all = plan.clone();
    for site in &plan.sites {
        let mut ways: Vec<Vec<Frame>> = vec![Vec::new()];
        for frame in &site.frames {
            let moved = clones
                .get(&frame.offset)
                .filter(|_| frame.module == EXECUTABLE);
            let moved = moved.map(|&offset| Frame {
                module: frame.module.clone(),
                offset,
            });
            let both = [Some(frame.clone()), moved];
            let longer = |way: &Vec<Frame>| {
                let next = both.iter().flatten();
                next.map(|f| [way.as_slice(), std::slice::from_ref(f)].concat())
                    .collect::<Vec<_>>()
            };
            ways = ways.iter().flat_map(longer).collect();
        }
        // The first combination is the site itself.
        all.sites
            .extend(ways.into_iter().skip(1).map(|frames| SitePolicy {
                frames,
                action: site.action,
            }));
    }
    all
}

impl Builder {
    /// Makes the file of a recipe. The inner error is the reason why there is none. `library`: name
    /// of the library beside it; by default a unique name.
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
        let mut moved = Clones::new();
        if !recipe.loads.is_empty() {
            let report = match self.prefetch(recipe, &built.file)? {
                Ok(report) => report,
                Err(why) => return Ok(Err(why)),
            };
            if report.placed.is_empty() {
                let why = report.refused.first().map(|r| r.reason.clone());
                return Ok(Err(why.unwrap_or_else(|| "no load is prefetched".into())));
            }
            moved = clones(&report.moved);
            built.refused = report.refused;
        }
        match recipe.has_library() {
            true => self.add_library(recipe, &moved, built, library),
            false => Ok(Ok(built)),
        }
    }

    /// Writes the library of a recipe, and adds it to the file's needed libraries.
    fn add_library(
        &self,
        recipe: &Recipe,
        moved: &Clones,
        built: Built,
        name: Option<&OsStr>,
    ) -> anyhow::Result<Result<Built, String>> {
        let bytes = match mgz_fix_library::shared_object(&with_clones(&recipe.library, moved)) {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let library = self.reserve(".so")?;
        std::fs::write(&library, bytes)
            .and_then(|()| self.let_users_read(&library))
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

    /// Lets everybody who may run the program read its library. Temporary files are private.
    fn let_users_read(&self, library: &Path) -> std::io::Result<()> {
        let mode = std::fs::metadata(&self.program)?.permissions().mode();
        let may_run = mode & 0o111;
        std::fs::set_permissions(library, Permissions::from_mode(0o600 | may_run << 2))
    }

    /// Reserves a free name in the folder.
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

    /// Option that lets a result in another folder find the same libraries as the program.
    fn keep_origin(&self) -> Option<&'static str> {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let own = self.program.parent().and_then(real);
        (own != real(&self.folder)).then_some("--keep-origin")
    }

    /// Runs the instrumenter.
    fn prefetch(&self, recipe: &Recipe, output: &Path) -> anyhow::Result<Result<Report, String>> {
        let plan = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let own = recipe.library.sites.iter().flat_map(|s| &s.frames);
        let own = own.filter(|frame| frame.module == EXECUTABLE);
        let returns: Vec<String> = own.map(|f| format!("{:#x}", f.offset)).collect();
        let content = json!({
            "version": 1, "build_id": self.build_id, "loads": recipe.loads, "returns": returns,
        });
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

/// The reason in the instrumenter's output.
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

/// Moves a built file and its library to their final names, and replaces existing files. The
/// library comes first, so that the program never exists without it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_fix_library::Action;

    #[test]
    fn calls_in_moved_code_are_sites_too() {
        let frame = |module: &str, offset| Frame {
            module: module.into(),
            offset,
        };
        let site = |frames: &[Frame]| SitePolicy {
            frames: frames.to_vec(),
            action: Action::HugePool(1),
        };
        let (a, b) = (frame(EXECUTABLE, 0x11), frame(EXECUTABLE, 0x22));
        let (other, far) = (frame("libx.so", 0x11), frame(EXECUTABLE, 0x9011));
        let plan = Plan {
            sites: vec![
                site(&[a.clone(), b.clone()]),
                site(std::slice::from_ref(&other)),
            ],
            static_huge: false,
        };
        let moved = [Moved {
            address: "0x11".into(),
            clone: "0x9011".into(),
        }];
        let all = with_clones(&plan, &clones(&moved));
        let expected = [site(&[a, b.clone()]), site(&[other]), site(&[far, b])];
        assert_eq!(all.sites, expected);
        assert_eq!(with_clones(&plan, &Clones::new()), plan);
    }
}
