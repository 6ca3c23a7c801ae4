//! `mgz serve`: the report on 127.0.0.1, whose selections are analysed again.
//!
//! The address has a random word, so that other users of the machine and pages of other origins
//! cannot send requests. One analysis runs at a time; a newer selection of the same page replaces
//! the older one. The analysis is `mgz-analyze` with its filters.

mod analyser;
mod asked;
mod guard;

use crate::cli::Serve;
use crate::html::{self, HtmlOptions};
use crate::run::{has_display, open_in_browser, read_command};
use crate::{affinity, report, signals};
use analyser::{Analyser, Answer};
use anyhow::Context;
use guard::Guard;
use mgz_annotations_schema::tell;
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

/// Interval at which the server checks for keys that end it. Source: Chosen.
const KEY_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Source: Chosen.
const MAX_WAITING_REQUESTS: usize = 32;

/// Runs the command.
pub fn run_serve(serve: &Serve) -> anyhow::Result<i32> {
    let (trace, _) = report::locate_report(&serve.trace);
    let manifest = report::manifest(&trace)?;
    let options = HtmlOptions {
        source: !serve.no_source,
        trace: Some(trace.clone()),
        command: read_command(&serve.trace),
        measured: serve.measured.clone(),
    };
    let server = Server::http(("127.0.0.1", serve.port)).map_err(|error| {
        anyhow::anyhow!(
            "127.0.0.1:{}: cannot listen ({error}); give another --port, or none: a free one is taken then",
            serve.port
        )
    })?;
    let port = server
        .server_addr()
        .to_ip()
        .context("the server has no address")?
        .port();
    let guard = Guard::new(port)?;
    signals::note_stop();
    tell!("mgz: analysing {}", trace.display());
    let affinity = affinity::part(&trace, &manifest);
    let analyser = Arc::new(Analyser::new(trace, manifest, options));
    let whole = match analyser.answer(&asked::Asked::default(), "") {
        Answer::Found(found) => found,
        Answer::Failed(why) if !signals::is_stopped() => anyhow::bail!("{why}"),
        Answer::Failed(_) | Answer::Replaced => return Ok(ended()),
    };
    let mut parts = whole.parts.clone();
    parts.extend(affinity);
    parts.push(("serve", json!({ "version": 1 })));
    let page: Arc<[u8]> = html::served(&parts)?.into();
    drop(parts);
    let address = guard.address();
    crate::cli::print(format!("{address}\n").as_bytes())?;
    tell!("mgz: the report is at that address, for this user alone; Ctrl-C ends the server");
    if !serve.no_open && has_display() && std::io::stderr().is_terminal() {
        open_in_browser(address.as_ref());
    }
    let guard = Arc::new(guard);
    let waiting = Arc::new(AtomicUsize::new(0));
    while !signals::is_stopped() {
        let Some(request) = server
            .recv_timeout(KEY_CHECK_INTERVAL)
            .context("cannot listen any more")?
        else {
            continue;
        };
        if waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING_REQUESTS {
            waiting.fetch_sub(1, Ordering::Relaxed);
            refuse(request, 503, "too many requests wait; try again");
            continue;
        }
        let (guard, analyser, page) = (guard.clone(), analyser.clone(), page.clone());
        let waiting = waiting.clone();
        std::thread::spawn(move || {
            respond(request, &guard, &analyser, &page);
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }
    analyser.end();
    Ok(ended())
}

fn ended() -> i32 {
    tell!("mgz: the server has ended");
    0
}

/// Answers one request.
fn respond(request: Request, guard: &Guard, analyser: &Analyser, page: &[u8]) {
    let field = |name: &'static str| {
        let found = request.headers().iter().find(|h| h.field.equiv(name));
        found.map(|h| h.value.as_str().to_owned())
    };
    let path = match guard.admit(field("Host").as_deref(), request.url()) {
        Ok(path) => path.to_owned(),
        Err(why) => return refuse(request, 403, why),
    };
    if *request.method() != Method::Get {
        return refuse(request, 405, "only GET is answered");
    }
    let (name, query) = path.split_once('?').unwrap_or((&path, ""));
    match name {
        "" => send(request, 200, "text/html; charset=utf-8", page.to_vec()),
        "data" => {
            let answer = asked::parse_query(query)
                .map_or_else(Answer::Failed, |(asked, tab)| analyser.answer(&asked, &tab));
            match answer {
                Answer::Found(found) => send(request, 200, JSON, found.body.clone()),
                Answer::Failed(why) => refuse(request, 422, &why),
                Answer::Replaced => refuse(request, 409, "a newer selection has replaced this one"),
            }
        }
        _ => refuse(request, 404, "there is no such page"),
    }
}

const JSON: &str = "application/json";

fn refuse(request: Request, status: u16, why: &str) {
    let body = json!({ "error": why }).to_string();
    send(request, status, JSON, body.into_bytes());
}

fn send(request: Request, status: u16, kind: &str, body: Vec<u8>) {
    let mut response = Response::from_data(body).with_status_code(status);
    for (name, value) in [
        ("Content-Type", kind),
        // The address is secret, and the content changes.
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    ] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    // A closed connection is not a failure.
    let _ = request.respond(response);
}
