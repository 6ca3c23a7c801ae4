//! Forms of C that the sources of a program may have if the layout of a structure is changed.
//!
//! [`uses`](super::uses) searches for known dependences. Here, all constructs are refused by which
//! C can hide one: other views of memory, sizes, macros that make declarations, and text from
//! elsewhere.

use crate::fix::source::debug_info::{DebugInfo, Structure};
use crate::fix::source::declaration::Declaration;
use crate::fix::source::finding::Means;
use crate::fix::source::names::{FLOATS, INTEGERS};
use crate::fix::source::sources::is_of_system;
use crate::fix::source::token::{Kind, SourceFile};
use crate::fix::source::tree::sources_below;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Words that may access a structure as other data, or use lines and names of the source.
const OTHER_VIEWS: [&str; 30] = [
    "offsetof",
    "__builtin_offsetof",
    "typeof",
    "__typeof__",
    "__typeof",
    "typeof_unqual",
    "__auto_type",
    "asm",
    "__asm__",
    "__asm",
    "__LINE__",
    "va_arg",
    "__builtin_va_arg",
    "union",
    "_Generic",
    "_Pragma",
    "alias",
    "section",
    "uintptr_t",
    "intptr_t",
    "bcmp",
    "bcopy",
    "bzero",
    "explicit_bzero",
    "swab",
    "include_next",
    "import",
    "embed",
    "line",
    "scalar_storage_order",
];
/// Functions whose arguments may contain sizes of types.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "aligned_alloc"];

/// The reason why the layout of a structure must not change; `None` if all sources of the program
/// are understood.
pub fn obstacle(
    structure: &Structure,
    names: &BTreeSet<String>,
    means: &mut Means,
) -> Option<String> {
    if let Some(why) = means.info.is_not_c() {
        return Some(why);
    }
    if let Some(file) = &means.info.assembler {
        return Some(format!(
            "{} is in assembler, whose uses of the structure are unknown",
            file.display()
        ));
    }
    match means.sources.get(&structure.file) {
        Ok(file) => {
            if let Some(why) = trailing(file, structure) {
                return Some(why);
            }
        }
        Err(why) => return Some(why),
    }
    let known = known_types(means.info);
    let tree = sources_below(means.tree);
    let mut open: Vec<PathBuf> = (means.info.files.iter())
        .chain(&means.info.main_files)
        .chain(&structure.files)
        .cloned()
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop() {
        let is_none = path.as_os_str().is_empty() || is_of_system(&path) || path.is_dir();
        if is_none || !seen.insert(path.clone()) {
            continue;
        }
        let file = match means.sources.get(&path) {
            Ok(file) => file,
            Err(why) => return Some(why),
        };
        let check = Check {
            file,
            names,
            known: &known,
        };
        match check.run().and_then(|()| check.includes(&tree)) {
            Ok(more) => open.extend(more),
            Err(why) => return Some(why),
        }
    }
    None
}

/// Names of types other than the structure.
fn known_types(info: &DebugInfo) -> BTreeSet<String> {
    let names = |s: &Structure| s.aliases.iter().cloned().chain([s.name.clone()]).collect();
    info.structures
        .iter()
        .flat_map(|s| -> BTreeSet<String> { names(s) })
        .collect()
}

/// Arrays at the end, and those of at most one element, may be longer than their type.
fn trailing(file: &SourceFile, structure: &Structure) -> Option<String> {
    let declaration = Declaration::find(file, structure).ok()?;
    let is_array = |tokens: &Range<usize>| tokens.clone().any(|n| file.word(n) == "[");
    let is_last = declaration
        .units
        .last()
        .is_some_and(|unit| is_array(&unit.tokens));
    let is_short = declaration.units.iter().any(|unit| {
        is_array(&unit.tokens)
            && structure
                .members
                .iter()
                .any(|m| unit.names.contains(&m.name) && m.bytes <= m.align)
    });
    (is_last || is_short).then(|| {
        "a member is an array at the end, or of at most one element, and may be longer than its type says".into()
    })
}

