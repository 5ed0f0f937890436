//! What processes and threads are called.

use ingero_trace::duckdb::{self, Connection};
use std::collections::HashMap;

/// Names by thread.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<i32, (i32, String)>);

impl Names {
    pub(crate) fn read(c: &Connection) -> duckdb::Result<Self> {
        c.prepare(include_str!("names.sql"))?
            .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
            .collect::<duckdb::Result<_>>()
            .map(Self)
    }

    /// The name of a thread, the empty text if none was seen.
    pub(crate) fn of(&self, tid: i32) -> String {
        self.0
            .get(&tid)
            .map(|(_, name)| name.clone())
            .unwrap_or_default()
    }

    /// The process of a thread.
    pub(crate) fn pid_of(&self, tid: i32) -> Option<i32> {
        self.0.get(&tid).map(|(pid, _)| *pid)
    }
}
