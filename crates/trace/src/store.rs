//! Storing batches as segments, and merging segments. Runs in the writer's own thread.

use crate::info::TraceInfo;
use crate::schema::tables;
use crate::segments::{self, Segment, table_folder};
use crate::sql_quote;
use crate::writer::WriteError;
use duckdb::arrow::record_batch::RecordBatch;
use duckdb::{Connection, params};
use std::fs;
use std::path::{Path, PathBuf};

/// How segments are encoded. Version 2 has delta encodings, which suit sorted times.
const PARQUET: &str = "(FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION V2)";

/// More rows than this are not sorted: sorting holds all of them in memory. A segment that is merged
/// from sorted ones stays nearly sorted without it.
const SORT_ROWS: u64 = 400_000;

/// A table smaller than this is merged into a single segment when the recording ends.
const MERGE_ALL_BYTES: u64 = 64 << 20;

/// Writes the segments of one trace.
pub(crate) struct Store {
    connection: Connection,
    events: PathBuf,
    owner: Option<(u32, u32)>,
    bytes: u64,
}

impl Store {
    /// Prepares the folders and the staging tables, and gives every table an empty segment.
    pub(crate) fn create(events: &Path, owner: Option<(u32, u32)>) -> Result<Self, WriteError> {
        let connection = Connection::open_in_memory().map_err(WriteError::Start)?;
        connection
            .execute_batch(
                "SET threads = 1; SET memory_limit = '256MB'; SET temp_directory = '';
                 CREATE TABLE probes (name VARCHAR, attached BOOLEAN, reason VARCHAR);",
            )
            .map_err(WriteError::Start)?;
        let mut store = Self {
            connection,
            events: events.to_owned(),
            owner,
            bytes: 0,
        };
        store.make_folder(events)?;
        for (table, ddl) in tables() {
            store
                .connection
                .execute_batch(ddl)
                .map_err(WriteError::Start)?;
            store.make_folder(&table_folder(events, table))?;
            store.copy_out(table, table, &Segment::single(0))?;
        }
        Ok(store)
    }

    fn make_folder(&self, folder: &Path) -> Result<(), WriteError> {
        fs::create_dir(folder)
            .and_then(|()| self.give_to_owner(folder))
            .map_err(|source| WriteError::File {
                path: folder.to_owned(),
                source,
            })
    }

