#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace darkroom {

// Random tables and random expressions for the tests of --where, and a second, slow reading of what an expression means: row by
// row, on values that know nothing of Arrow. A number is a scaled whole number or a long double; on the numbers that are drawn
// here either is exact (64 bits hold a double times 1,000).

struct SampleNumber {
  bool is_scaled = false;
  __int128 scaled = 0;  // value * 10^scale
  int scale = 0;
  long double real = 0;
};

struct SampleCell {
  enum class Kind { kNull, kNumber, kText, kBoolean };
  Kind kind = Kind::kNull;
  SampleNumber number;
  std::string text;
  bool boolean = false;
};

enum class SampleTruth { kFalse, kUnknown, kTrue };

inline long double power_of_ten(int exponent) {
  long double power = 1;
  for (int i = 0; i < exponent; ++i) {
    power *= 10;
  }
  return power;
}

inline SampleNumber whole_number(__int128 value, int scale = 0) { return {.is_scaled = true, .scaled = value, .scale = scale, .real = 0}; }
inline SampleNumber real_number(long double value) { return {.is_scaled = false, .scaled = 0, .scale = 0, .real = value}; }

/// -1, 0, 1, or nothing where one is NaN.
inline std::optional<int> sample_order(SampleNumber a, SampleNumber b) {
  const auto sign = [](auto left, auto right) { return left < right ? -1 : left > right ? 1 : 0; };
  if (a.is_scaled && b.is_scaled) {
    for (; a.scale < b.scale; ++a.scale) {
      a.scaled *= 10;
    }
    for (; b.scale < a.scale; ++b.scale) {
      b.scaled *= 10;
    }
    return sign(a.scaled, b.scaled);
  }
  const long double x = a.is_scaled ? static_cast<long double>(a.scaled) : a.real * power_of_ten(b.scale);
  const long double y = b.is_scaled ? static_cast<long double>(b.scaled) : b.real * power_of_ten(a.scale);
  return std::isnan(x) || std::isnan(y) ? std::nullopt : std::optional(sign(x, y));
}

