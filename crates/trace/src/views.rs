//! The views that a reader's statements see, and the lock that keeps them inside the trace.

use crate::open_error::OpenError;
use crate::schema::{ColumnDoc, columns_of, tables};
use crate::{escape_glob, sql_quote};
use duckdb::{Connection, Params, params};
use std::path::Path;

pub(crate) fn attach(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    connection
        .execute_batch(&format!(
            "ATTACH {} AS packed (READ_ONLY);",
            sql_quote(&path.to_string_lossy())
        ))
        .map_err(|source| OpenError::Database {
            path: path.to_owned(),
            source,
        })
}

pub(crate) fn is_base_table(connection: &Connection, table: &str) -> duckdb::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 FROM duckdb_tables()
         WHERE database_name = 'packed' AND schema_name = 'main' AND table_name = ?",
        [table],
        |row| row.get(0),
    )
}

/// The names of the columns of what a table is read from.
pub(crate) fn column_names(
    connection: &Connection,
    from: &str,
    parameters: impl Params,
) -> duckdb::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {from} LIMIT 0"))?;
    drop(statement.query(parameters)?);
    Ok(statement.column_names())
}

/// The value of a column where the columns `present` are: cast to what the DDL says, so that a foreign
/// type fails here. A column that may be NULL is NULL in a trace from before there was such a column.
pub(crate) fn value(column: &ColumnDoc, present: &[String]) -> String {
    let ColumnDoc {
        name, data_type, ..
    } = column;
    if column.nullable && !present.contains(name) {
        return format!("NULL::{data_type}");
    }
    format!("{name}::{data_type}")
}

/// The columns of a view.
fn select_list(table: &str, present: &[String]) -> String {
    let columns: Vec<String> = columns_of(table)
        .iter()
        .map(|column| format!("{} AS {}", value(column, present), column.name))
        .collect();
    columns.join(", ")
}

/// Empty tables to stand in where a table has no usable segment.
pub(crate) fn define_empty_tables(connection: &Connection) -> duckdb::Result<()> {
    connection.execute_batch("CREATE SCHEMA empty; USE memory.empty;")?;
    for (_, ddl) in tables() {
        connection.execute_batch(ddl)?;
    }
    connection.execute_batch("USE memory.main;")
}

/// Points the view of a table at these segments. The files are named by a variable, since a view
/// takes no parameters.
pub(crate) fn define_segment_view(
    connection: &Connection,
    table: &str,
    folder: &Path,
    names: &[String],
) -> duckdb::Result<()> {
    let files = format!("getvariable('{table}_files')");
    let (rows, present) = if names.is_empty() {
        let rows = format!("empty.{table}");
        let present = column_names(connection, &rows, [])?;
        (rows, present)
    } else {
        connection.execute(
            &format!(
                "SET VARIABLE {table}_files =
                     list_transform(string_split(?, '/'), lambda name: concat(?, name))"
            ),
            params![names.join("/"), format!("{}/", escape_glob(folder))],
        )?;
        // All were written by one recorder.
        let present = column_names(connection, &format!("read_parquet({files}[1])"), [])?;
        (
            format!("read_parquet({files}, union_by_name = true)"),
            present,
        )
    };
    connection.execute_batch(&format!(
        "CREATE OR REPLACE VIEW {table} AS SELECT {} FROM {rows};",
        select_list(table, &present)
    ))
}

pub(crate) fn define_packed_views(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    for (table, _) in tables() {
        if !is_base_table(connection, table).map_err(OpenError::Start)? {
            return Err(OpenError::NotATrace {
                path: path.to_owned(),
                why: format!("it has no table {table}"),
            });
        }
        let rows = format!("packed.main.{table}");
        column_names(connection, &rows, [])
            .and_then(|present| {
                connection.execute_batch(&format!(
                    "CREATE VIEW {table} AS SELECT {} FROM {rows};",
                    select_list(table, &present)
                ))
            })
            .map_err(|source| OpenError::NotATrace {
                path: path.to_owned(),
                why: format!("its table {table} has other columns ({source})"),
            })?;
    }
    Ok(())
}

/// Closes the door: from here on DuckDB reads nothing but `folder`, and no setting can be changed.
pub(crate) fn lock(connection: &Connection, folder: Option<&Path>) -> duckdb::Result<()> {
    // DuckDB compares a path as it was written, with its patterns escaped.
    let allowed = folder.map_or_else(String::new, |folder| {
        let plain = sql_quote(&folder.to_string_lossy());
        format!("{plain}, {}", sql_quote(&escape_glob(folder)))
    });
    connection.execute_batch(&format!(
        "SET allowed_directories = [{allowed}];
         SET autoinstall_known_extensions = false;
         SET autoload_known_extensions = false;
         SET allow_community_extensions = false;
         SET enable_external_access = false;
         SET lock_configuration = true;"
    ))
}
