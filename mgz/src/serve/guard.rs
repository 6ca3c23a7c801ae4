//! Access control: a request must have the secret word in its address, and use this host name.

use anyhow::Context;
use std::io::Read;

/// The server's port and secret word.
pub struct Guard {
    port: u16,
    word: String,
}

/// Length of the word, bytes.
const BYTES: usize = 16;

impl Guard {
    /// Creates a random word that cannot be guessed.
    pub fn new(port: u16) -> anyhow::Result<Guard> {
        let mut bytes = [0u8; BYTES];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .context("/dev/urandom: cannot be read, so that the address cannot be a secret; mgz report TRACE needs no server")?;
        let word = bytes.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Guard { port, word })
    }

    /// Address of the page.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.word)
    }

    /// Returns the path behind the word, or the reason for a refusal. A page of another origin can
    /// make a browser send requests to this machine under a different host name, so such names are
    /// refused.
    pub fn admit<'a>(&self, host: Option<&str>, url: &'a str) -> Result<&'a str, &'static str> {
        let own = |name: &str| host == Some(format!("{name}:{}", self.port).as_str());
        if !own("127.0.0.1") && !own("localhost") {
            return Err(
                "the request names another host; open the address as mgz serve has printed it (through a tunnel: with the same port on both sides)",
            );
        }
        let rest = url.strip_prefix('/').unwrap_or(url);
        let (word, rest) = rest.split_once('/').unwrap_or((rest, ""));
        if !same(word.as_bytes(), self.word.as_bytes()) {
            return Err(
                "the address lacks the word that mgz serve has made for it; open the address as it was printed",
            );
        }
        Ok(rest)
    }
}

/// Compares in a time that does not depend on the position of a difference.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_and_the_own_name_are_let_in() {
        let guard = Guard::new(4000).unwrap();
        let address = guard.address();
        let path = address.strip_prefix("http://127.0.0.1:4000").unwrap();
        for host in ["127.0.0.1:4000", "localhost:4000"] {
            assert_eq!(guard.admit(Some(host), path), Ok(""));
            let data = format!("{path}data?from=1");
            assert_eq!(guard.admit(Some(host), &data), Ok("data?from=1"));
            for wrong in ["/", "", "/x/", "//", "/data", &path[..path.len() - 2]] {
                assert!(guard.admit(Some(host), wrong).is_err(), "{wrong}");
            }
        }
        for host in [
            None,
            Some("127.0.0.1"),
            Some("127.0.0.1:80"),
            Some("evil.example:4000"),
        ] {
            assert!(guard.admit(host, path).is_err(), "{host:?}");
        }
        assert_ne!(address, Guard::new(4000).unwrap().address());
    }
}
