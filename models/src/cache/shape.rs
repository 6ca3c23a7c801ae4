//! Shapes of caches.

use serde::{Deserialize, Serialize};

/// Why a shape is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A number is zero.
    #[error(
        "a cache of {size} bytes with {ways} ways of {line}-byte lines cannot be: none of the three may be 0"
    )]
    Zero {
        /// Bytes.
        size: u64,
        /// Ways.
        ways: u64,
        /// Line.
        line: u64,
    },
    /// The line is not a power of two.
    #[error("lines of {0} bytes cannot be: it must be a power of two from 1 to 65536")]
    Line(u64),
    /// The size is not a multiple of a way.
    #[error("{size} bytes do not divide into {ways} ways of {line}-byte lines: the size must be a multiple of {}", ways * line)]
    Uneven {
        /// Bytes.
        size: u64,
        /// Ways.
        ways: u64,
        /// Line.
        line: u64,
    },
}

/// Shape of a set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Associativity A.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
}

impl Shape {
    /// Checks a shape. Sets need not be a power of two (real last-level caches have 12 × 2ⁿ); the
    /// simulator takes the set as block number modulo sets.
    pub fn new(size: u64, ways: u64, line: u64) -> Result<Shape, ShapeError> {
        if size == 0 || ways == 0 || line == 0 {
            return Err(ShapeError::Zero { size, ways, line });
        }
        if !line.is_power_of_two() || line > 1 << 16 {
            return Err(ShapeError::Line(line));
        }
        match ways.checked_mul(line) {
            Some(way) if size.is_multiple_of(way) => Ok(Shape { size, ways, line }),
            _ => Err(ShapeError::Uneven { size, ways, line }),
        }
    }

    /// Blocks B.
    pub fn blocks(&self) -> u64 {
        self.size / self.line
    }

    /// Number of sets.
    pub fn sets(&self) -> u64 {
        self.blocks() / self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_say_why() {
        for (size, ways, line, word) in [
            (0, 8, 64, "0"),
            (32768, 0, 64, "0"),
            (32768, 8, 48, "power of two"),
            (1000, 8, 64, "multiple of 512"),
        ] {
            let error = Shape::new(size, ways, line).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let l3 = Shape::new(36 << 20, 12, 64).unwrap();
        assert_eq!((l3.blocks(), l3.sets()), (589_824, 49_152));
        assert!(Shape::new(u64::MAX, u64::MAX, 64).is_err());
    }
}
