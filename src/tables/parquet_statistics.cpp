#include "parquet_statistics.h"

#include <parquet/exception.h>
#include <parquet/schema.h>
#include <parquet/statistics.h>

#include <map>
#include <memory>

namespace darkroom {

namespace {

/// The columns that are no part of a list or a struct, by their name: their place in the file.
std::map<std::string, int> flat_columns(const parquet::SchemaDescriptor& schema) {
  std::map<std::string, int> places;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const parquet::ColumnDescriptor& column = *schema.Column(i);
    if (column.schema_node()->parent() == schema.group_node() && column.max_repetition_level() == 0) {
      places[column.name()] = i;
    }
  }
  return places;
}

template <typename Type, typename Value>
void take_bounds(const parquet::Statistics& statistics, ColumnStatistics& column) {
  const auto& typed = static_cast<const parquet::TypedStatistics<Type>&>(statistics);
  column.min = static_cast<Value>(typed.min());
  column.max = static_cast<Value>(typed.max());
}

/// The bounds of whole numbers, whose bits are unsigned where the type is.
template <typename Type, typename Unsigned>
void take_whole_bounds(const parquet::Statistics& statistics, bool is_unsigned, ColumnStatistics& column) {
  if (!is_unsigned) {
    return take_bounds<Type, int64_t>(statistics, column);
  }
  const auto& typed = static_cast<const parquet::TypedStatistics<Type>&>(statistics);
  column.min = uint64_t{static_cast<Unsigned>(typed.min())};
  column.max = uint64_t{static_cast<Unsigned>(typed.max())};
}

/// REQUIRES: HasMinMax().
void read_bounds(const parquet::ColumnDescriptor& descriptor, const parquet::Statistics& statistics, ColumnStatistics& column) {
  const auto& logical = descriptor.logical_type();
  const bool is_plain = logical == nullptr || logical->is_none() || logical->is_int() || logical->is_string() || logical->is_enum() ||
                        logical->is_JSON() || logical->is_BSON();
  if (!is_plain || descriptor.column_order().get_order() != parquet::ColumnOrder::TYPE_DEFINED_ORDER) {
    return;
  }
  const bool is_unsigned = descriptor.sort_order() == parquet::SortOrder::UNSIGNED;
  switch (descriptor.physical_type()) {
    case parquet::Type::BOOLEAN:
      return take_bounds<parquet::BooleanType, bool>(statistics, column);
    case parquet::Type::INT32:
      return take_whole_bounds<parquet::Int32Type, uint32_t>(statistics, is_unsigned, column);
    case parquet::Type::INT64:
      return take_whole_bounds<parquet::Int64Type, uint64_t>(statistics, is_unsigned, column);
    case parquet::Type::FLOAT:
      return take_bounds<parquet::FloatType, double>(statistics, column);
    case parquet::Type::DOUBLE:
      return take_bounds<parquet::DoubleType, double>(statistics, column);
    case parquet::Type::BYTE_ARRAY: {
      const auto& typed = static_cast<const parquet::ByteArrayStatistics&>(statistics);
      column.min = std::string(std::string_view(typed.min()));
      column.max = std::string(std::string_view(typed.max()));
      return;
    }
    default:
      return;
  }
}

ColumnStatistics read_column(const parquet::FileMetaData& file, const parquet::RowGroupMetaData& group, int place) {
  ColumnStatistics column;
  const parquet::ColumnDescriptor& descriptor = *file.schema()->Column(place);
  if (descriptor.max_definition_level() == 0) {
    column.num_nulls = 0;
  }
  const std::shared_ptr<parquet::Statistics> statistics = group.ColumnChunk(place)->statistics();
  if (statistics == nullptr) {
    return column;
  }
  if (statistics->HasNullCount() && !column.num_nulls) {
    column.num_nulls = statistics->null_count();
  }
  if (statistics->HasMinMax()) {
    read_bounds(descriptor, *statistics, column);
  }
  return column;
}

}  // namespace

RowGroupStatistics read_statistics(const parquet::FileMetaData& file, int row_group, const std::vector<std::string>& columns) {
  RowGroupStatistics result;
  const std::unique_ptr<parquet::RowGroupMetaData> group = file.RowGroup(row_group);
  result.num_rows = group->num_rows();
  const std::map<std::string, int> places = flat_columns(*file.schema());
  for (const std::string& name : columns) {
    if (const auto place = places.find(name); place != places.end()) {
      try {
        result.columns[name] = read_column(file, *group, place->second);
      } catch (const parquet::ParquetException&) {  // Damaged, or encrypted: like a column without statistics.
        result.columns.erase(name);
      }
    }
  }
  return result;
}

}  // namespace darkroom
