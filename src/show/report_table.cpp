#include "report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "cell_text.h"
#include "darkroom/show/html_page.h"

namespace darkroom {
namespace {

using Row = std::vector<std::string>;

constexpr int64_t kLeastCell = 12;  // Of a clipped cell less would say nothing.
constexpr int64_t kLeastValue = 20;

std::vector<int64_t> column_widths(const ReportTable& table) {
  std::vector<int64_t> widths;
  const auto widen = [&](const Row& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], terminal_columns(row[i]));
    }
  };
  widen(table.head);
  for (const Row& row : table.rows) {
    widen(row);
  }
  return widths;
}

// A blank before each line, and one before and after each cell.
int64_t line_width(const std::vector<int64_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), static_cast<int64_t>(2 * widths.size()));
}

void print_row(const Row& row, const std::vector<int64_t>& widths, std::string& text) {
  std::string line = " ";
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string cell = fitted_text(row[i], widths[i]);
    line += ' ' + cell + std::string(static_cast<size_t>(widths[i] - terminal_columns(cell)) + 1, ' ');
  }
  text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

void print_rows(const ReportTable& table, const std::vector<int64_t>& widths, std::string& text) {
  if (!table.head.empty()) {
    print_row(table.head, widths, text);
  }
  for (const Row& row : table.rows) {
    print_row(row, widths, text);
  }
}

// "  name  value", the value going on below itself, or in lines of its own where the name leaves no room.
void print_fact(const std::string& name, int64_t name_width, const std::string& value, int64_t width, std::string& text) {
  const bool has_room = width - name_width - 4 >= kLeastValue;
  const int64_t indent = has_room ? name_width + 4 : 4;
  std::string line = "  " + name;
  if (has_room) {
    line += std::string(static_cast<size_t>(name_width - terminal_columns(name)) + 2, ' ');
  } else {
    text += line + "\n";
    line = std::string(static_cast<size_t>(indent), ' ');
  }
  for (const std::string& piece : wrapped_text(value, std::max(kLeastValue, width - indent))) {
    line += piece;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    line = std::string(static_cast<size_t>(indent), ' ');
  }
}

void print_facts(const ReportTable& table, const std::vector<int64_t>& widths, int64_t width, std::string& text) {
  for (const Row& row : table.rows) {
    print_fact(row[0], widths[0], row.size() > 1 ? row[1] : "", width, text);
  }
}

void print_one_column_a_line(const ReportTable& table, int64_t width, std::string& text) {
  int64_t name_width = 0;
  for (const std::string& name : table.head) {
    name_width = std::max(name_width, terminal_columns(name));
  }
  for (size_t i = 0; i < table.rows.size(); ++i) {
    text += fmt::format("  row {}\n", i + 1);
    for (size_t column = 0; column < table.rows[i].size(); ++column) {
      print_fact(table.head[column], name_width, table.rows[i][column], width, text);
    }
  }
}

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell == "-" || (cell.find_first_not_of("0123456789.,+-e%") == std::string::npos) ||
                           (cell.front() >= '0' && cell.front() <= '9' && (cell.ends_with(" %") || cell.ends_with("B"))));
}

std::vector<bool> number_columns(const ReportTable& table) {
  std::vector<bool> are_numbers(table.head.size(), !table.rows.empty());
  for (const Row& row : table.rows) {
    for (size_t i = 0; i < std::min(row.size(), are_numbers.size()); ++i) {
      are_numbers[i] = are_numbers[i] && is_number(row[i]);
    }
  }
  return are_numbers;
}

std::string row_html(const Row& row, const char* tag, const std::vector<bool>& are_numbers) {
  std::string html = "<tr>";
  for (size_t i = 0; i < row.size(); ++i) {
    const bool is_right = i < are_numbers.size() && are_numbers[i];
    html += fmt::format("<{0}{1}>{2}</{0}>", tag, is_right ? " class=\"n\"" : "", escape_html(row[i]));
  }
  return html + "</tr>";
}

}  // namespace

std::string table_text(const ReportTable& table, int64_t width) {
  std::string text = table.title.empty() ? "" : "\n" + table.title + "\n";
  std::vector<int64_t> widths = column_widths(table);
  if (width == 0 || line_width(widths) <= width) {
    print_rows(table, widths, text);
    return text;
  }
  if (table.head.empty()) {
    print_facts(table, widths, width, text);
    return text;
  }
  int64_t widest = *std::max_element(widths.begin(), widths.end());
  while (line_width(widths) > width && widest > kLeastCell) {
    --widest;
    for (int64_t& one : widths) {
      one = std::min(one, widest);
    }
  }
  if (line_width(widths) <= width) {
    print_rows(table, widths, text);
  } else {
    print_one_column_a_line(table, width, text);
  }
  return text;
}

std::string table_html(const ReportTable& table) {
  const std::vector<bool> are_numbers = number_columns(table);
  std::string html = table.title.empty() ? "" : "<h2>" + escape_html(table.title) + "</h2>";
  html += table.head.empty() ? "<div class=\"wide\"><table class=\"facts\">" : "<div class=\"wide\"><table>";
  html += table.head.empty() ? "" : row_html(table.head, "th", are_numbers);
  for (const Row& row : table.rows) {
    html += row_html(row, "td", are_numbers);
  }
  return html + "</table></div>";
}

}  // namespace darkroom
