#include <fmt/format.h>

#include "cell_text.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/inspect.h"
#include "report_table.h"
#include "row_cards.h"

namespace darkroom {

std::string InspectReport::to_text(int64_t width) const {
  std::string text = fmt::format("{}: {}\n", kind, clipped_text(uri, 4096));
  for (const ReportTable& table : tables) {
    text += table_text(table, width);
  }
  return text;
}

std::string InspectReport::to_html() const {
  if (!page.empty()) {
    return page;
  }
  std::string body = "<p class=\"dim\">" + escape_html(kind) + "</p>";
  for (const std::string& line : damage) {
    body += "<p class=\"damage\">" + escape_html(clipped_text(line, 4096)) + "</p>";
  }
  for (const ReportTable& table : tables) {
    const bool is_in_cards = !cards.empty() && &table == &tables.back();  // Their cells stand beside the pictures.
    body += is_in_cards ? "" : table_html(table);
  }
  body += cards_html(cards);
  return render_html_page(clipped_text(uri, 4096), body, cards.empty() ? "" : cards_script());
}

}  // namespace darkroom
