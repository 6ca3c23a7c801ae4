use super::*;
use crate::agent::test_server::answer_each;

#[test]
fn the_path_of_an_address_tells_the_protocol() {
    let parsed = |url: &str| -> Collector { url.parse().unwrap() };
    let pyroscope = parsed("http://localhost:4040");
    assert_eq!(
        (&*pyroscope.host, &*pyroscope.path, pyroscope.protocol),
        ("localhost:4040", "/ingest", Protocol::Pyroscope)
    );
    let behind_a_proxy = parsed("http://collector/x/ingest");
    assert_eq!(
        (&*behind_a_proxy.host, &*behind_a_proxy.path),
        ("collector:80", "/x/ingest")
    );
    for url in [
        "http://localhost:4318/v1development/profiles",
        "http://collector:80/otlp/v1development/profiles",
    ] {
        assert_eq!(parsed(url).protocol, Protocol::Otlp);
        assert_eq!(parsed(url).to_string(), url);
    }
    for wrong in ["a:4040", "http://", "http://a/b?c=d"] {
        assert!(wrong.parse::<Collector>().is_err(), "{wrong}");
    }
    let encrypted = "https://a/v1development/profiles".parse::<Collector>();
    assert!(encrypted.unwrap_err().contains("run a collector"));
}

fn send(path: &str, answers: &[&str]) -> (Vec<Sent>, Vec<(String, Vec<u8>)>) {
    let (address, server) = answer_each(answers);
    let collector: Collector = format!("http://{address}{path}").parse().unwrap();
    let profile = SentProfile {
        name: "app",
        times: [100, 110],
        bytes: b"\x1f\x8bprofile",
    };
    let sent = answers.iter().map(|_| collector.send(&profile)).collect();
    (sent, server.join().unwrap())
}

#[test]
fn pyroscope_gets_a_form() {
    let answers = ["200 OK\r\n\r\n", "422 Unprocessable\r\n\r\n"];
    let (sent, requests) = send("/ingest", &answers);
    assert_eq!(sent[0], Sent::Accepted(None));
    assert!(matches!(&sent[1], Sent::Refused(why) if why.contains("422")));
    let (head, body) = &requests[0];
    let begin = "POST /ingest?name=app&from=100&until=110&format=pprof";
    assert!(head.starts_with(begin), "{head}");
    let has = |part: &[u8]| body.windows(part.len()).any(|w| w == part);
    assert!(has(b"\r\n\r\n\x1f\x8bprofile\r\n") && has(b"\"misses_L1\""));
    assert!(body.ends_with(b"--\r\n"));
}

#[test]
fn otlp_gets_the_bytes_and_its_remarks_are_read() {
    let rejected = "200 OK\r\nContent-Length: 8\r\n\r\n\x0a\x06\x08\x01\x12\x02no";
    let remark = "200 OK\r\nContent-Length: 6\r\n\r\n\x0a\x04\x12\x02so";
    let answers = [
        "200 OK\r\nContent-Length: 0\r\n\r\n",
        rejected,
        remark,
        "400 Bad Request\r\n\r\n",
        "200 OK\r\n\r\n{}",
    ];
    let (sent, requests) = send("/v1development/profiles", &answers);
    assert_eq!(sent[0], Sent::Accepted(None));
    assert!(matches!(&sent[1], Sent::Refused(why) if why.contains("\"no\"")));
    assert_eq!(sent[2], Sent::Accepted(Some("so".into())));
    assert!(matches!(&sent[3], Sent::Refused(_)));
    assert_eq!(sent[4], Sent::Accepted(None));
    let (head, body) = &requests[0];
    assert!(head.starts_with("POST /v1development/profiles HTTP/1.1\r\n"));
    assert!(head.contains("\r\nContent-Type: application/x-protobuf\r\n"));
    assert_eq!(body, b"\x1f\x8bprofile");
}

#[test]
fn cut_answers_count_as_none() {
    let answers = [
        "200",
        "200 OK\r\nContent-Le",
        "200 OK\r\nContent-Length: 8\r\n\r\n\x0a\x06\x08",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nab",
    ];
    let (sent, _) = send("/v1development/profiles", &answers);
    for (answer, sent) in answers.iter().zip(sent) {
        assert!(matches!(sent, Sent::Later(_, None)), "{answer}: {sent:?}");
    }
    // Pyroscope's body says nothing.
    let (sent, _) = send("/ingest", &answers);
    let is_accepted = sent.iter().map(|sent| *sent == Sent::Accepted(None));
    assert!(is_accepted.eq([false, false, true, true]), "{sent:?}");
    let refused = ["400 Bad Request\r\nContent-Length: 8\r\n\r\nno"];
    let (sent, _) = send("/v1development/profiles", &refused);
    assert!(matches!(&sent[0], Sent::Refused(_)));
}

#[test]
fn busy_and_absent_servers_are_asked_again() {
    let answers = [
        "429 Too Many Requests\r\nRetry-After: 3\r\n\r\n",
        "503 Service Unavailable\r\n\r\n",
        "500 Internal Server Error\r\n\r\n",
        "",
    ];
    let (sent, _) = send("/v1development/profiles", &answers);
    let three = Some(Duration::from_secs(3));
    assert!(matches!(&sent[0], Sent::Later(_, wait) if *wait == three));
    assert!(matches!(&sent[1], Sent::Later(_, None)));
    assert!(matches!(&sent[2], Sent::Refused(_)));
    assert!(
        matches!(&sent[3], Sent::Later(_, None)),
        "closed without an answer"
    );
    let absent: Collector = "http://127.0.0.1:1/ingest".parse().unwrap();
    let profile = SentProfile {
        name: "app",
        times: [0, 1],
        bytes: b"x",
    };
    assert!(matches!(absent.send(&profile), Sent::Later(_, None)));
}
