//! `--fail-if`: conditions under which the exit status is 3.
//!
//! `CONDITION[,CONDITION…]`, each `METRIC[.NAME]>NUMBER%`. A name with `,`, `>`, `"` or a space at
//! an end needs double quotes, with `""` for a quote. `*` is any name.

use crate::compare::change::{Change, Verdict};
use crate::compare::entries::{EntryKind, Metric};
use crate::compare::judge::Comparison;
use serde::Serialize;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    /// The number.
    pub metric: Metric,
    /// Function, object or `file:line`; none for the run.
    pub name: Option<String>,
    /// Percent of the base by which it may grow.
    pub limit: f64,
}

/// Error of an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {position} of {text:?}: {cause}")]
pub struct GateError {
    /// The expression.
    pub text: String,
    /// Number of the character, from 1.
    pub position: usize,
    /// Expected text.
    pub cause: String,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

const METRICS: &str =
    "time, share, cpu, loads, F, growth, D50, D90, D99, size, misses.L1, misses.L2, …";

impl<'a> Parser<'a> {
    fn error(&self, at: usize, cause: impl Into<String>) -> GateError {
        GateError {
            text: self.text.into(),
            position: self.text[..at].chars().count() + 1,
            cause: cause.into(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn metric(&mut self) -> Result<Metric, GateError> {
        let start = self.at;
        Ok(match self.word() {
            "time" => Metric::Time,
            "share" => Metric::Share,
            "cpu" => Metric::Cpu,
            "loads" => Metric::Loads,
            "F" => Metric::Footprint,
            "growth" => Metric::Growth,
            "D50" => Metric::Distance(50),
            "D90" => Metric::Distance(90),
            "D99" => Metric::Distance(99),
            "size" => Metric::Size,
            "misses" => {
                let (dot, level) = (self.eat("."), self.at);
                let name = self.word();
                let number = name.strip_prefix('L').and_then(|n| n.parse::<u8>().ok());
                if !dot || number.is_none_or(|n| n == 0) {
                    return Err(self.error(level, "a level is expected, such as misses.L2"));
                }
                Metric::Misses(name.into())
            }
            _ => {
                return Err(self.error(
                    start,
                    format!("a number to compare is expected, one of {METRICS}"),
                ));
            }
        })
    }

    fn name(&mut self) -> Result<String, GateError> {
        let start = self.at;
        if self.eat("\"") {
            let mut name = String::new();
            loop {
                let Some(next) = self.rest().find('"') else {
                    return Err(self.error(start, "this quote is not closed"));
                };
                name.push_str(&self.rest()[..next]);
                self.at += next + 1;
                if !self.eat("\"") {
                    return Ok(name);
                }
                name.push('"');
            }
        }
        let rest = self.rest();
        let end = rest.find([',', '>']).unwrap_or(rest.len());
        let name = rest[..end].trim_end();
        if name.is_empty() {
            return Err(self.error(
                start,
                "a function, object or FILE:LINE is expected, or * for any",
            ));
        }
        self.at += name.len();
        Ok(name.into())
    }

    fn condition(&mut self) -> Result<Condition, GateError> {
        self.spaces();
        let start = self.at;
        let metric = self.metric()?;
        let after = self.at;
        let name = if self.eat(".") {
            Some(self.name()?)
        } else {
            None
        };
        if name.is_none() && (metric.is_share() || metric == Metric::Size) {
            let whose = if metric.is_share() {
                "FUNCTION"
            } else {
                "OBJECT"
            };
            let example = format!(
                "of what is expected: {0}.{whose}, or {0}.* for any",
                metric.name()
            );
            return Err(self.error(after, example));
        }
        self.spaces();
        if !self.eat(">") {
            return Err(self.error(self.at, "> and a percentage are expected, such as >5%"));
        }
        self.spaces();
        let number = self.at;
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        self.at += end;
        let limit: f64 = rest[..end]
            .parse()
            .map_err(|_| self.error(number, "a percentage of 0 or more is expected, such as 5%"))?;
        if !self.eat("%") {
            return Err(self.error(self.at, "% is expected: limits are percent of the base"));
        }
        let text = self.text[start..self.at].to_string();
        self.spaces();
        Ok(Condition {
            text,
            metric,
            name,
            limit,
        })
    }
}

/// Reads an expression.
pub fn parse_conditions(text: &str) -> Result<Vec<Condition>, GateError> {
    let mut parser = Parser { text, at: 0 };
    let mut all = Vec::new();
    loop {
        all.push(parser.condition()?);
        if parser.rest().is_empty() {
            return Ok(all);
        }
        if !parser.eat(",") {
            return Err(parser.error(parser.at, "a comma or the end is expected"));
        }
    }
}

/// Result of a condition.
#[derive(Clone, Debug, Serialize)]
pub struct GateOutcome {
    /// The condition.
    pub condition: String,
    /// Significant worsenings beyond its limit, in words.
    pub violations: Vec<String>,
    /// Comparisons that it is about.
    pub compared: usize,
    /// Number of these without a clear verdict.
    pub unclear: usize,
}

impl Condition {
    /// True if the condition applies to a comparison.
    pub fn is_about(&self, change: &Change) -> bool {
        change.metric.name() == self.metric.name() && self.is_of(change)
    }

    /// True if its name occurs in any comparison, even of other metrics.
    pub fn names_something(&self, comparison: &Comparison) -> bool {
        let any = matches!(self.name.as_deref(), None | Some("*"));
        any || comparison.changes.iter().any(|c| self.is_of(c))
    }

    fn is_of(&self, change: &Change) -> bool {
        let Some(name) = &self.name else {
            return change.kind == EntryKind::Run;
        };
        let names = [Some(&change.name), change.new_name.as_ref()];
        let place = matches!(change.kind, EntryKind::Line)
            && [&change.place, &change.new_place].contains(&name);
        let whole = matches!(change.kind, EntryKind::Function | EntryKind::Object);
        match name.as_str() {
            "*" => whole,
            _ => place || whole && names.into_iter().flatten().any(|n| n == name),
        }
    }

    /// Evaluates the condition. `words` describes a change.
    pub fn check(&self, comparison: &Comparison, words: impl Fn(&Change) -> String) -> GateOutcome {
        let about: Vec<&Change> = comparison
            .changes
            .iter()
            .filter(|c| self.is_about(c))
            .collect();
        let violated = about.iter().filter(|c| {
            c.verdict == Verdict::Worse && c.change_pct.is_none_or(|pct| pct > self.limit)
        });
        GateOutcome {
            condition: self.text.clone(),
            violations: violated.map(|c| words(c)).collect(),
            compared: about.len(),
            unclear: about
                .iter()
                .filter(|c| c.verdict == Verdict::Unclear)
                .count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let all = parse_conditions(r#"F>10%, time.kernel > 5%,misses.L2>0.5%,loads."a<b, c>""d">1%,time.*>3%,D99.main a.c:5>2%"#).unwrap();
        let short: Vec<(String, Option<&str>, f64)> = all
            .iter()
            .map(|c| (c.metric.name(), c.name.as_deref(), c.limit))
            .collect();
        assert_eq!(
            short,
            [
                ("F".to_string(), None, 10.0),
                ("time".to_string(), Some("kernel"), 5.0),
                ("misses.L2".to_string(), None, 0.5),
                ("loads".to_string(), Some("a<b, c>\"d"), 1.0),
                ("time".to_string(), Some("*"), 3.0),
                ("D99".to_string(), Some("main a.c:5"), 2.0),
            ]
        );
        assert_eq!(all[1].text, "time.kernel > 5%");
    }

    #[test]
    fn what_is_wrong_and_where() {
        for (text, position, word) in [
            ("", 1, "a number to compare"),
            ("F>10%,", 7, "a number to compare"),
            ("G>10%", 1, "one of time"),
            ("F<10%", 2, "> and a percentage"),
            ("F>10", 5, "% is expected"),
            ("F>x%", 3, "a percentage of 0"),
            ("F>-1%", 3, "a percentage of 0"),
            ("time>5%", 5, "time.FUNCTION"),
            ("size>5%", 5, "size.OBJECT"),
            ("misses>5%", 7, "misses.L2"),
            ("misses.L>5%", 8, "misses.L2"),
            ("loads.>5%", 7, "FILE:LINE"),
            ("loads.\"a>5%", 7, "not closed"),
            ("F>10% time.a>5%", 7, "a comma"),
            ("F>1.2.3%", 3, "a percentage"),
        ] {
            let error = parse_conditions(text).unwrap_err();
            assert_eq!(error.position, position, "{error}");
            assert!(error.cause.contains(word), "{error}");
        }
    }
}
