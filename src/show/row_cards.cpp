#include "row_cards.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "cell_text.h"
#include "darkroom/core/ascii_case.h"
#include "darkroom/image/png.h"
#include "darkroom/show/html_page.h"

namespace darkroom {
namespace {

constexpr int64_t kMostCaptionCharacters = 2000;

// Every word must be somewhere in a card; "column>5", "column<5" and "column=5" compare the numbers of a column.
constexpr const char* kCardsScript = R"js(
'use strict';
const box = document.getElementById('search'), order = document.getElementById('order'), count = document.getElementById('count');
const list = document.getElementById('cards');
const cards = [...list.children].map((node, place) => ({
  node, place, text: node.textContent.toLowerCase(),
  facts: new Map([...node.querySelectorAll('[data-name]')].map((fact) => [fact.dataset.name.toLowerCase(), fact.textContent.trim()])),
}));
const number = (card, name) => { const text = card.facts.get(name); return text === undefined || text === '' || isNaN(text) ? null : Number(text); };
const test = (word) => {
  const parts = /^([^<>=]+)([<>=])(-?[0-9.]+(?:e[+-]?[0-9]+)?)$/.exec(word);
  if (!parts || !cards.some((card) => card.facts.has(parts[1]))) return (card) => card.text.includes(word);
  const limit = Number(parts[3]);
  return (card) => { const value = number(card, parts[1]); return value !== null && (parts[2] === '<' ? value < limit : parts[2] === '>' ? value > limit : value === limit); };
};
const show = () => {
  const tests = box.value.toLowerCase().split(/\s+/).filter((word) => word).map(test);
  let shown = 0;
  for (const card of cards) {
    card.node.hidden = !tests.every((fits) => fits(card));
    shown += card.node.hidden ? 0 : 1;
  }
  count.textContent = shown === cards.length ? `${cards.length} rows` : `${shown} of ${cards.length} rows`;
};
const sort = () => {
  const [name, way] = order.value === '' ? ['', 1] : [order.value.slice(1), order.value[0] === '-' ? -1 : 1];
  const by = (a, b) => {
    const x = number(a, name), y = number(b, name);
    return x === y ? a.place - b.place : x === null ? 1 : y === null ? -1 : (x - y) * way;
  };
  list.append(...[...cards].sort(name === '' ? (a, b) => a.place - b.place : by).map((card) => card.node));
};
const follow = () => { const asked = /^#q=(.*)$/.exec(location.hash); if (asked) { box.value = decodeURIComponent(asked[1]); show(); } };
box.addEventListener('input', show);
order.addEventListener('change', sort);
window.addEventListener('hashchange', follow);
document.getElementById('finder').hidden = false;
show();
follow();
)js";

bool reads_as_number(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && failure == std::errc() && end == text.data() + text.size();
}

/// Columns that hold a number in some row, in the order of the columns.
std::vector<std::string> sortable_columns(const std::vector<RowCard>& cards) {
  std::map<std::string, bool> holds_number;
  for (const RowCard& card : cards) {
    for (const auto& [name, value] : card.facts) {
      holds_number[name] = holds_number[name] || reads_as_number(value);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : cards.front().facts) {
    if (holds_number[name]) {
      names.push_back(name);
    }
  }
  return names;
}

std::string finder_html(const std::vector<RowCard>& cards) {
  std::string options = "<option value=\"\">as stored</option>";
  for (const std::string& name : sortable_columns(cards)) {
    const std::string lower = ascii_lower(name);  // As the script keeps names.
    options += fmt::format("<option value=\"+{0}\">{1}, lowest first</option><option value=\"-{0}\">{1}, highest first</option>",
                           escape_html(lower), escape_html(name));
  }
  return "<div id=\"finder\" class=\"finder\" hidden><input id=\"search\" type=\"search\" aria-label=\"search the rows\" "
         "placeholder=\"words, or column&gt;5\" autocomplete=\"off\"><select id=\"order\" aria-label=\"order of the rows\">" +
         options + "</select><span id=\"count\" class=\"dim\" role=\"status\"></span></div>";
}

std::string picture_html(const RowCard::Picture& picture) {
  std::string html = "<div class=\"pic\">";
  if (!picture.image.pixels.empty()) {
    html += fmt::format("<img loading=\"lazy\" alt=\"\" width=\"{}\" height=\"{}\" src=\"{}\">", picture.image.width, picture.image.height,
                        png_data_url(encode_png(picture.image)));
  }
  return html + (picture.label.empty() ? "" : "<span class=\"dim\">" + escape_html(picture.label) + "</span>") + "</div>";
}

std::string card_html(const RowCard& card) {
  std::string html = "<article class=\"card\"><div class=\"pics\">";
  for (const RowCard::Picture& picture : card.pictures) {
    html += picture_html(picture);
  }
  html += "</div>";
  if (!card.caption.empty()) {
    html += "<p>" + escape_html(clipped_text(card.caption, kMostCaptionCharacters)) + "</p>";
  }
  html += "<dl>";
  for (const auto& [name, value] : card.facts) {
    html += fmt::format("<dt>{0}</dt><dd data-name=\"{0}\">{1}</dd>", escape_html(name), escape_html(value));
  }
  return html + "</dl></article>";
}

}  // namespace

std::string cards_html(const std::vector<RowCard>& cards) {
  if (cards.empty()) {
    return "";
  }
  const bool are_wide = cards.front().pictures.size() > 1;
  std::string html =
      "<h2>first rows</h2>" + finder_html(cards) + fmt::format("<div id=\"cards\" class=\"cards{}\">", are_wide ? " rows" : "");
  for (const RowCard& card : cards) {
    html += card_html(card);
  }
  return html + "</div>";
}

std::string cards_script() { return kCardsScript; }

}  // namespace darkroom
