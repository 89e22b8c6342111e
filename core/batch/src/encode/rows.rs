//! The rows of one message.

/// The rows of one partition. All lie within the batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    Order(&'a [u32]),
    Range { start: usize, rows: usize },
}

impl Rows<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Order(order) => order.len(),
            Self::Range { rows, .. } => *rows,
        }
    }

    /// Call `visit` with every row of the batch in the order of the message. Each form has its own tight loop.
    #[inline]
    pub fn each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Self::Order(order) => order.iter().for_each(|row| visit(*row as usize)),
            Self::Range { start, rows } => (*start..start + rows).for_each(visit),
        }
    }
}
