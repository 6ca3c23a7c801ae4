//! One request: `POST`, plain HTTP, with bounds on time and on the answer. Without encryption, no
//! code for certificates is needed here.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest time for a connection, for sending a request, and for its answer. Source: Chosen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest part of an answer that is read, bytes. Source: Chosen.
const MAX_ANSWER: usize = 1 << 16;
/// Bytes that are written or read at once. Source: Chosen.
const PIECE: usize = 1 << 14;

/// The reason why a server's answer is unknown.
#[derive(Debug)]
pub enum NoAnswer {
    /// There is no connection within the time.
    NotConnected(Duration),
    /// The server does not take the whole request within the time.
    NotTaken(Duration),
    /// The server does not answer within the time.
    Late(Duration),
    /// The server closes the connection within the first line or the headers of its answer.
    Cut,
    /// Another failure.
    Failed(std::io::Error),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::NotConnected(time) => {
                write!(f, "there was no connection within {} s", time.as_secs())
            }
            NoAnswer::NotTaken(time) => write!(
                f,
                "the server did not take the whole request within {} s",
                time.as_secs()
            ),
            NoAnswer::Late(time) => {
                write!(f, "the server did not answer within {} s", time.as_secs())
            }
            NoAnswer::Cut => f.write_str("the server closed the connection without an answer"),
            NoAnswer::Failed(error) => error.fmt(f),
        }
    }
}

/// The reason for a failed call with a timeout. (The kernel reports a timeout as `EAGAIN`.)
fn reason(error: std::io::Error, timeout: NoAnswer) -> NoAnswer {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => timeout,
        _ => NoAnswer::Failed(error),
    }
}

/// A server's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// First line.
    pub first: String,
    /// Status; 0 if the first line has none.
    pub status: u16,
    /// Seconds of `Retry-After`. Dates there count as absent.
    pub retry_after: Option<u64>,
    /// Body, as far as it was read.
    pub body: Vec<u8>,
    /// True if the body has the length that the server has announced, or if none was announced.
    pub is_whole: bool,
}

impl Answer {
    /// `None`: the headers do not end.
    fn parse(bytes: &[u8]) -> Option<Answer> {
        const END: &[u8] = b"\r\n\r\n";
        let end = bytes.windows(END.len()).position(|w| w == END)?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let first = head.lines().next().unwrap_or_default().to_string();
        let header = |name: &str| {
            let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let mut found = headers.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim())
        };
        let body = &bytes[end + END.len()..];
        let is_chunked = header("transfer-encoding").is_some_and(|v| v.contains("chunked"));
        let length: Option<usize> = header("content-length").and_then(|v| v.parse().ok());
        let (body, is_whole) = match (is_chunked, length) {
            (true, _) => joined_chunks(body),
            (false, Some(length)) => {
                let part = &body[..body.len().min(length)];
                (part.to_vec(), part.len() == length)
            }
            (false, None) => (body.to_vec(), true),
        };
        Some(Answer {
            status: first
                .split(' ')
                .nth(1)
                .and_then(|s| s.parse().ok())
                .unwrap_or(0),
            retry_after: header("retry-after").and_then(|v| v.parse().ok()),
            body,
            is_whole,
            first,
        })
    }

    /// True if the server has announced where the answer ends, and everything is there.
    fn has_ended(bytes: &[u8]) -> bool {
        let announces = |head: &[u8]| {
            let head = head.to_ascii_lowercase();
            let has = |name: &[u8]| head.windows(name.len()).any(|w| w == name);
            has(b"\r\ncontent-length:") || has(b"\r\ntransfer-encoding:")
        };
        announces(bytes) && Answer::parse(bytes).is_some_and(|answer| answer.is_whole)
    }
}

/// The body that chunks hold (lengths in hexadecimal digits, each before its bytes), and true if the
/// last chunk is there, which is empty.
fn joined_chunks(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let digits = String::from_utf8_lossy(&bytes[..end]);
        let digits = digits.split(';').next().unwrap_or_default().trim();
        let Ok(length) = usize::from_str_radix(digits, 16) else {
            break;
        };
        let from = end + 2;
        let Some(chunk) = from.checked_add(length).and_then(|to| bytes.get(from..to)) else {
            break;
        };
        if chunk.is_empty() {
            return (body, true);
        }
        body.extend_from_slice(chunk);
        bytes = bytes.get(from + length + 2..).unwrap_or_default();
    }
    (body, false)
}

/// The time until `end`. An error if it has passed: a timeout of 0 would mean none.
fn left(end: Instant) -> std::io::Result<Option<Duration>> {
    let left = end.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(std::io::ErrorKind::TimedOut.into()),
        false => Ok(Some(left)),
    }
}

