//! Arrays of every type from a seed. The generator is `SplitMix64` (Steele, Lea, Flood 2014): small, and the same
//! everywhere.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BooleanBufferBuilder, DictionaryArray, Int16Array, RunArray, StringArray, UnionArray,
    make_array,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int16Type, IntervalUnit, TimeUnit, UnionFields, UnionMode};

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn nulls(&mut self, rows: usize) -> Option<NullBuffer> {
        let nulls: NullBuffer = (0..rows).map(|_| self.below(4) != 0).collect::<Vec<_>>().into();
        (nulls.null_count() > 0).then_some(nulls)
    }
}

fn field(name: &str, data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, nullable))
}

/// Every type that is tested, with nesting.
pub fn types() -> Vec<DataType> {
    use DataType as T;
    let pair = Fields::from(vec![field("key", T::Utf8, false), field("value", T::Int64, true)]);
    let mut types = vec![
        T::Null,
        T::Boolean,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Float32,
        T::Float64,
        T::Date32,
        T::Date64,
        T::Utf8,
        T::LargeUtf8,
        T::Utf8View,
        T::Binary,
        T::LargeBinary,
        T::BinaryView,
        T::FixedSizeBinary(5),
        T::Decimal32(7, 2),
        T::Decimal64(15, 2),
        T::Decimal128(15, 2),
        T::Decimal128(30, 4),
        T::Decimal256(50, 4),
    ];
    types.extend([TimeUnit::Second, TimeUnit::Millisecond].map(T::Time32));
    types.extend([TimeUnit::Microsecond, TimeUnit::Nanosecond].map(T::Time64));
    types.extend([TimeUnit::Microsecond, TimeUnit::Nanosecond].map(|unit| T::Timestamp(unit, Some("UTC".into()))));
    types.push(T::Duration(TimeUnit::Second));
    types.extend([IntervalUnit::YearMonth, IntervalUnit::DayTime, IntervalUnit::MonthDayNano].map(T::Interval));
    types.extend([
        T::List(field("item", T::Int32, true)),
        T::LargeList(field("item", T::Utf8, false)),
        T::ListView(field("item", T::Int16, true)),
        T::FixedSizeList(field("item", T::Float32, true), 3),
        T::FixedSizeList(field("item", T::Int8, false), 2),
        T::Struct(Fields::from(vec![field("a", T::Int32, true), field("b", T::Utf8, true)])),
        T::List(field("item", T::Struct(Fields::from(vec![field("x", T::Utf8View, true)])), true)),
        T::Map(field("entries", T::Struct(pair), false), false),
        T::Dictionary(Box::new(T::Int16), Box::new(T::Utf8)),
        T::Dictionary(Box::new(T::UInt8), Box::new(T::Utf8)),
        T::List(field("item", T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8)), true)),
        T::RunEndEncoded(field("run_ends", T::Int16, false), field("values", T::Utf8, true)),
    ]);
    types.extend([UnionMode::Sparse, UnionMode::Dense].map(|mode| T::Union(union_fields(), mode)));
    types
}

fn union_fields() -> UnionFields {
    UnionFields::try_new([3, 7], [Field::new("i", DataType::Int32, true), Field::new("s", DataType::Utf8, true)])
        .unwrap()
}

