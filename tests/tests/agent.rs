//! `mgz agent`: a running service is recorded again and again, within bounds.

use mgz_tests::programs::{self, Variant};
use mgz_tests::rows;
use mgz_tests::session::{self, Instrumented};
use mgz_tests::tools::{self, LIMIT};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PLAIN: Variant = Variant::O2;

/// Runs the service, and `work` beside it.
fn beside_service(dir: &Path, work: impl FnOnce(&Instrumented, i32) + Send) {
    let plain = programs::build("attached", PLAIN, &[], dir)
        .unwrap()
        .unwrap();
    let app = session::instrument(&plain, "soft", &["--for", "burst"]).unwrap();
    let done = tools::run_beside(Command::new(&app.path).arg("110"), None, LIMIT, |pid| {
        tools::until_used(pid, Duration::from_millis(50));
        work(&app, pid);
        signal(pid, libc::SIGUSR2);
    });
    let done = done.unwrap();
    assert_eq!((tools::code(&done), &*done.stdout), (7, &b"fine\n"[..]));
}

fn signal(pid: i32, number: i32) {
    // SAFETY: a plain system call, on a process that this test started.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

/// Runs an agent until `work` has ended it.
fn agent(store: &Path, options: &[&str], work: impl FnOnce(i32) + Send) -> Output {
    let mut command = tools::tool("mgz");
    command.arg("agent").arg("-o").arg(store).args(options);
    let done = tools::run_beside(&mut command, None, LIMIT, work).unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(tools::code(&done), 0, "{said}");
    done
}

/// Finished recordings.
fn recordings(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store).into_iter().flatten().flatten();
    let is_done = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    entries.map(|entry| entry.path()).filter(is_done).collect()
}

/// A value in a file of metrics, which must be whole whenever it exists.
fn metric(file: &Path, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    assert!(text.contains("\nmgz_agent_stored_bytes "), "{text}");
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    Some(line.unwrap().trim().parse().unwrap())
}

#[test]
fn services_are_recorded_until_the_stop_file_exists() {
    let dir = tempfile::tempdir().unwrap();
    let (store, stop) = (dir.path().join("store"), dir.path().join("stop"));
    let metrics = dir.path().join("agent.prom");
    let turns = ["--every", "1500ms", "--for", "500ms", "--overhead", "20"];
    let files = [
        "--stop-file",
        stop.to_str().unwrap(),
        "--metrics",
        metrics.to_str().unwrap(),
    ];
    beside_service(dir.path(), |app, _| {
        let exe = ["--exe", app.path.to_str().unwrap(), "--max-pressure", "100"];
        agent(&store, &[&exe[..], &turns, &files].concat(), |_| {
            tools::until("two recordings", || {
                metric(&metrics, "mgz_agent_recordings_total") >= Some(2.0)
            });
            std::fs::write(&stop, "").unwrap();
        });
    });
    let kept = recordings(&store);
    assert!(kept.len() >= 2, "{kept:?}");
    for recording in kept {
        let profile = std::fs::read(recording.join("profile.pb.gz")).unwrap();
        assert!(profile.starts_with(b"\x1f\x8b") && profile.len() > 200);
        let trace = rows::read_trace(&recording.join("trace")).unwrap();
        assert_eq!(trace.manifest.state.as_str(), "complete");
        assert!(trace.manifest.totals.samples > 0);
    }
    assert_eq!(
        metric(&metrics, "mgz_agent_recording_failures_total"),
        Some(0.0)
    );
    assert_eq!(
        metric(&metrics, "mgz_agent_profile_failures_total"),
        Some(0.0)
    );
    assert!(metric(&metrics, "mgz_agent_stored_bytes") > Some(1000.0));
}

/// Requests to a server: first line and body.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Starts a server that is busy at first, and then accepts everything.
fn server() -> (SocketAddr, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Requests::default());
    let seen = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() > 0 {
                if let Some(n) = head
                    .lines()
                    .last()
                    .and_then(|l| l.strip_prefix("Content-Length: "))
                {
                    length = n.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let mut seen = seen.lock().unwrap();
            let status = match seen.is_empty() {
                true => "503 Service Unavailable\r\nRetry-After: 1",
                false => "200 OK",
            };
            seen.push((head.lines().next().unwrap_or_default().to_string(), body));
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, requests)
}

