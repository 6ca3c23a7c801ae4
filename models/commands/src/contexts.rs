//! Contexts of RDX live: a line of code with a call path.

use crate::rdx::CodeName;
use mgz_analyzer::columns;
use mgz_analyzer::data::frame;
use mgz_analyzer::input::quietly;
use mgz_analyzer::output::document::{DocumentTable, value};
use mgz_annotations_schema::manifest::CALL_PATHS;
use mgz_models::sampling::rdx::{Estimate, Observation, pairs};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// Source: Chosen.
const MAX_PATH_PAIRS: usize = 50;

/// The lines and call paths of a watched run.
#[derive(Default)]
pub(crate) struct Contexts {
    /// Names of lines.
    names: Vec<CodeName>,
    by_name: HashMap<CodeName, u32>,
    /// Index of the name and call path of each context.
    list: Vec<(u32, u32)>,
    by_parts: HashMap<(u32, u32), u32>,
    /// By number of a path, from 1: the caller's path, and the function. Empty in traces of older
    /// recorders.
    calls: Vec<(u64, String)>,
}

impl Contexts {
    /// The number of a context.
    pub(crate) fn number(&mut self, name: CodeName, path: u32) -> u32 {
        let next = self.names.len() as u32;
        let line = *self.by_name.entry(name.clone()).or_insert(next);
        if line == next {
            self.names.push(name);
        }
        let next = self.list.len() as u32;
        let number = *self.by_parts.entry((line, path)).or_insert(next);
        if number == next {
            self.list.push((line, path));
        }
        number
    }

    /// The line of a context.
    pub(crate) fn line(&self, context: u32) -> u32 {
        self.list[context as usize].0
    }

    /// The name of a line.
    pub(crate) fn name(&self, line: u32) -> CodeName {
        self.names[line as usize].clone()
    }

    /// Reads the names of the paths' functions from the trace, if it has them.
    pub(crate) fn read_calls(&mut self, folder: &Path) -> Result<(), String> {
        let Ok(file) = std::fs::File::open(folder.join(CALL_PATHS)) else {
            return Ok(());
        };
        let table = quietly(|| frame::read_parquet(file)).and_then(|r| r)?;
        let parents = frame::numbers(&table, "parent")?;
        let functions = frame::texts(&table, "function")?;
        self.calls = parents
            .into_iter()
            .zip(functions.iter().map(|f| f.unwrap_or_default().to_owned()))
            .collect();
        Ok(())
    }

    /// A path from the outside in; empty if it is unknown.
    fn path(&self, mut path: u32) -> String {
        let mut functions = Vec::new();
        // Callers have smaller numbers, so this ends even if the table is damaged.
        while let Some((parent, function)) = (path as usize)
            .checked_sub(1)
            .and_then(|at| self.calls.get(at))
        {
            functions.push(function.as_str());
            let Some(above) = u32::try_from(*parent).ok().filter(|p| *p < path) else {
                break;
            };
            path = above;
        }
        functions.reverse();
        functions.join(" > ")
    }

    /// Use–reuse pairs by call path, if the recorder knew any.
    pub(crate) fn table(
        &self,
        observations: &[Observation],
        estimate: &Estimate,
    ) -> Option<DocumentTable> {
        if self.calls.is_empty() {
            return None;
        }
        let all = pairs(observations, estimate);
        let (total, cost): (f64, f64) = all.iter().fold((0.0, 0.0), |s, p| (s.0 + p.2, s.1 + p.3));
        let place = |context: u32| {
            let (line, path) = self.list[context as usize];
            [
                Value::from(self.path(path)),
                Value::from(self.names[line as usize].place()),
            ]
        };
        let rows = all
            .iter()
            .take(MAX_PATH_PAIRS)
            .map(|&(used, reused, weight, product)| {
                let [a, b] = place(used);
                let [c, d] = place(reused);
                vec![
                    a,
                    b,
                    c,
                    d,
                    value(weight / total),
                    value(product / weight),
                    value(product / cost),
                ]
            });
        Some(DocumentTable {
            name: "path_pairs",
            title: format!("The same by call path (the first {MAX_PATH_PAIRS})"),
            columns: columns![
                use_path: Text, use_line: Text, reuse_path: Text, reuse_line: Text,
                share_hat: Share, interval_mean_hat: Number, cost_share_hat: Share,
            ]
            .to_vec(),
            rows: rows.collect(),
            text_rows: 10,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_by_way_of_two_callers_is_two_contexts() {
        let mut contexts = Contexts::default();
        let name = CodeName::new("leaf", "a.c", 3);
        let numbers = [
            contexts.number(name.clone(), 2),
            contexts.number(name.clone(), 3),
            contexts.number(name.clone(), 2),
        ];
        assert_eq!(numbers, [0, 1, 0]);
        assert_eq!((contexts.line(0), contexts.line(1)), (0, 0));
        let calls = [(0, "main"), (1, "f"), (1, "g"), (9, "loop")];
        contexts.calls = calls.map(|(p, f)| (p, f.to_owned())).to_vec();
        assert_eq!(contexts.path(2), "main > f");
        assert_eq!(contexts.path(3), "main > g");
        assert_eq!(contexts.path(0), "");
        // A caller with a greater number is damage.
        assert_eq!(contexts.path(4), "loop");
    }
}
