//! How a Rust type becomes a column.

use crate::rows::Text;
use duckdb::arrow::array::{
    ArrayRef, BooleanBuilder, Int16Builder, Int32Builder, Int64Builder, StringBuilder,
};
use duckdb::arrow::datatypes::DataType;
use std::sync::Arc;

/// A type that can be the type of a column.
pub trait Column {
    /// Gathers the values of the column.
    type Builder: ColumnBuilder<Self> + Default + Send;
    /// Whether the column may hold NULL.
    const NULLABLE: bool;
    /// The type of the column in Arrow.
    fn data_type() -> DataType;
}

/// Gathers the values of one column.
pub trait ColumnBuilder<T: ?Sized> {
    /// Adds one value.
    fn append(&mut self, value: T);
    /// Hands the values over and starts again empty.
    fn finish(&mut self) -> ArrayRef;
}

/// Gives a type of our own a default and the two ways (plain, optional) to append.
macro_rules! column {
    ($ty:ty, $Builder:ident, $Inner:ident, $data_type:expr, $value:ident => $plain:expr) => {
        #[derive(Debug, Default)]
        #[doc = concat!("Gathers a column of `", stringify!($ty), "`.")]
        pub struct $Builder($Inner);

        impl Column for $ty {
            type Builder = $Builder;
            const NULLABLE: bool = false;
            fn data_type() -> DataType {
                $data_type
            }
        }
        impl ColumnBuilder<$ty> for $Builder {
            fn append(&mut self, $value: $ty) {
                self.0.append_value($plain);
            }
            fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
        impl Column for Option<$ty> {
            type Builder = $Builder;
            const NULLABLE: bool = true;
            fn data_type() -> DataType {
                $data_type
            }
        }
        impl ColumnBuilder<Option<$ty>> for $Builder {
            fn append(&mut self, value: Option<$ty>) {
                match value {
                    Some($value) => self.0.append_value($plain),
                    None => self.0.append_null(),
                }
            }
            fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
    };
}

column!(bool, BoolColumn, BooleanBuilder, DataType::Boolean, v => v);
column!(i16, SmallintColumn, Int16Builder, DataType::Int16, v => v);
column!(i32, IntegerColumn, Int32Builder, DataType::Int32, v => v);
column!(i64, BigintColumn, Int64Builder, DataType::Int64, v => v);
column!(Text, TextColumn, StringBuilder, DataType::Utf8, v => &v);
column!(String, StringColumn, StringBuilder, DataType::Utf8, v => &v);
