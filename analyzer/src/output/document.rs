//! Output of a subcommand: a summary and tables, as text, JSON, CSV or Parquet, with the same keys
//! everywhere.

use crate::data::frame::{self, ColumnKind, Frame};
use crate::output::export::{ExportError, FileFormat, write_frame};
use crate::output::text_table::unruled_table;
use crate::util::human::{bytes, count, number};
use comfy_table::{Cell, CellAlignment};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Version of the keys; see `docs/reference/models-json.md`.
pub const SCHEMA: &str = "mgz-models-1";

/// Kind of a column's numbers, for the text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnUnit {
    /// Names. Long ones are cut in the text form.
    Text,
    /// Texts that are never cut, such as sentences and parts of commands.
    Whole,
    /// Whole numbers that identify something.
    Id,
    /// Yes or no.
    Flag,
    /// Whole numbers that count something.
    Count,
    /// Lines of source files; 0 if unknown.
    Line,
    /// Plain numbers.
    Number,
    /// Bytes.
    Bytes,
    /// Shares of 1, shown in percent.
    Share,
    /// Addresses.
    Address,
}

impl ColumnUnit {
    /// The type of the column in files. It does not depend on the values.
    fn kind(self) -> ColumnKind {
        match self {
            ColumnUnit::Text | ColumnUnit::Whole => ColumnKind::Text,
            ColumnUnit::Flag => ColumnKind::Flag,
            ColumnUnit::Id
            | ColumnUnit::Count
            | ColumnUnit::Line
            | ColumnUnit::Bytes
            | ColumnUnit::Address => ColumnKind::Whole,
            ColumnUnit::Number | ColumnUnit::Share => ColumnKind::Number,
        }
    }

