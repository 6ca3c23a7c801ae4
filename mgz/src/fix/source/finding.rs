//! Findings with their data, and the context of the source changes for them.

use crate::fix::document::Cause;
use crate::fix::source::debug_info::{DebugInfo, Structure};
use crate::fix::source::declaration::Declaration;
use crate::fix::source::edit::Edits;
use crate::fix::source::reorder::Heat;
use crate::fix::source::sources::{Sources, is_of_system};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The result of one kind of source change: the edits, or the reason why there are none, and the
/// recipe in words.
pub struct Made {
    /// The remedy.
    pub remedy: String,
    /// The remedy for `mgz what-if`.
    pub what_if: String,
    /// The edits.
    pub edits: Result<Edits, String>,
    /// True if the edits are comments.
    pub is_comment: bool,
    /// The recipe.
    pub recipe: String,
}

impl Made {
    /// A patch, or words if there are no edits.
    pub fn patch(remedy: String, what_if: String, edits: Result<Edits, String>) -> Made {
        Made {
            remedy,
            what_if,
            edits,
            is_comment: false,
            recipe: String::new(),
        }
    }
}

/// The context of all source changes.
pub struct Means<'a> {
    /// The analysis.
    pub analysis: &'a Value,
    /// Facts of the program.
    pub info: &'a DebugInfo,
    /// Its sources.
    pub sources: &'a mut Sources,
    /// Folder whose files may be changed.
    pub tree: &'a Path,
}

/// A finding with its data.
pub struct Finding<'a> {
    /// The finding in the analysis.
    pub value: &'a Value,
    /// Place and object.
    pub cause: Cause,
    /// The row of its object; null if it is unknown.
    pub object: &'a Value,
}

impl Finding<'_> {
    /// Mechanism.
    pub fn kind(&self) -> &str {
        &self.cause.kind
    }

    /// The object for `mgz what-if`.
    pub fn target(&self) -> String {
        let name = self.object["object"].as_str().unwrap_or_default();
        match self.object["type"].as_str().unwrap_or_default() {
            "" => name.to_owned(),
            of_type => format!("{name} ({of_type})"),
        }
    }

    /// Type of the object as text.
    pub fn of_type(&self) -> &str {
        self.object["type"].as_str().unwrap_or_default()
    }

    /// Loads of the object by field.
    pub fn heat(&self) -> Vec<Heat> {
        let fields = self.object["fields"].as_array().into_iter().flatten();
        let heat = fields.filter_map(|f| {
            Some(Heat {
                offset: f["offset"].as_u64()?,
                share: f["A_pct"].as_f64()?,
            })
        });
        heat.collect()
    }

    /// Path of the source file.
    pub fn file(&self) -> PathBuf {
        let path = Path::new(&self.cause.file);
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
    }
}

/// The structure of the finding with its declaration. The error is the reason why it cannot be
/// changed.
pub fn declared<'a>(
    means: &mut Means<'a>,
    of_type: &str,
) -> Result<(&'a Structure, Declaration), String> {
    let structure = means.info.structure(of_type)?;
    if is_of_system(&structure.file) {
        return Err(format!(
            "{} is a header of the system",
            structure.file.display()
        ));
    }
    let file = means.sources.get(&structure.file)?;
    let declaration = Declaration::find(file, structure)?;
    Ok((structure, declaration))
}

/// `struct body (app.c:3)`.
pub fn structure_name(structure: &Structure) -> String {
    let file = structure.file.file_name().unwrap_or_default();
    format!(
        "struct {} ({}:{})",
        structure.name,
        file.to_string_lossy(),
        structure.line
    )
}
