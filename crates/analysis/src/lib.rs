//! Questions about a trace. Each is a pair of files: what is asked in SQL, and the rows that come
//! back in Rust. Times are nanoseconds since the trace's start.

mod ask;
pub mod call_kind;
pub mod correlate;
pub mod coverage;
pub mod cuda_calls;
mod cuda_functions;
mod error;
pub mod features;
pub mod forks;
pub mod generations;
mod names;
pub mod off_cpu;
mod page;
pub mod pages;
pub mod processes;
pub mod roles;
mod window;

pub use ask::ask;
pub use error::AnalysisError;
pub use page::Page;
pub use window::{Window, known_pid};