/// A number as it is written, with surrounding white space: scaled where it has no exponent.
inline std::optional<SampleNumber> read_number(const std::string& padded) {
  const size_t first = padded.find_first_not_of(" \t");
  if (first == std::string::npos || padded.find_first_of("xX") != std::string::npos) {
    return std::nullopt;
  }
  const std::string text = padded.substr(first, padded.find_last_not_of(" \t") + 1 - first);
  if (text.find_first_not_of("+-.0123456789") == std::string::npos) {
    SampleNumber number = whole_number(0);
    bool behind_point = false;
    for (const char letter : text) {
      behind_point |= letter == '.';
      if (letter >= '0' && letter <= '9') {
        number.scaled = number.scaled * 10 + (letter - '0');
        number.scale += behind_point ? 1 : 0;
      }
    }
    number.scaled = text[0] == '-' ? -number.scaled : number.scaled;
    return text.find_first_of("0123456789") == std::string::npos ? std::nullopt : std::optional(number);
  }
  char* end = nullptr;
  const long double value = std::strtold(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional(real_number(value)) : std::nullopt;
}

enum class SampleColumnKind { kNumber, kText, kBoolean, kNull };

/// A column of a sample table: its type, and the values that it may hold.
struct SampleColumn {
  std::string name;
  std::shared_ptr<arrow::DataType> type;
  SampleColumnKind kind;
  std::vector<SampleCell> pool;  // In ascending order, NaN last.
};

inline SampleCell cell_of(SampleNumber number) {
  return {.kind = SampleCell::Kind::kNumber, .number = number, .text = {}, .boolean = false};
}
inline SampleCell cell_of(std::string text) {
  return {.kind = SampleCell::Kind::kText, .number = {}, .text = std::move(text), .boolean = false};
}
inline SampleCell cell_of_boolean(bool value) { return {.kind = SampleCell::Kind::kBoolean, .number = {}, .text = {}, .boolean = value}; }

inline std::vector<SampleCell> whole_cells(const std::vector<__int128>& values, int scale = 0) {
  std::vector<SampleCell> cells;
  for (const __int128 value : values) {
    cells.push_back(cell_of(whole_number(value, scale)));
  }
  return cells;
}
inline std::vector<SampleCell> real_cells(const std::vector<double>& values) {
  std::vector<SampleCell> cells;
  for (const double value : values) {
    cells.push_back(cell_of(real_number(value)));
  }
  return cells;
}
inline std::vector<SampleCell> text_cells(const std::vector<std::string>& values) {
  std::vector<SampleCell> cells;
  for (const std::string& value : values) {
    cells.push_back(cell_of(value));
  }
  return cells;
}

inline const std::vector<std::string>& sample_texts() {
  static const std::vector<std::string> texts = {"",
                                                 "A",
                                                 "a",
                                                 "a%b",
                                                 "a_b",
                                                 "aa",
                                                 "ab",
                                                 "abab",
                                                 "abc",
                                                 "b",
                                                 "it's",
                                                 "zebra",
                                                 "\xC3\xA9",
                                                 "\xC3\xA9"
                                                 "b",
                                                 "\xFF"};
  return texts;
}

/// Columns of every type that can be compared.
inline std::vector<SampleColumn> typed_columns() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr __int128 k53 = __int128{1} << 53;
  constexpr __int128 k63 = __int128{1} << 63;
  const std::vector<SampleCell> texts = text_cells(sample_texts());
  const auto number = SampleColumnKind::kNumber;
  const auto text = SampleColumnKind::kText;
  return {
      {"i64", arrow::int64(), number, whole_cells({-k63, -k53 - 1, -1, 0, 1, 3, 12, 100, k53 - 1, k53, k53 + 1, k53 + 2, k63 - 1})},
      {"u64", arrow::uint64(), number, whole_cells({0, 1, 2, 100, k53, k53 + 1, k63 - 1, k63, 2 * k63 - 1})},
      {"i8", arrow::int8(), number, whole_cells({-128, -1, 0, 1, 2, 3, 100, 127})},
      {"u16", arrow::uint16(), number, whole_cells({0, 1, 3, 12, 65535})},
      {"f32", arrow::float32(), number, real_cells({-kInf, -1, -0.0, 0.1F, 0.5, 1, 2.25, 3.5, 100, 3e38F, kInf, kNan, kNan})},
      {"f64", arrow::float64(), number,
       real_cells({-kInf, -1, 0, 0.1, 0.5, 1, 3.5, 12.25, 9007199254740991.0, 9007199254740992.0, 9007199254740994.0, 9223372036854775808.0,
                   18446744073709551616.0, 1e300, kInf, kNan, kNan})},
      {"f16", arrow::float16(), number, real_cells({-1, 0, 0.5, 0.0999755859375, 1, 3.5, 100, kNan})},
      {"dec", arrow::decimal128(10, 2), number, whole_cells({-100, -1, 0, 10, 50, 100, 350, 1234, 10000}, 2)},
      {"str", arrow::utf8(), text, texts},
      {"Large", arrow::large_utf8(), text, texts},
      {"odd \"name\"", arrow::dictionary(arrow::int32(), arrow::utf8()), text, texts},
      {"blob", arrow::binary(), text, texts},
      {"flag", arrow::boolean(), SampleColumnKind::kBoolean, {cell_of_boolean(false), cell_of_boolean(true)}},
      {"nothing", arrow::null(), SampleColumnKind::kNull, {}},
  };
}

/// Columns of a CSV file.
inline std::vector<SampleColumn> untyped_columns() {
  std::vector<SampleCell> cells =
      text_cells({"",      " 12 ", "+3.5", "-1",  "0.1", "0.10", "0x10", "1 2",      "1,000", "100",   "12.34", "1e2", "9007199254740993",
                  "FALSE", "NaN",  "True", "abc", "ab",  "e5",   "-inf", "infinity", "true",  "1e400", "-"});
  std::vector<SampleColumn> columns;
  for (const char* name : {"url", "WIDTH", "caption"}) {
    columns.push_back({name, arrow::utf8(), SampleColumnKind::kText, cells});
  }
  return columns;
}

