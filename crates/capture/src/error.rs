//! Why a recording failed, and the exit code that says so.

use crate::cuda::CudaError;
use crate::kernel::KernelError;
use crate::launch::LaunchError;
use crate::preflight::PreflightError;
use ingero_trace::WriteError;
use std::process::ExitCode;

/// Any failure of `record`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("cannot record: {0}")]
    Kernel(#[from] KernelError),
    #[error("cannot record CUDA calls: {0}")]
    Cuda(#[from] CudaError),
    #[error("cannot write the trace: {0}")]
    Write(#[from] WriteError),
    #[error("cannot {doing}: {source}")]
    System {
        doing: &'static str,
        source: std::io::Error,
    },
}

impl RecordError {
    /// As `env` and `timeout` do: 125 for a failure of the recorder itself, 126 for a command that
    /// cannot be run, 127 for one that is not there.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Launch(LaunchError::NotFound(_)) => 127,
            Self::Launch(LaunchError::NotExecutable { .. } | LaunchError::NoInterpreter(_)) => 126,
            _ => 125,
        })
    }

    pub(crate) fn system(doing: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}