    pub(crate) fn give_to_owner(&self, path: &Path) -> std::io::Result<()> {
        match self.owner {
            Some((uid, gid)) => std::os::unix::fs::lchown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Bytes of all segments written, merged ones not counted again.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the batches of one flush as segments, and then `info`, which says that they are there.
    pub(crate) fn flush(
        &mut self,
        flush: u64,
        batches: Vec<(&'static str, RecordBatch)>,
        info: &TraceInfo,
    ) -> Result<(), WriteError> {
        let segment = Segment::single(flush);
        for (table, batch) in batches {
            self.connection
                .appender(table)
                .and_then(|mut appender| {
                    appender.append_record_batch(batch)?;
                    appender.flush()
                })
                .map_err(|source| WriteError::Segment { table, source })?;
            self.store_staged(table, &segment)?;
        }
        self.stage_info(info)
            .map_err(|source| WriteError::Segment {
                table: "trace_info",
                source,
            })?;
        self.store_staged("trace_info", &segment)?;
        self.drop_old_info(&segment);
        Ok(())
    }

    /// Stores the staged rows of a table and empties it, also when that failed: rows that could
    /// not be stored once are not carried into later segments.
    fn store_staged(&mut self, table: &'static str, segment: &Segment) -> Result<(), WriteError> {
        let source = self
            .sorted(table)
            .map_err(|source| WriteError::Segment { table, source });
        let stored = source.and_then(|source| self.copy_out(table, &source, segment).map(|_| ()));
        let emptied = self
            .connection
            .execute_batch(&format!("TRUNCATE {table};"))
            .map_err(|source| WriteError::Segment { table, source });
        stored.and(emptied)
    }

    /// A query for `rows` of a table, in the order of time unless they are too many.
    fn sorted(&self, rows: &str) -> duckdb::Result<String> {
        let count: u64 =
            self.connection
                .query_row(&format!("SELECT count(*) FROM {rows}"), [], |row| {
                    row.get(0)
                })?;
        let order = if count <= SORT_ROWS {
            " ORDER BY ts_ns"
        } else {
            ""
        };
        Ok(format!("(SELECT * FROM {rows}{order})"))
    }

    /// Copies rows into a segment under a temporary name and renames it, so that a reader never
    /// sees half a file.
    fn copy_out(
        &mut self,
        table: &'static str,
        source: &str,
        segment: &Segment,
    ) -> Result<PathBuf, WriteError> {
        let folder = table_folder(&self.events, table);
        let path = folder.join(segment.file_name());
        let temporary = folder.join(format!("{}.tmp", segment.file_name()));
        let target = sql_quote(&temporary.to_string_lossy());
        let copied = self
            .connection
            .execute_batch(&format!("COPY {source} TO {target} {PARQUET};"));
        if let Err(source) = copied {
            // The failure matters, not whether its remains could be removed.
            let _ = fs::remove_file(&temporary);
            return Err(WriteError::Segment { table, source });
        }
        self.give_to_owner(&temporary)
            .and_then(|()| fs::metadata(&temporary))
            .map(|metadata| self.bytes += metadata.len())
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|source| WriteError::File {
                path: path.clone(),
                source,
            })?;
        Ok(path)
    }

    fn stage_info(&self, info: &TraceInfo) -> duckdb::Result<()> {
        self.connection.execute_batch("TRUNCATE probes;")?;
        let mut appender = self.connection.appender("probes")?;
        for probe in &info.probes {
            appender.append_row(params![probe.name, probe.attached, probe.reason])?;
        }
        appender.flush()?;
        drop(appender);
        self.connection.execute(
            include_str!("insert_trace_info.sql"),
            params![
                info.ts_ns,
                info.schema_version,
                info.trace_id,
                info.host,
                info.kernel,
                info.cpu_model,
                info.cores_online,
                info.cores_affinity,
                info.affinity_cpus,
                info.cgroup_quota_cores,
                info.cores_usable,
                info.smt_active,
                info.memory_bytes,
                info.gpus,
                info.driver_version,
                info.cuda_libraries,
                info.command,
                info.target_kind,
                info.target_pid,
                info.start_utc_us,
                info.duration_ns,
                info.ended,
                info.end_reason,
                info.exit_status,
                info.recorder_version,
                info.recorder_cpu_ns,
                info.probe_pair_cost_ns,
            ],
        )?;
        Ok(())
    }

    /// Only the newest row of `trace_info` counts: the older segments go, but for the empty one.
    fn drop_old_info(&self, newest: &Segment) {
        let folder = table_folder(&self.events, "trace_info");
        for old in segments::list(&folder).unwrap_or_default() {
            if old.first != 0 && old.last < newest.first {
                // A leftover is harmless: readers take the last row.
                let _ = fs::remove_file(folder.join(old.file_name()));
            }
        }
    }

    /// Merges the segments of single flushes of every table into one synced file each.
    pub(crate) fn merge_singles(&mut self) -> Result<(), WriteError> {
        for (table, _) in tables().filter(|(table, _)| *table != "trace_info") {
            let mut singles = self.list(table)?;
            singles.retain(|segment| segment.first == segment.last && segment.first != 0);
            self.merge(table, &singles)?;
        }
        Ok(())
    }

    /// Merges all segments of every table that is not too large for that.
    pub(crate) fn merge_all(&mut self) -> Result<(), WriteError> {
        self.merge_singles()?;
        for (table, _) in tables().filter(|(table, _)| *table != "trace_info") {
            let folder = table_folder(&self.events, table);
            let segments = self.list(table)?;
            let bytes: u64 = segments
                .iter()
                .filter_map(|segment| fs::metadata(folder.join(segment.file_name())).ok())
                .map(|metadata| metadata.len())
                .sum();
            if bytes <= MERGE_ALL_BYTES {
                self.merge(table, &segments)?;
            }
        }
        self.bytes = self.bytes_on_disk()?;
        Ok(())
    }

    fn bytes_on_disk(&self) -> Result<u64, WriteError> {
        let mut bytes = 0;
        for (table, _) in tables() {
            let folder = table_folder(&self.events, table);
            for segment in self.list(table)? {
                let path = folder.join(segment.file_name());
                bytes += fs::metadata(&path)
                    .map_err(|source| WriteError::File { path, source })?
                    .len();
            }
        }
        Ok(bytes)
    }

    fn list(&self, table: &str) -> Result<Vec<Segment>, WriteError> {
        let folder = table_folder(&self.events, table);
        segments::list(&folder).map_err(|source| WriteError::File {
            path: folder,
            source,
        })
    }

    fn merge(&mut self, table: &'static str, parts: &[Segment]) -> Result<(), WriteError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(());
        };
        if parts.len() < 2 {
            return Ok(());
        }
        let folder = table_folder(&self.events, table);
        let files: Vec<String> = parts
            .iter()
            .map(|part| sql_quote(&folder.join(part.file_name()).to_string_lossy()))
            .collect();
        let rows = format!("read_parquet([{}])", files.join(", "));
        let source = self
            .sorted(&rows)
            .map_err(|source| WriteError::Segment { table, source })?;
        let merged = Segment {
            first: first.first,
            last: last.last,
        };
        let bytes = self.bytes;
        let path = self.copy_out(table, &source, &merged)?;
        self.bytes = bytes;
        // The merged file must be on the disk before the ones it replaces go.
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|source| WriteError::File { path, source })?;
        for part in parts {
            // What stays behind is covered by the merged file, and readers leave it out.
            let _ = fs::remove_file(folder.join(part.file_name()));
        }
        Ok(())
    }
}
