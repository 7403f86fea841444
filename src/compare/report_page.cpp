#include "report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/png.h"
#include "darkroom/image/resample.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"
#include "page_text.h"
#include "painting.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kSheetSeeds = 4;
constexpr int kShownSide = 256;        // Pixels of a picture in the report.
constexpr size_t kTablePrompts = 200;  // Rows of the table of prompts.
constexpr const char* kMinus = "\u2212";

std::string signed_text(double value, int digits = 3) {
  const std::string text = number_text(std::abs(value), digits);
  return value < 0 ? kMinus + text : value > 0 ? "+" + text : text;
}

std::string with_unit(const std::string& number, const Json& measure) {
  const std::string unit = measure.value("unit", "");
  return unit.empty() ? number : number + " " + unit;
}

std::string compare_tile(const std::string& label, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><span>{}</span></div>", escape_html(label), escape_html(value),
                     escape_html(note));
}

std::string tiles(const Json& report) {
  const Json& verdict = report["verdict"];
  const std::string preferred = verdict["preferred"];
  std::string html = "<div class=\"tiles\">";
  const bool decides = preferred != "none";
  html += compare_tile("verdict",
                       decides                                ? preferred + " is better"
                       : verdict["contradictory"].get<bool>() ? "they disagree"
                                                              : "no difference shown",
                       decides ? "decided by " + verdict["decided_by"].get<std::string>() : "");
  const auto num_prompts = report["num_prompts"].get<int64_t>(), num_seeds = report["num_seeds"].get<int64_t>();
  html +=
      compare_tile("prompts", counted(num_prompts), num_seeds == 1 ? "one seed each" : fmt::format("{} seeds each", counted(num_seeds)));
  for (const Json& between : report["between"]) {
    const std::string range =
        between["low"].is_null() ? "" : fmt::format("{} to {}", number_text(between["low"], 3), number_text(between["high"], 3));
    html += compare_tile(between["label"], with_unit(number_text(between["value"], 3), between), range);
  }
  html += compare_tile("identical pairs", counted(report["num_identical"].get<int64_t>()), "of " + counted(num_prompts * num_seeds));
  return html + "</div>";
}

// The interval of a difference beside 0, turned so that right is where A is better.
std::string interval_svg(const Json& measure) {
  constexpr double kWidth = 240, kHeight = 26, kMiddle = kWidth / 2, kReach = kWidth / 2 - 8;
  if (measure["low"].is_null()) {
    return {};
  }
  const double sign = measure["higher_is_better"].get<bool>() ? 1 : -1;
  const double low = sign * measure["low"].get<double>(), high = sign * measure["high"].get<double>();
  const double difference = sign * measure["difference"].get<double>();
  const double largest = std::max({std::abs(low), std::abs(high), std::abs(difference), 1e-300});
  const auto at = [&](double value) { return kMiddle + kReach * value / largest; };
  const int colour = measure["preference"] == "none" ? 2 : measure["preference"] == "A" ? 0 : 1;
  return fmt::format(
      "<svg class=\"chart\" style=\"width:{0}px\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"interval\"><line class=\"rule\" "
      "x1=\"{2}\" "
      "x2=\"{2}\" y1=\"2\" y2=\"{3}\"/><line class=\"curve colour-{4}\" x1=\"{5:.1f}\" x2=\"{6:.1f}\" y1=\"13\" y2=\"13\"/>"
      "<circle class=\"colour-{4}\" cx=\"{7:.1f}\" cy=\"13\" r=\"4.5\"/></svg>",
      kWidth, kHeight, kMiddle, kHeight - 2, colour, std::min(at(low), at(high)), std::max(at(low), at(high)), at(difference));
}

std::string p_text(const Json& p) { return p.is_null() ? "-" : p.get<double>() < 0.001 ? "&lt; 0.001" : number_text(p.get<double>(), 2); }

std::string measure_row(const Json& measure) {
  const bool has_interval = !measure["low"].is_null();
  const std::string preference = measure["preference"];
  return fmt::format(
      "<tr><td>{}<br><span class=\"dim\">{}{}</span></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}<br><span "
      "class=\"dim\">{}</span></td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
      escape_html(measure["label"].get<std::string>()), measure["higher_is_better"].get<bool>() ? "higher is better" : "lower is better",
      measure["unit"] == "" ? "" : ", " + escape_html(measure["unit"].get<std::string>()), number_text(measure["a"], 4),
      number_text(measure["b"], 4), signed_text(measure["difference"]),
      has_interval ? fmt::format("{} to {}", signed_text(measure["low"]), signed_text(measure["high"])) : "", interval_svg(measure),
      p_text(measure["p_adjusted"]),
      preference != "none" ? "<b>" + preference + "</b>"
      : has_interval       ? "no difference shown"
                           : "decides nothing");
}

