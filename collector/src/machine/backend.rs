//! Which backend records a program, and why.
//!
//! The program decides: its probes are of one flavour. This module reports when the machine cannot
//! record that flavour, or when the user asked for another.

use crate::machine::capabilities::ProbeReport;
use crate::program::modules::Instrumented;
use crate::program::refusal::Refusal;
use clap::ValueEnum;
use mgz_abi::module_note::{FEATURE_TRANSLATED, FLAVOUR_PT};

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Rings in the program's memory.
    Soft,
    /// Intel PT.
    Pt,
}

/// The backend, with the reason for it as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The backend.
    pub backend: Chosen,
    /// Why.
    pub why: String,
}

/// Requirements of Intel PT that are missing here, with the remedies; empty if it can record.
pub fn pt_obstacles(report: &ProbeReport) -> String {
    let list: Vec<String> = report
        .pt_missing
        .iter()
        .filter(|m| m.required)
        .map(|m| format!("{} ({})", m.what, m.remedy))
        .collect();
    list.join("; ")
}

/// True if all modules can be recorded in `burst`, as far as they are known.
pub fn serves_burst(modules: &[Instrumented]) -> bool {
    modules
        .iter()
        .all(|m| m.note.features & FEATURE_TRANSLATED != 0)
}

/// Chooses. The machine is only looked at if Intel PT comes into question.
pub fn choose_backend(
    asked: Backend,
    modules: &[Instrumented],
    probe: impl FnOnce() -> ProbeReport,
) -> Result<Choice, Refusal> {
    let no = |text: String| Err(Refusal::CannotRecord(text));
    let with_pt: Vec<_> = modules
        .iter()
        .filter(|m| m.note.flavour == FLAVOUR_PT)
        .collect();
    let Some(first) = with_pt
        .first()
        .or(modules.first().as_ref())
        .map(|m| m.path.display().to_string())
    else {
        // A program without instrumentation may start instrumented ones, which are unknown yet.
        return match asked {
            Backend::Auto | Backend::Soft => Ok(Choice {
                backend: Chosen::Soft,
                why: "for what the program starts".into(),
            }),
            Backend::Pt => {
                let obstacles = pt_obstacles(&probe());
                if !obstacles.is_empty() {
                    return no(format!(
                        "--backend pt: this machine cannot record with Intel PT: {obstacles}"
                    ));
                }
                Ok(Choice {
                    backend: Chosen::Pt,
                    why: "as asked for".into(),
                })
            }
        };
    };
    if with_pt.is_empty() {
        return match asked {
            Backend::Auto | Backend::Soft => Ok(Choice {
                backend: Chosen::Soft,
                why: "the program is instrumented for it".into(),
            }),
            Backend::Pt => {
                let obstacles = pt_obstacles(&probe());
                let text =
                    format!("--backend pt: {first} is instrumented for the software backend");
                if obstacles.is_empty() {
                    no(format!(
                        "{text}; run `mgz-instrument --backend pt` on the original, or record with --backend soft"
                    ))
                } else {
                    no(format!(
                        "{text}, and this machine cannot record with Intel PT: {obstacles}; record with --backend soft"
                    ))
                }
            }
        };
    }
    if let Some(other) = modules.iter().find(|m| m.note.flavour != FLAVOUR_PT) {
        return no(format!(
            "{first} is instrumented for Intel PT and {} for the software backend; instrument them together (`mgz-instrument --libs` on the program)",
            other.path.display()
        ));
    }
    if asked == Backend::Soft {
        return no(format!(
            "--backend soft: {first} is instrumented for Intel PT; run `mgz-instrument --backend soft` on the original"
        ));
    }
    let obstacles = pt_obstacles(&probe());
    if !obstacles.is_empty() {
        return no(format!(
            "{first} is instrumented for Intel PT, which this machine cannot record: {obstacles}; or run `mgz-instrument --backend soft` on the original"
        ));
    }
    Ok(Choice {
        backend: Chosen::Pt,
        why: "the program is instrumented for it, and this machine can record it".into(),
    })
}

/// `--backend`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// pt if the program is instrumented for it and this machine can record it, else soft
    Auto,
    /// Rings in the program's memory
    Soft,
    /// Intel Processor Trace
    Pt,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::missing::Missing;
    use mgz_abi::module_note::{FLAVOUR_SOFT, ModuleNote};

    fn module(path: &str, flavour: u32) -> Instrumented {
        Instrumented {
            path: path.into(),
            note: ModuleNote {
                flavour,
                ..ModuleNote::default()
            },
            sidecar: "x".into(),
        }
    }

    fn able() -> ProbeReport {
        ProbeReport::default()
    }

    fn unable() -> ProbeReport {
        let missing = |required, what: &str| Missing {
            required,
            what: what.into(),
            remedy: "buy one".into(),
        };
        ProbeReport {
            pt_missing: vec![
                missing(true, "CPUID shows no Intel PT"),
                missing(false, "little memory"),
            ],
            ..ProbeReport::default()
        }
    }

    fn refused(asked: Backend, modules: &[Instrumented], probe: fn() -> ProbeReport) -> String {
        let refusal = choose_backend(asked, modules, probe).unwrap_err();
        assert_eq!(refusal.status(), 125);
        refusal.to_string()
    }

    #[test]
    fn the_flavour_decides() {
        let (soft, pt) = ([module("s", FLAVOUR_SOFT)], [module("p", FLAVOUR_PT)]);
        let backend =
            |asked, modules: &[Instrumented]| choose_backend(asked, modules, able).unwrap().backend;
        assert_eq!(
            (backend(Backend::Auto, &soft), backend(Backend::Soft, &soft)),
            (Chosen::Soft, Chosen::Soft)
        );
        assert_eq!(
            (backend(Backend::Auto, &pt), backend(Backend::Pt, &pt)),
            (Chosen::Pt, Chosen::Pt)
        );
        // The machine is not looked at for software recording.
        assert!(choose_backend(Backend::Auto, &soft, || panic!("no probe")).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        let (soft, pt) = (module("s", FLAVOUR_SOFT), module("p", FLAVOUR_PT));
        let text = refused(Backend::Auto, std::slice::from_ref(&pt), unable);
        assert_eq!(
            text,
            "p is instrumented for Intel PT, which this machine cannot record: CPUID shows no Intel PT (buy one); or run `mgz-instrument --backend soft` on the original"
        );
        assert!(refused(Backend::Pt, std::slice::from_ref(&soft), unable).contains("cannot record with Intel PT: CPUID shows no Intel PT (buy one); record with --backend soft"));
        assert!(
            refused(Backend::Pt, std::slice::from_ref(&soft), able)
                .contains("mgz-instrument --backend pt")
        );
        assert!(
            refused(Backend::Soft, std::slice::from_ref(&pt), able)
                .contains("mgz-instrument --backend soft")
        );
        assert!(refused(Backend::Auto, &[soft, pt], able).contains("together"));
    }
}
