//! Tokens of C and C++ sources. Comments are not tokens; tokens of preprocessor lines are marked.

use std::fmt;
use std::path::{Path, PathBuf};

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A number.
    Number,
    /// A string or a character.
    Literal,
    /// An operator, a bracket or a separator.
    Sign,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind of the token.
    pub kind: Kind,
    /// Offset of its first byte in the text.
    pub start: usize,
    /// Offset behind its last byte.
    pub end: usize,
    /// Its line, from 1.
    pub line: u32,
    /// True if it is part of a preprocessor line.
    pub in_directive: bool,
}

/// A source file with its tokens.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path.
    pub path: PathBuf,
    /// Text.
    pub text: String,
    /// Tokens in their order.
    pub tokens: Vec<Token>,
}

/// A text that this tokenizer cannot read as C or C++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// First unreadable line.
    pub line: u32,
    /// The reason.
    pub why: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// Operators of two and three characters, the longest first.
const LONG_SIGNS: [&str; 24] = [
    "...", "<<=", ">>=", "->*", "::", "->", "++", "--", "&&", "||", "==", "!=", "<=", ">=", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
];

impl SourceFile {
    /// Tokenizes a text.
    pub fn new(path: &Path, text: String) -> Result<SourceFile, Unreadable> {
        let tokens = Scanner::new(&text).run()?;
        Ok(SourceFile {
            path: path.to_path_buf(),
            text,
            tokens,
        })
    }

    /// Text of a token; empty behind the last one.
    pub fn word(&self, at: usize) -> &str {
        (self.tokens.get(at)).map_or("", |t| &self.text[t.start..t.end])
    }

    /// True if the token is an identifier or a keyword.
    pub fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|t| t.kind == Kind::Word)
    }

    /// Line of a token; 0 behind the last one.
    pub fn line(&self, at: usize) -> u32 {
        self.tokens.get(at).map_or(0, |t| t.line)
    }

    /// `file.c:12`, without folders.
    pub fn place(&self, at: usize) -> String {
        let name = self.path.file_name().unwrap_or_default();
        format!("{}:{}", name.to_string_lossy(), self.line(at))
    }

    /// The bracket that closes the one at `open`. `None` if there is none, or if brackets do not
    /// match.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut stack = Vec::new();
        for at in open..self.tokens.len() {
            if self.tokens[at].in_directive != self.tokens[open].in_directive {
                continue;
            }
            let closes = match self.word(at) {
                "(" => {
                    stack.push(")");
                    continue;
                }
                "[" => {
                    stack.push("]");
                    continue;
                }
                "{" => {
                    stack.push("}");
                    continue;
                }
                word @ (")" | "]" | "}") => word,
                _ => continue,
            };
            if stack.pop() != Some(closes) {
                return None;
            }
            if stack.is_empty() {
                return Some(at);
            }
        }
        None
    }

    /// True if the file's name is that of a C++ source.
    pub fn is_cpp(&self) -> bool {
        let extension = self.path.extension().unwrap_or_default();
        matches!(
            &*extension.to_string_lossy(),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hh" | "hpp" | "hxx"
        )
    }

    /// Offset of the first byte of the line with a byte.
    pub fn line_start(&self, byte: usize) -> usize {
        self.text[..byte].rfind('\n').map_or(0, |at| at + 1)
    }

    /// Offset behind the line, and its newline, in which a token ends. Comments and backslashes
    /// that continue the line are part of it.
    pub fn line_end(&self, byte: usize) -> usize {
        let bytes = self.text.as_bytes();
        let (mut at, mut in_comment) = (byte, false);
        while at < bytes.len() {
            let rest = &self.text[at..];
            match bytes[at] {
                b'\n' => return at + 1,
                b'\\' if rest.starts_with("\\\r\n") => at += 3,
                b'\\' => at += 2,
                b'/' if !in_comment && rest.starts_with("/*") => {
                    at += rest
                        .get(2..)
                        .and_then(|r| r.find("*/"))
                        .map_or(rest.len(), |n| n + 4);
                }
                b'/' if !in_comment && rest.starts_with("//") => in_comment = true,
                quote @ (b'"' | b'\'') if !in_comment => at = literal_end(bytes, at, quote),
                _ => at += 1,
            }
            at = (at..=bytes.len())
                .find(|&n| self.text.is_char_boundary(n))
                .unwrap_or(bytes.len());
        }
        bytes.len()
    }

    /// Blanks at the start of the line with a byte.
    pub fn indent(&self, byte: usize) -> &str {
        let line = &self.text[self.line_start(byte)..];
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        &line[..blanks]
    }
}

