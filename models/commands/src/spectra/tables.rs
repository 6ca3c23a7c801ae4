//! The rows of the tables.

use crate::spectra::Found;
use crate::spectra::verdict::judge;
use mgz_analyzer::columns;
use mgz_analyzer::output::document::{Document, DocumentColumn, DocumentTable, maybe, value};
use mgz_models::emd;
use serde_json::Value;

/// Rows of all tables.
#[derive(Default)]
pub(super) struct SpectraRows {
    signatures: Vec<Vec<Value>>,
    footprints: Vec<Vec<Value>>,
    moves: Vec<Vec<Value>>,
    advice: Vec<Vec<Value>>,
}

impl SpectraRows {
    /// Adds the rows of a place.
    pub(super) fn add(&mut self, found: &Found, sizes: &[u64]) {
        let first = found.signatures.first();
        let reuses: f64 = first.map_or(0.0, |s| s.iter().sum());
        for ((signature, &size), &footprint) in found.signatures.iter().zip(sizes).zip(&found.bytes)
        {
            self.add_signature(found, size, signature);
            self.add_footprint(found, size, footprint);
        }
        // Without reuses no mass moves.
        if reuses > 0.0 {
            self.add_moves(found, sizes);
            self.add_advice(found, sizes, reuses);
        }
    }

    fn add_signature(&mut self, found: &Found, size: u64, signature: &[f64]) {
        let total: f64 = signature.iter().sum();
        let last = signature
            .iter()
            .rposition(|&n| n > 0.0)
            .map_or(0, |l| l + 1);
        for (i, n) in signature.iter().enumerate().take(last) {
            let from = if i == 0 { 0u64 } else { 2 << i };
            self.signatures.push(vec![
                found.name.clone(),
                found.process.clone(),
                Value::from(size),
                Value::from(from),
                Value::from(4u64 << i),
                value(*n),
                value(n / total),
            ]);
        }
    }

    fn add_footprint(&mut self, found: &Found, size: u64, footprint: u64) {
        // An object has no blocks if other objects touched all of its blocks first.
        let finest = found.bytes[0];
        let normalised = (finest > 0).then(|| footprint as f64 / finest as f64);
        self.footprints.push(vec![
            found.name.clone(),
            found.process.clone(),
            Value::from(size),
            Value::from(footprint / size),
            Value::from(footprint),
            maybe(normalised),
            maybe(normalised.map(|n| 1.0 / n)),
        ]);
    }

    fn add_moves(&mut self, found: &Found, sizes: &[u64]) {
        for (sizes, signatures) in sizes.windows(2).zip(found.signatures.windows(2)) {
            self.moves.push(vec![
                found.name.clone(),
                found.process.clone(),
                Value::from(sizes[0]),
                Value::from(sizes[1]),
                maybe(emd::earth_movers_distance(&signatures[0], &signatures[1])),
                maybe(emd::shift(&signatures[0], &signatures[1])),
            ]);
        }
    }

    fn add_advice(&mut self, found: &Found, sizes: &[u64], reuses: f64) {
        let verdict = judge(sizes, &found.signatures, &found.bytes);
        self.advice.push(vec![
            found.name.clone(),
            found.process.clone(),
            Value::from(reuses as u64),
            Value::from(found.bytes[0]),
            Value::from(verdict.prototype),
            Value::from(verdict.page),
            value(verdict.utilisation),
            Value::from(verdict.text),
        ]);
    }

    /// Puts the tables into the document.
    pub(super) fn put(mut self, sizes: &[u64], document: &mut Document) {
        // The hottest regions come first, after the program. Without reuses there is no advice.
        if let Some(regions) = self.advice.get_mut(1..) {
            regions.sort_by_key(|row| std::cmp::Reverse(row[2].as_u64()));
        } else {
            document.warnings.push(format!(
                "no block of {} bytes was used twice, so there are no distances and no advice",
                sizes[0]
            ));
        }
        let whose = columns![where: Text, process: Id];
        let table =
            |name, title: &str, columns: &[DocumentColumn], rows: Vec<Vec<Value>>, text_rows| {
                DocumentTable {
                    name,
                    title: title.into(),
                    columns: whose.iter().chain(columns).copied().collect(),
                    rows,
                    text_rows,
                }
            };
        document.tables.push(table(
            "advice",
            "Advice (footprint in the smallest blocks; utilisation of the page size advised)",
            &columns![
                reuses: Count, footprint: Bytes, prototype: Text, page: Bytes, utilisation: Share,
                advice: Text,
            ],
            self.advice,
            usize::MAX,
        ));
        document.tables.push(table(
            "emd",
            "Earth Mover's Distance between neighbouring block sizes, in bins (shift: signed; negative is towards short distances)",
            &columns![from: Bytes, to: Bytes, emd: Number, shift: Number],
            self.moves,
            usize::MAX,
        ));
        document.tables.push(table(
            "footprints",
            "Footprint by block size (normalised to the smallest)",
            &columns![
                granularity: Bytes, blocks: Count, bytes: Bytes, normalised: Number,
                utilisation: Share,
            ],
            self.footprints,
            usize::MAX,
        ));
        document.tables.push(table(
            "signatures",
            "Reuse signatures (distances in blocks)",
            &columns![granularity: Bytes, from: Number, to: Number, count: Number, share: Share],
            self.signatures,
            96,
        ));
    }
}
