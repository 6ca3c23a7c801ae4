//! A server for tests.

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

/// A request: its head and its body.
pub type ReceivedRequest = (String, Vec<u8>);

/// Starts a server that answers one request with each of the texts, which begin with the status. An
/// empty text closes the connection. Returns its address, and the requests.
pub fn answer_each(answers: &[&str]) -> (SocketAddr, JoinHandle<Vec<ReceivedRequest>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answers: Vec<String> = answers.iter().map(|a| a.to_string()).collect();
    let server = std::thread::spawn(move || {
        let answered = answers.iter().map(|answer| {
            let mut stream = std::io::BufReader::new(listener.accept().unwrap().0);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                assert!(stream.read_line(&mut line).unwrap() > 0, "{head}");
                if let Some(n) = line.strip_prefix("Content-Length: ") {
                    length = n.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            if !answer.is_empty() {
                let answer = format!("HTTP/1.1 {answer}");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            (head, body)
        });
        answered.collect()
    });
    (address, server)
}
