//! Settings for one file.

/// Settings for one file, except for those of the analysis.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Path of the input, for the sidecar.
    pub input: String,
    /// Path of the output, for the sidecar.
    pub output: String,
    /// Path of the sidecar for the note, if it is not the output's with `.mgza`.
    pub sidecar_path: Option<Vec<u8>>,
    /// Library search path to be put first.
    pub search_path: Option<crate::link::runpath::SearchPath>,
    /// Libraries that must be loaded before the software backend's runtime, for the note.
    pub before_runtime: Vec<String>,
    /// First record id; by default the input's hash chooses.
    pub id_first: Option<u32>,
    /// True if debug information may come from servers.
    pub debuginfod: bool,
    /// Text that differs between runs with different options.
    pub options_text: String,
}
