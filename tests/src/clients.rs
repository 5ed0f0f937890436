//! Other people's programs that the tests run, as `scripts/mcp-clients` installs them.

use crate::{repository, stderr, stdout};
use std::process::Command;

/// Starts one of them, e.g. `mcpb`.
///
/// # Errors
/// Why it is not there, and how to get it.
///
/// # Panics
/// If the script that installs them cannot be started.
pub fn client(name: &str) -> Result<Command, String> {
    let found = Command::new(repository().join("scripts/mcp-clients"))
        .arg("--installed")
        .output()
        .unwrap();
    if !found.status.success() {
        return Err(stderr(&found).trim_end().to_owned());
    }
    let folder = stdout(&found).trim_end().to_owned();
    let mut client = Command::new(format!("{folder}/{name}"));
    // They are scripts for the Node that lies beside them.
    let path = std::env::var("PATH").unwrap();
    client.env("PATH", format!("{folder}:{path}"));
    Ok(client)
}
