//! Which part of a long list is wanted.

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows wanted.
    pub limit: u32,
    /// Rows to leave out before them.
    pub offset: u32,
}

impl Page {
    /// The first `limit` rows.
    pub fn first(limit: u32) -> Self {
        Self { limit, offset: 0 }
    }

    /// This part of `rows`, which hold the whole list.
    pub fn of<T>(self, rows: Vec<T>) -> Vec<T> {
        rows.into_iter()
            .skip(self.offset as usize)
            .take(self.limit as usize)
            .collect()
    }
}
