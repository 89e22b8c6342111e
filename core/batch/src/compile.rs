//! Compile an Arrow schema into the plan. Types, nesting and counts are bounded here, so that the checks need not do
//! it.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit, UnionMode};
use arrow::ipc;
use ringfence_wire::{COLUMNS_MAX, NESTING_MAX};

use crate::error::SchemaError;
use crate::plan::{Dictionary, IndexType, Kind, Node, Plan, Rule, Union};

/// Compiles the columns of one schema in order.
#[derive(Default)]
pub(crate) struct Compiler {
    plan: Plan,
    /// Value type of `plan.dictionaries`, for fields that share one.
    value_types: Vec<DataType>,
    arrays: usize,
}

type Out<'o> = &'o mut Vec<Node>;

impl Compiler {
    /// Add the next top-level column.
    pub fn column(&mut self, field: ipc::Field<'_>, data_type: &DataType) -> Result<(), SchemaError> {
        let mut nodes = std::mem::take(&mut self.plan.nodes);
        self.plan.columns.push(nodes.len());
        let name = field.name().unwrap_or_default();
        self.field(name, field, data_type, 1, &mut nodes)?;
        self.plan.nodes = nodes;
        Ok(())
    }

    pub fn finish(mut self) -> Plan {
        self.plan.columns.push(self.plan.nodes.len());
        self.plan
    }

    fn field(
        &mut self,
        path: &str,
        field: ipc::Field<'_>,
        data_type: &DataType,
        depth: usize,
        out: Out<'_>,
    ) -> Result<(), SchemaError> {
        self.arrays += 1;
        if self.arrays > COLUMNS_MAX {
            return Err(SchemaError::TooLarge { what: "fields", found: self.arrays, limit: COLUMNS_MAX });
        }
        if depth > NESTING_MAX {
            return Err(SchemaError::TooLarge { what: "levels of nesting", found: depth, limit: NESTING_MAX });
        }
        let nullable = field.nullable();
        if let DataType::Dictionary(index, values) = data_type {
            let dictionary = self.dictionary(path, field, values, depth)?;
            let index = index_type(index).ok_or_else(|| unsupported(path, data_type))?;
            out.push(Node { kind: Kind::Dictionary { index, dictionary }, nullable });
            return Ok(());
        }
        self.plain(path, field, data_type, depth, out)
    }

    /// The field's own type, without its dictionary encoding.
    fn plain(
        &mut self,
        path: &str,
        field: ipc::Field<'_>,
        data_type: &DataType,
        depth: usize,
        out: Out<'_>,
    ) -> Result<(), SchemaError> {
        let kind = self.kind(path, data_type)?;
        out.push(Node { kind, nullable: field.nullable() });
        let types = child_types(data_type);
        let fields = field.children();
        let found = fields.map_or(0, |fields| fields.len());
        if found != types.len() {
            let need = types.len();
            return Err(SchemaError::Malformed(format!("field {path:?} has {found} children, {data_type} has {need}")));
        }
        for (index, child_type) in types.into_iter().enumerate() {
            let Some(child) = fields.map(|fields| fields.get(index)) else { break };
            let child_path = format!("{path}.{}", child.name().unwrap_or_default());
            self.field(&child_path, child, child_type, depth + 1, out)?;
        }
        Ok(())
    }

