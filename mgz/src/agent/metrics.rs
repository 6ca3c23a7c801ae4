//! Numbers of an agent about itself, in Prometheus' text format.

use anyhow::Context;
use mgz_annotations_schema::lock::locked;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tiny_http::{Header, Method, Response, Server};

/// Reasons why a turn records nothing.
#[derive(Clone, Copy, Debug)]
pub enum Skip {
    /// The machine is busy.
    Pressure = 0,
    /// The recording before cost too much.
    Cost = 1,
    /// No process can be recorded.
    Nothing = 2,
}

/// Names of [`Skip`].
const SKIP_NAMES: [&str; 3] = ["pressure", "cost", "nothing_to_record"];

/// Numbers about an agent.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Recordings kept.
    pub recordings: u64,
    /// Recordings that failed.
    pub failures: u64,
    /// Profiles that could not be made.
    pub profile_failures: u64,
    /// Profiles that a server has taken.
    pub pushes_accepted: u64,
    /// Profiles that a server has refused.
    pub pushes_refused: u64,
    /// Profiles that were removed, or were too many, before a server took them.
    pub pushes_given_up: u64,
    /// Attempts to send a profile that failed and are repeated.
    pub push_retries: u64,
    /// Profiles that wait for a server.
    pub pushes_waiting: u64,
    /// Turns without a recording, by [`Skip`].
    pub skipped: [u64; 3],
    /// Processes that the rule names: can be recorded, cannot.
    pub processes: [u64; 2],
    /// Time of the last recording, seconds since 1970.
    pub last: u64,
    /// Its cost, as a part of the process's CPU time.
    pub cost: f64,
    /// Percent of the time that some task waited for a processor.
    pub pressure: f64,
    /// Bytes of the kept recordings.
    pub bytes: u64,
}

impl Metrics {
    /// In Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, help: &str, rows: &[(&str, f64)]| {
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
            };
            let _ = writeln!(text, "# HELP mgz_agent_{name} {help}");
            let _ = writeln!(text, "# TYPE mgz_agent_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "mgz_agent_{name}{labels} {value}");
            }
        };
        let one = |value: u64| [("", value as f64)];
        family(
            "recordings_total",
            "Recordings that were kept.",
            &one(self.recordings),
        );
        family(
            "recording_failures_total",
            "Recordings that failed.",
            &one(self.failures),
        );
        family(
            "profile_failures_total",
            "Profiles that could not be made.",
            &one(self.profile_failures),
        );
        let results = [
            ("{result=\"accepted\"}", self.pushes_accepted as f64),
            ("{result=\"refused\"}", self.pushes_refused as f64),
            ("{result=\"given_up\"}", self.pushes_given_up as f64),
        ];
        family("pushes_total", "Profiles sent to servers.", &results);
        family(
            "push_retries_total",
            "Attempts to send a profile that failed and are repeated.",
            &one(self.push_retries),
        );
        family(
            "waiting_pushes",
            "Profiles that wait for a server.",
            &one(self.pushes_waiting),
        );
        let labels = SKIP_NAMES.map(|name| format!("{{reason=\"{name}\"}}"));
        let rows: Vec<(&str, f64)> = (labels.iter().zip(self.skipped))
            .map(|(label, n)| (label.as_str(), n as f64))
            .collect();
        family("skipped_turns_total", "Turns without a recording.", &rows);
        let states = [
            ("{state=\"recordable\"}", self.processes[0] as f64),
            ("{state=\"not_recordable\"}", self.processes[1] as f64),
        ];
        family("processes", "Processes that the rule names.", &states);
        family(
            "last_recording_timestamp_seconds",
            "Time of the last recording.",
            &one(self.last),
        );
        family(
            "last_recording_cost_ratio",
            "CPU time that the last recording took, as a part of the process's.",
            &[("", self.cost)],
        );
        family(
            "cpu_pressure_ratio",
            "Part of the time that some task waited for a processor.",
            &[("", self.pressure / 100.0)],
        );
        family(
            "stored_bytes",
            "Size of the kept recordings.",
            &one(self.bytes),
        );
        text
    }

    /// Writes them to a file that readers see whole or not at all.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let cannot = || {
            format!(
                "{}: cannot be written; choose another --metrics file",
                file.display()
            )
        };
        let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
        let new = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))
            .with_context(cannot)?;
        std::fs::write(new.path(), self.text()).with_context(cannot)?;
        // Collectors run as users of their own.
        std::fs::set_permissions(new.path(), PermissionsExt::from_mode(0o644))
            .with_context(cannot)?;
        new.persist(file).with_context(cannot)?;
        Ok(())
    }
}

/// Answers `GET /metrics` on an address, beside everything else.
pub fn serve(address: &str, metrics: Arc<Mutex<Metrics>>) -> anyhow::Result<()> {
    let server = Server::http(address).map_err(|error| {
        anyhow::anyhow!("--listen {address}: {error}; give a free address, as in 127.0.0.1:9464")
    })?;
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let is_asked = request.url() == "/metrics" && *request.method() == Method::Get;
            let text = match is_asked {
                true => locked(&metrics).text(),
                false => "only GET /metrics is answered\n".into(),
            };
            let mut response = Response::from_string(text);
            if let Ok(kind) = Header::from_bytes("Content-Type", "text/plain; version=0.0.4") {
                response.add_header(kind);
            }
            // A closed connection is not a failure.
            let _ = request.respond(response.with_status_code(if is_asked { 200 } else { 404 }));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_number_with_a_type() {
        let metrics = Metrics {
            recordings: 3,
            skipped: [1, 0, 2],
            cost: 0.0125,
            pushes_refused: 4,
            ..Metrics::default()
        };
        let text = metrics.text();
        let mut types = 0;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                types += 1;
                assert!(
                    rest.ends_with(" counter") || rest.ends_with(" gauge"),
                    "{line}"
                );
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let bare = name.split('{').next().unwrap();
                assert!(text.contains(&format!("# TYPE {bare} ")), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert_eq!(types, 12);
        assert!(text.contains("\nmgz_agent_pushes_total{result=\"refused\"} 4\n"));
        assert!(text.contains("\nmgz_agent_skipped_turns_total{reason=\"nothing_to_record\"} 2\n"));
        assert!(text.contains("\nmgz_agent_last_recording_cost_ratio 0.0125\n"));
    }
}
