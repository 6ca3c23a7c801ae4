//! Uses of a structure that depend on its layout.
//!
//! Accesses by member name follow a new layout automatically. All other uses are searched in the
//! files of the units with the structure: values by position, bytes of the structure that are
//! written or read, other views of its memory, and addresses of members.

use crate::fix::source::debug_info::{DebugInfo, Structure};
use crate::fix::source::finding::Means;
use crate::fix::source::loops::declarations;
use crate::fix::source::sources::is_of_system;
use crate::fix::source::strict;
use crate::fix::source::token::SourceFile;
use crate::fix::source::tree::sources_below;
use std::collections::BTreeSet;
use std::path::Path;

/// Functions that may move the bytes of a structure out of or into the program.
const BYTES_OUT: [&str; 24] = [
    "fread", "fwrite", "read", "write", "pread", "pwrite", "readv", "writev", "preadv", "pwritev",
    "send", "recv", "sendto", "recvfrom", "sendmsg", "recvmsg", "mmap", "ioctl", "memcmp", "shmat",
    "shm_open", "msgsnd", "msgrcv", "vmsplice",
];
/// Functions and words that take a size but do not depend on the bytes.
const BYTES_STAY: [&str; 11] = [
    "memset", "qsort", "bsearch", "sizeof", "if", "while", "for", "switch", "return", "assert",
    "memalign",
];
/// Functions that return new memory, whose pointer may be cast.
const ALLOCATORS: [&str; 8] = [
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "memalign",
    "valloc",
    "reallocarray",
    "alloca",
];

/// The reason why the layout of a structure must not change; `None` if nothing depends on it.
pub fn obstacle(structure: &Structure, means: &mut Means) -> Option<String> {
    if let Some(function) = &means.info.unknown_code {
        return Some(format!(
            "{function} has no debug information, so its uses of the structure are unknown; compile everything with -g"
        ));
    }
    let names = names(structure, means.info);
    let members: BTreeSet<&str> = structure.members.iter().map(|m| m.name.as_str()).collect();
    for path in &structure.files {
        if is_of_system(path) || path.as_os_str().is_empty() {
            continue;
        }
        let file = match means.sources.get(path) {
            Ok(file) => file,
            Err(why) => return Some(why),
        };
        let scan = Scan {
            file,
            names: &names,
            members: &members,
            has_containers: !structure.containers.is_empty(),
        };
        if let Some(why) = scan.run() {
            return Some(why);
        }
    }
    // Structures in a compiled source are its own; those in a header are shared.
    let elsewhere = match means.info.main_files.contains(&structure.file) {
        true => None,
        false => use_elsewhere(structure, &names, means.tree),
    };
    elsewhere.or_else(|| strict::obstacle(structure, &names, means))
}

/// A use of a structure in a source of the tree that is not part of the program: of a library, or
/// of another program.
fn use_elsewhere(structure: &Structure, names: &BTreeSet<String>, tree: &Path) -> Option<String> {
    for path in sources_below(tree) {
        if structure.files.contains(&path) {
            continue;
        }
        let shown = path.display();
        let Ok(text) = std::fs::read(&path) else {
            return Some(format!("{shown} cannot be read"));
        };
        let text = String::from_utf8_lossy(&text);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.split(|c| !is_word(c)).any(|word| names.contains(word)) {
            return Some(format!(
                "{shown} names the structure, and is no part of the program"
            ));
        }
    }
    None
}

/// Names of the structure and of structures that contain it.
fn names(structure: &Structure, info: &DebugInfo) -> BTreeSet<String> {
    let mut names = BTreeSet::from([structure.name.clone()]);
    names.extend(structure.aliases.iter().cloned());
    let mut open: Vec<String> = structure.containers.iter().cloned().collect();
    while let Some(name) = open.pop() {
        for outer in info.structures.iter().filter(|s| s.name == name) {
            names.extend(outer.aliases.iter().cloned());
            let new = outer.containers.iter().filter(|c| !names.contains(*c));
            open.extend(new.cloned());
        }
        names.insert(name);
    }
    names
}

struct Scan<'a> {
    file: &'a SourceFile,
    names: &'a BTreeSet<String>,
    members: &'a BTreeSet<&'a str>,
    has_containers: bool,
}

