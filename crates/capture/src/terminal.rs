//! What the recorder says to its user, on stderr: stdout belongs to the recorded command.

use std::io::Write as _;

/// A problem that does not end the recording.
pub(crate) fn warn(text: &str) {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "\ringero-capture: {text}");
}

/// What to do next.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