#[test]
fn profiles_are_pushed_until_servers_take_them() {
    let dir = tempfile::tempdir().unwrap();
    let (store, metrics) = (dir.path().join("store"), dir.path().join("agent.prom"));
    let (address, requests) = server();
    let otlp = format!("http://{address}/v1development/profiles");
    let pyroscope = format!("http://{address}/ingest");
    beside_service(dir.path(), |_, pid| {
        let pid = pid.to_string();
        let options = ["--pid", &pid, "--every", "100s", "--for", "500ms"];
        let pushes = ["--push", &otlp, "--push", &pyroscope, "--overhead", "20"];
        let more = [
            "--max-pressure",
            "100",
            "--metrics",
            metrics.to_str().unwrap(),
        ];
        agent(&store, &[&options[..], &pushes, &more].concat(), |agent| {
            tools::until("three requests", || requests.lock().unwrap().len() >= 3);
            signal(agent, libc::SIGTERM);
        });
    });
    let requests = requests.lock().unwrap();
    let count = |begin: &str| requests.iter().filter(|r| r.0.starts_with(begin)).count();
    // The first one, which was refused, came again.
    assert_eq!(count("POST /v1development/profiles HTTP/1.1"), 2);
    assert_eq!(count("POST /ingest?name="), 1);
    let kept = recordings(&store);
    let profile = std::fs::read(kept[0].join("profile.otlp")).unwrap();
    assert_eq!(requests[0].1, profile);
    assert!(requests.iter().all(|r| !r.1.is_empty()));
    let metric = |name: &str| metric(&metrics, &format!("mgz_agent_{name}"));
    assert_eq!(metric("pushes_total{result=\"accepted\"}"), Some(2.0));
    assert_eq!(metric("push_retries_total"), Some(1.0));
    assert_eq!(metric("waiting_pushes"), Some(0.0));
}

/// A server that accepts connections and never answers delays no turn.
#[test]
fn a_server_that_hangs_delays_no_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (store, metrics) = (dir.path().join("store"), dir.path().join("agent.prom"));
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let push = format!("http://{}/ingest", hanging.local_addr().unwrap());
    beside_service(dir.path(), |_, pid| {
        let pid = pid.to_string();
        let options = ["--pid", &pid, "--every", "1s", "--for", "300ms"];
        let more = ["--push", &push, "--overhead", "20", "--max-pressure", "100"];
        let files = ["--metrics", metrics.to_str().unwrap()];
        let done = agent(&store, &[&options[..], &more, &files].concat(), |agent| {
            tools::until("two recordings", || {
                metric(&metrics, "mgz_agent_recordings_total") >= Some(2.0)
            });
            // The first push waits for its answer.
            assert_eq!(metric(&metrics, "mgz_agent_push_retries_total"), Some(0.0));
            signal(agent, libc::SIGTERM);
        });
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("profiles have not been pushed"), "{said}");
    });
}

/// The recording that runs when a signal comes is finished, with its profile.
#[test]
fn a_signal_ends_the_agent_and_leaves_a_complete_recording() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    beside_service(dir.path(), |_, pid| {
        let pid = pid.to_string();
        let options = ["--pid", &pid, "--every", "100s", "--for", "90s"];
        let options = [&options[..], &["--max-pressure", "100"]].concat();
        agent(&store, &options, |agent| {
            tools::until_recorded(&store.join(".new-recording/trace"), 1 << 10);
            signal(agent, libc::SIGTERM);
        });
    });
    let kept = recordings(&store);
    assert_eq!(kept.len(), 1);
    let trace = rows::read_trace(&kept[0].join("trace")).unwrap();
    assert!(trace.manifest.totals.samples > 0, "{:?}", trace.manifest);
    assert!(kept[0].join("profile.pb.gz").exists());
    assert!(!store.join(".new-recording").exists());
}

#[test]
fn turns_are_left_out_for_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (store, metrics) = (dir.path().join("store"), dir.path().join("agent.prom"));
    let turns = ["--every", "300ms", "--for", "100ms", "--metrics"];
    let turns = [&turns[..], &[metrics.to_str().unwrap()]].concat();
    let skipped = |why: &str, options: &[&str]| {
        let _ = std::fs::remove_file(&metrics);
        let done = agent(&store, &[options, &turns].concat(), |agent| {
            let name = format!("mgz_agent_skipped_turns_total{{reason=\"{why}\"}}");
            tools::until(why, || metric(&metrics, &name) >= Some(3.0));
            signal(agent, libc::SIGTERM);
        });
        assert_eq!(recordings(&store), [] as [PathBuf; 0]);
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    skipped("pressure", &["--name", "sh", "--max-pressure", "0"]);
    let done = tools::run_beside(Command::new("/bin/sleep").arg("100"), None, LIMIT, |pid| {
        let pid = pid.to_string();
        let options = ["--pid", &pid, "--max-pressure", "100"];
        let said = skipped("nothing_to_record", &options);
        let times = said.matches("sleep: is not recorded: neither").count();
        assert_eq!(times, 1, "{said}");
        signal(pid.parse().unwrap(), libc::SIGTERM);
    });
    assert_eq!(tools::code(&done.unwrap()), 128 + libc::SIGTERM);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |options: &[&str], why: &str| {
        let mut command = tools::tool("mgz");
        command.arg("agent").arg("-o").arg(dir.path().join("store"));
        let done = tools::run_limited(command.args(options), LIMIT).unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{said}");
    };
    refused(&[], "--name <REGEX>|--exe <PATH>|--pid <PID>");
    refused(&["--name", "("], "regex");
    refused(&["--name", ""], "matches every process");
    refused(&["--pid", "1", "--every", "5"], "give a unit");
    refused(&["--pid", "1", "--every", "5s"], "--for must be shorter");
    refused(&["--pid", "1", "--push", "https://a/"], "run a collector");
}