impl Scan<'_> {
    fn run(&self) -> Option<String> {
        let file = self.file;
        let is_mentioned = (0..file.tokens.len()).any(|at| self.names.contains(file.word(at)));
        for at in 0..file.tokens.len() {
            let why = match file.word(at) {
                name if self.names.contains(name) => self.name(at),
                _ if !is_mentioned => self.address_of_member(at),
                _ => (self.call(at))
                    .or_else(|| self.cast(at))
                    .or_else(|| self.address_of_member(at)),
            };
            if let Some(why) = why {
                return Some(format!("{} {why}", file.place(at)));
            }
        }
        None
    }

    /// Refuses values by position after a name of the structure.
    fn name(&self, at: usize) -> Option<String> {
        let file = self.file;
        let by_position = Some("has values of its members by position".to_owned());
        let before = if at > 0 { file.word(at - 1) } else { "" };
        let is_declaration = file.word(at + 1) == "{" && matches!(before, "struct" | "class");
        if is_declaration {
            return None;
        }
        if file.word(at + 1) == ":" && matches!(before, "struct" | "class")
            || matches!(before, ":" | "public" | "private" | "protected")
        {
            return Some("has a base class, or is one".into());
        }
        if matches!(file.word(at + 1), "{" | "(") && before != "sizeof" {
            let is_empty = matches!(file.word(at + 2), "}" | ")" | "*");
            return if is_empty { None } else { by_position };
        }
        // `make_unique<node>(1, 2)`.
        let is_made = file.word(at + 1) == ">" && file.word(at + 2) == "(";
        if is_made && file.word(at + 3) != ")" {
            return by_position;
        }
        // Up to the end of the declaration or expression.
        let mut next = at + 1;
        while next < file.tokens.len() {
            match file.word(next) {
                ";" | "" => return None,
                ")" if file.word(next + 1) == "{" && before_paren(file, at) => {
                    return if self.is_by_name(next + 1) {
                        None
                    } else {
                        by_position
                    };
                }
                ")" | "}" => return None,
                "=" if self.is_macro(next + 1) => {
                    return Some("has a value that a macro may make".into());
                }
                "{" => {
                    let is_value = file.word(next - 1) == "=" || file.is_cpp();
                    // The body of a function whose result is the structure.
                    let is_body = file.word(next - 1) == ")";
                    return if !is_value || is_body || self.is_by_name(next) {
                        None
                    } else {
                        by_position
                    };
                }
                "(" | "[" => next = file.closing(next)?,
                _ => {}
            }
            next += 1;
        }
        None
    }

    /// True if a value is a name that the file does not declare, or a call of a name in capitals.
    fn is_macro(&self, at: usize) -> bool {
        let file = self.file;
        let word = file.word(at);
        let is_capital = !word.contains(|c: char| c.is_ascii_lowercase());
        match file.word(at + 1) {
            _ if !file.is_word(at) => false,
            ";" | "," => !matches!(word, "NULL" | "nullptr") && declarations(file, word).is_empty(),
            "(" => is_capital,
            _ => false,
        }
    }

    /// True if a list in braces names all its members, or has none.
    fn is_by_name(&self, open: usize) -> bool {
        let file = self.file;
        let Some(close) = file.closing(open) else {
            return false;
        };
        if open + 1 == close || open + 2 == close && file.word(open + 1) == "0" {
            return true;
        }
        let mut at = open + 1;
        while at < close {
            match file.word(at) {
                // In C++ the order of the names must be that of the members.
                "." if file.is_cpp() => return false,
                "." => {}
                "{" => {
                    let Some(end) = file.closing(at).filter(|_| self.is_by_name(at)) else {
                        return false;
                    };
                    at = end + 1;
                    if file.word(at) == "," {
                        at += 1;
                    }
                    continue;
                }
                "[" => {
                    let Some(end) = file.closing(at) else {
                        return false;
                    };
                    at = end + 1;
                    if file.word(at) == "=" {
                        at += 1;
                    }
                    continue;
                }
                _ => return false,
            }
            // Up to the next member.
            while at < close && file.word(at) != "," {
                match file.word(at) {
                    "{" if self.has_containers && !self.is_by_name(at) => return false,
                    "(" | "[" | "{" => match file.closing(at) {
                        Some(end) => at = end,
                        None => return false,
                    },
                    _ => {}
                }
                at += 1;
            }
            at += 1;
        }
        true
    }

    /// Refuses calls that use the bytes of the structure.
    fn call(&self, at: usize) -> Option<String> {
        let file = self.file;
        let word = file.word(at);
        if matches!(word, "reinterpret_cast" | "asm" | "__asm__" | "bit_cast") {
            return Some(format!(
                "has {word}, which may see the structure as other data"
            ));
        }
        if matches!(word, "static_assert" | "_Static_assert") {
            let close = file.closing(at + 1)?;
            return (at..close)
                .any(|n| self.names.contains(file.word(n)))
                .then(|| "asserts a fact of the structure".into());
        }
        if file.is_cpp() && self.is_value_by_position(at) {
            return Some("may have values of members by position".into());
        }
        if file.word(at + 1) != "(" {
            return None;
        }
        if BYTES_OUT.contains(&word) || word.starts_with("MPI_") {
            return Some(format!(
                "calls {word}, which may take the bytes of the structure"
            ));
        }
        let is_allocator = word.to_ascii_lowercase().contains("alloc");
        if is_allocator || BYTES_STAY.contains(&word) {
            return None;
        }
        let close = file.closing(at + 1)?;
        let is_of_bytes = (at + 2..close).any(|n| {
            let inner = if file.word(n + 1) == "(" {
                n + 2
            } else {
                n + 1
            };
            file.word(n) == "sizeof"
                && (file.word(inner) == "*"
                    || self.names.contains(file.word(inner))
                    || self.names.contains(file.word(inner + 1)))
        });
        if is_of_bytes {
            return Some(format!("calls {word} for the bytes of the structure"));
        }
        None
    }

    /// True for C++ values without a named type: `return {1, 2}`, `emplace_back(1, 2)`, and `auto
    /// [a, b]`, which takes members by position.
    fn is_value_by_position(&self, at: usize) -> bool {
        let file = self.file;
        let next = file.word(at + 1);
        match file.word(at) {
            "return" => next == "{" && file.word(at + 2) != "}",
            "auto" => {
                let open = if matches!(next, "&" | "&&") {
                    at + 2
                } else {
                    at + 1
                };
                file.word(open) == "["
            }
            word if word.starts_with("emplace") || word == "try_emplace" => {
                let close = file.closing(at + 1).filter(|_| next == "(");
                close.is_some_and(|close| (at..close).any(|n| file.word(n) == ","))
            }
            "push_back" | "push_front" | "insert" | "push" => {
                next == "(" && file.word(at + 2) == "{" && file.word(at + 3) != "}"
            }
            _ => false,
        }
    }

    /// Refuses casts of pointers, other than to `void *` and of new memory.
    fn cast(&self, at: usize) -> Option<String> {
        let file = self.file;
        if file.word(at) != "(" || at == 0 {
            return None;
        }
        let close = file.closing(at)?;
        let inner: Vec<&str> = (at + 1..close).map(|n| file.word(n)).collect();
        let is_pointer = inner.len() >= 2
            && inner.last() == Some(&"*")
            && (at + 1..close).all(|n| file.is_word(n) || matches!(file.word(n), "*" | "::"));
        let is_void = inner.first() == Some(&"void") || inner.get(1) == Some(&"void");
        let behind = file.word(close + 1);
        let is_operand = file.is_word(close + 1) || matches!(behind, "(" | "&" | "*");
        let before = file.word(at - 1);
        let is_call = file.is_word(at - 1) && !matches!(before, "return" | "case" | "else");
        if !is_pointer || is_void || !is_operand || is_call || before == ")" {
            return None;
        }
        let name = behind.rsplit("::").next().unwrap_or(behind);
        (!ALLOCATORS.contains(&name))
            .then(|| "casts a pointer, so that the structure may be seen as other data".to_owned())
    }

    /// Refuses addresses of members, since code may continue to the next member.
    fn address_of_member(&self, at: usize) -> Option<String> {
        let file = self.file;
        if file.word(at) != "&" || at == 0 {
            return None;
        }
        // A binary operator follows an operand.
        let before = file.tokens[at - 1];
        let is_binary = matches!(file.word(at - 1), ")" | "]")
            || before.kind == crate::fix::source::token::Kind::Number
            || file.is_word(at - 1) && !matches!(file.word(at - 1), "return" | "case");
        if is_binary {
            return None;
        }
        let mut next = at + 1;
        let mut member = None;
        loop {
            match file.word(next) {
                "(" | "[" => next = file.closing(next)?,
                "." | "->" => member = Some(file.word(next + 1)),
                _ if file.is_word(next) => {}
                _ => break,
            }
            next += 1;
        }
        // The address of an element of an array is inside the member.
        let member = member.filter(|m| self.members.contains(m) && file.word(next - 1) == *m)?;
        Some(format!(
            "takes the address of {member}, and code may go on from there to the next member"
        ))
    }
}

