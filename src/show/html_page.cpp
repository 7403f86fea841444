#include "darkroom/show/html_page.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace darkroom {
namespace {

// Curves in validated colours for both forms of the page; text is never coloured alone: the legend names each curve.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1d1d1f; --dim: #6b6b70; --line: #e3e3e6; --page: #ffffff; --c0: #2a6fdb; --c1: #d1660a; --c2: #2a8a57; --c3: #a03fb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececee; --dim: #a0a0a6; --line: #37373c; --page: #17171a; --c0: #6ea2f5; --c1: #f2995c; --c2: #63c491; --c3: #d58be0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; } .dim { color: var(--dim); }
.charts, .sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }
.chart { width: 100%; height: auto; } .chart text { font-size: 12px; fill: var(--dim); } .chart .title { font-size: 14px; fill: var(--ink); }
.chart .grid { stroke: var(--line); } .curve { fill: none; stroke-width: 1.5; } .faint { opacity: .4; }
.curve-0 { stroke: var(--c0); } .curve-1 { stroke: var(--c1); } .curve-2 { stroke: var(--c2); } .curve-3 { stroke: var(--c3); }
.chart .legend-0 { fill: var(--c0); } .chart .legend-1 { fill: var(--c1); } .chart .legend-2 { fill: var(--c2); } .chart .legend-3 { fill: var(--c3); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child { text-align: left; } img { max-width: 100%; height: auto; border: 1px solid var(--line); }
.wide { overflow-x: auto; } .damage { border-left: 4px solid var(--c1); padding-left: .6rem; overflow-wrap: anywhere; }
figure { margin: 0 0 1rem; } pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; font-size: 13px; }
)css";

std::string base64(std::string_view bytes) {
  constexpr const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i) {
      word = word << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {  // n bytes give n + 1 digits.
      text += at + i > bytes.size() ? '=' : kAlphabet[word >> (18 - 6 * i) & 63U];
    }
  }
  return text;
}

}  // namespace

std::string render_html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title>"
      "<style>{1}</style></head><body><h1>{0}</h1>{2}</body></html>\n",
      escape_html(title), kStyle, body);
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' ? std::string("\uFFFD") : std::string(1, c);
    }
  }
  return escaped;
}

std::string png_data_url(std::string_view png) { return "data:image/png;base64," + base64(png); }

}  // namespace darkroom