std::string measures_html(const Json& report) {
  std::string html = "<h2>Measures</h2>";
  if (report["measures"].empty()) {
    return html +
           "<p>Nothing was measured that could prefer one of the models: that takes reference pictures (--references), networks "
           "(--weights-dir) or a vote.</p>";
  }
  html +=
      "<div class=\"wide\"><table><tr><th></th><th class=\"n\">A</th><th class=\"n\">B</th><th class=\"n\">A less B</th><th>B better "
      "&#8592; 0 "
      "&#8594; A better</th><th class=\"n\">p</th><th>prefers</th></tr>";
  for (const Json& measure : report["measures"]) {
    html += measure_row(measure);
  }
  html += "</table></div>";
  const double percent = 100 * report["error_rate"].get<double>();
  html += fmt::format(
      "<p class=\"dim\">Intervals: {}&nbsp;%, bootstrap over prompts, {} resamples; a prompt's pictures stay together. p: randomisation "
      "test, "
      "corrected over these measures (Holm). Two models that paint alike are told apart in at most {}&nbsp;% of comparisons.</p>",
      number_text(100 - percent, 4), counted(report["num_resamples"].get<int64_t>()), number_text(percent, 4));
  for (const Json& note : report["notes"]) {
    html += "<p class=\"dim\">" + escape_html(note.get<std::string>()) + "</p>";
  }
  return html;
}

std::string vote_html(const Json& report) {
  if (!report.contains("votes")) {
    return "<h2>Vote</h2><p>Open vote.html, choose without knowing whose picture is which, save the file, then: darkroom compare --votes "
           "FILE "
           "--output THIS_FOLDER</p>";
  }
  const Json& votes = report["votes"];
  const auto count = [&](const char* name) { return counted(votes[name].get<int64_t>()); };
  const auto percent = [&](const char* name) { return number_text(100 * votes[name].get<double>(), 3) + " %"; };
  const std::string preference = votes["preference"];
  return facts_html("Vote",
                    {{"pairs for A, for B, undecided", fmt::format("{}, {}, {}", count("for_a"), count("for_b"), count("undecided"))},
                     {"prefer A", votes["share_for_a"].is_null()
                                      ? "nobody decided on a pair"
                                      : fmt::format("{} (interval {} to {})", percent("share_for_a"), percent("low"), percent("high"))},
                     {"p of the sign test", number_text(votes["p"], 2)},
                     {"preference", preference == "none" ? "no preference shown" : preference},
                     {"voters, votes", fmt::format("{}, {}", count("num_voters"), count("num_votes"))}});
}

Image shown(const Image& picture) {
  const double scale = std::min({1.0, static_cast<double>(kShownSide) / picture.width, static_cast<double>(kShownSide) / picture.height});
  return resize(picture, std::max(1, static_cast<int>(picture.width * scale)), std::max(1, static_cast<int>(picture.height * scale)),
                Filter::kBilinear);
}

std::string figure(const Image& picture, const std::string& label) {
  return fmt::format("<div class=\"pic\"><img alt=\"{0}\" width=\"128\" src=\"{1}\">{0}</div>", escape_html(label),
                     png_data_url(encode_png(shown(picture))));
}

std::string gallery_html(const std::vector<ShownPrompt>& prompts, const Json& report) {
  if (prompts.empty()) {
    return {};
  }
  std::string html =
      "<h2>Pictures</h2><p class=\"dim\">The first picture of the first prompts; all pictures lie in pictures/.</p><div class=\"sheets\">";
  for (size_t i = 0; i < prompts.size(); ++i) {
    html += "<figure><div class=\"pics\">";
    html += prompts[i].reference.pixels.empty() ? "" : figure(prompts[i].reference, "reference");
    html += figure(prompts[i].pictures[0], "A") + figure(prompts[i].pictures[1], "B");
    const Json& scores = report["prompts"][i];
    const std::string psnr = scores.contains("psnr") ? fmt::format("; PSNR to the reference {} and {} dB",
                                                                   number_text(scores["psnr"][0], 3), number_text(scores["psnr"][1], 3))
                                                     : "";
    html += fmt::format("</div><figcaption>{}<br><span class=\"dim\">A and B: {} dB{}</span></figcaption></figure>",
                        escape_html(prompts[i].prompt), number_text(scores["between_psnr"], 3), psnr);
  }
  return html + "</div>";
}

// A's and B's cell of a score; empty for a prompt without reference.
std::string pair_cells(const Json& scores, const char* name) {
  std::string html;
  for (size_t side = 0; side < 2; ++side) {
    html += fmt::format("<td class=\"n\">{}</td>", scores.contains(name) ? number_text(scores[name][side], 3) : "-");
  }
  return html;
}

