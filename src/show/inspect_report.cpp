#include <fmt/format.h>

#include <algorithm>

#include "cell_text.h"
#include "darkroom/image/png.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/inspect.h"

namespace darkroom {
namespace {

using Row = std::vector<std::string>;

std::vector<int64_t> column_widths(const ReportTable& table) {
  std::vector<int64_t> widths;
  const auto widen = [&](const Row& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], count_characters(row[i]));
    }
  };
  widen(table.head);
  for (const Row& row : table.rows) {
    widen(row);
  }
  return widths;
}

void print_row(const Row& row, const std::vector<int64_t>& widths, std::string& text) {
  std::string line = " ";
  for (size_t i = 0; i < row.size(); ++i) {
    const auto padding = static_cast<size_t>(widths[i] - count_characters(row[i]));
    line += ' ' + row[i] + std::string(padding + 1, ' ');
  }
  text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string row_html(const Row& row, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& cell : row) {
    html += fmt::format("<{0}>{1}</{0}>", tag, escape_html(cell));
  }
  return html + "</tr>";
}

std::string table_html(const ReportTable& table) {
  std::string html = table.title.empty() ? "" : "<h2>" + escape_html(table.title) + "</h2>";
  html += "<div class=\"wide\"><table>";
  html += table.head.empty() ? "" : row_html(table.head, "th");
  for (const Row& row : table.rows) {
    html += row_html(row, "td");
  }
  return html + "</table></div>";
}

}  // namespace

std::string InspectReport::to_text() const {
  std::string text = fmt::format("{}: {}\n", kind, clipped_text(uri, 4096));
  for (const ReportTable& table : tables) {
    text += table.title.empty() ? "" : "\n" + table.title + "\n";
    const std::vector<int64_t> widths = column_widths(table);
    if (!table.head.empty()) {
      print_row(table.head, widths, text);
    }
    for (const Row& row : table.rows) {
      print_row(row, widths, text);
    }
  }
  return text;
}

std::string InspectReport::to_html() const {
  std::string body = "<p class=\"dim\">" + escape_html(kind) + "</p>";
  for (const std::string& line : damage) {
    body += "<p class=\"damage\">" + escape_html(clipped_text(line, 4096)) + "</p>";
  }
  for (const ReportTable& table : tables) {
    body += table_html(table);
  }
  if (!sheet.pixels.empty()) {
    body += fmt::format("<h2>first rows</h2><figure><img alt=\"contact sheet of the first rows\" src=\"{}\"></figure>",
                        png_data_url(encode_png(sheet)));
  }
  return render_html_page(clipped_text(uri, 4096), body);
}

}  // namespace darkroom