inline uint16_t half_of_sample(long double value) {
  if (std::isnan(value)) {
    return 0x7E00;
  }
  int exponent = 0;
  const long double mantissa = std::frexp(std::fabs(value), &exponent);  // In [0.5, 1).
  const auto bits = value == 0 ? 0 : ((exponent + 14) << 10) | (static_cast<int>(mantissa * 2048) & 0x3FF);
  return static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}

template <typename Builder, typename Append>
std::shared_ptr<arrow::Array> build_column(Builder& builder, std::span<const SampleCell> cells, const Append& append) {
  for (const SampleCell& cell : cells) {
    EXPECT_TRUE((cell.kind == SampleCell::Kind::kNull ? builder.AppendNull() : append(cell)).ok());
  }
  return builder.Finish().ValueOrDie();
}

template <typename Builder>
std::shared_ptr<arrow::Array> build_whole(std::span<const SampleCell> cells) {
  Builder builder;
  return build_column(builder, cells, [&](const SampleCell& cell) {
    return builder.Append(static_cast<typename Builder::value_type>(cell.number.scaled));
  });
}
template <typename Builder>
std::shared_ptr<arrow::Array> build_real(std::span<const SampleCell> cells) {
  Builder builder;
  return build_column(builder, cells,
                      [&](const SampleCell& cell) { return builder.Append(static_cast<typename Builder::value_type>(cell.number.real)); });
}
template <typename Builder>
std::shared_ptr<arrow::Array> build_text(std::span<const SampleCell> cells) {
  Builder builder;
  return build_column(builder, cells, [&](const SampleCell& cell) { return builder.Append(cell.text); });
}

inline std::shared_ptr<arrow::Array> build_array(const arrow::DataType& type, std::span<const SampleCell> cells) {
  switch (type.id()) {
    case arrow::Type::INT64:
      return build_whole<arrow::Int64Builder>(cells);
    case arrow::Type::UINT64:
      return build_whole<arrow::UInt64Builder>(cells);
    case arrow::Type::INT8:
      return build_whole<arrow::Int8Builder>(cells);
    case arrow::Type::UINT16:
      return build_whole<arrow::UInt16Builder>(cells);
    case arrow::Type::FLOAT:
      return build_real<arrow::FloatBuilder>(cells);
    case arrow::Type::DOUBLE:
      return build_real<arrow::DoubleBuilder>(cells);
    case arrow::Type::HALF_FLOAT: {
      arrow::HalfFloatBuilder builder;
      return build_column(builder, cells, [&](const SampleCell& cell) { return builder.Append(half_of_sample(cell.number.real)); });
    }
    case arrow::Type::DECIMAL128: {
      arrow::Decimal128Builder builder(arrow::decimal128(10, 2));
      return build_column(builder, cells, [&](const SampleCell& cell) {
        return builder.Append(arrow::Decimal128(static_cast<int64_t>(cell.number.scaled)));
      });
    }
    case arrow::Type::LARGE_STRING:
      return build_text<arrow::LargeStringBuilder>(cells);
    case arrow::Type::BINARY:
      return build_text<arrow::BinaryBuilder>(cells);
    case arrow::Type::DICTIONARY: {
      arrow::StringDictionary32Builder builder;
      return build_column(builder, cells, [&](const SampleCell& cell) { return builder.Append(cell.text); });
    }
    case arrow::Type::BOOL: {
      arrow::BooleanBuilder builder;
      return build_column(builder, cells, [&](const SampleCell& cell) { return builder.Append(cell.boolean); });
    }
    case arrow::Type::NA:
      return std::make_shared<arrow::NullArray>(static_cast<int64_t>(cells.size()));
    default:
      return build_text<arrow::StringBuilder>(cells);
  }
}

