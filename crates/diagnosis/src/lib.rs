//! The diagnosis: from the numbers about a recording to a verdict in plain language.
//!
//! A pure, deterministic function: [`diagnose`] takes [`Features`] and does no I/O. Each rule has
//! a file of its own under `rules/`; it holds, does not hold, or cannot tell.

mod case;
mod features;
mod output;
mod rules;
mod text;
mod verdict;
mod workers;

pub use features::{
    Budget, Contention, Cores, Features, Feeder, Loader, Neighbour, Part, Readbacks, Recorded,
    Throttled,
};
pub use output::{
    Advice, BudgetPart, Code, Confidence, Diagnosis, Evidence, FeederSummary, Finding, Gain,
    RuledOut, Verdict,
};
pub use verdict::diagnose;
