#include "darkroom/show/html_page.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// Curves in validated colours for both forms of the page; text is never coloured alone: the legend names each curve.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1b1c1f; --dim: #63666d; --line: #e4e5e9; --page: #ffffff; --panel: #f7f7f9; --c0: #2a6fdb; --c1: #d1660a; --c2: #2a8a57; --c3: #a03fb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececee; --dim: #a0a3ab; --line: #35363c; --page: #16171a; --panel: #1f2024; --c0: #6ea2f5; --c1: #f2995c; --c2: #63c491; --c3: #d58be0; } }
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; color: var(--ink); background: var(--page); max-width: 1120px; margin: 2.5rem auto 4rem; padding: 0 1.25rem; overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 .35rem; } h2 { font-size: 1.15rem; letter-spacing: -.005em; margin: 2.75rem 0 .9rem; }
p { margin: 0 0 .6rem; max-width: 46rem; } .dim { color: var(--dim); } .damage { border-left: 4px solid var(--c1); padding-left: .7rem; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin: 1.6rem 0 0; background: var(--line); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tile { flex: 1 1 max(150px, 22%); background: var(--page); padding: .8rem 1rem .9rem; } .tile b { display: block; font-size: 1.5rem; line-height: 1.3; font-weight: 600; letter-spacing: -.015em; font-variant-numeric: tabular-nums; } .tile span { display: block; font-size: 13px; line-height: 1.4; color: var(--dim); }
.plots, .sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1.8rem 2.2rem; }
figure { margin: 0; min-width: 0; } .plot { position: relative; } .plot figcaption { font-size: 14px; line-height: 1.6; margin-bottom: .25rem; } .plot figcaption b { font-weight: 600; }
.legend { margin-left: .9rem; color: var(--dim); font-size: 13px; white-space: nowrap; } .key { display: inline-block; width: 14px; height: 0; margin-right: .4rem; vertical-align: middle; border-top: 2.5px solid; } .key.dashed { border-top-style: dotted; }
.key.colour-0 { border-color: var(--c0); } .key.colour-1 { border-color: var(--c1); } .key.colour-2 { border-color: var(--c2); } .key.colour-3 { border-color: var(--c3); } .faint { opacity: .38; }
svg.chart { display: block; width: 100%; height: auto; overflow: visible; touch-action: pan-y; } .chart text { font-size: 12px; fill: var(--dim); font-variant-numeric: tabular-nums; }
.chart .grid { stroke: var(--line); } .chart .axis { stroke: var(--dim); } .curve { fill: none; stroke-width: 1.75; stroke-linejoin: round; } .curve.faint { stroke-width: 1; } .curve.dashed { stroke-dasharray: 4 3; }
.curve.colour-0 { stroke: var(--c0); } .curve.colour-1 { stroke: var(--c1); } .curve.colour-2 { stroke: var(--c2); } .curve.colour-3 { stroke: var(--c3); }
circle.colour-0 { fill: var(--c0); } circle.colour-1 { fill: var(--c1); } circle.colour-2 { fill: var(--c2); } circle.colour-3 { fill: var(--c3); } .rule { stroke: var(--dim); stroke-dasharray: 2 2; } .rule, .dot { pointer-events: none; }
.note { position: absolute; pointer-events: none; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .35rem .6rem; font-size: 12.5px; line-height: 1.5; white-space: nowrap; font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px rgb(0 0 0 / .14); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; } td, th { padding: .34rem 1.4rem .34rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); } th { font-weight: 500; color: var(--dim); } .n { text-align: right; }
td:last-child, th:last-child { padding-right: 0; } .facts td:first-child { color: var(--dim); white-space: nowrap; } .bar { display: inline-block; height: .6em; background: var(--c0); border-radius: 2px; min-width: 1px; }
img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px; } .sheets figcaption { margin-top: .4rem; font-size: 13.5px; }
.finder { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin: 0 0 1.2rem; padding: .6rem 0; background: var(--page); border-bottom: 1px solid var(--line); } .finder[hidden] { display: none; }
.finder input, .finder select { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .35rem .6rem; min-width: 0; } .finder input { flex: 1 1 16rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 220px), 1fr)); gap: 1.4rem; } .cards.rows { grid-template-columns: 1fr; } .card { min-width: 0; content-visibility: auto; contain-intrinsic-size: auto 320px; } .card[hidden] { display: none; } .card p { margin: .5rem 0 .3rem; font-size: 14px; line-height: 1.4; }
.pics { display: flex; flex-wrap: wrap; gap: .5rem; } .pic { font-size: 12px; line-height: 1.5; } .cards.rows .pic img { max-width: 128px; image-rendering: pixelated; } .card dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin: .3rem 0 0; font-size: 12.5px; font-variant-numeric: tabular-nums; } .card dt { color: var(--dim); } .card dd { margin: 0; min-width: 0; }
summary { cursor: pointer; color: var(--dim); } pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--panel); padding: .9rem 1rem; font-size: 13px; line-height: 1.5; overflow-wrap: normal; }
@media (max-width: 560px) { body { margin-top: 1.4rem; } .chart text { font-size: 19px; } .tile { flex-basis: 130px; } .tile b { font-size: 1.3rem; } .legend, .plot figcaption .dim { margin: 0 .9rem 0 0; } .plot figcaption b { display: block; } }
@media print { body { margin: 0; max-width: none; } details { display: none; } }
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

std::string render_html_page(const std::string& title, const std::string& body, const std::string& script) {
  DARKROOM_CHECK(script.find("</script") == std::string::npos, "a page's script would end too early");
  const char* scripts = script.empty() ? "" : "script-src 'unsafe-inline'; ";
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {3}style-src 'unsafe-inline'; img-src data:\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{0}</title>"
      "<style>{1}</style></head><body><h1>{0}</h1>{2}{4}</body></html>\n",
      escape_html(title), kStyle, body, scripts, script.empty() ? "" : "<script>" + script + "</script>");
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