using Random = std::mt19937_64;

inline size_t draw(Random& random, size_t count) { return static_cast<size_t>(random() % count); }
inline bool draw_chance(Random& random, int percent) { return draw(random, 100) < static_cast<size_t>(percent); }
template <typename T>
const T& draw_one(Random& random, const std::vector<T>& values) {
  return values[draw(random, values.size())];
}

/// The rows of a table as a test knows them, and as Arrow does.
struct SampleTable {
  std::vector<SampleColumn> columns;
  std::vector<std::vector<SampleCell>> cells;  // [column][row]
  std::shared_ptr<arrow::RecordBatch> batch;
  int64_t num_rows() const { return batch->num_rows(); }
};

/// `cluster_rows` > 0: runs of so many rows hold neighbouring values, and nulls none, some, or all of them.
inline SampleTable draw_table(Random& random, std::vector<SampleColumn> columns, int64_t num_rows, int64_t cluster_rows = 0) {
  SampleTable table{.columns = std::move(columns), .cells = {}, .batch = nullptr};
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  const int64_t num_before = static_cast<int64_t>(draw(random, 5));  // Rows that a slice leaves out.
  for (const SampleColumn& column : table.columns) {
    std::vector<SampleCell> cells;
    size_t first = 0;
    int percent_null = 20;
    for (int64_t row = 0; row < num_before + num_rows; ++row) {
      if (cluster_rows > 0 && (row < num_before || (row - num_before) % cluster_rows == 0)) {
        first = column.pool.empty() ? 0 : draw(random, column.pool.size());
        percent_null = std::vector<int>{0, 0, 20, 100}[draw(random, 4)];
      }
      const size_t spread = cluster_rows > 0 ? 2 : column.pool.size();
      const bool is_null = column.pool.empty() || draw_chance(random, percent_null);
      cells.push_back(is_null ? SampleCell() : column.pool[std::min(first + draw(random, spread), column.pool.size() - 1)]);
    }
    fields.push_back(arrow::field(column.name, column.type));
    arrays.push_back(build_array(*column.type, cells));
    cells.erase(cells.begin(), cells.begin() + num_before);
    table.cells.push_back(std::move(cells));
  }
  table.batch = arrow::RecordBatch::Make(arrow::schema(fields), num_before + num_rows, arrays)->Slice(num_before, num_rows);
  return table;
}

/// An operand of a sample condition: a column (its place) or a literal.
struct SampleOperand {
  int column = -1;
  std::string written;  // Of a literal.
  SampleCell literal;
};

struct SampleExpression {
  enum class Kind { kAnd, kOr, kNot, kCompare, kIn, kLike, kIsNull, kIsTrue };
  Kind kind = Kind::kIsTrue;
  std::string comparison;
  bool is_negated = false;
  SampleColumnKind compared_as = SampleColumnKind::kNumber;
  std::vector<SampleOperand> operands;
  std::vector<SampleExpression> parts;
};

class SampleWriter {
 public:
  SampleWriter(Random& random, const std::vector<SampleColumn>& columns, bool is_typed)
      : random_(random), columns_(columns), is_typed_(is_typed) {}

  SampleExpression draw_expression(int depth) {
    SampleExpression expression;
    if (depth == 0 || draw_chance(random_, 30)) {
      return draw_condition();
    }
    const auto kind = draw(random_, 3);
    expression.kind = kind == 0 ? SampleExpression::Kind::kAnd : kind == 1 ? SampleExpression::Kind::kOr : SampleExpression::Kind::kNot;
    const size_t num_parts = kind == 2 ? 1 : 2 + draw(random_, 2);
    for (size_t i = 0; i < num_parts; ++i) {
      expression.parts.push_back(draw_expression(depth - 1));
    }
    return expression;
  }

  /// With superfluous parentheses, white space and letters of either case, as people write.
  std::string write(const SampleExpression& expression) {
    const std::string text = write_bare(expression);
    return draw_chance(random_, 10) ? "(" + space(false) + text + space(false) + ")" : text;
  }

