//! One request: `POST`, plain HTTP, with bounds on time and on the answer. Without encryption, no
//! code for certificates is needed here.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest time for sending a request, and for its answer. Source: Chosen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest part of an answer that is read, bytes. Source: Chosen.
const MAX_ANSWER: usize = 1 << 16;
/// Bytes that are written or read at once. Source: Chosen.
const PIECE: usize = 1 << 14;

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
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        const END: &[u8] = b"\r\n\r\n";
        let end = bytes.windows(END.len()).position(|w| w == END);
        let head = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned();
        let first = head.lines().next().unwrap_or_default().to_string();
        let header = |name: &str| {
            let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let mut found = headers.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim())
        };
        let body = end.map_or(&[][..], |end| &bytes[end + END.len()..]);
        let is_chunked = header("transfer-encoding").is_some_and(|v| v.contains("chunked"));
        Answer {
            status: first
                .split(' ')
                .nth(1)
                .and_then(|s| s.parse().ok())
                .unwrap_or(0),
            retry_after: header("retry-after").and_then(|v| v.parse().ok()),
            body: match is_chunked {
                true => joined_chunks(body),
                false => body.to_vec(),
            },
            first,
        }
    }
}

/// The body that chunks hold: lengths in hexadecimal digits, each before its bytes.
fn joined_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let digits = String::from_utf8_lossy(&bytes[..end]);
        let digits = digits.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).unwrap_or(0);
        let from = end + 2;
        let Some(chunk) = from.checked_add(length).and_then(|to| bytes.get(from..to)) else {
            break;
        };
        if chunk.is_empty() {
            break;
        }
        body.extend_from_slice(chunk);
        bytes = bytes.get(from + length + 2..).unwrap_or_default();
    }
    body
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
pub fn post(host: &str, path: &str, headers: &str, body: &[u8]) -> std::io::Result<Answer> {
    let address = host.to_socket_addrs()?.next();
    let address = address.ok_or(std::io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let end = Instant::now() + PATIENCE;
    for piece in std::iter::once(head.as_bytes()).chain(body.chunks(PIECE)) {
        stream.set_write_timeout(left(end)?)?;
        stream.write_all(piece)?;
    }
    let end = Instant::now() + PATIENCE;
    let (mut answer, mut piece) = (Vec::new(), [0; PIECE]);
    while answer.len() < MAX_ANSWER {
        stream.set_read_timeout(left(end)?)?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            // A signal ends the agent.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if answer.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Answer::parse(&answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed() {
        let answer = Answer::parse(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno",
        );
        assert_eq!((answer.status, answer.retry_after), (503, Some(7)));
        assert_eq!(answer.body, b"no");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=1\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n";
        assert_eq!(Answer::parse(chunked).body, b"abcde");
        for end in 0..chunked.len() {
            let part = Answer::parse(&chunked[..end]);
            assert!(b"abcde".starts_with(&part.body[..]), "{end}");
        }
        let huge = b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab";
        assert_eq!(Answer::parse(huge).body, b"");
        let dated = b"HTTP/1.1 429 Slow\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        assert_eq!(Answer::parse(dated).retry_after, None);
        assert_eq!(Answer::parse(b"hello").status, 0);
    }
}
