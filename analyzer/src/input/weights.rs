//! How many executed loads each recorded load of a sample stands for: `windows.parquet` in.
//!
//! Samples of `ring` stand for equally many records. Those of `burst` stand for equal times, in which fast code executes more loads than
//! slow code; the recorder has measured how many.

use crate::data::columns::Frame;
use crate::input::quietly;
use mgz_annotations_schema::manifest::WINDOWS;
use std::path::Path;

/// Weights by sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// In units of 1/[`UNIT`]; 0 where nothing is known.
    by_sample: Vec<u64>,
}

/// A weight of one.
pub const UNIT: u64 = 16;

impl Weights {
    /// Weights that were stored before, by sample.
    pub fn from_parts(by_sample: Vec<u64>) -> Weights {
        Weights { by_sample }
    }

    /// By sample.
    pub fn by_sample(&self) -> &[u64] {
        &self.by_sample
    }

    /// Adds those of other samples, which are numbered from `first` on here.
    pub fn append(&mut self, other: &Weights, first: u32) {
        let end = first as usize + other.by_sample.len();
        self.by_sample.resize(end.max(self.by_sample.len()), 0);
        self.by_sample[first as usize..end].copy_from_slice(&other.by_sample);
    }

    /// The weight of a sample.
    pub fn of(&self, sample: u32) -> u64 {
        self.by_sample.get(sample as usize).copied().unwrap_or(0)
    }
}

/// Reads the weights of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read(folder: &Path) -> Result<Option<Weights>, String> {
    let path = folder.join(WINDOWS);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "{}: {error}; what is said of the whole run is by time, not by loads",
                path.display()
            ));
        }
    };
    quietly(|| Frame::read_parquet(file))
        .and_then(|r| r)
        .and_then(|frame| weights(&frame))
        .map_err(|e| format!("{}: damaged ({e}); what is said of the whole run is by time, not by loads; record again", path.display()))
}

fn weights(frame: &Frame) -> Result<Option<Weights>, String> {
    let (sample, stands_for) = (frame.whole("sample")?, frame.floats("stands_for")?);
    if stands_for.contains(&None) || frame.height() == 0 {
        return Ok(None);
    }
    let mut by_sample = Vec::new();
    for (sample, weight) in sample.iter().zip(stands_for) {
        let (&Some(sample), &Some(weight)) = (sample, weight) else {
            continue;
        };
        // Windows are numbered one by one: a number far beyond them is damage.
        if sample > 4 * frame.height() as u64 + 1024 || !(0.0..1e12).contains(&weight) {
            return Err(format!("sample {sample} with a weight of {weight}"));
        }
        let at = sample as usize;
        if by_sample.len() <= at {
            by_sample.resize(at + 1, 0);
        }
        by_sample[at] = (weight * UNIT as f64).round() as u64;
    }
    Ok(Some(Weights { by_sample }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::columns::Cells;

    #[test]
    fn weights_are_read_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), Ok(None));
        let path = dir.path().join(WINDOWS);
        let write = |samples: &[u64], weights: &[Option<f64>]| {
            let columns = [
                (
                    "sample",
                    Cells::Whole(samples.iter().copied().map(Some).collect()),
                ),
                ("stands_for", Cells::Number(weights.to_vec())),
            ];
            let frame = Frame::new(
                columns
                    .map(|(name, cells)| (name.to_string(), cells))
                    .into(),
            )
            .unwrap();
            frame
                .write_parquet(std::fs::File::create(&path).unwrap())
                .unwrap();
        };
        write(&[0, 2, 1], &[Some(1.5), Some(1000.0), Some(2.0)]);
        let weights = read(dir.path()).unwrap().unwrap();
        assert_eq!([0, 1, 2, 3].map(|s| weights.of(s)), [24, 32, 16_000, 0]);
        write(&[0, 4_000_000_000], &[Some(1.5), Some(1000.0)]);
        assert!(read(dir.path()).unwrap_err().contains("damaged"));
        write(&[0, 1], &[Some(1.5), None]);
        assert_eq!(read(dir.path()), Ok(None));
        std::fs::write(&path, b"PAR1 nothing").unwrap();
        assert!(read(dir.path()).is_err());
    }
}