 private:
  SampleExpression draw_condition() {
    SampleExpression one;
    const auto kind = draw(random_, 10);
    one.compared_as = std::vector{SampleColumnKind::kNumber, SampleColumnKind::kNumber, SampleColumnKind::kText,
                                  SampleColumnKind::kBoolean}[draw(random_, 4)];
    if (kind < 5) {
      one.kind = SampleExpression::Kind::kCompare;
      draw_comparison(one);
    } else if (kind < 7) {
      one.kind = SampleExpression::Kind::kIn;
      one.operands.push_back(draw_operand(one.compared_as, 90));
      const size_t num_literals = 1 + draw(random_, 4);
      for (size_t i = 0; i < num_literals; ++i) {
        one.operands.push_back(draw_literal(one.compared_as));
      }
      one.is_negated = draw_chance(random_, 50);
    } else if (kind < 8) {
      one.kind = SampleExpression::Kind::kLike;
      one.compared_as = SampleColumnKind::kText;
      const std::vector<std::string> patterns = {"a%",    "%",   "",     "a_",    "%b",  "%b%", "_",  "\xC3\xA9", "\xC3\xA9%", "it's%",
                                                 "%a%b%", "a%b", "a%%b", "%_%_%", "abc", "z%",  "_b", "%_b",      "a_b%",      "__"};
      one.operands = {draw_operand(one.compared_as, 95), text_literal(draw_one(random_, patterns))};
      one.is_negated = draw_chance(random_, 50);
    } else if (kind < 9) {
      one.kind = SampleExpression::Kind::kIsNull;
      one.operands = {draw_operand(one.compared_as, 95)};
      one.is_negated = draw_chance(random_, 50);
    } else {
      one.kind = SampleExpression::Kind::kIsTrue;
      one.compared_as = SampleColumnKind::kBoolean;
      one.operands = {draw_operand(one.compared_as, 80)};
    }
    return one;
  }

  void draw_comparison(SampleExpression& one) {
    const std::vector<std::string> all = {"=", "!=", "<>", "<", "<=", ">", ">="};
    const std::vector<std::string> equal = {"=", "!=", "<>"};
    one.operands = {draw_operand(one.compared_as, 80), draw_operand(one.compared_as, 30)};
    const bool two_untyped = !is_typed_ && one.operands[0].column >= 0 && one.operands[1].column >= 0;
    if (two_untyped) {
      one.compared_as = SampleColumnKind::kText;  // Two columns without types are compared as texts.
    }
    one.comparison = draw_one(random_, one.compared_as == SampleColumnKind::kBoolean || two_untyped ? equal : all);
    if (draw_chance(random_, 20)) {
      std::swap(one.operands[0], one.operands[1]);
    }
  }

