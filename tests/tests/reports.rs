//! Reports of several runs, and `mgz serve`: its requests, and the clients that it answers.

use mgz_tests::tools::{self, LIMIT, code};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// `first` walks one table, whose address is printed, `second` another one.
const PROGRAM: &str = r#"
#include <stdio.h>
long one[4096], two[4096];
__attribute__((noinline)) static long first(void) {
    long sum = 0;
    for (int r = 0; r < ROUNDS; r++) for (int i = 0; i < 4096; i++) sum += one[i];
    return sum;
}
__attribute__((noinline)) static long second(void) {
    long sum = 0;
    for (int r = 0; r < 4; r++) for (int i = 0; i < 4096; i++) sum += two[i];
    return sum;
}
int main(void) { printf("%p %ld\n", (void *)one, first() + second()); return 0; }
"#;

struct TestFolder {
    dir: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> TestFolder {
        TestFolder {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mgz(&self, arguments: &[&str]) -> Command {
        let mut command = tools::tool("mgz");
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("MGZ_NO_MEASURE", "1")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        tools::run_limited(&mut self.mgz(arguments), LIMIT).unwrap()
    }

    /// Records every load of a build with `rounds` rounds into the folder `NAME`. Returns the
    /// address of the first table.
    fn recorded(&self, name: &str, rounds: u32) -> u64 {
        let source = self.path("app.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let program = self.path(&format!("{name}.app"));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", &format!("-DROUNDS={rounds}"), "-o"])
            .arg(&program)
            .arg(&source);
        tools::succeed(&mut cc, LIMIT).unwrap();
        let app = format!("./{name}.app");
        let done = self.run(&["run", "--full", "-o", name, "--", &app]);
        assert_eq!(code(&done), 0, "{}", said(&done));
        let text = String::from_utf8_lossy(&done.stdout);
        let address = text.split(' ').next().and_then(|a| a.strip_prefix("0x"));
        u64::from_str_radix(address.unwrap(), 16).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parts(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let ids = text.split("id=\"mgz-").skip(1);
    ids.map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

/// Sends a request to the server; returns the status and the whole response.
fn ask(port: u16, host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text)
}

/// Stops the server if a test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn comparisons_and_ranks_become_reports_and_a_server_answers_its_user_alone() {
    let place = TestFolder::new();
    place.recorded("base", 4);
    place.recorded("new", 8);
    // Only complete traces have the section about addresses that are used together.
    let found = parts(&place.path("base/report.html"));
    for part in ["run", "affinity", "disassembly"] {
        assert!(found.iter().any(|p| p == part), "{part} of {found:?}");
    }

    // The text and the exit status are the same as without a report.
    let plain = place.run(&[
        "compare",
        "--fail-if",
        "loads.first>5%",
        "base",
        "--",
        "new",
    ]);
    let with = place.run(&[
        "compare",
        "--html",
        "diff.html",
        "--fail-if",
        "loads.first>5%",
        "base",
        "--",
        "new",
    ]);
    assert_eq!((code(&plain), code(&with)), (3, 3), "{}", said(&with));
    assert_eq!(plain.stdout, with.stdout);
    assert_eq!(parts(&place.path("diff.html")), ["compare"]);
    let ranks = place.run(&["ranks", "base/trace", "new/trace", "--html=ranks.html"]);
    assert_eq!(code(&ranks), 0, "{}", said(&ranks));
    assert_eq!(parts(&place.path("ranks.html")), ["ranks"]);
    for (arguments, why) in [
        (&["compare", "base", "--html"][..], "no file is given"),
        (&["ranks", "nowhere", "--html", "x.html"], "nowhere"),
    ] {
        let refused = place.run(arguments);
        assert_ne!(code(&refused), 0);
        assert!(said(&refused).contains(why), "{}", said(&refused));
        assert!(!place.path("x.html").exists());
    }
    let mut alone = tools::tool("mgz-analyze");
    alone.current_dir(place.dir.path());
    alone.args(["compare", "--html", "x.html", "base", "--", "new"]);
    let alone = tools::run_limited(&mut alone, LIMIT).unwrap();
    assert_eq!(code(&alone), 1);
    assert!(said(&alone).contains("call mgz compare --html x.html"));

    // The server.
    let mut command = place.mgz(&["serve", "base", "--no-open"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Server(tools::interruptible(&mut command).spawn().unwrap());
    let mut address = String::new();
    let out = server.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut address).unwrap();
    let rest = address.trim().strip_prefix("http://127.0.0.1:").unwrap();
    let (port, path) = rest.split_once('/').unwrap();
    let (port, path): (u16, _) = (port.parse().unwrap(), format!("/{path}"));
    let own = format!("127.0.0.1:{port}");
    let (status, page) = ask(port, &own, &path);
    assert_eq!(status, 200);
    assert!(page.contains("connect-src 'self'") && page.contains("id=\"mgz-serve\">"));
    assert!(page.contains("no-store") && page.contains("no-referrer"));
    for (host, asked, expected) in [
        (own.as_str(), "/".to_owned(), 403),
        (&own, format!("{}x/", path.trim_end_matches('/')), 403),
        ("evil.example", path.clone(), 403),
        (&own, format!("{path}etc/passwd"), 404),
        (&own, format!("{path}data?output=x"), 422),
        (&own, format!("{path}data?thread=nobody"), 422),
    ] {
        let (status, text) = ask(port, host, &asked);
        assert_eq!(status, expected, "{host} {asked}: {text}");
        assert!(text.contains("\"error\":\""), "{text}");
    }
    // A part of the run, equal to that of mgz-analyze with the same filters.
    let (status, text) = ask(port, &own, &format!("{path}data?function=second&tab=t"));
    assert_eq!(status, 200, "{text}");
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let found: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(found["functions"]["columns"]["function"][0], "second");
    assert_eq!(found["functions"]["rows"], 1);
    let range = "%2d0x0&addresses=";
    let (status, text) = ask(port, &own, &format!("{path}data?addresses={range}"));
    assert_eq!(status, 422, "{text}");
    // A key press stops it.
    let id = server.0.id().to_string();
    tools::succeed(Command::new("kill").args(["-INT", &id]), LIMIT).unwrap();
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            break status;
        }
        assert!(waited < LIMIT, "the server does not end");
        std::thread::sleep(Duration::from_millis(50));
        waited += Duration::from_millis(50);
    };
    assert_eq!(status.code(), Some(0));
    let mut text = String::new();
    server
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.contains("the server has ended"), "{text}");
}

#[test]
fn loads_of_a_range_of_addresses_are_those_of_the_object_there() {
    let place = TestFolder::new();
    let first = place.recorded("base", 4);
    let analysed = |more: &[&str]| -> serde_json::Value {
        let mut command = tools::tool("mgz-analyze");
        command.current_dir(place.dir.path());
        command.args(["base/trace", "--objects", "--format", "json"]);
        command.args(more);
        let done = tools::run_limited(&mut command, LIMIT).unwrap();
        assert_eq!(code(&done), 0, "{}", said(&done));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let by_object = analysed(&["--object", "^one$"]);
    let range = format!("{first:#x}-{:#x}", first + 4096 * 8 - 1);
    let by_range = analysed(&["--addresses", &range]);
    for key in ["A", "F", "F_64"] {
        assert_eq!(by_range["summary"][key], by_object["summary"][key], "{key}");
    }
    assert_eq!(by_object["summary"]["A"], 4 * 4096);
    assert_eq!(by_range["filter"]["conditions"][0]["value"], range.as_str());
}
