//! The declaration of a structure in its source, member by member.
//!
//! Only declarations of plain members are supported. Everything else is refused with a reason: bit
//! fields, unnamed parts, member functions, attributes, and preprocessor lines.

use crate::fix::source::debug_info::Structure;
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// A member declaration, which may declare several members: `double x, y;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Names of its members.
    pub names: Vec<String>,
    /// Range of the text that moves with the declaration: its lines, with the comments before it.
    pub text: Range<usize>,
    /// Tokens, without the semicolon.
    pub tokens: Range<usize>,
}

/// A declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The word `struct` or `class`.
    pub keyword: usize,
    /// The opening brace.
    pub open: usize,
    /// The closing brace.
    pub close: usize,
    /// Member declarations in their order.
    pub units: Vec<Unit>,
}

/// Words that never occur in a plain member.
const OTHER_WORDS: [&str; 20] = [
    "static",
    "virtual",
    "friend",
    "using",
    "typedef",
    "template",
    "operator",
    "constexpr",
    "consteval",
    "inline",
    "explicit",
    "union",
    "__attribute__",
    "__attribute",
    "alignas",
    "_Alignas",
    "__declspec",
    "__extension__",
    "decltype",
    "_Static_assert",
];

impl Declaration {
    /// Finds and reads the declaration of a structure, and compares it with the compiler's layout.
    /// The error is the reason why it cannot be changed.
    pub fn find(file: &SourceFile, structure: &Structure) -> Result<Declaration, String> {
        let begins = |at: usize| {
            if !matches!(file.word(at), "struct" | "class") || file.tokens[at].in_directive {
                return None;
            }
            let open = match file.word(at + 1) {
                "{" => at + 1,
                _ => at + 2,
            };
            let lines = u64::from(file.line(at))..=u64::from(file.line(open));
            (file.word(open) == "{" && lines.contains(&structure.line)).then_some((at, open))
        };
        let all: Vec<(usize, usize)> = (0..file.tokens.len()).filter_map(begins).collect();
        let is_named = |b: &&(usize, usize)| file.word(b.0 + 1) == structure.name;
        let is_unnamed = |b: &&(usize, usize)| b.1 == b.0 + 1;
        // Without a tag, the name is that of the type definition.
        let mut found: Vec<&(usize, usize)> = all.iter().filter(is_named).collect();
        if found.is_empty() && structure.aliases.contains(&structure.name) {
            found = all.iter().filter(is_unnamed).collect();
        }
        let Some(&&(keyword, open)) = found.first() else {
            return Err(format!(
                "line {} does not declare {} as plain text: it has a base class or attributes, or a macro makes it",
                structure.line, structure.name
            ));
        };
        if found.len() > 1 {
            return Err("several structures begin in one line".into());
        }
        let close = (file.closing(open)).ok_or("its braces do not close in their order")?;
        let before = keyword.checked_sub(1);
        if before.is_some_and(|n| file.word(n) == ">" && !file.tokens[n].in_directive) {
            return Err("it is a template".into());
        }
        let mut declaration = Declaration {
            keyword,
            open,
            close,
            units: Vec::new(),
        };
        declaration.check_around(file)?;
        declaration.units = units(file, open, close)?;
        declaration.check_layout(structure)?;
        Ok(declaration)
    }

    /// Refuses attributes and initial values behind the closing brace, and preprocessor lines.
    fn check_around(&self, file: &SourceFile) -> Result<(), String> {
        if (self.keyword..=self.close).any(|at| file.tokens[at].in_directive) {
            return Err("it contains preprocessor lines".into());
        }
        for at in self.close + 1..file.tokens.len() {
            match file.word(at) {
                ";" => return Ok(()),
                "=" | "(" | "{" => {
                    return Err("attributes or initial values follow its closing brace".into());
                }
                _ => {}
            }
        }
        Err("no semicolon follows it".into())
    }

    /// Compares names with those of the debug information, and offsets with those of an ordinary
    /// layout.
    fn check_layout(&self, structure: &Structure) -> Result<(), String> {
        if !structure.doubt.is_empty() {
            return Err(structure.doubt.into());
        }
        let names: Vec<&str> = (self.units.iter().flat_map(|u| &u.names))
            .map(String::as_str)
            .collect();
        let known: Vec<&str> = structure.members.iter().map(|m| m.name.as_str()).collect();
        if names != known {
            return Err("its members are others than in the debug information: a macro may stand for some of them, or the file was changed".into());
        }
        if structure.members.iter().any(|m| m.is_bit_field) {
            return Err("it has bit fields".into());
        }
        let order: Vec<usize> = (0..structure.members.len()).collect();
        let (offsets, bytes) =
            layout(structure, &order).ok_or("the alignment of a member is not known")?;
        let is_same = structure
            .members
            .iter()
            .zip(&offsets)
            .all(|(m, o)| m.offset == *o);
        if !is_same || bytes != structure.bytes {
            return Err("its layout is not the ordinary one: it is packed, or members have alignments of their own".into());
        }
        Ok(())
    }
}