  SampleOperand draw_operand(SampleColumnKind kind, int percent_columns) {
    if (!draw_chance(random_, percent_columns)) {
      return draw_literal(kind);
    }
    std::vector<int> fitting;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const bool fits = !is_typed_ || columns_[i].kind == kind || (columns_[i].kind == SampleColumnKind::kNull && draw_chance(random_, 20));
      if (fits) {
        fitting.push_back(static_cast<int>(i));
      }
    }
    return {.column = draw_one(random_, fitting), .written = {}, .literal = {}};
  }

  static SampleOperand text_literal(const std::string& text) {
    std::string written = "'";
    for (const char letter : text) {
      written += letter == '\'' ? std::string("''") : std::string(1, letter);
    }
    return {.column = -1, .written = written + "'", .literal = cell_of(text)};
  }

  SampleOperand draw_literal(SampleColumnKind kind) {
    if (kind == SampleColumnKind::kText) {
      const std::string& text = draw_one(random_, sample_texts());
      return text_literal(text == "\xFF" ? "\xEF\xBF\xBD" : text);
    }
    if (kind == SampleColumnKind::kBoolean) {
      const bool value = draw_chance(random_, 50);
      return {.column = -1, .written = value ? "TRUE" : "FALSE", .literal = cell_of_boolean(value)};
    }
    const std::vector<std::string> numbers = {"0",
                                              "1",
                                              "-1",
                                              "+3",
                                              "0.1",
                                              "0.10",
                                              ".5",
                                              "3.5",
                                              "100",
                                              "127",
                                              "128",
                                              "12.34",
                                              "12.345",
                                              "1e2",
                                              "1E+2",
                                              "2.25",
                                              "1e400",
                                              "-1e400",
                                              "1e39",
                                              "1e-50",
                                              "1e-400",
                                              "3.",
                                              "9007199254740992",
                                              "9007199254740992.5",
                                              "9007199254740993",
                                              "9223372036854775807",
                                              "9223372036854775808",
                                              "-9223372036854775808",
                                              "-9223372036854775809",
                                              "18446744073709551615",
                                              "18446744073709551616"};
    const std::string& written = draw_one(random_, numbers);
    return {.column = -1, .written = written, .literal = cell_of(read_number(written).value())};
  }

  std::string space(bool is_needed) {
    const std::vector<std::string> spaces = {is_needed ? " " : "", " ", "  ", "\t", "\n"};
    return draw_one(random_, spaces);
  }

  std::string keyword(const std::string& capitals) {
    std::string word = capitals;
    for (char& letter : word) {
      letter = draw_chance(random_, 30) ? static_cast<char>(std::tolower(letter)) : letter;
    }
    return word;
  }

  std::string write_operand(const SampleOperand& operand) {
    if (operand.column < 0) {
      return operand.literal.kind == SampleCell::Kind::kBoolean ? keyword(operand.written) : operand.written;
    }
    const std::string& name = columns_[static_cast<size_t>(operand.column)].name;
    if (name.find(' ') == std::string::npos && !draw_chance(random_, 20)) {
      return keyword(name);  // Any letter case.
    }
    std::string written = "\"";
    for (const char letter : name) {
      written += letter == '"' ? std::string("\"\"") : std::string(1, letter);
    }
    return written + "\"";
  }

  /// A part of AND, OR or NOT.
  std::string write_part(const SampleExpression& part, SampleExpression::Kind within) {
    using Kind = SampleExpression::Kind;
    const bool needs = (part.kind == Kind::kOr && within != Kind::kOr) || (part.kind == Kind::kAnd && within == Kind::kNot);
    return needs ? "(" + space(false) + write(part) + space(false) + ")" : write(part);
  }

  std::string write_bare(const SampleExpression& one) {
    using Kind = SampleExpression::Kind;
    if (one.kind == Kind::kAnd || one.kind == Kind::kOr) {
      std::string text = write_part(one.parts[0], one.kind);
      for (size_t i = 1; i < one.parts.size(); ++i) {
        text += space(true) + keyword(one.kind == Kind::kAnd ? "AND" : "OR") + space(true) + write_part(one.parts[i], one.kind);
      }
      return text;
    }
    if (one.kind == Kind::kNot) {
      return keyword("NOT") + space(true) + write_part(one.parts[0], one.kind);
    }
    std::string text = write_operand(one.operands[0]);
    const std::string negation = one.is_negated ? space(true) + keyword("NOT") : "";
    if (one.kind == Kind::kCompare) {
      return text + space(false) + one.comparison + space(false) + write_operand(one.operands[1]);
    }
    if (one.kind == Kind::kIn) {
      text += negation + space(true) + keyword("IN") + space(false) + "(";
      for (size_t i = 1; i < one.operands.size(); ++i) {
        text += (i > 1 ? "," : "") + space(false) + write_operand(one.operands[i]) + space(false);
      }
      return text + ")";
    }
    if (one.kind == Kind::kLike) {
      return text + negation + space(true) + keyword("LIKE") + space(false) + one.operands[1].written;
    }
    return one.kind == Kind::kIsNull ? text + space(true) + keyword("IS") + negation + space(true) + keyword("NULL") : text;
  }

  Random& random_;
  const std::vector<SampleColumn>& columns_;
  bool is_typed_;
};