/// `rows` values of a type. Nullable ones have nulls.
pub fn array(random: &mut Random, data_type: &DataType, rows: usize, nullable: bool) -> ArrayRef {
    use DataType as T;
    let nulls = if nullable { random.nulls(rows) } else { None };
    let build = |buffers: Vec<Buffer>, children: Vec<ArrayData>, nulls: Option<NullBuffer>| {
        let data = ArrayData::builder(data_type.clone()).len(rows).buffers(buffers).child_data(children).nulls(nulls);
        make_array(data.build().unwrap())
    };
    match data_type {
        T::Null => build(vec![], vec![], None),
        T::Boolean => {
            let mut bits = BooleanBufferBuilder::new(rows);
            (0..rows).for_each(|_| bits.append(random.below(2) == 1));
            build(vec![bits.finish().into_inner()], vec![], nulls)
        }
        T::Utf8 => {
            let text: Vec<_> =
                (0..rows).map(|row| nulls.as_ref().is_none_or(|n| n.is_valid(row)).then(|| word(random))).collect();
            Arc::new(StringArray::from(text))
        }
        T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
            cast(&array(random, &T::Utf8, rows, nullable), data_type).unwrap()
        }
        T::List(item) => build(
            vec![offsets(random, rows)],
            vec![array(random, item.data_type(), 2 * rows, item.is_nullable()).to_data()],
            nulls,
        ),
        T::LargeList(item) => {
            let list = T::List(Arc::clone(item));
            cast(&array(random, &list, rows, nullable), data_type).unwrap()
        }
        T::ListView(item) => {
            let starts: Vec<i32> = (0..rows).map(|_| random.below(rows) as i32).collect();
            let sizes: Vec<i32> = starts.iter().map(|start| random.below(2 * rows - *start as usize) as i32).collect();
            let child = array(random, item.data_type(), 2 * rows, true).to_data();
            build(vec![Buffer::from_vec(starts), Buffer::from_vec(sizes)], vec![child], nulls)
        }
        T::FixedSizeList(item, size) => {
            let child = array(random, item.data_type(), rows * *size as usize, item.is_nullable()).to_data();
            build(vec![], vec![child], nulls)
        }
        T::Struct(fields) => {
            let children =
                fields.iter().map(|f| array(random, f.data_type(), rows, f.is_nullable()).to_data()).collect();
            build(vec![], children, nulls)
        }
        T::Map(entries, _) => {
            let child = array(random, entries.data_type(), 2 * rows, false).to_data();
            build(vec![offsets(random, rows)], vec![child], nulls)
        }
        T::Dictionary(index, values) => dictionary(random, index, values, rows, nulls),
        T::RunEndEncoded(..) => {
            let ends = Int16Array::from(vec![rows as i16 / 3 + 1, rows as i16 + 1]);
            let runs = RunArray::<Int16Type>::try_new(&ends, &StringArray::from(vec![Some("run"), None])).unwrap();
            Arc::new(runs.slice(0, rows))
        }
        T::Union(fields, mode) => union(random, fields, *mode, rows),
        fixed => build(vec![fixed_values(random, fixed, rows)], vec![], nulls),
    }
}

fn word(random: &mut Random) -> String {
    const PARTS: [&str; 6] = ["a", "packages ", "é", "über", "日本", "the furiously even deposits"];
    // Mostly ASCII, sometimes not, so that both paths of the UTF-8 check run.
    (0..random.below(4)).map(|_| PARTS[random.below(PARTS.len())]).collect()
}

fn offsets(random: &mut Random, rows: usize) -> Buffer {
    let mut at = 0;
    let ends: Vec<i32> = (0..=rows)
        .map(|row| {
            at += if row == 0 { 0 } else { random.below(3) as i32 };
            at
        })
        .collect();
    Buffer::from_vec(ends)
}

fn dictionary(
    random: &mut Random,
    index: &DataType,
    values: &DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let values = array(random, values, 9, false);
    let indexes = Int16Array::new((0..rows).map(|_| random.below(9) as i16).collect::<ScalarBuffer<_>>(), nulls);
    let plain: ArrayRef = Arc::new(DictionaryArray::<Int16Type>::new(indexes, values));
    let DataType::Dictionary(_, value_type) = plain.data_type() else { unreachable!() };
    cast(&plain, &DataType::Dictionary(Box::new(index.clone()), value_type.clone())).unwrap()
}

fn union(random: &mut Random, fields: &UnionFields, mode: UnionMode, rows: usize) -> ArrayRef {
    let ids: Vec<i8> = (0..rows).map(|_| [3, 7][random.below(2)]).collect();
    let children = fields.iter().map(|(_, f)| array(random, f.data_type(), rows, true)).collect();
    let offsets = (mode == UnionMode::Dense).then(|| (0..rows as i32).collect::<ScalarBuffer<i32>>());
    Arc::new(UnionArray::try_new(fields.clone(), ids.into(), offsets, children).unwrap())
}

fn fixed_values(random: &mut Random, data_type: &DataType, rows: usize) -> Buffer {
    use DataType as T;
    let width =
        if let T::FixedSizeBinary(width) = data_type { *width as usize } else { data_type.primitive_width().unwrap() };
    let mut bytes = Vec::with_capacity(rows * width);
    for _ in 0..rows {
        // Decimals, days and times stay within their types; everything else may have any bits.
        let small = (random.next() % 80_000) as i64;
        let value: i64 = match data_type {
            T::Date64 => (small - 40_000) * 86_400_000,
            T::Time32(_) | T::Time64(_) => small,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => small - 40_000,
            _ => random.next() as i64,
        };
        let mut wide = [if value < 0 { 0xff } else { 0 }; 32];
        wide[..8].copy_from_slice(&value.to_le_bytes());
        bytes.extend_from_slice(&wide[..width]);
    }
    Buffer::from_vec(bytes)
}
