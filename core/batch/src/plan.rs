//! The compiled form of a schema: expected arrays in the order of a record batch message, parents before children.

/// One expected array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Node {
    pub kind: Kind,
    pub nullable: bool,
}

/// The layout of an array: its buffers and children, and the rule for its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool,
    /// `width` bytes a value.
    Fixed {
        width: usize,
        rule: Rule,
    },
    /// Offsets (int64 if `wide`) and bytes.
    Bytes {
        wide: bool,
        utf8: bool,
    },
    View {
        utf8: bool,
    },
    List {
        wide: bool,
    },
    ListView {
        wide: bool,
    },
    FixedList {
        size: usize,
    },
    Struct {
        children: usize,
    },
    Map,
    /// `union` is an index into [`Plan::unions`].
    Union {
        dense: bool,
        union: usize,
    },
    /// `dictionary` is an index into [`Plan::dictionaries`].
    Dictionary {
        index: IndexType,
        dictionary: usize,
    },
    /// Run ends of `width` bytes, then values.
    RunEnd {
        width: usize,
    },
}

/// The rule for values of fixed width, beyond the width. The rules are those of pyarrow's `validate(full=True)`, so
/// that stored rows are valid for every reader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Any,
    /// `abs(value) < 10^precision`.
    Decimal {
        precision: u8,
    },
    /// Milliseconds that are whole days.
    WholeDays,
    /// At least 0 and below `limit` units.
    TimeOfDay {
        limit: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexType {
    pub width: usize,
    pub signed: bool,
}

/// Values of a dictionary, as they are in dictionary batches.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub id: i64,
    pub nodes: Vec<Node>,
}

/// A union's children by type id.
#[derive(Debug)]
pub(crate) struct Union {
    /// `child_of[type id]`; -1 = no such type. Bodies use the format's int8 ids, so the table is indexed by them.
    pub child_of: [i8; 128],
    pub children: usize,
}

/// Everything that a body is checked against.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub nodes: Vec<Node>,
    /// Index in `nodes` of each top-level column, and one past the end.
    pub columns: Vec<usize>,
    pub dictionaries: Vec<Dictionary>,
    pub unions: Vec<Union>,
}

impl Plan {
    /// Index of the array after the one at `at` and all its children.
    pub fn skip(&self, nodes: &[Node], at: usize) -> usize {
        let children = match nodes[at].kind {
            Kind::List { .. } | Kind::ListView { .. } | Kind::FixedList { .. } | Kind::Map => 1,
            Kind::RunEnd { .. } => 2,
            Kind::Struct { children } => children,
            Kind::Union { union, .. } => self.unions[union].children,
            _ => 0,
        };
        (0..children).fold(at + 1, |child, _| self.skip(nodes, child))
    }

    /// Buffers of one array, without those of its children and without the data buffers of views.
    pub fn own_buffers(kind: Kind) -> usize {
        match kind {
            Kind::Null | Kind::RunEnd { .. } => 0,
            Kind::FixedList { .. } | Kind::Struct { .. } | Kind::Union { dense: false, .. } => 1,
            Kind::Bytes { .. } | Kind::ListView { .. } => 3,
            _ => 2,
        }
    }
}
