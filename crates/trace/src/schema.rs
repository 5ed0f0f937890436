//! The tables as their DDL files describe them.

use crate::rows::TABLES;

/// The DDL of `trace_info`, whose rows are written by hand because of its list of probes.
pub(crate) const TRACE_INFO_DDL: &str = include_str!("../ddl/trace_info.sql");

/// One column as its DDL line describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDoc {
    /// Name of the column.
    pub name: String,
    /// Its DuckDB type.
    pub data_type: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What it holds, with its unit.
    pub comment: String,
}

/// Name and DDL of every table.
pub fn tables() -> impl Iterator<Item = (&'static str, &'static str)> {
    std::iter::once(("trace_info", TRACE_INFO_DDL)).chain(TABLES.iter().copied())
}

/// The columns of a table, read from its DDL; empty for an unknown table.
pub fn columns_of(table: &str) -> Vec<ColumnDoc> {
    tables()
        .filter(|(name, _)| *name == table)
        .flat_map(|(_, ddl)| ddl.lines().filter_map(column))
        .collect()
}

/// Reads one line of a DDL file: `name TYPE [NOT NULL][,] -- comment`.
fn column(line: &str) -> Option<ColumnDoc> {
    let (definition, comment) = line.strip_prefix("    ")?.split_once("--")?;
    let definition = definition.trim().trim_end_matches(',');
    let (name, rest) = definition.split_once(' ')?;
    let data_type = rest.trim().trim_end_matches("NOT NULL").trim();
    Some(ColumnDoc {
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        nullable: !rest.trim().ends_with("NOT NULL"),
        comment: comment.trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::*;
    use duckdb::arrow::datatypes::DataType;

    /// The struct of a row and the DDL of its table name the same columns with the same types.
    fn same<R: TableRow>() {
        let ddl = columns_of(R::TABLE);
        let batch = R::Buffer::default().take();
        let schema = batch.schema();
        assert_eq!(schema.fields().len(), ddl.len(), "{}", R::TABLE);
        for (field, column) in schema.fields().iter().zip(&ddl) {
            let data_type = match field.data_type() {
                DataType::Boolean => "BOOLEAN",
                DataType::Int16 => "SMALLINT",
                DataType::Int32 => "INTEGER",
                DataType::Int64 => "BIGINT",
                DataType::Utf8 => "VARCHAR",
                other => panic!("no column may have type {other}"),
            };
            assert_eq!(
                (field.name().as_str(), data_type, field.is_nullable()),
                (
                    column.name.as_str(),
                    column.data_type.as_str(),
                    column.nullable
                ),
                "{}",
                R::TABLE
            );
        }
    }

    #[test]
    fn rows_agree_with_their_ddl() {
        same::<ProcessEvent>();
        same::<OffCpu>();
        same::<CpuTime>();
        same::<PageAllocs>();
        same::<CudaCall>();
        same::<BlockIo>();
        same::<SystemSample>();
        same::<GpuSample>();
        same::<ProcessSample>();
        same::<LostEvents>();
        same::<Rollup>();
    }

    #[test]
    fn every_column_has_a_comment() {
        for (table, ddl) in tables() {
            let columns = columns_of(table);
            assert!(!columns.is_empty(), "{table}");
            let lines = ddl.lines().filter(|line| line.starts_with("    ")).count();
            assert_eq!(columns.len(), lines, "a column of {table} has no comment");
            assert!(columns.iter().all(|column| !column.comment.is_empty()));
        }
    }
}