/// What an expression says of the rows of a table, one row and one cell at a time.
class SampleReading {
 public:
  SampleReading(const SampleTable& table, bool is_typed) : table_(table), is_typed_(is_typed) {}

  SampleTruth read(const SampleExpression& one, size_t row) const {
    using Kind = SampleExpression::Kind;
    switch (one.kind) {
      case Kind::kAnd:
        return read_joined(one, row, SampleTruth::kFalse, SampleTruth::kTrue);
      case Kind::kOr:
        return read_joined(one, row, SampleTruth::kTrue, SampleTruth::kFalse);
      case Kind::kNot: {
        const SampleTruth inner = read(one.parts[0], row);
        return inner == SampleTruth::kUnknown ? inner : truth(inner == SampleTruth::kFalse);
      }
      case Kind::kCompare:
        return read_comparison(one, row);
      case Kind::kIn:
        return read_in(one, row);
      case Kind::kIsNull:
        return truth((raw_cell(one.operands[0], row).kind == SampleCell::Kind::kNull) != one.is_negated);
      case Kind::kLike: {
        const SampleCell cell = typed_cell(one.operands[0], SampleColumnKind::kText, row);
        return cell.kind == SampleCell::Kind::kNull
                   ? SampleTruth::kUnknown
                   : truth(matches(characters(cell.text), characters(one.operands[1].literal.text)) != one.is_negated);
      }
      default: {
        const SampleCell cell = typed_cell(one.operands[0], SampleColumnKind::kBoolean, row);
        return cell.kind == SampleCell::Kind::kNull ? SampleTruth::kUnknown : truth(cell.boolean);
      }
    }
  }

 private:
  static SampleTruth truth(bool holds) { return holds ? SampleTruth::kTrue : SampleTruth::kFalse; }

  SampleTruth read_joined(const SampleExpression& one, size_t row, SampleTruth decides, SampleTruth otherwise) const {
    bool one_is_unknown = false;
    for (const SampleExpression& part : one.parts) {
      const SampleTruth here = read(part, row);
      if (here == decides) {
        return decides;
      }
      one_is_unknown |= here == SampleTruth::kUnknown;
    }
    return one_is_unknown ? SampleTruth::kUnknown : otherwise;
  }

  SampleCell raw_cell(const SampleOperand& operand, size_t row) const {
    return operand.column < 0 ? operand.literal : table_.cells[static_cast<size_t>(operand.column)][row];
  }

  /// In a text table, the cell read as what it is compared with.
  SampleCell typed_cell(const SampleOperand& operand, SampleColumnKind kind, size_t row) const {
    const SampleCell cell = raw_cell(operand, row);
    if (is_typed_ || operand.column < 0 || cell.kind == SampleCell::Kind::kNull || kind == SampleColumnKind::kText) {
      return cell;
    }
    if (kind == SampleColumnKind::kNumber) {
      const auto number = read_number(cell.text);
      return number ? cell_of(*number) : SampleCell();
    }
    std::string lower = cell.text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return lower == "true" || lower == "false" ? cell_of_boolean(lower == "true") : SampleCell();
  }

