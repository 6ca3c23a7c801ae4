//! Predicted misses of a trace: first those that a screen shows, later those of every table.

use crate::data::code_map::Target;
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::data::object_map::{Recent, Resolver, UNKNOWN};
use crate::data::samples::SampleInfo;
use crate::engine::EngineOutcome;
use crate::input::Trace;
use crate::misses::{Predicted, Predictor, Watches};
use crate::report::questions::{Questions, hierarchy, is_thinned};
use crate::stages::line_visits::{LineVisits, Visit};

/// See the module's text.
pub(super) struct Prediction<'a> {
    /// The misses in the detail that is needed first.
    pub(super) predicted: Option<Predicted>,
    /// Predicts the others; none if all misses were counted, or if no prediction is possible.
    predictor: Option<Predictor<'a>>,
}

impl<'a> Prediction<'a> {
    /// Predicts the misses of the requested caches. `lines` are those of the outcome.
    pub(super) fn new(
        (trace, questions): (&Trace, &Questions),
        (outcome, lines): (&EngineOutcome, &'a LineVisits),
        objects: Option<&Resolver>,
        detail: Detail,
    ) -> Prediction<'a> {
        let mut prediction = Prediction {
            predicted: None,
            predictor: None,
        };
        if is_thinned(questions) {
            return prediction;
        }
        if trace.manifest.mode.has_all_loads() {
            let has_lines = questions.block == LINE_BYTES;
            prediction.predicted = has_lines
                .then(|| Predicted::exact(outcome, hierarchy(trace, questions)))
                .flatten();
        } else if questions.misses {
            prediction.predictor = predictor((trace, questions), (outcome, lines), objects);
            prediction.predicted = prediction.in_detail(detail);
        }
        prediction
    }

    /// The misses in another detail.
    pub(super) fn in_detail(&self, detail: Detail) -> Option<Predicted> {
        match &self.predictor {
            Some(predictor) => predictor.predict(detail, Watches::Used),
            None => self.predicted.clone(),
        }
    }

    /// The misses at the levels, without watched reuses.
    pub(super) fn unwatched(&self) -> Option<Predicted> {
        let predictor = self.predictor.as_ref()?;
        predictor.predict(Detail::Screen(0), Watches::LeftOut)
    }

    /// The warning that the caches are not those of the machine.
    pub(super) fn warning(&self, trace: &Trace, questions: &Questions) -> Option<String> {
        let is_guess = self.predictor.is_some()
            && self.predicted.is_some()
            && questions.asked_for_misses
            && trace.manifest.caches.is_empty();
        is_guess.then(|| "the trace does not describe the caches of its machine: misses are predicted for common ones (32K, 1M, 32M); --caches names others".into())
    }
}

fn predictor<'a>(
    (trace, questions): (&Trace, &Questions),
    (outcome, lines): (&EngineOutcome, &'a LineVisits),
    objects: Option<&Resolver>,
) -> Option<Predictor<'a>> {
    let function = |group: Group| {
        let functions = trace.code.targets(Target::Function, group);
        functions.first().copied().unwrap_or(u32::MAX)
    };
    let object = |visit: &Visit, sample: &SampleInfo, recent: &mut Recent| {
        objects.map_or(UNKNOWN, |objects| {
            let middle = sample.first_time + sample.last_time.saturating_sub(sample.first_time) / 2;
            objects.find_recent(recent, sample.process, visit.address(), middle)
        })
    };
    let counts = (outcome, lines, outcome.pairs.as_deref());
    let by_time = trace.manifest.triggers_by_time();
    Predictor::new(
        counts,
        hierarchy(trace, questions),
        by_time,
        function,
        object,
    )
}
