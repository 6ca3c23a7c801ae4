//! Tests with sources that allow a new layout, and with others.

use super::*;

fn found(text: &str) -> Result<Vec<PathBuf>, String> {
    let file = SourceFile::new(Path::new("/s/a.c"), text.into()).unwrap();
    let names = BTreeSet::from(["body".to_owned(), "body_t".to_owned()]);
    let known = BTreeSet::from(["field".to_owned()]);
    let check = Check {
        file: &file,
        names: &names,
        known: &known,
    };
    check.run().and_then(|()| check.includes(&[]))
}

#[test]
fn plain_sources_are_understood() {
    for text in [
        "#include <stdio.h>\nenum { N = 1 << 19 };\nstruct body { long mass; char name[176]; long charge; };\nstatic struct body all[N];\nint main(int argc, char **argv) { all[0].mass = atoi(argv[1]); return 0; }",
        "struct body *p; int f(int n) { p = malloc(n * sizeof *p); p = (struct body *)calloc(n, sizeof(struct body)); return (int)p[0].mass; }",
        "static const int table[] = { 1, 2 }; struct field f = { 3, 4 }; double x[2] = { 1, 2 };",
        "#define N 100\n#define AT(i) all[i].name\n#if N > 3 && !defined(M)\nint a;\n#endif",
        "size_t n = sizeof(int); typedef struct body body_t; for (int i = 0; i < 9; i++) { a = (b + 1) & 3; }",
    ] {
        assert_eq!(found(text), Ok(Vec::new()), "{text}");
    }
}

#[test]
fn hidden_dependences_are_refused() {
    for (text, why) in [
        ("struct body b; f(&b, sizeof b);", "a size"),
        ("f(all, sizeof all[7]);", "a size"),
        ("n = sizeof(struct body);", "a size"),
        ("printf(\"%zu\", sizeof *all);", "a size"),
        ("malloc(sizeof all);", "a size"),
        ("n = offsetof(struct body, charge);", "offsetof"),
        ("const void *v = &all[9];", "pointer to void"),
        ("long *p = (void const *)all;", "as other data"),
        ("typedef void any; any *p;", "pointer to void"),
        ("bcmp(a, b, 16);", "bcmp"),
        ("memcpy(a, b, 16);", "memcpy"),
        ("__typeof__(all[0]) b = { 3, 5 };", "__typeof__"),
        ("char *p = (char *)all;", "a cast"),
        ("long n = (long)&all[2];", "a cast"),
        ("union u { struct body b; char raw[192]; };", "union"),
        ("#define BODY struct body\nBODY b = { 3, 4 };", "a macro"),
        ("#define body_init(m, r) { (m), (r) }", "a macro"),
        ("#define BEGIN {\n#define END }\n", "a macro"),
        ("#define OPEN (\n", "opens brackets"),
        ("#define NEW(t, v) bo##t v\n", "names or strings"),
        ("#define SHOW(e) puts(\\\n#e)\n", "names or strings"),
        ("#define SHOW(e) puts(#e)\n", "names or strings"),
        ("struct body b = <% 3, 5 %>;", "another way"),
        ("int n = __LINE__;", "__LINE__"),
        ("extern char raw[] __asm__(\"all\");", "__asm__"),
        ("typedef struct body pair_t[2];", "array type"),
        ("pair_t b = { { 3, 5 } };", "not known"),
        ("f((pair_t){ 3, 5 });", "not known"),
        ("b = (struct other[]){ { 3 } };", "not known"),
        (
            "struct body b =\n#include \"first.inc\"\n;",
            "includes text",
        ),
        ("struct body b =\n#include \"first.h\"\n;", "includes text"),
        ("int f(void) {\n#include \"part.h\"\n}", "includes text"),
        ("#include NAME\n", "includes text"),
        ("#include \"none.h\"\n", "not found"),
    ] {
        let said = found(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
    let cpp = SourceFile::new(Path::new("/s/a.cpp"), String::new()).unwrap();
    let none = BTreeSet::new();
    let check = Check {
        file: &cpp,
        names: &none,
        known: &none,
    };
    assert!(check.run().unwrap_err().contains("C++"));
}

#[test]
fn arrays_that_may_be_longer_than_their_type_are_refused() {
    use crate::fix::source::debug_info::Member;
    use crate::fix::source::declaration::layout;
    let of = |last: &str, bytes: u64| {
        let text = format!("struct body {{\n    long mass;\n    {last};\n    long z;\n}};\n");
        let text = match last.ends_with("end[9]") {
            true => text.replace("    long z;\n", ""),
            false => text,
        };
        let name = last.split_whitespace().nth(1).unwrap();
        let name = name.split('[').next().unwrap();
        let mut members = vec![("mass", 8), (name, bytes)];
        if text.contains("long z") {
            members.push(("z", 8));
        }
        let member = |&(name, bytes): &(&str, u64)| Member {
            name: name.into(),
            bytes,
            align: 8,
            ..Member::default()
        };
        let mut structure = Structure {
            name: "body".into(),
            line: 1,
            members: members.iter().map(member).collect(),
            ..Structure::default()
        };
        let order: Vec<usize> = (0..structure.members.len()).collect();
        let (offsets, whole) = layout(&structure, &order).unwrap();
        structure.bytes = whole;
        for (member, offset) in structure.members.iter_mut().zip(offsets) {
            member.offset = offset;
        }
        let file = SourceFile::new(Path::new("/s/a.c"), text).unwrap();
        Declaration::find(&file, &structure).unwrap();
        trailing(&file, &structure).is_some()
    };
    assert!(!of("long x", 8));
    assert!(!of("long mid[9]", 72));
    assert!(of("long end[9]", 72));
    assert!(of("long more[1]", 8));
    assert!(of("long more[0]", 0));
}
