//! Why a question has no answer.

use ingero_trace::QueryError;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// An argument that whoever asked can mend.
    #[error("{argument}={value} {problem}: {allowed}, e.g. {example}")]
    Argument {
        /// Its name.
        argument: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
        /// What may be given.
        allowed: String,
        /// One that works.
        example: String,
    },
    /// The trace could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
}
