//! The opened trace, with what can be kept between questions.

use ingero_analysis::AnalysisError;
use ingero_analysis::roles::{Roles, roles};
use ingero_trace::{OpenError, Trace, TraceInfo};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The opened trace.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) trace: Trace,
    /// Who does what does not change any more once the recording has ended.
    roles: OnceLock<Arc<Roles>>,
}

impl Session {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            trace: Trace::open(path)?,
            roles: OnceLock::new(),
        })
    }

    /// Who does what in the job.
    pub(crate) fn roles(&self, info: &TraceInfo) -> Result<Arc<Roles>, AnalysisError> {
        if let Some(known) = self.roles.get() {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(roles(&self.trace)?);
        if info.ended {
            return Ok(Arc::clone(self.roles.get_or_init(|| found)));
        }
        Ok(found)
    }
}