/// Checks a file.
struct Check<'a> {
    file: &'a SourceFile,
    names: &'a BTreeSet<String>,
    known: &'a BTreeSet<String>,
}

impl Check<'_> {
    fn run(&self) -> Result<(), String> {
        let file = self.file;
        if file.is_cpp() {
            return Err(format!(
                "{} is in C++, which is not understood for sure",
                file.path.display()
            ));
        }
        if file.text.contains("??") {
            return Err(format!(
                "{} has two question marks side by side, which may stand for other signs",
                file.path.display()
            ));
        }
        for at in 0..file.tokens.len() {
            let found = (self.view(at))
                .or_else(|| self.digraph(at))
                .or_else(|| self.size(at))
                .or_else(|| self.cast(at))
                .or_else(|| self.value(at))
                .or_else(|| self.typedef(at))
                .or_else(|| self.definition(at));
            if let Some(why) = found {
                return Err(format!("{} {why}", file.place(at)));
            }
        }
        Ok(())
    }

    /// Words that are refused everywhere.
    fn view(&self, at: usize) -> Option<String> {
        let file = self.file;
        let word = file.word(at);
        let in_directive = file.tokens[at].in_directive;
        let is_memory = word.starts_with("mem") && file.word(at + 1) == "(";
        let is_view = OTHER_VIEWS.contains(&word)
            && (word != "line" || in_directive && file.word(at - 1) == "#");
        let is_void = word == "void"
            && (in_directive
                || (at > 0 && file.word(at - 1) == "typedef")
                || matches!(
                    file.word(at + 1),
                    "*" | "const" | "volatile" | "restrict" | "__restrict"
                ));
        if is_void {
            return Some("has a pointer to void, which may see the structure as other data".into());
        }
        (is_view || is_memory)
            .then(|| format!("has `{word}`, by which code may depend on the layout"))
    }

    /// Signs in another spelling, and macros that make names or strings.
    fn digraph(&self, at: usize) -> Option<String> {
        let file = self.file;
        let (one, two) = (file.word(at), file.word(at + 1));
        let is_near = |at: usize| {
            file.tokens
                .get(at + 1)
                .is_some_and(|t| t.start == file.tokens[at].end)
        };
        let is_digraph = matches!(
            (one, two),
            ("<", "%") | ("%", ">") | ("<", ":" | "::") | (":", ">") | ("%", ":")
        );
        if is_digraph && is_near(at) {
            return Some("spells signs in another way".into());
        }
        let is_parameter = one == "#" && !self.begins_directive(at);
        is_parameter.then(|| "has a macro that makes names or strings of others".into())
    }

    /// True if a `#` is the first sign of its line.
    fn begins_directive(&self, at: usize) -> bool {
        let file = self.file;
        let start = file.tokens[at].start;
        let line = file.line_start(start);
        let is_first = at == 0 || file.tokens[at - 1].end <= line;
        let before = file.text[..line].trim_end_matches(['\n', '\r']);
        is_first && !(line > 0 && before.ends_with('\\'))
    }

    /// Refuses sizes, except of builtin types, and of others in allocations.
    fn size(&self, at: usize) -> Option<String> {
        let file = self.file;
        if !matches!(file.word(at), "sizeof" | "_Alignof" | "alignof") {
            return None;
        }
        let open = at + 1;
        let close = match file.word(open) {
            "(" => file.closing(open),
            _ => None,
        };
        let inside = open + 1..close.unwrap_or(open + 1);
        let is_builtin = !inside.is_empty()
            && inside
                .clone()
                .all(|n| is_builtin(file.word(n)) || file.word(n) == "*");
        let star = if close.is_some() { open + 1 } else { open };
        let is_element = file.word(star) == "*"
            && file.is_word(star + 1)
            && close.is_none_or(|close| close == star + 2)
            && !matches!(file.word(star + 2), "[" | "." | "->");
        let is_type = match inside.len() {
            1 => self.is_type(file.word(inside.start)),
            2 => file.word(inside.start) == "struct",
            _ => false,
        };
        if is_builtin || (is_element || is_type) && self.is_in_allocation(at) {
            return None;
        }
        Some("takes a size other than for a new block".into())
    }

    fn is_type(&self, word: &str) -> bool {
        self.names.contains(word) || self.known.contains(word)
    }

    /// True if a token is inside of the arguments of an allocation.
    fn is_in_allocation(&self, at: usize) -> bool {
        let file = self.file;
        let mut depth = 0usize;
        for n in (0..at).rev() {
            match file.word(n) {
                ";" | "{" | "}" => return false,
                ")" => depth += 1,
                "(" if depth > 0 => depth -= 1,
                "(" if n > 0 && ALLOCATORS.contains(&file.word(n - 1)) => return true,
                "(" if n > 0 && file.is_word(n - 1) => return false,
                _ => {}
            }
        }
        false
    }

    /// Refuses casts of pointers other than of new blocks, and of addresses to numbers.
    fn cast(&self, at: usize) -> Option<String> {
        let file = self.file;
        let is_call = at > 0
            && (file.is_word(at - 1) && !matches!(file.word(at - 1), "return" | "case" | "else")
                || matches!(file.word(at - 1), ")" | "]"));
        if file.word(at) != "(" || is_call {
            return None;
        }
        let close = file.closing(at)?;
        let is_operand = file.is_word(close + 1) || matches!(file.word(close + 1), "(" | "&" | "*");
        let is_words = close > at + 1
            && (at + 1..close).all(|n| file.is_word(n) || file.word(n) == "*")
            && file.is_word(at + 1);
        if !is_operand || !is_words {
            return None;
        }
        let is_pointer = file.word(close - 1) == "*";
        let is_new = ALLOCATORS.contains(&file.word(close + 1));
        let is_plain = (at + 1..close).all(|n| is_builtin(file.word(n)));
        // An address as a number.
        let is_address = matches!(file.word(close + 1), "&" | "(");
        let is_fine = match is_pointer {
            true => is_new,
            false => is_plain && !is_address,
        };
        (!is_fine).then(|| "has a cast that may see the structure as other data".into())
    }

    /// Refuses lists of values of an unknown type.
    fn value(&self, at: usize) -> Option<String> {
        let file = self.file;
        if file.word(at) != "{" || at < 2 {
            return None;
        }
        let words = match file.word(at - 1) {
            "=" => self.declared_type(at - 1),
            ")" => self.literal_type(at - 1)?,
            _ => return None,
        };
        let is_known = |word: &str| is_builtin(word) || self.is_type(word);
        let mut words = words
            .into_iter()
            .filter(|w| !matches!(*w, "static" | "const" | "extern" | "register"));
        let fine = match words.next() {
            Some("struct") => words.next().is_some_and(|tag| self.is_type(tag)),
            Some("enum") => true,
            Some(word) => is_known(word),
            None => false,
        };
        (!fine).then(|| "has a list of values of a type that is not known".into())
    }

    /// Words of the declaration of a value.
    fn declared_type(&self, equals: usize) -> Vec<&str> {
        let file = self.file;
        let is_end = |n: &usize| {
            matches!(file.word(*n), ";" | "{" | "}")
                || file.tokens[*n].in_directive != file.tokens[equals].in_directive
        };
        let start = (0..equals).rev().find(is_end).map_or(0, |n| n + 1);
        let start = match (file.word(start), file.word(start + 1)) {
            ("for", "(") => start + 2,
            _ => start,
        };
        (start..equals).map(|n| file.word(n)).collect()
    }

    /// Words of the type of `(T){…}`. `None` for the body of a function or statement.
    fn literal_type(&self, close: usize) -> Option<Vec<&str>> {
        let file = self.file;
        let open = (0..close)
            .rev()
            .find(|&n| file.word(n) == "(" && file.closing(n) == Some(close))?;
        let before = open.checked_sub(1)?;
        let is_literal = !file.is_word(before) && file.word(before) != ")"
            || matches!(file.word(before), "return");
        is_literal.then(|| (open + 1..close).map(|n| file.word(n)).collect())
    }

    /// Refuses names of array types, since values of them do not show their type.
    fn typedef(&self, at: usize) -> Option<String> {
        let file = self.file;
        if file.word(at) != "typedef" {
            return None;
        }
        let mut next = at + 1;
        while !matches!(file.word(next), ";" | "") {
            match file.word(next) {
                "{" | "(" => next = file.closing(next)?,
                "[" => return Some("gives an array type a name".into()),
                _ => {}
            }
            next += 1;
        }
        None
    }

    /// Refuses macros that may declare data.
    fn definition(&self, at: usize) -> Option<String> {
        let file = self.file;
        let is_definition = file.word(at) == "define"
            && at > 0
            && file.word(at - 1) == "#"
            && file.tokens[at].in_directive;
        if !is_definition {
            return None;
        }
        let mut depth = 0i32;
        let mut next = at + 1;
        while next < file.tokens.len() && file.tokens[next].in_directive {
            let word = file.word(next);
            if word == "#" && self.begins_directive(next) {
                break;
            }
            depth += match word {
                "(" | "[" => 1,
                ")" | "]" => -1,
                _ => 0,
            };
            let is_other = matches!(
                word,
                "{" | "}" | ";" | "struct" | "union" | "enum" | "__VA_ARGS__" | "sizeof"
            ) || self.names.contains(word);
            if is_other || depth < 0 {
                return Some("has a macro that may declare or change structures".into());
            }
            next += 1;
        }
        (depth != 0).then(|| "has a macro that opens brackets".into())
    }

    /// Files that a file includes, among those of the user.
    fn includes(&self, tree: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
        let file = self.file;
        let mut found = Vec::new();
        let mut last: Option<usize> = None;
        let mut depth = 0i32;
        for at in 0..file.tokens.len() {
            if !file.tokens[at].in_directive {
                depth += match file.word(at) {
                    "{" | "(" | "[" => 1,
                    "}" | ")" | "]" => -1,
                    _ => 0,
                };
                last = Some(at);
                continue;
            }
            if file.word(at) != "include" || at == 0 || file.word(at - 1) != "#" {
                continue;
            }
            let place = file.place(at);
            let is_between = depth == 0 && last.is_none_or(|n| matches!(file.word(n), ";" | "}"));
            let (name, is_quoted) = included(file, at + 1)
                .filter(|(name, _)| name.ends_with(".h") && is_between)
                .ok_or_else(|| {
                    format!("{place} includes text that is no header between declarations")
                })?;
            let beside = file.path.with_file_name(&name);
            let mut here: Vec<PathBuf> = (tree.iter())
                .filter(|f| f.ends_with(Path::new(&name)))
                .cloned()
                .collect();
            if is_quoted && beside.is_file() {
                here.push(std::fs::canonicalize(&beside).unwrap_or(beside));
            }
            if is_quoted && here.is_empty() {
                return Err(format!("{place} includes {name}, which is not found"));
            }
            found.extend(here);
        }
        Ok(found)
    }
}

/// The name of an included file, and true if it is in quotes.
fn included(file: &SourceFile, at: usize) -> Option<(String, bool)> {
    if file.tokens.get(at)?.kind == Kind::Literal {
        return Some((file.word(at).trim_matches('"').to_owned(), true));
    }
    if file.word(at) != "<" {
        return None;
    }
    let end = (at + 1..file.tokens.len()).find(|&n| file.word(n) == ">")?;
    Some(((at + 1..end).map(|n| file.word(n)).collect(), false))
}

fn is_builtin(word: &str) -> bool {
    INTEGERS.contains(&word) || FLOATS.contains(&word) || matches!(word, "const" | "bool" | "_Bool")
}

#[cfg(test)]
mod tests;