    fn kind(&mut self, path: &str, data_type: &DataType) -> Result<Kind, SchemaError> {
        let wrong =
            |why: &str| SchemaError::UnsupportedType { column: path.to_owned(), why: format!("{data_type}: {why}") };
        Ok(match data_type {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Bool,
            DataType::Utf8 => Kind::Bytes { wide: false, utf8: true },
            DataType::LargeUtf8 => Kind::Bytes { wide: true, utf8: true },
            DataType::Binary => Kind::Bytes { wide: false, utf8: false },
            DataType::LargeBinary => Kind::Bytes { wide: true, utf8: false },
            DataType::Utf8View => Kind::View { utf8: true },
            DataType::BinaryView => Kind::View { utf8: false },
            DataType::FixedSizeBinary(width) => {
                let width = usize::try_from(*width).ok().filter(|width| *width > 0);
                Kind::Fixed { width: width.ok_or_else(|| wrong("a width below 1"))?, rule: Rule::Any }
            }
            DataType::List(_) => Kind::List { wide: false },
            DataType::LargeList(_) => Kind::List { wide: true },
            DataType::ListView(_) => Kind::ListView { wide: false },
            DataType::LargeListView(_) => Kind::ListView { wide: true },
            DataType::FixedSizeList(_, size) => {
                Kind::FixedList { size: usize::try_from(*size).map_err(|_| wrong("a size below 0"))? }
            }
            DataType::Struct(fields) => Kind::Struct { children: fields.len() },
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => Kind::Map,
                _ => return Err(wrong("entries that are not pairs")),
            },
            DataType::Union(fields, mode) => {
                let mut child_of = [-1_i8; 128];
                for (child, (id, _)) in (0_i8..).zip(fields.iter()) {
                    child_of[usize::try_from(id).map_err(|_| wrong("a negative type id"))?] = child;
                }
                self.plan.unions.push(Union { child_of, children: fields.len() });
                Kind::Union { dense: *mode == UnionMode::Dense, union: self.plan.unions.len() - 1 }
            }
            DataType::RunEndEncoded(ends, _) => match index_type(ends.data_type()) {
                Some(IndexType { width: width @ (2 | 4 | 8), signed: true }) if !ends.is_nullable() => {
                    Kind::RunEnd { width }
                }
                _ => return Err(wrong("run ends that are not int16, int32 or int64 without nulls")),
            },
            other => fixed(other).ok_or_else(|| unsupported(path, data_type))?,
        })
    }

    fn dictionary(
        &mut self,
        path: &str,
        field: ipc::Field<'_>,
        values: &DataType,
        depth: usize,
    ) -> Result<usize, SchemaError> {
        let id = field.dictionary().map_or(0, |dictionary| dictionary.id());
        if let Some(known) = self.plan.dictionaries.iter().position(|dictionary| dictionary.id == id) {
            if self.value_types[known] == *values {
                return Ok(known);
            }
            let other = &self.value_types[known];
            let why = format!("shares dictionary {id} with a column of {other}, but has {values}");
            return Err(SchemaError::UnsupportedType { column: path.to_owned(), why });
        }
        let mut nodes = Vec::new();
        self.plain(path, field, values, depth, &mut nodes)?;
        // The values may be null even if the column's indexes may not.
        nodes[0].nullable = true;
        self.plan.dictionaries.push(Dictionary { id, nodes });
        self.value_types.push(values.clone());
        Ok(self.plan.dictionaries.len() - 1)
    }
}

fn unsupported(path: &str, data_type: &DataType) -> SchemaError {
    SchemaError::UnsupportedType { column: path.to_owned(), why: format!("{data_type} is not stored") }
}

fn child_types(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => vec![child.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}

fn index_type(data_type: &DataType) -> Option<IndexType> {
    let (width, signed) = match data_type {
        DataType::Int8 => (1, true),
        DataType::Int16 => (2, true),
        DataType::Int32 => (4, true),
        DataType::Int64 => (8, true),
        DataType::UInt8 => (1, false),
        DataType::UInt16 => (2, false),
        DataType::UInt32 => (4, false),
        DataType::UInt64 => (8, false),
        _ => return None,
    };
    Some(IndexType { width, signed })
}

fn fixed(data_type: &DataType) -> Option<Kind> {
    const DAY_SECONDS: i64 = 86_400;
    let (width, rule) = match data_type {
        DataType::Int8 | DataType::UInt8 => (1, Rule::Any),
        DataType::Int16 | DataType::UInt16 | DataType::Float16 => (2, Rule::Any),
        DataType::Int32 | DataType::UInt32 | DataType::Float32 | DataType::Date32 => (4, Rule::Any),
        DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Timestamp(..) | DataType::Duration(_) => {
            (8, Rule::Any)
        }
        DataType::Date64 => (8, Rule::WholeDays),
        DataType::Time32(TimeUnit::Second) => (4, Rule::TimeOfDay { limit: DAY_SECONDS }),
        DataType::Time32(TimeUnit::Millisecond) => (4, Rule::TimeOfDay { limit: DAY_SECONDS * 1_000 }),
        DataType::Time64(TimeUnit::Microsecond) => (8, Rule::TimeOfDay { limit: DAY_SECONDS * 1_000_000 }),
        DataType::Time64(TimeUnit::Nanosecond) => (8, Rule::TimeOfDay { limit: DAY_SECONDS * 1_000_000_000 }),
        DataType::Interval(unit) => match unit {
            IntervalUnit::YearMonth => (4, Rule::Any),
            IntervalUnit::DayTime => (8, Rule::Any),
            IntervalUnit::MonthDayNano => (16, Rule::Any),
        },
        DataType::Decimal32(precision, _) => (4, Rule::Decimal { precision: *precision }),
        DataType::Decimal64(precision, _) => (8, Rule::Decimal { precision: *precision }),
        DataType::Decimal128(precision, _) => (16, Rule::Decimal { precision: *precision }),
        DataType::Decimal256(precision, _) => (32, Rule::Decimal { precision: *precision }),
        _ => return None,
    };
    if let Rule::Decimal { precision } = rule {
        let precision_max = match width {
            4 => 9,
            8 => 18,
            16 => 38,
            _ => 76,
        };
        if precision == 0 || precision > precision_max {
            return None;
        }
    }
    Some(Kind::Fixed { width, rule })
}