/// Offsets of the members in an order, by their number, and the bytes of the structure. `None` if
/// an alignment is unknown.
pub fn layout(structure: &Structure, order: &[usize]) -> Option<(Vec<u64>, u64)> {
    let mut offsets = vec![0; structure.members.len()];
    let (mut end, mut widest) = (0u64, 1);
    for &number in order {
        let member = structure.members.get(number)?;
        if member.align == 0 {
            return None;
        }
        offsets[number] = end.checked_next_multiple_of(member.align)?;
        end = offsets[number].checked_add(member.bytes)?;
        widest = widest.max(member.align);
    }
    Some((offsets, end.max(1).next_multiple_of(widest)))
}

/// The member declarations between two braces.
fn units(file: &SourceFile, open: usize, close: usize) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    let mut text = behind_line(file, open, open + 1);
    let mut at = open + 1;
    while at < close {
        let end = (at..close)
            .find(|&n| matches!(file.word(n), ";" | "{"))
            .ok_or("a member has no semicolon")?;
        if file.word(end) == "{" {
            return Err(match file.word(at) {
                "union" | "struct" | "class" | "enum" => {
                    "it contains a structure, union or enumeration that is declared inside of it"
                        .into()
                }
                _ => format!("line {} is no plain member", file.line(at)),
            });
        }
        let names = names(file, at..end)?;
        let next = behind_line(file, end, end + 1);
        units.push(Unit {
            names,
            text: text..next,
            tokens: at..end,
        });
        text = next;
        at = end + 1;
    }
    match units.is_empty() {
        true => Err("it has no members".into()),
        false => Ok(units),
    }
}

/// The begin of the line after a token, unless `next` or a part of a longer comment is in the
/// token's line: then the byte behind the token.
fn behind_line(file: &SourceFile, at: usize, next: usize) -> usize {
    let end = file.tokens[at].end;
    let line_end = file.line_end(end);
    let next = file.tokens.get(next).map_or(file.text.len(), |t| t.start);
    let comment = &file.text[end..line_end.min(next)];
    // The last block comment must end in this line.
    let is_open = comment.rfind("/*") > comment.rfind("*/");
    match next < line_end || is_open {
        true => end,
        false => line_end,
    }
}

/// Names that a member declaration declares.
fn names(file: &SourceFile, tokens: Range<usize>) -> Result<Vec<String>, String> {
    let line = file.line(tokens.start);
    let refused = |what: &str| Err(format!("line {line} {what}"));
    let mut names = Vec::new();
    let mut last: Option<usize> = None;
    let mut angle = 0usize;
    let mut at = tokens.start;
    while at < tokens.end {
        let word = file.word(at);
        if OTHER_WORDS.contains(&word) {
            return refused(&format!("is no plain member: it has `{word}`"));
        }
        match word {
            "<" => angle += 1,
            ">" => angle = angle.saturating_sub(1),
            ">>" => angle = angle.saturating_sub(2),
            ":" => return refused("is a bit field or an access specifier"),
            "[" if file.word(at + 1) == "[" => return refused("has attributes"),
            "[" if file.word(at + 1) == "]" => return refused("is an array without a length"),
            "[" => at = file.closing(at).unwrap_or(tokens.end),
            "=" => {
                let is_plain = matches!(file.word(at + 2), "," | ";")
                    && (file.tokens[at + 1].kind == Kind::Number
                        || matches!(file.word(at + 1), "nullptr" | "true" | "false"));
                if !is_plain {
                    return refused("has an initial value that is no number");
                }
                at += 1;
            }
            // A pointer to a function: `int (*name)(int)`.
            "(" if last.is_some() && file.word(at + 1) == "*" && file.word(at + 3) == ")" => {
                names.push(file.word(at + 2).to_owned());
                let open = at + 4;
                let close = file.closing(open).filter(|_| file.word(open) == "(");
                match close {
                    Some(close) if close + 1 == tokens.end => return Ok(names),
                    _ => return refused("is no plain member"),
                }
            }
            "(" => return refused("is a function, or a macro makes it"),
            "," if angle == 0 => names.extend(last.take().map(|n| file.word(n).to_owned())),
            _ if file.is_word(at) && angle == 0 => last = Some(at),
            _ => {}
        }
        at += 1;
    }
    names.extend(last.map(|n| file.word(n).to_owned()));
    match names.is_empty() {
        true => refused("is no plain member"),
        false => Ok(names),
    }
}
