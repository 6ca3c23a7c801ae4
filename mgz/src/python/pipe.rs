//! Questions and answers over named pipes, for which a program needs no further module.
//!
//! A question is `PIPE \0 FILE \n`, written in one piece; the answer, to that pipe, is the path of
//! a file or nothing, and `\n`.

use anyhow::Context;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The pipe of questions.
pub struct Requests {
    path: PathBuf,
    /// Open for reading and writing, so that the pipe has a reader as long as this value lives, and
    /// no end of file.
    pipe: File,
}

impl Requests {
    /// Makes the pipe.
    pub fn new(path: &Path) -> anyhow::Result<Requests> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the text ends with a zero and outlives the call.
        if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("{}: cannot make the pipe", path.display()));
        }
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("{}: cannot be opened", path.display()))?;
        Ok(Requests {
            path: path.to_owned(),
            pipe,
        })
    }

    /// A reader of the pipe.
    pub fn reader(&self) -> anyhow::Result<BufReader<File>> {
        Ok(BufReader::new(self.pipe.try_clone()?))
    }

    /// Writes an empty question, which ends [`serve`].
    pub fn end(mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.pipe.write_all(b"\n");
    }
}

/// Answers questions until an empty one arrives.
pub fn serve(mut questions: impl BufRead, mut answer: impl FnMut(&Path) -> Option<PathBuf>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match questions.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        if line.is_empty() {
            return;
        }
        let Some(at) = line.iter().position(|&b| b == 0) else {
            continue;
        };
        let (reply, file) = (&line[..at], &line[at + 1..]);
        let found = answer(Path::new(OsStr::from_bytes(file)));
        let mut text = found.map_or_else(Vec::new, |f| f.as_os_str().as_bytes().to_vec());
        text.push(b'\n');
        // The asking process may be gone. Then the pipe has no reader, and the answer is dropped.
        let pipe = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(OsStr::from_bytes(reply));
        if let Ok(mut pipe) = pipe {
            let _ = pipe.write_all(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn questions_have_answers() {
        let dir = tempfile::tempdir().unwrap();
        let requests = Requests::new(&dir.path().join("request")).unwrap();
        let reader = requests.reader().unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            serve(reader, |path| {
                asked.push(path.to_owned());
                path.ends_with("known.so").then(|| "/other.so".into())
            });
            asked
        });
        let mut to = OpenOptions::new()
            .write(true)
            .open(dir.path().join("request"))
            .unwrap();
        for (file, expected) in [("/a/known.so", "/other.so\n"), ("/a/b.so", "\n")] {
            let reply = Requests::new(&dir.path().join("reply")).unwrap();
            let mut line = dir.path().join("reply").as_os_str().as_bytes().to_vec();
            line.push(0);
            line.extend(file.as_bytes());
            line.push(b'\n');
            to.write_all(b"damaged\n").unwrap();
            to.write_all(&line).unwrap();
            let mut answer = vec![0; expected.len()];
            reply.reader().unwrap().read_exact(&mut answer).unwrap();
            assert_eq!(answer, expected.as_bytes());
            std::fs::remove_file(dir.path().join("reply")).unwrap();
        }
        // A question whose asker is gone.
        to.write_all(b"/nowhere\0/a/c.so\n").unwrap();
        requests.end();
        let asked = thread.join().unwrap();
        assert_eq!(asked.len(), 3, "{asked:?}");
    }
}