/// True if the parenthesis before a type opens a compound literal or a cast.
fn before_paren(file: &SourceFile, at: usize) -> bool {
    let open = match file.word(at.saturating_sub(1)) {
        "struct" => at.saturating_sub(2),
        _ => at.saturating_sub(1),
    };
    file.word(open) == "(" && (open == 0 || !file.is_word(open - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Option<String> {
        let file = SourceFile::new(Path::new(name), text.into()).unwrap();
        let names = BTreeSet::from(["node".to_owned(), "node_t".to_owned()]);
        let members = BTreeSet::from(["key", "next"]);
        let scan = Scan {
            file: &file,
            names: &names,
            members: &members,
            has_containers: false,
        };
        scan.run()
    }

    #[test]
    fn uses_by_name_are_no_obstacle() {
        for text in [
            "struct node { int key; }; typedef struct node node_t;",
            "node_t *make(int n) { node_t *a = malloc(n * sizeof(node_t)); return a; }",
            "struct node *p = (struct node *)malloc(8); p->key = 3; f(p, &p);",
            "struct node a = {0}, b = {}; struct node c = { .key = 1, .next = &a };",
            "struct node d[] = { { .key = 1 }, [3] = { .next = 0 } };",
            "int f(struct node *n) { return n->key & n->next; }",
            "struct node f(void) { struct node n; return n; } void *q = (void *)p;",
            "g((struct node){ .key = 1 }); memcpy(a, b, 8); h(sizeof(int));",
            "p = &all[3]; x = &all[i].key[2];",
            "struct node b; int f(void) { struct node a = b; struct node c = make(1); }",
            "struct node *a = xmalloc(n * sizeof *a), *c = NULL; qsort(a, n, sizeof *a, by_key);",
        ] {
            assert_eq!(found("a.c", text), None, "{text}");
        }
        for text in [
            "struct node { int key = 0; }; node n; node m{}; auto p = new node(); f(node());",
            "node f(int x) { node *n = new node; return *n; }",
            "std::vector<node> v(9); v.push_back({}); v.emplace_back(); for (auto &n : v) n.key = 1;",
        ] {
            assert_eq!(found("a.cpp", text), None, "{text}");
        }
    }

    #[test]
    fn uses_of_the_layout_are_obstacles() {
        for (text, why) in [
            ("struct node a = { 1, 0 };", "by position"),
            ("node_t a[] = {\n{ 1, 0 } };", "by position"),
            ("struct node d[] = { [1] = { 1 } };", "by position"),
            ("f((struct node){ 1 });", "by position"),
            ("struct node *a; fwrite(a, 8, 1, f);", "fwrite"),
            ("struct node *a; memcmp(a, b, 8);", "memcmp"),
            ("struct node *a; memcpy(b, a, sizeof *a);", "memcpy"),
            (
                "struct node *a; memcpy(b, a, sizeof(struct node));",
                "memcpy",
            ),
            ("struct node *a; b = (char *)a;", "casts"),
            ("struct node *a = (struct node *)b;", "casts"),
            ("struct node a; f(&a.key);", "address of key"),
            ("f(&p->next);", "address of next"),
            ("_Static_assert(sizeof(struct node) == 8, \"\");", "asserts"),
            ("#define N ((struct node){ 1, 2 })", "by position"),
            ("struct node a = INIT;", "a macro may make"),
            ("struct node a = INIT(3);", "a macro may make"),
            ("struct node *a; h = hash(a, sizeof *a);", "calls hash"),
        ] {
            let said = found("a.c", text).unwrap_or_default();
            assert!(said.contains(why), "{text}: {said}");
        }
        for (text, why) in [
            ("node a{ 1, 2 };", "by position"),
            ("auto a = node{ 1, 2 };", "by position"),
            ("auto a = node(1, 2);", "by position"),
            ("node a = { .key = 1 };", "by position"),
            ("struct more : node { };", "base class"),
            ("node f() { return { 1, 2 }; }", "by position"),
            ("std::vector<node> v; v.emplace_back(1, 2);", "by position"),
            ("std::vector<node> v; v.push_back({1, 2});", "by position"),
            ("node n; auto &[a, b] = n;", "by position"),
            ("auto p = std::make_unique<node>(1, 2);", "by position"),
            (
                "node *a; auto b = reinterpret_cast<char *>(a);",
                "reinterpret_cast",
            ),
        ] {
            let said = found("a.cpp", text).unwrap_or_default();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn other_sources_of_the_tree_that_name_a_header_s_structure_are_obstacles() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lib/other.c");
        std::fs::create_dir(dir.path().join("lib")).unwrap();
        let names = BTreeSet::from(["node".to_owned()]);
        let found = |text: &str, own: &[&std::path::PathBuf]| {
            std::fs::write(&file, text).unwrap();
            let structure = Structure {
                files: own.iter().map(|f| (*f).clone()).collect(),
                ..Structure::default()
            };
            use_elsewhere(&structure, &names, dir.path())
        };
        assert!(
            found("struct node n;", &[])
                .unwrap()
                .contains("no part of the program")
        );
        assert_eq!(found("struct nodes n;", &[]), None);
        assert_eq!(found("struct node n;", &[&file]), None);
    }
}