/// Offset behind a string or character.
fn literal_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote && bytes[at] != b'\n' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    match bytes.get(at) {
        Some(&byte) if byte == quote => at + 1,
        _ => at,
    }
}

/// Scans a text.
struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    in_directive: bool,
    /// True if only blanks and comments are before `at` in its line.
    is_first: bool,
    tokens: Vec<Token>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Scanner<'a> {
        Scanner {
            text,
            bytes: text.as_bytes(),
            at: 0,
            line: 1,
            in_directive: false,
            is_first: true,
            tokens: Vec::new(),
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error<T>(&self, why: &'static str) -> Result<T, Unreadable> {
        Err(Unreadable {
            line: self.line,
            why,
        })
    }

    fn run(mut self) -> Result<Vec<Token>, Unreadable> {
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.in_directive = false;
                    self.is_first = true;
                }
                b'\\' if matches!(self.peek(1), b'\n' | b'\r') => self.continue_line()?,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment()?,
                b'#' if self.is_first => {
                    self.in_directive = true;
                    self.sign();
                    self.skip_message();
                }
                b'"' => self.quoted(b'"')?,
                b'\'' => self.quoted(b'\'')?,
                byte if byte.is_ascii_digit() => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                byte if is_word_byte(byte) => self.word()?,
                byte if byte.is_ascii_punctuation() => self.sign(),
                _ => return self.error("a character that is no part of C or C++"),
            }
        }
        Ok(self.tokens)
    }

    fn push(&mut self, kind: Kind, start: usize, line: u32) {
        self.is_first = false;
        self.tokens.push(Token {
            kind,
            start,
            end: self.at,
            line,
            in_directive: self.in_directive,
        });
    }

    fn continue_line(&mut self) -> Result<(), Unreadable> {
        self.at += 1;
        if self.peek(0) == b'\r' {
            self.at += 1;
        }
        if self.peek(0) != b'\n' {
            return self.error("a backslash in front of a line end that is no line end");
        }
        self.at += 1;
        self.line += 1;
        Ok(())
    }

    fn line_comment(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            // A backslash continues the comment.
            if self.peek(0) == b'\\' && self.peek(1) == b'\n' {
                self.line += 1;
                self.at += 1;
            }
            self.at += 1;
        }
    }

    fn block_comment(&mut self) -> Result<(), Unreadable> {
        let begin = self.line;
        self.at += 2;
        while self.peek(0) != b'*' || self.peek(1) != b'/' {
            if self.at >= self.bytes.len() {
                return Err(Unreadable {
                    line: begin,
                    why: "a comment without an end",
                });
            }
            self.line += u32::from(self.peek(0) == b'\n');
            self.at += 1;
        }
        self.at += 2;
        Ok(())
    }

    /// Skips messages of `#error` and `#warning`, which are not tokens.
    fn skip_message(&mut self) {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t']);
        if rest.starts_with("error") || rest.starts_with("warning") {
            while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                self.at += 1;
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<(), Unreadable> {
        let start = self.at;
        self.literal(start, quote)
    }

    /// The rest of a string or character whose prefix begins at `start`.
    fn literal(&mut self, start: usize, quote: u8) -> Result<(), Unreadable> {
        let line = self.line;
        self.at += 1;
        loop {
            match self.peek(0) {
                _ if self.at >= self.bytes.len() => {
                    return self.error("a string or character without an end");
                }
                b'\n' => return self.error("a string or character without an end"),
                b'\\' => {
                    self.line += u32::from(self.peek(1) == b'\n');
                    self.at += 2;
                }
                byte => {
                    self.at += 1;
                    if byte == quote {
                        break;
                    }
                }
            }
        }
        self.at = self.at.min(self.bytes.len());
        self.push(Kind::Literal, start, line);
        Ok(())
    }

    /// `R"x(…)x"`.
    fn raw_string(&mut self, start: usize) -> Result<(), Unreadable> {
        let line = self.line;
        let open = self.text[self.at..].find('(').map(|n| self.at + n);
        let Some(open) = open else {
            return self.error("a raw string without its parenthesis");
        };
        let end = format!("){}\"", &self.text[self.at + 1..open]);
        let Some(length) = self.text[open..].find(&end) else {
            return self.error("a raw string without an end");
        };
        let stop = open + length + end.len();
        self.line += self.text[self.at..stop].matches('\n').count() as u32;
        self.at = stop;
        self.push(Kind::Literal, start, line);
        Ok(())
    }

    fn number(&mut self) {
        let start = self.at;
        loop {
            let byte = self.peek(0);
            let is_sign = matches!(byte, b'+' | b'-')
                && matches!(self.bytes[self.at - 1], b'e' | b'E' | b'p' | b'P')
                && self.at > start;
            let is_separator = byte == b'\'' && self.peek(1).is_ascii_alphanumeric();
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || is_sign || is_separator) {
                break;
            }
            self.at += 1;
        }
        self.push(Kind::Number, start, self.line);
    }

    fn word(&mut self) -> Result<(), Unreadable> {
        let start = self.at;
        while is_word_byte(self.peek(0)) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        match (word, self.peek(0)) {
            ("R" | "LR" | "uR" | "UR" | "u8R", b'"') => self.raw_string(start),
            ("L" | "u" | "U" | "u8", quote @ (b'"' | b'\'')) => self.literal(start, quote),
            _ => {
                self.push(Kind::Word, start, self.line);
                Ok(())
            }
        }
    }

    fn sign(&mut self) {
        let start = self.at;
        let rest = &self.text[start..];
        let long = LONG_SIGNS.iter().find(|s| rest.starts_with(**s));
        self.at += long.map_or(1, |s| s.len());
        self.push(Kind::Sign, start, self.line);
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let file = SourceFile::new(Path::new("a.c"), text.into()).unwrap();
        (0..file.tokens.len())
            .map(|n| file.word(n).to_owned())
            .collect()
    }

    #[test]
    fn comments_and_literals_hide_what_is_in_them() {
        assert_eq!(
            words("a /* { */ b // }\nc \"{ \\\" //\" '\\'' d"),
            ["a", "b", "c", "\"{ \\\" //\"", "'\\''", "d"]
        );
        assert_eq!(
            words("R\"x({)\")x\" L'}' u8\"{\""),
            ["R\"x({)\")x\"", "L'}'", "u8\"{\""]
        );
        assert_eq!(
            words("1'000 1e-3 0x1p+4f .5 a->b::c <<="),
            [
                "1'000", "1e-3", "0x1p+4f", ".5", "a", "->", "b", "::", "c", "<<="
            ]
        );
    }

    #[test]
    fn lines_and_directives_are_known() {
        let text = "#define A(x) \\\n  { x\nint b; // \\\n still\n#error don't\n int c;\n";
        let file = SourceFile::new(Path::new("a.c"), text.into()).unwrap();
        let of = |word: &str| {
            let at = (0..file.tokens.len()).find(|&n| file.word(n) == word);
            file.tokens[at.unwrap()]
        };
        assert!(of("{").in_directive && of("{").line == 2);
        assert!(!of("b").in_directive && of("b").line == 3);
        assert_eq!(of("c").line, 6);
        assert!((0..file.tokens.len()).all(|n| file.word(n) != "still"));
    }

    #[test]
    fn unreadable_text_is_an_error_with_its_line() {
        let error = |text: &str| SourceFile::new(Path::new("a.c"), text.into()).unwrap_err();
        assert_eq!(error("a\n/* b\nc").line, 2);
        assert_eq!(error("\"a\nb\"").line, 1);
        assert_eq!(error("\"a").line, 1);
        assert_eq!(error("a\nR\"(x").line, 2);
        assert_eq!(error("a\u{1}").line, 1);
    }

    #[test]
    fn brackets_close_in_their_order() {
        let file = |text: &str| SourceFile::new(Path::new("a.c"), text.into()).unwrap();
        assert_eq!(file("{ ( [ ] ) }").closing(0), Some(5));
        assert_eq!(file("{ ( } )").closing(0), None);
        assert_eq!(file("{ (").closing(0), None);
    }
}
