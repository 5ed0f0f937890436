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
    /// The id of a recording that has ended, and who does what in it, which does not change any
    /// more. The files may be replaced by those of another recording.
    roles: OnceLock<(String, Arc<Roles>)>,
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
        if let Some((trace_id, known)) = self.roles.get()
            && *trace_id == info.trace_id
        {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(roles(&self.trace)?);
        if info.ended {
            self.roles
                .get_or_init(|| (info.trace_id.clone(), Arc::clone(&found)));
        }
        Ok(found)
    }
}