    /// True if the column's texts are aligned to the left.
    fn is_left(self) -> bool {
        matches!(
            self,
            ColumnUnit::Text | ColumnUnit::Whole | ColumnUnit::Id | ColumnUnit::Flag
        )
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct DocumentColumn(pub &'static str, pub ColumnUnit);

/// Columns with their units, as an array: `columns![function: Text, loads: Count]`.
#[macro_export]
macro_rules! columns {
    ($($name:ident: $unit:ident),* $(,)?) => {
        [$($crate::output::document::DocumentColumn(
            stringify!($name),
            $crate::output::document::ColumnUnit::$unit,
        )),*]
    };
}

/// A table.
pub struct DocumentTable {
    /// Key in JSON, name of the file.
    pub name: &'static str,
    /// Heading of the text form.
    pub title: String,
    /// Columns.
    pub columns: Vec<DocumentColumn>,
    /// Rows, one value per column.
    pub rows: Vec<Vec<Value>>,
    /// Maximum number of rows in the text form; 0 leaves the table out there.
    pub text_rows: usize,
}

/// A whole result.
pub struct Document {
    /// The subcommand.
    pub command: &'static str,
    /// Single values, in order.
    pub summary: Vec<(&'static str, ColumnUnit, Value)>,
    /// Tables, in order.
    pub tables: Vec<DocumentTable>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// A number as JSON. A number that is not finite becomes null.
pub fn value(x: f64) -> Value {
    // An empty sum is -0, which is confusing in output.
    serde_json::Number::from_f64(x + 0.0).map_or(Value::Null, Value::Number)
}

/// A number that may be missing.
pub fn maybe(x: Option<f64>) -> Value {
    x.map_or(Value::Null, value)
}

impl Document {
    /// An empty result.
    pub fn new(command: &'static str) -> Document {
        Document {
            command,
            summary: Vec::new(),
            tables: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a single value.
    pub fn put(&mut self, name: &'static str, unit: ColumnUnit, value: impl Into<Value>) {
        self.summary.push((name, unit, value.into()));
    }

    /// The JSON document. An error is a sentence about a value that does not fit its column.
    pub fn json(&self) -> Result<Value, String> {
        let mut out = Map::new();
        out.insert("schema".into(), SCHEMA.into());
        out.insert("command".into(), self.command.into());
        out.insert(
            "summary".into(),
            self.summary
                .iter()
                .map(|(k, _, v)| ((*k).to_string(), v.clone()))
                .collect::<Map<_, _>>()
                .into(),
        );
        for table in &self.tables {
            let rows = Value::from(frame::json_rows(&table.frame()?));
            // The name before version 0.2. It will be removed in version 0.3.
            if table.name == "findings" {
                out.insert("verdicts".into(), rows.clone());
            }
            out.insert(table.name.into(), rows);
        }
        out.insert("warnings".into(), self.warnings.clone().into());
        Ok(Value::Object(out))
    }

    /// The text form. `rows` bounds long tables; `width` is that of the terminal.
    pub fn text(&self, rows: usize, width: Option<u16>) -> String {
        let mut out = String::new();
        let longest = self
            .summary
            .iter()
            .map(|(k, ..)| k.len())
            .max()
            .unwrap_or(0);
        for (key, unit, value) in &self.summary {
            out.push_str(&format!("{key:longest$}  {}\n", cell(value, *unit)));
        }
        for table in self
            .tables
            .iter()
            .filter(|t| t.text_rows > 0 && !t.rows.is_empty())
        {
            out.push_str(&format!("\n{}\n", table.title));
            let most = if table.text_rows == usize::MAX {
                rows
            } else {
                table.text_rows
            };
            let mut text = unruled_table(width);
            // A column without values is not shown.
            let shown: Vec<bool> = (0..table.columns.len())
                .map(|at| {
                    table
                        .rows
                        .iter()
                        .any(|r| r.get(at).is_some_and(|v| !v.is_null()))
                })
                .collect();
            let align = |unit: ColumnUnit| {
                if unit.is_left() {
                    CellAlignment::Left
                } else {
                    CellAlignment::Right
                }
            };
            text.set_header(
                (table.columns.iter().zip(&shown))
                    .filter(|(_, shown)| **shown)
                    .map(|(c, _)| Cell::new(c.0).set_alignment(align(c.1))),
            );
            for row in table.rows.iter().take(most) {
                text.add_row(
                    table
                        .columns
                        .iter()
                        .zip(row)
                        .zip(&shown)
                        .filter(|(_, shown)| **shown)
                        .map(|((c, v), _)| Cell::new(cell(v, c.1)).set_alignment(align(c.1))),
                );
            }
            // Headings without rows are left out.
            if most > 0 {
                out.push_str(&format!("{text}\n"));
            }
            if table.rows.len() > most {
                out.push_str(&format!("… {} more\n", table.rows.len() - most));
            }
        }
        out
    }

    /// The tables by name. An error is a sentence about a value that does not fit its column.
    pub fn frames(&self) -> Result<Vec<(&'static str, Frame)>, String> {
        self.tables
            .iter()
            .map(|table| Ok((table.name, table.frame()?)))
            .collect()
    }

    /// Writes `summary` and each table as a file into `folder`.
    pub fn write(&self, folder: &Path, format: FileFormat) -> Result<Vec<PathBuf>, ExportError> {
        std::fs::create_dir_all(folder).map_err(|e| ExportError {
            path: folder.display().to_string(),
            cause: e.to_string(),
        })?;
        let summary = self
            .summary
            .iter()
            .map(|(name, unit, v)| frame::column(name, unit.kind(), &[v]))
            .collect::<Result<_, _>>();
        let mut files = vec![write_frame(
            folder,
            "summary",
            summary.and_then(frame::frame),
            format,
        )?];
        for table in &self.tables {
            files.push(write_frame(folder, table.name, table.frame(), format)?);
        }
        Ok(files)
    }
}

impl DocumentTable {
    /// The table with the types that its columns have in every result.
    fn frame(&self) -> Result<Frame, String> {
        let columns = self.columns.iter().enumerate().map(|(i, c)| {
            let cells: Vec<&Value> = self
                .rows
                .iter()
                .map(|r| r.get(i).unwrap_or(&Value::Null))
                .collect();
            frame::column(c.0, c.1.kind(), &cells)
        });
        frame::frame(columns.collect::<Result<_, _>>()?)
    }
}

/// Names in the text form are cut to this many columns. Source: Chosen.
const MAX_TEXT_COLUMNS: usize = 60;

fn cell(value: &Value, unit: ColumnUnit) -> String {
    match (unit, value.as_f64()) {
        (_, None) => match value {
            Value::Null => "–".into(),
            Value::String(s)
                if unit != ColumnUnit::Whole && s.chars().count() > MAX_TEXT_COLUMNS =>
            {
                let begin: String = s.chars().take(MAX_TEXT_COLUMNS - 1).collect();
                format!("{begin}…")
            }
            Value::String(s) => s.clone(),
            Value::Bool(b) => (if *b { "yes" } else { "no" }).into(),
            other => other.to_string(),
        },
        // These identify something, so they are not formatted as amounts.
        (ColumnUnit::Line, Some(0.0)) => "–".into(),
        (ColumnUnit::Text | ColumnUnit::Whole | ColumnUnit::Id | ColumnUnit::Line, Some(_)) => {
            value.to_string()
        }
        (ColumnUnit::Share, Some(x)) => format!("{:.2}%", 100.0 * x),
        (ColumnUnit::Bytes, Some(x)) => bytes(x as u64),
        (ColumnUnit::Address, Some(_)) => value
            .as_u64()
            .map_or_else(|| value.to_string(), |a| format!("{a:#x}")),
        (_, Some(x)) => match value.as_u64() {
            Some(n) => count(n),
            None => number(Some(x)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_whole_and_names_are_cut() {
        let long = Value::from("word ".repeat(30));
        assert_eq!(
            cell(&long, ColumnUnit::Text).chars().count(),
            MAX_TEXT_COLUMNS
        );
        assert_eq!(cell(&long, ColumnUnit::Whole), long.as_str().unwrap());
    }
}
