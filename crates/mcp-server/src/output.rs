//! What commands print. The server never prints: its standard output belongs to the protocol.

use std::io::{self, Write};

/// Prints `text` and ends the line.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        // Whoever read the beginning wanted no more, as with `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
