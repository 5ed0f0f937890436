//! One struct per table. The columns, their types and units are those of `ddl/<table>.sql`,
//! and a test fails when the two differ.

use crate::columns::{Column, ColumnBuilder};
use duckdb::arrow::array::ArrayRef;
use duckdb::arrow::datatypes::{Field, Schema};
use duckdb::arrow::record_batch::RecordBatch;
use std::borrow::Cow;
use std::sync::Arc;

/// Text that is usually one of a few fixed words.
pub type Text = Cow<'static, str>;

/// A row of one table of the trace.
pub trait TableRow: Sized + Send + 'static {
    /// Name of the table.
    const TABLE: &'static str;
    /// The definition of the table, comments included.
    const DDL: &'static str;
    /// Rows gathered column by column.
    type Buffer: RowBuffer<Self>;
}

/// Rows of one table, gathered column by column.
pub trait RowBuffer<R>: Default + Send {
    /// Adds one row.
    fn push(&mut self, row: R);
    /// How many rows were added since the last [`RowBuffer::take`].
    fn rows(&self) -> usize;
    /// Hands the rows over and starts again empty.
    fn take(&mut self) -> RecordBatch;
}

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident => $Row:ident, $Buffer:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq)]
            #[allow(missing_docs)] // the DDL describes the columns
            pub struct $Row { $(pub $field: $ty),* }

            /// Gathered rows of the table of the same name.
            #[derive(Default)]
            pub struct $Buffer { rows: usize, $($field: <$ty as Column>::Builder),* }

            impl std::fmt::Debug for $Buffer {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.debug_struct(stringify!($Buffer)).field("rows", &self.rows).finish_non_exhaustive()
                }
            }

            impl TableRow for $Row {
                const TABLE: &'static str = stringify!($table);
                const DDL: &'static str = include_str!(concat!("../ddl/", stringify!($table), ".sql"));
                type Buffer = $Buffer;
            }

            impl RowBuffer<$Row> for $Buffer {
                fn push(&mut self, row: $Row) {
                    self.rows += 1;
                    $(ColumnBuilder::<$ty>::append(&mut self.$field, row.$field);)*
                }

                fn rows(&self) -> usize {
                    self.rows
                }

                fn take(&mut self) -> RecordBatch {
                    self.rows = 0;
                    let columns: Vec<(Field, ArrayRef)> = vec![
                        $((Field::new(stringify!($field), <$ty as Column>::data_type(), <$ty as Column>::NULLABLE),
                           ColumnBuilder::<$ty>::finish(&mut self.$field))),*
                    ];
                    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
                    #[allow(clippy::expect_used)] // every column got one value per push
                    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
                        .expect("columns of equal length and of the declared types")
                }
            }
        )*

        /// Names of all tables, in the order of the documentation.
        pub const TABLES: &[(&str, &str)] = &[$((<$Row as TableRow>::TABLE, <$Row as TableRow>::DDL)),*];

        /// Gathered rows of every table.
        #[derive(Debug, Default)]
        pub(crate) struct Buffers { $($table: $Buffer),* }

        impl Buffers {
            /// Hands over the rows of every table that has some.
            pub(crate) fn take(&mut self) -> Vec<(&'static str, RecordBatch)> {
                let mut batches = Vec::new();
                $(if self.$table.rows() > 0 {
                    batches.push((stringify!($table), self.$table.take()));
                })*
                batches
            }

            /// Rows of the fullest table.
            pub(crate) fn most_rows(&self) -> usize {
                [$(self.$table.rows()),*].into_iter().max().unwrap_or(0)
            }
        }

        $(
            impl Buffered for $Row {
                fn buffer(buffers: &mut Buffers) -> &mut Self::Buffer {
                    &mut buffers.$table
                }
            }
        )*
    };
}

/// Where the rows of one table are gathered.
pub(crate) trait Buffered: TableRow {
    fn buffer(buffers: &mut Buffers) -> &mut Self::Buffer;
}

tables! {
    /// One event in the life of a process or thread.
    process_events => ProcessEvent, ProcessEventBuffer {
        ts_ns: i64, kind: Text, pid: i32, tid: i32, parent_pid: Option<i32>, name: Text,
        command_line: Option<String>, exit_status: Option<i32>, cgroup: Option<String>,
    }
    /// One interval off the CPU.
    off_cpu => OffCpu, OffCpuBuffer {
        ts_ns: i64, pid: i32, tid: i32, cpu: i16, ran_ns: i64, blocked_ns: i64, wake_ns: i64,
        runq_ns: i64, idle_before: bool, state: Text, waker_tid: Option<i32>,
        waker_pid: Option<i32>, waker_context: Option<Text>, taker_tid: Option<i32>,
        clipped: bool, open: bool, continued: bool,
    }
    /// CPU time of one process in one bucket.
    cpu_time => CpuTime, CpuTimeBuffer {
        ts_ns: i64, pid: i32, name: Text, run_ns: i64, switches: i64,
    }
    /// Pages allocated by one process in one bucket.
    page_allocs => PageAllocs, PageAllocsBuffer {
        ts_ns: i64, pid: i32, page_order: i16, count: i64, bytes: i64,
    }
    /// One CUDA call.
    cuda_calls => CudaCall, CudaCallBuffer {
        ts_ns: i64, dur_ns: i64, pid: i32, tid: i32, layer: Text, call: Text, bytes: Option<i64>,
        direction: Option<Text>, stream: Option<i64>, status: Option<i32>, open: bool,
        continued: bool, nested: Option<i32>,
    }
    /// One block request.
    block_io => BlockIo, BlockIoBuffer {
        ts_ns: i64, dur_ns: i64, pid: i32, device: Text, bytes: i64, direction: Text,
    }
    /// One sample of the host.
    system_samples => SystemSample, SystemSampleBuffer {
        ts_ns: i64, runnable: i32, cpu_busy_ns: i64, cpu_iowait_ns: i64, cpu_steal_ns: i64,
        mem_available_bytes: i64, swap_used_bytes: i64, psi_cpu_some_us: Option<i64>,
        psi_memory_some_us: Option<i64>, psi_io_some_us: Option<i64>,
        cgroup_periods: Option<i64>, cgroup_throttled: Option<i64>,
        cgroup_throttled_us: Option<i64>,
    }
    /// One sample of one GPU.
    gpu_samples => GpuSample, GpuSampleBuffer {
        ts_ns: i64, gpu: i32, utilization_pct: Option<i32>, memory_used_bytes: Option<i64>,
        sm_clock_mhz: Option<i32>, throttle_reasons: Option<i64>,
    }
    /// One sample of one process.
    process_samples => ProcessSample, ProcessSampleBuffer {
        ts_ns: i64, pid: i32, rchar_bytes: i64, read_bytes: i64, minflt: i64, majflt: i64,
        threads: i32, rss_bytes: i64,
    }
    /// Events lost in one second.
    lost_events => LostEvents, LostEventsBuffer {
        ts_ns: i64, class: Text, count: i64,
    }
    /// A sum where single events were not kept.
    rollups => Rollup, RollupBuffer {
        ts_ns: i64, bucket_ns: i64, source: Text, pid: i32, count: i64, sum_ns: i64,
        min_ns: Option<i64>, max_ns: Option<i64>,
    }
}
