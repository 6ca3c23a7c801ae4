//! Values of samples: all kinds of them, or one as the weight.

use crate::profile::{Profile, Sample};

/// The kind of value that weighs stacks in formats with one weight.
#[derive(Clone, Debug)]
pub struct Weight<'a> {
    /// Name.
    pub name: String,
    /// True if the unit is nanoseconds. Others are counts.
    pub is_time: bool,
    /// Value of a load of each place; 1 without it.
    per_load: Option<&'a [f64]>,
}

impl Weight<'_> {
    /// The weight of loads of a place.
    pub fn of(&self, place: usize, loads: u64) -> f64 {
        loads as f64 * self.per_load.map_or(1.0, |each| each[place])
    }
}

impl Profile {
    /// Names and units of the values, the default first.
    pub fn value_kinds(&self) -> Vec<(String, &'static str)> {
        let mut kinds = vec![("loads".to_string(), "count")];
        let misses = self.misses.iter();
        kinds.extend(misses.map(|m| (format!("misses_{}", m.0), "count")));
        kinds.push(("footprint".into(), "addresses"));
        kinds.push(("reuses".into(), "count"));
        if self.load_ns.is_some() {
            kinds.push(("time".into(), "nanoseconds"));
        }
        kinds
    }

    /// A sample's values, in the order of the kinds.
    pub fn values(&self, sample: &Sample) -> Vec<u64> {
        let loads = sample.loads as f64;
        let scaled = |each: &[f64]| (each[sample.place] * loads).round() as u64;
        let mut values = vec![sample.loads];
        values.extend(self.misses.iter().map(|m| scaled(&m.1)));
        values.push(sample.footprint);
        values.push(sample.reuses);
        values.extend(self.load_ns.iter().map(|ns| scaled(ns)));
        values
    }

    /// The weight of this name: `loads`, `time`, `misses_L1`. The error names those that there are.
    pub fn weight(&self, name: &str) -> Result<Weight<'_>, String> {
        let misses = self.misses.iter();
        let mut all = vec![("loads".to_string(), None)];
        all.extend(self.load_ns.iter().map(|ns| ("time".into(), Some(&ns[..]))));
        all.extend(misses.map(|m| (format!("misses_{}", m.0), Some(&m.1[..]))));
        let found = all.iter().position(|kind| kind.0 == name);
        let Some(at) = found else {
            let names: Vec<&str> = all.iter().map(|kind| kind.0.as_str()).collect();
            return Err(format!(
                "--weight {name}: the trace has no such values; choose {} (misses of samples: add --misses)",
                names.join(", ")
            ));
        };
        let (name, per_load) = all.swap_remove(at);
        Ok(Weight {
            is_time: name == "time",
            name,
            per_load,
        })
    }

    /// Name of a sample's object, or its kind if it has no name.
    pub fn object_name(&self, sample: &Sample) -> &str {
        let object = &self.objects[sample.object as usize];
        match object.name.is_empty() {
            true => object.kind.as_str(),
            false => &object.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_values_per_load() {
        let profile = Profile {
            misses: vec![("L1".into(), vec![0.5, 0.25])],
            load_ns: Some(vec![2.0, 3.0]),
            ..Profile::default()
        };
        let of = |name: &str| profile.weight(name).unwrap().of(1, 8);
        assert_eq!((of("loads"), of("time"), of("misses_L1")), (8.0, 24.0, 2.0));
        assert!(profile.weight("time").unwrap().is_time);
        let unknown = profile.weight("misses_L9").unwrap_err();
        assert!(
            unknown.contains("choose loads, time, misses_L1"),
            "{unknown}"
        );
    }
}