/// Posts `body` to `path` at `host`, which has a port. `headers` are complete lines.
pub fn post(host: &str, path: &str, headers: &str, body: &[u8]) -> Result<Answer, NoAnswer> {
    post_within(PATIENCE, host, path, headers, body)
}

fn post_within(
    patience: Duration,
    host: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Result<Answer, NoAnswer> {
    let addresses = host.to_socket_addrs().map_err(NoAnswer::Failed)?;
    let mut stream = connect(addresses, patience)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let end = Instant::now() + patience;
    for piece in std::iter::once(head.as_bytes()).chain(body.chunks(PIECE)) {
        let written = left(end)
            .and_then(|left| stream.set_write_timeout(left))
            .and_then(|()| stream.write_all(piece));
        match written {
            Ok(()) => {}
            // The server may have answered before it has read everything.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(reason(error, NoAnswer::NotTaken(patience))),
        }
    }
    answer(&mut stream, patience)
}

/// Connects to the first address that takes a connection.
fn connect(
    addresses: impl Iterator<Item = SocketAddr>,
    patience: Duration,
) -> Result<TcpStream, NoAnswer> {
    let mut last = NoAnswer::Failed(ErrorKind::AddrNotAvailable.into());
    let end = Instant::now() + patience;
    for address in addresses {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoAnswer::NotConnected(patience));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = reason(error, NoAnswer::NotConnected(patience)),
        }
    }
    Err(last)
}

/// Reads an answer up to its announced end, or until the server closes the connection.
fn answer(stream: &mut TcpStream, patience: Duration) -> Result<Answer, NoAnswer> {
    let end = Instant::now() + patience;
    let (mut answer, mut piece) = (Vec::new(), [0; PIECE]);
    while answer.len() < MAX_ANSWER && !Answer::has_ended(&answer) {
        let read = left(end)
            .and_then(|left| stream.set_read_timeout(left))
            .and_then(|()| stream.read(&mut piece));
        match read {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            // A signal ends the agent.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reason(error, NoAnswer::Late(patience))),
        }
    }
    Answer::parse(&answer).ok_or(NoAnswer::Cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Answer {
        Answer::parse(bytes).unwrap()
    }

    #[test]
    fn answers_are_parsed() {
        let answer = parse(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno",
        );
        assert_eq!((answer.status, answer.retry_after), (503, Some(7)));
        assert_eq!((&answer.body[..], answer.is_whole), (&b"no"[..], true));
        let huge = b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab";
        assert_eq!(parse(huge).body, b"");
        let dated = b"HTTP/1.1 429 Slow\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        assert_eq!(parse(dated).retry_after, None);
        assert_eq!(parse(b"hello\r\n\r\n").status, 0);
    }

    #[test]
    fn parts_of_answers_are_told_from_whole_ones() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=1\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n";
        let counted = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde";
        // The last chunk is complete before the empty line behind it.
        for (all, spare) in [(&chunked[..], 2), (&counted[..], 0)] {
            let head = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            assert_eq!(parse(all).body, b"abcde");
            for end in 0..=all.len() {
                let is_whole = end >= all.len() - spare;
                let part = Answer::parse(&all[..end]);
                assert_eq!(part.is_some(), end >= head, "{end}");
                assert_eq!(part.as_ref().is_some_and(|a| a.is_whole), is_whole, "{end}");
                assert_eq!(Answer::has_ended(&all[..end]), is_whole, "{end}");
                assert!(part.is_none_or(|a| b"abcde".starts_with(&a.body[..])));
            }
        }
        let open = b"HTTP/1.1 200 OK\r\n\r\nab";
        assert!(parse(open).is_whole && !Answer::has_ended(open));
    }

    #[test]
    fn a_server_that_hangs_is_named_so() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = server.local_addr().unwrap().to_string();
        let short = Duration::from_millis(20);
        let sent = |bytes: &[u8]| post_within(short, &host, "/", "", bytes).unwrap_err();
        let late = sent(b"small").to_string();
        assert_eq!(late, "the server did not answer within 0 s");
        // More than fits into the buffers of a connection.
        let taken = sent(&vec![0; 64 << 20]).to_string();
        assert_eq!(
            taken,
            "the server did not take the whole request within 0 s"
        );
    }

    /// A server that announces the length of its answer and keeps the connection open.
    #[test]
    fn an_answer_ends_where_it_says() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
            // Until the client has closed the connection.
            std::io::copy(&mut stream, &mut std::io::sink())
        });
        let answer = post_within(Duration::from_secs(30), &host, "/", "", b"x").unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        server.join().unwrap().unwrap();
    }
}
