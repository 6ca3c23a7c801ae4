use super::*;
use crate::agent::test_server::answer_each;

const OTLP: &str = "/v1development/profiles";

fn file(recording: &Path, protocol: Protocol) -> PathBuf {
    recording.join(match protocol {
        Protocol::Otlp => "otlp",
        Protocol::Pyroscope => "pprof",
    })
}

/// A recording with both profiles.
fn recording(folder: &Path, name: &str) -> Waiting {
    let recording = folder.join(name);
    std::fs::create_dir(&recording).unwrap();
    std::fs::write(recording.join("otlp"), format!("otlp of {name}")).unwrap();
    std::fs::write(recording.join("pprof"), format!("pprof of {name}")).unwrap();
    Waiting {
        recording,
        name: name.into(),
        times: [1, 2],
    }
}

#[test]
fn waits_double_up_to_a_bound() {
    let first = Duration::from_secs(5);
    let exact = |failures| wait_after(failures, first, 0.5);
    assert_eq!(exact(1), first);
    assert_eq!(exact(3), 4 * first);
    assert_eq!(exact(100), LONGEST_WAIT);
    assert_eq!(wait_after(1, first, 0.0), first.mul_f64(0.75));
    assert!((0.0..=1.0).contains(&spread()));
}

#[test]
fn a_profile_is_sent_again_until_the_server_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let answers = [
        "503 Unavailable\r\n\r\n",
        "",
        "200 OK\r\n\r\n",
        "400 Bad\r\n\r\n",
    ];
    let (address, server) = answer_each(&answers);
    let collector: Collector = format!("http://{address}{OTLP}").parse().unwrap();
    let mut deliveries = Deliveries::new(&[collector]);
    deliveries.first_wait = Duration::from_millis(1);
    assert!(deliveries.speak(Protocol::Otlp) && !deliveries.speak(Protocol::Pyroscope));
    let metrics = Mutex::new(Metrics::default());
    for name in ["one", "two"] {
        let profile = recording(folder.path(), name);
        deliveries.add(&profile, &mut metrics.lock().unwrap());
    }
    assert_eq!(metrics.lock().unwrap().pushes_waiting, 2);
    let mut messages = Vec::new();
    while deliveries.waiting() > 0 {
        messages.extend(deliveries.send_due(file, &metrics));
    }
    let requests = server.join().unwrap();
    let bodies: Vec<&[u8]> = requests.iter().map(|r| &r.1[..]).collect();
    let (one, two) = (&b"otlp of one"[..], &b"otlp of two"[..]);
    assert_eq!(bodies, [one, one, one, two]);
    let metrics = metrics.into_inner().unwrap();
    assert_eq!(
        (
            metrics.push_retries,
            metrics.pushes_accepted,
            metrics.pushes_refused
        ),
        (2, 1, 1)
    );
    assert_eq!((metrics.pushes_given_up, metrics.pushes_waiting), (0, 0));
    assert!(messages.iter().any(|m| m.contains("tried again later")));
    assert!(
        messages
            .iter()
            .any(|m| m.contains("not pushed: it answers"))
    );
}

/// A server that is away does not hold up another one, and is left alone for a while.
#[test]
fn servers_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (address, server) = answer_each(&["200 OK\r\n\r\n"; 2]);
    let collectors: Vec<Collector> = vec![
        format!("http://127.0.0.1:1{OTLP}").parse().unwrap(),
        format!("http://{address}/ingest").parse().unwrap(),
    ];
    let mut deliveries = Deliveries::new(&collectors);
    let metrics = Mutex::new(Metrics::default());
    for name in ["one", "two"] {
        let profile = recording(folder.path(), name);
        deliveries.add(&profile, &mut metrics.lock().unwrap());
        deliveries.send_due(file, &metrics);
    }
    assert_eq!(server.join().unwrap().len(), 2);
    let now = metrics.lock().unwrap().clone();
    assert_eq!((now.pushes_accepted, now.push_retries), (2, 1));
    assert_eq!(now.pushes_waiting, 2);
    // Removed recordings are given up.
    std::fs::remove_dir_all(folder.path().join("one")).unwrap();
    deliveries.destinations[0].due = Instant::now();
    deliveries.send_due(file, &metrics);
    let now = metrics.into_inner().unwrap();
    assert_eq!((now.pushes_given_up, now.pushes_waiting), (1, 1));
}

#[test]
fn a_queue_is_bounded() {
    let collector: Collector = "http://127.0.0.1:1/ingest".parse().unwrap();
    let mut deliveries = Deliveries::new(&[collector]);
    let mut metrics = Metrics::default();
    let profile = Waiting {
        recording: PathBuf::from("/nowhere"),
        name: "app".into(),
        times: [0, 0],
    };
    for _ in 0..MAX_WAITING + 3 {
        deliveries.add(&profile, &mut metrics);
    }
    assert_eq!(metrics.pushes_given_up, 3);
    assert_eq!(metrics.pushes_waiting, MAX_WAITING as u64);
}
