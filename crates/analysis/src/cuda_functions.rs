//! Which functions of CUDA a process called, by what they do.

use crate::call_kind::CallKind;
use ingero_trace::duckdb::{self, Connection, named_params};

/// Functions, with the directions of copies.
#[derive(Debug)]
pub(crate) struct Functions(Vec<(String, String)>);

impl Functions {
    /// The functions that process `pid` called before `end_ns` and whose kind is `wanted`.
    pub(crate) fn of(
        c: &Connection,
        pid: i32,
        end_ns: i64,
        wanted: fn(CallKind) -> bool,
    ) -> duckdb::Result<Self> {
        let mut functions: Vec<(String, String)> = c
            .prepare(include_str!("cuda_functions.sql"))?
            .query_map(named_params! { "pid": pid, "end_ns": end_ns }, |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<duckdb::Result<_>>()?;
        functions.retain(|(call, direction)| wanted(CallKind::of(call, Some(direction))));
        Ok(Self(functions))
    }

    /// For each in the same order, whether its kind is `wanted`.
    pub(crate) fn flags(&self, wanted: fn(CallKind) -> bool) -> String {
        let flags: Vec<&str> = self
            .0
            .iter()
            .map(|(call, of)| CallKind::of(call, Some(of)))
            .map(|kind| if wanted(kind) { "true" } else { "false" })
            .collect();
        flags.join(",")
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, as one parameter of a query.
    pub(crate) fn calls(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(call, _)| call.as_str()).collect();
        names.join(",")
    }

    /// Their directions in the same order; empty where they have none.
    pub(crate) fn directions(&self) -> String {
        let directions: Vec<&str> = self.0.iter().map(|(_, of)| of.as_str()).collect();
        directions.join(",")
    }
}
