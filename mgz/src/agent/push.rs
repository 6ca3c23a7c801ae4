//! Servers that profiles are sent to: Pyroscope's `POST /ingest`, a form with the profile in pprof's
//! format, and OTLP's `POST /v1development/profiles`.

use crate::agent::http::{self, Answer};
use mgz_annotations_schema::leb128;
use serde_json::json;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Separator of the parts of the form; a gzipped profile does not contain it.
const BOUNDARY: &str = "mgz-agent-form-boundary-5f0c1d";
/// Path of a request of OTLP.
const OTLP_PATH: &str = "/v1development/profiles";
/// Largest request, bytes. Source: the limit that OTLP's specification recommends.
const MAX_REQUEST: usize = 64 << 20;
/// Statuses after which a request is sent again. Source: OTLP's specification.
const RETRIED: [u16; 4] = [429, 502, 503, 504];

/// Kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A form with a profile of pprof.
    Pyroscope,
    /// A request of OTLP.
    Otlp,
}

/// Address that profiles are sent to: `http://HOST[:PORT][/PATH]`. The path tells the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Protocol.
    pub protocol: Protocol,
    /// With the port.
    host: String,
    path: String,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(url: &str) -> Result<Collector, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!(
                "{url:?} is not an http address; for https run a collector on this machine that forwards profiles (the OpenTelemetry collector, or Grafana Alloy's pyroscope.receive_http) and give its http address"
            ));
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, "ingest"));
        if host.is_empty() || path.contains(['?', '#', ' ']) {
            return Err(format!(
                "{url:?} is not understood; give http://HOST:PORT{OTLP_PATH} for OTLP or http://HOST:PORT/ingest for Pyroscope"
            ));
        }
        let port = if host.contains(':') { "" } else { ":80" };
        let path = format!("/{}", if path.is_empty() { "ingest" } else { path });
        Ok(Collector {
            protocol: match path.ends_with(OTLP_PATH) {
                true => Protocol::Otlp,
                false => Protocol::Pyroscope,
            },
            host: format!("{host}{port}"),
            path,
        })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// A profile to be sent.
pub struct SentProfile<'a> {
    /// Name of the program: letters, digits, dots, dashes and underscores.
    pub name: &'a str,
    /// Times of begin and end, seconds since 1970.
    pub times: [u64; 2],
    /// The profile, in the format of the server.
    pub bytes: &'a [u8],
}

/// Result of sending a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The server has it. It may have sent a remark.
    Accepted(Option<String>),
    /// The server does not take it, for this reason.
    Refused(String),
    /// The server may take it later: the reason, and the time that it asks for.
    Later(String, Option<Duration>),
}

impl Collector {
    /// Sends a profile.
    pub fn send(&self, profile: &SentProfile) -> Sent {
        let (path, headers, body) = match self.protocol {
            Protocol::Pyroscope => self.form(profile),
            Protocol::Otlp => (
                self.path.clone(),
                "Content-Type: application/x-protobuf\r\n".to_string(),
                profile.bytes.to_vec(),
            ),
        };
        if body.len() > MAX_REQUEST {
            return Sent::Refused(format!(
                "the profile has {} MiB, more than servers take",
                body.len() >> 20
            ));
        }
        match http::post(&self.host, &path, &headers, &body) {
            Err(error) => Sent::Later(error.to_string(), None),
            Ok(answer) => self.judge(&answer),
        }
    }

    fn judge(&self, answer: &Answer) -> Sent {
        let said = || format!("it answers {:?}", answer.first);
        match answer.status {
            // The missing part may refuse the profile.
            200..=299 if self.protocol == Protocol::Otlp && !answer.is_whole => {
                Sent::Later("its answer ends before its announced length".into(), None)
            }
            200..=299 if self.protocol == Protocol::Otlp => match remark(&answer.body) {
                (0, text) => Sent::Accepted((!text.is_empty()).then_some(text)),
                (_, text) => Sent::Refused(format!("it rejects the profile: {text:?}")),
            },
            200..=299 => Sent::Accepted(None),
            status if RETRIED.contains(&status) => {
                Sent::Later(said(), answer.retry_after.map(Duration::from_secs))
            }
            _ => Sent::Refused(said()),
        }
    }

    /// Path, headers and body of Pyroscope's request.
    fn form(&self, profile: &SentProfile) -> (String, String, Vec<u8>) {
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
        let path = format!(
            "{}?name={name}&from={from}&until={until}&format=pprof&spyName=mgz",
            self.path
        );
        let headers = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n");
        (path, headers, body)
    }
}

/// Rejected profiles and the text of OTLP's answer: `partial_success` (1) with `rejected_profiles`
/// (1) and `error_message` (2). Answers that are damaged or no messages have neither.
fn remark(body: &[u8]) -> (u64, String) {
    let (mut rejected, mut text) = (0, String::new());
    let mut inner: &[u8] = &[];
    each_field(body, |field, _, bytes| {
        if field == 1 {
            inner = bytes;
        }
    });
    each_field(inner, |field, number, bytes| match field {
        1 => rejected = number,
        2 => text = String::from_utf8_lossy(bytes).into_owned(),
        _ => {}
    });
    (rejected, text)
}

/// Passes number, value and bytes of each field of a message to `each`, up to a field of another
/// kind than numbers and bytes.
fn each_field<'a>(mut message: &'a [u8], mut each: impl FnMut(u64, u64, &'a [u8])) {
    let number =
        |message: &mut &[u8]| leb128::decode(u64::BITS, || message.split_off_first().copied());
    while let (Some(key), Some(value)) = (number(&mut message), number(&mut message)) {
        let bytes = match key & 7 {
            0 => Some(&[][..]),
            2 => usize::try_from(value)
                .ok()
                .and_then(|n| message.split_off(..n)),
            _ => None,
        };
        let Some(bytes) = bytes else { return };
        each(key >> 3, value, bytes);
    }
}

#[cfg(test)]
mod tests;
