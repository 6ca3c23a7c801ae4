use super::*;
use crate::agent::test_server::answer_each;

/// Longest time for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
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

/// Deliveries with short waits, and the messages that they give.
fn start(collectors: &[Collector]) -> (Deliveries, Arc<Mutex<Metrics>>, Arc<Mutex<Vec<String>>>) {
    let (metrics, messages) = (Arc::default(), Arc::default());
    let said: Arc<Mutex<Vec<String>>> = Arc::clone(&messages);
    let surroundings = Surroundings {
        file,
        metrics: Arc::clone(&metrics),
        say: Arc::new(move |message: &str| locked(&said).push(message.to_owned())),
        first_wait: Duration::from_millis(1),
    };
    (
        Deliveries::start(collectors, &surroundings),
        metrics,
        messages,
    )
}

/// Waits until the numbers are these.
fn until(metrics: &Mutex<Metrics>, is: impl Fn(&Metrics) -> bool) -> Metrics {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = locked(metrics).clone();
        if is(&now) {
            return now;
        }
        assert!(Instant::now() < end, "{now:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
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
    let (deliveries, metrics, messages) = start(&[collector]);
    assert!(deliveries.speak(Protocol::Otlp) && !deliveries.speak(Protocol::Pyroscope));
    for name in ["one", "two"] {
        deliveries.add(&recording(folder.path(), name));
    }
    let requests = server.join().unwrap();
    let bodies: Vec<&[u8]> = requests.iter().map(|r| &r.1[..]).collect();
    let (one, two) = (&b"otlp of one"[..], &b"otlp of two"[..]);
    assert_eq!(bodies, [one, one, one, two]);
    let metrics = until(&metrics, |metrics| metrics.pushes_waiting == 0);
    assert_eq!(
        (
            metrics.push_retries,
            metrics.pushes_accepted,
            metrics.pushes_refused
        ),
        (2, 1, 1)
    );
    assert_eq!(metrics.pushes_given_up, 0);
    let messages = locked(&messages);
    let has = |text: &str| messages.iter().any(|m| m.contains(text));
    assert!(has("tried again later") && has("not pushed: it answers"));
    assert_eq!(deliveries.end(PATIENCE), 0);
}

/// A server that accepts connections and never answers holds up nobody.
#[test]
fn a_server_that_hangs_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = answer_each(&["200 OK\r\n\r\n"; 2]);
    let collectors: Vec<Collector> = vec![
        format!("http://{}{OTLP}", hanging.local_addr().unwrap())
            .parse()
            .unwrap(),
        format!("http://{address}/ingest").parse().unwrap(),
    ];
    let (deliveries, metrics, messages) = start(&collectors);
    for name in ["one", "two"] {
        deliveries.add(&recording(folder.path(), name));
    }
    // The other server has both before the first request to this one fails.
    assert_eq!(server.join().unwrap().len(), 2);
    until(&metrics, |metrics| metrics.pushes_accepted == 2);
    assert_eq!(locked(&metrics).push_retries, 0);
    assert_eq!(*locked(&messages), [] as [String; 0]);
    assert_eq!(deliveries.end(Duration::from_millis(10)), 2);
    drop(hanging);
}

#[test]
fn removed_recordings_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (address, server) = answer_each(&["200 OK\r\n\r\n"]);
    let collector: Collector = format!("http://{address}/ingest").parse().unwrap();
    let (deliveries, metrics, _) = start(&[collector]);
    let removed = recording(folder.path(), "one");
    std::fs::remove_dir_all(&removed.recording).unwrap();
    deliveries.add(&removed);
    deliveries.add(&recording(folder.path(), "two"));
    assert_eq!(deliveries.end(PATIENCE), 0);
    server.join().unwrap();
    let metrics = locked(&metrics);
    assert_eq!((metrics.pushes_given_up, metrics.pushes_waiting), (1, 0));
    assert_eq!(metrics.pushes_accepted, 1);
}

#[test]
fn a_queue_is_bounded() {
    let queue = Queue::new();
    let profile = |n: u64| Waiting {
        recording: PathBuf::from("/nowhere"),
        name: "app".into(),
        times: [n, n],
    };
    let given_up = (0..MAX_WAITING as u64 + 3).map(|n| queue.add(profile(n)));
    assert_eq!(given_up.sum::<u64>(), 3);
    assert_eq!(queue.take().unwrap().times, [3, 3], "the oldest went");
    assert_eq!(queue.end(Instant::now()), MAX_WAITING as u64);
}
