//! Sends profiles to a server of Pyroscope's kind: `POST /ingest`, as a form with the profile in
//! pprof's format. Plain HTTP only, so that no code for certificates and encryption is needed here.

use anyhow::{Context, bail};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// Longest wait for the server. Source: Chosen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Separator of the parts of the form; a gzipped profile does not contain it.
const BOUNDARY: &str = "mgz-agent-form-boundary-5f0c1d";
/// Longest part of an answer that is read, bytes.
const MAX_ANSWER: u64 = 4096;

/// Address that profiles are sent to: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// With the port.
    host: String,
    path: String,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(url: &str) -> Result<Collector, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!(
                "{url:?} is not an http address; for https run a collector on this machine that forwards profiles (Grafana Alloy's pyroscope.receive_http, for example) and give its http address"
            ));
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, "ingest"));
        if host.is_empty() || path.contains(['?', '#', ' ']) {
            return Err(format!(
                "{url:?} is not understood; give http://HOST:PORT/ingest"
            ));
        }
        let port = if host.contains(':') { "" } else { ":80" };
        Ok(Collector {
            host: format!("{host}{port}"),
            path: format!("/{}", if path.is_empty() { "ingest" } else { path }),
        })
    }
}

/// A profile to be sent.
pub struct Profile<'a> {
    /// Name of the program: letters, digits, dots, dashes and underscores.
    pub name: &'a str,
    /// Times of begin and end, seconds since 1970.
    pub times: [u64; 2],
    /// The profile.
    pub bytes: &'a [u8],
}

impl Collector {
    /// Sends a profile.
    pub fn send(&self, profile: &Profile) -> anyhow::Result<()> {
        let answer = self
            .answer(profile)
            .with_context(|| format!("http://{}{}", self.host, self.path))?;
        let first = answer.lines().next().unwrap_or_default();
        match first.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok(()),
            _ => bail!("http://{}{}: answers {first:?}", self.host, self.path),
        }
    }

    fn answer(&self, profile: &Profile) -> std::io::Result<String> {
        let address = self.host.to_socket_addrs()?.next();
        let address = address.ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&self.request(profile))?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn request(&self, profile: &Profile) -> Vec<u8> {
        let part = |name: &str, bytes: &[u8]| {
            let head = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n"
            );
            [head.as_bytes(), bytes, b"\r\n"].concat()
        };
        let kind = |units: &str| json!({ "units": units, "aggregation": "sum", "cumulative": false, "sampled": true });
        let mut kinds = json!({ "loads": kind("samples"), "time": kind("nanoseconds") });
        for level in ["L1", "L2", "L3"] {
            kinds[format!("misses_{level}")] = kind("samples");
        }
        let mut body = part("profile", profile.bytes);
        body.extend(part("sample_type_config", kinds.to_string().as_bytes()));
        body.extend(format!("--{BOUNDARY}--\r\n").bytes());
        let ([from, until], name) = (profile.times, profile.name);
        let head = format!(
            "POST {}?name={name}&from={from}&until={until}&format=pprof&spyName=mgz HTTP/1.1\r\nHost: {}\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            body.len()
        );
        [head.into_bytes(), body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_plain_http() {
        let parsed: Collector = "http://localhost:4040".parse().unwrap();
        assert_eq!(
            (&*parsed.host, &*parsed.path),
            ("localhost:4040", "/ingest")
        );
        let parsed: Collector = "http://collector/x/ingest".parse().unwrap();
        assert_eq!(
            (&*parsed.host, &*parsed.path),
            ("collector:80", "/x/ingest")
        );
        for wrong in ["https://a/", "a:4040", "http://", "http://a/b?c=d"] {
            assert!(wrong.parse::<Collector>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn profiles_are_posted_and_refusals_are_errors() {
        for (answer, accepted) in [("200 OK", true), ("422 Unprocessable", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                let mut stream = std::io::BufReader::new(listener.accept().unwrap().0);
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    if let Some(n) = line.strip_prefix("Content-Length: ") {
                        length = n.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
                (head, body)
            });
            let collector: Collector = format!("http://{address}").parse().unwrap();
            let sent = collector.send(&Profile {
                name: "app",
                times: [100, 110],
                bytes: b"\x1f\x8bprofile",
            });
            assert_eq!(sent.is_ok(), accepted, "{sent:?}");
            let (head, body) = server.join().unwrap();
            assert!(
                head.starts_with("POST /ingest?name=app&from=100&until=110&format=pprof"),
                "{head}"
            );
            let has = |part: &[u8]| body.windows(part.len()).any(|w| w == part);
            assert!(has(b"\r\n\r\n\x1f\x8bprofile\r\n") && has(b"\"misses_L1\""));
            assert!(body.ends_with(b"--\r\n"));
        }
    }
}
