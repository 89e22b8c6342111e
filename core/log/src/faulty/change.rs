//! Changes of a file that are not synced yet.

#[derive(Clone, Debug)]
pub enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Length(usize),
    Punch { position: usize, bytes: usize },
}

impl Change {
    /// Position of a write.
    pub fn position(&self) -> Option<usize> {
        if let Self::Write { position, .. } = self { Some(*position) } else { None }
    }

    /// True if the change covers the byte at `position`.
    pub fn covers(&self, position: usize) -> bool {
        match self {
            Self::Write { position: from, bytes } => (*from..from + bytes.len()).contains(&position),
            Self::Length(bytes) => position >= *bytes,
            Self::Punch { position: from, bytes } => (*from..from.saturating_add(*bytes)).contains(&position),
        }
    }
}

pub fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { position, bytes } => {
            let end = position + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*position..end].copy_from_slice(bytes);
        }
        Change::Length(bytes) => content.resize(*bytes, 0),
        Change::Punch { position, bytes } => {
            let end = (position + bytes).min(content.len());
            content[(*position).min(end)..end].fill(0);
        }
    }
}