  /// A literal beside a column of floating-point numbers is what such a column would hold, unless that is no number or 0.
  SampleNumber beside(const SampleOperand& operand, const SampleOperand& other, const SampleNumber& number) const {
    if (!is_typed_ || operand.column >= 0 || other.column < 0) {
      return number;
    }
    const auto id = table_.columns[static_cast<size_t>(other.column)].type->id();
    long double rounded = 0;
    if (id == arrow::Type::DOUBLE) {
      rounded = std::strtod(operand.written.c_str(), nullptr);
    } else if (id == arrow::Type::FLOAT) {
      rounded = std::strtof(operand.written.c_str(), nullptr);
    } else if (id == arrow::Type::HALF_FLOAT) {
      // 11 bits, at least 2^-24 apart; what is drawn lies in no tie.
      const long double value = std::strtold(operand.written.c_str(), nullptr);
      int exponent = 0;
      std::frexp(value, &exponent);
      const long double step = std::ldexp(1.0L, std::max(exponent - 11, -24));
      rounded = std::nearbyint(value / step) * step;
      rounded = std::fabs(rounded) > 65504 ? std::numeric_limits<long double>::infinity() : rounded;
    } else {
      return number;
    }
    const bool is_zero = sample_order(number, whole_number(0)) == 0;
    return std::isinf(rounded) || (rounded == 0 && !is_zero) ? number : real_number(rounded);
  }

  std::optional<int> order(const SampleOperand& left, const SampleOperand& right, SampleColumnKind kind, const SampleCell& a,
                           const SampleCell& b) const {
    if (kind == SampleColumnKind::kNumber) {
      return sample_order(beside(left, right, a.number), beside(right, left, b.number));
    }
    if (kind == SampleColumnKind::kText) {
      const int sign = a.text.compare(b.text);
      return sign < 0 ? -1 : sign > 0 ? 1 : 0;
    }
    return int{a.boolean} - int{b.boolean};
  }

  SampleTruth read_comparison(const SampleExpression& one, size_t row) const {
    const SampleCell a = typed_cell(one.operands[0], one.compared_as, row);
    const SampleCell b = typed_cell(one.operands[1], one.compared_as, row);
    if (a.kind == SampleCell::Kind::kNull || b.kind == SampleCell::Kind::kNull) {
      return SampleTruth::kUnknown;
    }
    const auto sign = order(one.operands[0], one.operands[1], one.compared_as, a, b);
    if (!sign) {
      return SampleTruth::kFalse;
    }
    const std::string& by = one.comparison;
    return truth(*sign < 0   ? by == "<" || by == "<=" || by == "!=" || by == "<>"
                 : *sign > 0 ? by == ">" || by == ">=" || by == "!=" || by == "<>"
                             : by == "=" || by == "<=" || by == ">=");
  }

  SampleTruth read_in(const SampleExpression& one, size_t row) const {
    const SampleCell a = typed_cell(one.operands[0], one.compared_as, row);
    if (a.kind == SampleCell::Kind::kNull) {
      return SampleTruth::kUnknown;
    }
    bool is_in = false;
    for (size_t i = 1; i < one.operands.size(); ++i) {
      const auto sign = order(one.operands[0], one.operands[i], one.compared_as, a, one.operands[i].literal);
      if (!sign) {
        return SampleTruth::kFalse;  // NaN is neither in nor not in.
      }
      is_in |= *sign == 0;
    }
    return truth(is_in != one.is_negated);
  }

  static std::vector<std::string> characters(const std::string& text) {
    std::vector<std::string> all;
    for (const char byte : text) {
      if (all.empty() || (byte & 0xC0) != 0x80) {
        all.emplace_back();
      }
      all.back() += byte;
    }
    return all;
  }

  /// By the definition: a table of what matches from which characters on.
  static bool matches(const std::vector<std::string>& text, const std::vector<std::string>& pattern) {
    std::vector<std::vector<bool>> fits(text.size() + 1, std::vector<bool>(pattern.size() + 1, false));
    for (size_t i = text.size() + 1; i-- > 0;) {
      for (size_t j = pattern.size() + 1; j-- > 0;) {
        if (j == pattern.size()) {
          fits[i][j] = i == text.size();
        } else if (pattern[j] == "%") {
          fits[i][j] = fits[i][j + 1] || (i < text.size() && fits[i + 1][j]);
        } else {
          fits[i][j] = i < text.size() && (pattern[j] == "_" || pattern[j] == text[i]) && fits[i + 1][j + 1];
        }
      }
    }
    return fits[0][0];
  }

  const SampleTable& table_;
  bool is_typed_;
};

}  // namespace darkroom