std::string prompts_html(const Json& report) {
  const bool has_references = report["num_references"].get<int64_t>() > 0;
  std::string html = "<div class=\"wide\"><table><tr><th>prompt</th><th class=\"n\">A and B, dB</th>";
  html += has_references
              ? "<th class=\"n\">A, dB</th><th class=\"n\">B, dB</th><th class=\"n\">A nearest</th><th class=\"n\">B nearest</th>"
              : "";
  html += "</tr>";
  const size_t num_prompts = report["prompts"].size();
  for (size_t i = 0; i < std::min(num_prompts, kTablePrompts); ++i) {
    const Json& scores = report["prompts"][i];
    html +=
        fmt::format("<tr><td>{}</td><td class=\"n\">{}</td>{}</tr>", escape_html(one_line(scores["prompt"].get<std::string>(), 80)),
                    number_text(scores["between_psnr"], 3), has_references ? pair_cells(scores, "psnr") + pair_cells(scores, "top1") : "");
  }
  const std::string title = num_prompts > kTablePrompts ? fmt::format("the first {} of {}; all are in report.json", kTablePrompts,
                                                                      counted(static_cast<int64_t>(num_prompts)))
                                                        : fmt::format("all {}", num_prompts);
  return "<h2>Prompts</h2><details><summary>" + title + "</summary>" + html + "</table></div></details>";
}

std::string settings_html(const Json& report) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [side, name] : {std::pair("a", "A"), std::pair("b", "B")}) {
    const Json& model = report["settings"][side];
    facts.emplace_back(name, fmt::format("{} ({}), files {}", one_line(model.value("model", ""), 200), model.value("weights", ""),
                                         model.value("identity", "").substr(0, 16)));
  }
  for (const auto& [name, value] : report["settings"].items()) {
    if (name != "a" && name != "b") {
      facts.emplace_back(name, value.is_string() ? one_line(value.get<std::string>(), 200) : value.dump());
    }
  }
  return facts_html("How they were painted", facts);
}

}  // namespace

Result<std::vector<ShownPrompt>> read_shown_prompts(FileSystem& files, const std::string& output, const CompareRecord& record) {
  const std::vector<std::string> prompts = record.prompts();
  std::vector<ShownPrompt> shown;
  for (size_t i = 0; i < std::min(prompts.size(), kShownPrompts); ++i) {
    ShownPrompt one{.prompt = prompts[i]};
    for (size_t seed = 0; seed < std::min(record.num_seeds(), kSheetSeeds); ++seed) {
      for (const Side side : kSides) {
        DARKROOM_ASSIGN_OR_RETURN(Image picture, read_compared_picture(files, picture_path(output, side, i, seed), record.shared));
        one.pictures.push_back(std::move(picture));
      }
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool has_reference, files.exists(reference_path(output, i)));
    if (has_reference) {
      DARKROOM_ASSIGN_OR_RETURN(one.reference, read_compared_picture(files, reference_path(output, i), record.shared));
    }
    shown.push_back(std::move(one));
  }
  return shown;
}

Image draw_compare_sheet(const std::vector<ShownPrompt>& prompts, const CompareRecord& record) {
  const bool has_references = std::ranges::any_of(prompts, [](const ShownPrompt& one) { return !one.reference.pixels.empty(); });
  ContactSheetOptions options;
  options.cell_width = options.cell_height = std::clamp(std::max(record.shared.width, record.shared.height), 128, 512);
  options.num_caption_lines = 2;
  if (has_references) {
    options.column_titles.emplace_back("reference");
  }
  for (size_t seed = 0; seed < std::min(record.num_seeds(), kSheetSeeds); ++seed) {
    for (const Side side : kSides) {
      options.column_titles.push_back(record.num_seeds() == 1 ? side_name(side) : fmt::format("{}, picture {}", side_name(side), seed + 1));
    }
  }
  std::vector<std::vector<ContactSheetCell>> rows;
  for (const ShownPrompt& one : prompts) {
    auto& row = rows.emplace_back();
    if (has_references) {
      row.push_back({one.reference, ""});
    }
    for (const Image& picture : one.pictures) {
      row.push_back({picture, ""});
    }
    row.front().caption = one.prompt;
  }
  return render_contact_sheet(rows, options);
}

std::string render_compare_page(const Json& report, const std::vector<ShownPrompt>& prompts) {
  const Json& settings = report["settings"];
  std::string body = fmt::format("<p><b>A</b> {}<br><b>B</b> {}</p>", escape_html(settings["a"].value("model", "")),
                                 escape_html(settings["b"].value("model", "")));
  body += "<p>" + escape_html(report["verdict"]["text"].get<std::string>()) + "</p>";
  body += tiles(report) + measures_html(report) + vote_html(report) + gallery_html(prompts, report);
  body += prompts_html(report) + settings_html(report);
  return render_html_page("A beside B", body);
}

}  // namespace darkroom
