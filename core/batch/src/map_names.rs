//! Give the children of maps the names that Arrow's format recommends. The names have no meaning there: pyarrow names
//! the entries of a map from Parquet after the column, and compares such types as equal.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};

/// The schema with `entries`, `key` and `value` in each map, at any depth; metadata stays.
pub(crate) fn canonical(schema: &Schema) -> Schema {
    let fields: Fields = schema.fields().iter().map(canonical_field).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn canonical_field(field: &FieldRef) -> FieldRef {
    named(field, None)
}

fn named(field: &FieldRef, name: Option<&str>) -> FieldRef {
    let data_type = canonical_type(field.data_type());
    let name = name.unwrap_or_else(|| field.name());
    if name == field.name() && data_type == *field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(Field::clone(field).with_name(name).with_data_type(data_type))
}

fn canonical_type(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::Map(entries, sorted) => T::Map(canonical_entries(entries), *sorted),
        T::List(child) => T::List(canonical_field(child)),
        T::LargeList(child) => T::LargeList(canonical_field(child)),
        T::ListView(child) => T::ListView(canonical_field(child)),
        T::LargeListView(child) => T::LargeListView(canonical_field(child)),
        T::FixedSizeList(child, size) => T::FixedSizeList(canonical_field(child), *size),
        T::Struct(fields) => T::Struct(fields.iter().map(canonical_field).collect()),
        T::Dictionary(index, values) => T::Dictionary(index.clone(), Box::new(canonical_type(values))),
        T::RunEndEncoded(ends, values) => T::RunEndEncoded(Arc::clone(ends), canonical_field(values)),
        T::Union(fields, mode) => {
            T::Union(fields.iter().map(|(id, field)| (id, canonical_field(field))).collect(), *mode)
        }
        other => other.clone(),
    }
}

fn canonical_entries(entries: &FieldRef) -> FieldRef {
    let DataType::Struct(pair) = entries.data_type() else { return Arc::clone(entries) };
    let [key, value] = &pair[..] else { return Arc::clone(entries) };
    let pair: Fields = [named(key, Some("key")), named(value, Some("value"))].into_iter().collect();
    Arc::new(Field::clone(entries).with_name("entries").with_data_type(DataType::Struct(pair)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &str, key: &str, value: DataType) -> DataType {
        let pair = vec![Field::new(key, DataType::Utf8, false), Field::new(format!("{key}s value"), value, true)];
        DataType::Map(Arc::new(Field::new(entries, DataType::Struct(pair.into()), false)), false)
    }

    #[test]
    fn maps_at_any_depth_get_the_recommended_names() {
        let inner = map("a", "b", DataType::Int64);
        let listed = DataType::List(Arc::new(Field::new("item", map("tags", "k", inner), true)));
        let found = canonical(&Schema::new(vec![Field::new("column", listed, true)]));
        let shown = format!("{:?}", found.field(0).data_type());
        assert_eq!(shown.matches("\"entries\"").count(), 2, "{shown}");
        assert_eq!(shown.matches("\"key\"").count(), 2, "{shown}");
        assert_eq!(shown.matches("\"value\"").count(), 2, "{shown}");
        for other in ["\"tags\"", "\"a\"", "\"k\"", "\"b\""] {
            assert!(!shown.contains(other), "{shown}");
        }
        assert_eq!(found.field(0).name(), "column");
    }

    #[test]
    fn other_fields_keep_name_type_and_metadata() {
        let metadata = std::collections::HashMap::from([("k".to_owned(), "v".to_owned())]);
        let field = Field::new("a", DataType::Utf8, true).with_metadata(metadata);
        let schema = Schema::new(vec![field]);
        assert_eq!(canonical(&schema), schema);
    }
}
