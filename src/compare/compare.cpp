#include "darkroom/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "comparison_record.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/version.h"
#include "darkroom/files/folder_lock.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/png.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/measure/ballot.h"
#include "network_measures.h"
#include "painting.h"
#include "picture_scores.h"
#include "references.h"
#include "report_page.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kFewPrompts = 8;  // Fewer can hardly show anything.
constexpr int64_t kMostResamples = 1'000'000;

const char* label_of(const std::string& name) {
  static const std::map<std::string, const char*> kLabels = {{"psnr", "PSNR to the reference"},
                                                             {"retrieval_top1", "own reference is the nearest"},
                                                             {"retrieval_top5", "own reference is among the nearest 5"},
                                                             {"palette", "palette distance to the reference"},
                                                             {"clip_score", "CLIP score"},
                                                             {"clip_fid", "CLIP-FID"},
                                                             {"fid", "FID"},
                                                             {"kid", "KID"}};
  const auto found = kLabels.find(name);
  return found == kLabels.end() ? name.c_str() : found->second;
}

Json optional_number(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

Json measure_json(const MeasureOutcome& measure) {
  const auto end = [&](double Interval::*value) {
    return optional_number(measure.interval ? std::optional((*measure.interval).*value) : std::nullopt);
  };
  return {{"name", measure.name},
          {"label", label_of(measure.name)},
          {"unit", measure.unit},
          {"higher_is_better", measure.higher_is_better},
          {"a", measure.a},
          {"b", measure.b},
          {"difference", measure.difference},
          {"low", end(&Interval::low)},
          {"high", end(&Interval::high)},
          {"standard_error", optional_number(measure.standard_error)},
          {"p", optional_number(measure.p)},
          {"p_adjusted", optional_number(measure.p_adjusted)},
          {"num_prompts", measure.num_prompts},
          {"preference", preference_name(measure.preference)}};
}

std::string verdict_text(const ComparisonVerdict& verdict, const std::vector<MeasureOutcome>& measures, double error_rate) {
  const std::string rate = fmt::format("at an error rate of {:g} %", 100 * error_rate);
  if (measures.empty()) {
    return "Nothing was measured that could prefer one of the models.";
  }
  if (verdict.is_contradictory) {
    return "The measures contradict each other: some prefer A, others B.";
  }
  if (verdict.preferred == Preference::kNone) {
    return fmt::format("No difference is shown {}.", rate);
  }
  return fmt::format("{} is better {}; decided by: {}.", preference_name(verdict.preferred), rate, label_of(verdict.decided_by));
}

Json prompts_json(const CompareRecord& record, const PictureScores& scores) {
  const std::vector<std::string> prompts = record.prompts();
  Json list = Json::array();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PromptScores& one = scores.prompts[i];
    Json entry = {{"prompt", prompts[i]}, {"between_psnr", one.between_psnr_db}, {"between_palette", one.between_palette}};
    if (one.has_reference) {
      entry["psnr"] = one.psnr_db;
      entry["palette"] = one.palette;
      entry["top1"] = one.top1;
      entry["top5"] = one.top5;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::vector<std::string> notes_of(const CompareRecord& record, const CompareReferences& references, bool has_references) {
  std::vector<std::string> notes;
  const size_t num_prompts = record.num_prompts();
  if (has_references) {
    notes.push_back(fmt::format("{} of {} prompts are captions of references; {} references are good, {} could not be decoded.",
                                references.of_prompt.size(), num_prompts, references.all.size(), references.num_bad));
  }
  const size_t num_measured = has_references ? references.of_prompt.size() : num_prompts;
  if (num_measured < kFewPrompts) {
    notes.push_back(fmt::format("{} prompts are few: with fewer than {} hardly any difference can be shown.", num_measured, kFewPrompts));
  }
  return notes;
}

// The settings of the report: what was asked for, with what both models then shared, and without the long list of prompts.
Json shown_settings(const CompareRecord& record) {
  Json settings = record.settings;
  settings.erase("prompts");
  settings["sampler"] = record.shared.sampler;
  settings["width"] = record.shared.width;
  settings["height"] = record.shared.height;
  return settings;
}

// No p-value of R resamples is below 1 / (1 + R), and Holm's correction takes the smallest one as often as there are measures.
void note_few_resamples(const std::vector<MeasureOutcome>& measures, const CompareJob& job, std::vector<std::string>& notes) {
  const auto num_tests = std::ranges::count_if(measures, [](const MeasureOutcome& measure) { return measure.p.has_value(); });
  const auto smallest = [&](int64_t num_resamples) { return static_cast<double>(num_tests) / static_cast<double>(1 + num_resamples); };
  if (smallest(job.num_resamples) <= job.error_rate) {
    return;
  }
  const auto enough = static_cast<int64_t>(std::ceil(static_cast<double>(num_tests) / job.error_rate));
  const std::string advice = enough <= kMostResamples ? fmt::format("Give --resamples {} or more.", enough)
                                                      : "Even the most that --resamples takes are too few: take a larger --error-rate.";
  notes.push_back(
      fmt::format("{} resamples cannot show a difference at an error rate of {:g} %: over {} measures no p-value gets below {:.2g} %. {}",
                  job.num_resamples, 100 * job.error_rate, num_tests, 100 * smallest(job.num_resamples), advice));
}

Json votes_json(const VoteOutcome& outcome) {
  return {{"num_voters", outcome.num_voters},
          {"num_votes", outcome.num_votes},
          {"for_a", outcome.for_a},
          {"for_b", outcome.for_b},
          {"undecided", outcome.undecided},
          {"share_for_a", optional_number(outcome.share_for_a)},
          {"low", outcome.interval.low},
          {"high", outcome.interval.high},
          {"p", outcome.p},
          {"preference", preference_name(outcome.preference)}};
}

// Counted votes under another error rate; nothing where they are not what votes_json() wrote.
Json judged_anew(const Json& votes, double error_rate) {
  VoteOutcome outcome;
  for (const auto& [name, field] :
       {std::pair("num_voters", &outcome.num_voters), std::pair("num_votes", &outcome.num_votes), std::pair("for_a", &outcome.for_a),
        std::pair("for_b", &outcome.for_b), std::pair("undecided", &outcome.undecided)}) {
    const Json count = votes.is_object() ? votes.value(name, Json()) : Json();
    if (!count.is_number_unsigned()) {
      return Json();
    }
    *field = count.get<int64_t>();
  }
  judge_votes(outcome, error_rate);
  return votes_json(outcome);
}

// What was voted before stays in the report, as long as it is of this comparison.
Result<Json> earlier_votes(FileSystem& files, const std::string& path, const std::string& id, double error_rate) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (!is_there) {
    return Json();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  const Json report = parse_json<Json>(text);
  return report.is_object() && report.value("id", Json()) == id ? judged_anew(report.value("votes", Json()), error_rate) : Json();
}

/// Measures and writes a comparison whose pictures are there.
class Comparison {
 public:
  Comparison(FileSystem& files, const CompareJob& job, const CompareRecord& record, const std::stop_token& stop)
      : files_(files), job_(job), record_(record), stop_(stop) {}

  Result<Json> measure() {
    DARKROOM_ASSIGN_OR_RETURN(NetworkMeasures networks, NetworkMeasures::open(job_, stop_));
    if (has_references()) {
      const auto see = [&networks](const Image& picture) { return networks.add_reference(picture); };
      DARKROOM_ASSIGN_OR_RETURN(const auto decoder, open_decoder(job_.decoder_program, ImageLimits{}, stop_));
      DARKROOM_ASSIGN_OR_RETURN(references_, read_compare_references(files_, job_.references, record_, *decoder, stop_, see));
    }
    DARKROOM_RETURN_IF_ERROR(write_references());
    DARKROOM_ASSIGN_OR_RETURN(const PictureScores scores,
                              score_pictures(files_, job_.output, record_, has_references() ? &references_ : nullptr, stop_));
    const ResamplingOptions options{.num_resamples = job_.num_resamples, .error_rate = job_.error_rate, .seed = job_.seed, .stop = stop_};
    std::vector<MeasureOutcome> measures = reference_measures(scores, job_.metrics, options);
    std::vector<std::string> notes = notes_of(record_, references_, has_references());
    DARKROOM_ASSIGN_OR_RETURN(auto by_networks, networks.measure(files_, record_, options, notes));
    std::move(by_networks.begin(), by_networks.end(), std::back_inserter(measures));
    note_few_resamples(measures, job_, notes);
    const Json between = between_models(scores, options);
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped on request while comparing numbers; the same command goes on");
    }
    const ComparisonVerdict verdict = decide(measures, job_.error_rate);
    Json report = {{"format", "darkroom comparison report"},
                   {"version", 2},
                   {"id", record_.id()},
                   {"darkroom", kVersion},
                   {"settings", shown_settings(record_)},
                   {"num_prompts", record_.num_prompts()},
                   {"num_seeds", record_.num_seeds()},
                   {"num_references", references_.all.size()},
                   {"error_rate", job_.error_rate},
                   {"num_resamples", job_.num_resamples},
                   {"num_identical", scores.num_identical},
                   {"between", between},
                   {"notes", notes},
                   {"networks", networks.networks()},
                   {"prompts", prompts_json(record_, scores)}};
    report["verdict"] = {{"preferred", preference_name(verdict.preferred)},
                         {"decided_by", verdict.decided_by},
                         {"contradictory", verdict.is_contradictory},
                         {"text", verdict_text(verdict, measures, job_.error_rate)}};
    report["measures"] = Json::array();
    for (const MeasureOutcome& measure : measures) {
      report["measures"].push_back(measure_json(measure));
    }
    return report;
  }

  // The report last: where it is, all else is.
  Status write(Json& report) {
    const std::string path = join_path(job_.output, "report.json");
    DARKROOM_ASSIGN_OR_RETURN(const Json votes, earlier_votes(files_, path, record_.id(), job_.error_rate));
    if (votes.is_object()) {
      report["votes"] = votes;
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto shown, read_shown_prompts(files_, job_.output, record_));
    const std::string sheet = encode_png(draw_compare_sheet(shown, record_));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, join_path(job_.output, "sheet.png"), sheet));
    const std::vector<Ballot> ballots = draw_ballots(record_.num_prompts(), record_.seed());
    DARKROOM_ASSIGN_OR_RETURN(const std::string vote_page, render_vote_page(files_, job_.output, record_, ballots));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, join_path(job_.output, "vote.html"), vote_page));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, path, report.dump(1) + "\n"));
    return write_file_atomic(files_, join_path(job_.output, "report.html"), render_compare_page(report, shown));
  }

 private:
  bool has_references() const { return !job_.references.empty(); }

  // Of the prompts that the report shows, so that the folder is whole without the dataset.
  Status write_references() {
    for (size_t prompt = 0; prompt < std::min(record_.num_prompts(), kShownPrompts); ++prompt) {
      const std::string path = reference_path(job_.output, prompt);
      const auto own = references_.of_prompt.find(prompt);
      if (own != references_.of_prompt.end()) {
        DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, path, encode_png(own->second.picture)));
        continue;
      }
      DARKROOM_RETURN_IF_ERROR(files_.remove_tree(path));  // Of another run's references.
    }
    return Status::ok();
  }

  FileSystem& files_;
  const CompareJob& job_;
  const CompareRecord& record_;
  const std::stop_token stop_;
  CompareReferences references_;
};

constexpr const char* kOutputHeld = "another process works in --output at this time:";

}  // namespace

Status CompareJob::validate() const {
  if (num_seeds < 1 || num_seeds > 100) {
    return Status::invalid_argument("--seeds must be from 1 to 100, got:", num_seeds);
  }
  if (!(error_rate > 0 && error_rate < 0.5)) {
    return Status::invalid_argument("--error-rate must be above 0 and below 50 %, got:", fmt::format("{:g} %", 100 * error_rate));
  }
  if (num_resamples < 100 || num_resamples > kMostResamples) {
    return Status::invalid_argument(fmt::format("--resamples must be from 100 to {}, got:", kMostResamples), num_resamples);
  }
  for (const std::string& metric : metrics) {
    if (std::ranges::find(kCompareMetrics, std::string_view(metric)) == std::end(kCompareMetrics)) {
      return Status::invalid_argument("--metrics: unknown name:", metric);
    }
    const bool needs_weights = metric == "clip" || metric == "clip-fid" || metric == "fid" || metric == "kid";
    if (needs_weights && weights_dir.empty()) {
      return Status::invalid_argument("--metrics: a measure needs a network; give --weights-dir:", metric);
    }
    if (metric != "clip" && references.empty()) {
      return Status::invalid_argument("--metrics: a measure compares with reference pictures; give --references:", metric);
    }
  }
  return Status::ok();
}

Status run_comparison(FileSystem& files, const CompareJob& job, const std::stop_token& stop, CompareReport& report,
                      const PaintingProgress& on_painted) {
  report = {};
  DARKROOM_RETURN_IF_ERROR(job.validate());
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, read_compared_prompts(files, job.prompts_file));
  PaintRequest request = job.request;
  request.prompts = prompts;
  DARKROOM_RETURN_IF_ERROR(check_prompts(request));
  DARKROOM_RETURN_IF_ERROR(find_compare_record(files, job.output).status());  // A folder of something else stays as it is.
  DARKROOM_RETURN_IF_ERROR(files.create_folders(job.output));
  DARKROOM_ASSIGN_OR_RETURN(const auto lock, lock_folder(files, job.output, kOutputHeld));
  DARKROOM_ASSIGN_OR_RETURN(auto found, find_compare_record(files, job.output));  // Nobody else may write one from here on.
  CompareRecord record{.settings = compared_settings(job, prompts)};
  if (found) {
    DARKROOM_RETURN_IF_ERROR(check_same_settings(*found, record.settings, job.output));
    record.shared = found->shared;
  }
  DARKROOM_RETURN_IF_ERROR(paint_comparison(files, job, found.has_value(), stop, on_painted, record, report));
  Comparison comparison(files, job, record, stop);
  DARKROOM_ASSIGN_OR_RETURN(Json measured, comparison.measure());
  DARKROOM_RETURN_IF_ERROR(comparison.write(measured));
  report.report = std::move(measured);
  return Status::ok();
}

Result<Json> count_comparison_votes(FileSystem& files, const std::string& output, const std::vector<std::string>& vote_files) {
  DARKROOM_ASSIGN_OR_RETURN(auto record, find_compare_record(files, output));
  std::unique_ptr<FileLock> lock;
  if (record) {
    DARKROOM_ASSIGN_OR_RETURN(lock, lock_folder(files, output, kOutputHeld));
  }
  const std::string path = join_path(output, "report.json");
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (!record || !is_there) {
    return Status::not_found("there is no finished comparison in --output; compare A and B first:", output);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  Json report = parse_json<Json>(text);
  if (!report.is_object() || report.value("id", Json()) != record->id() || !report.value("error_rate", Json()).is_number()) {
    return Status::corrupt_data("the report is not that of the comparison; run compare A B again, which writes it anew:", path);
  }
  const std::vector<Ballot> ballots = draw_ballots(record->num_prompts(), record->seed());
  std::vector<Votes> votes;
  for (const std::string& file : vote_files) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string exported, read_file(files, file));
    DARKROOM_ASSIGN_OR_RETURN(votes.emplace_back(), read_votes(exported, file, record->id(), ballots.size()));
  }
  report["votes"] = votes_json(count_votes(ballots, votes, report["error_rate"].get<double>()));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, path, report.dump(1) + "\n"));
  DARKROOM_ASSIGN_OR_RETURN(const auto shown, read_shown_prompts(files, output, *record));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path(output, "report.html"), render_compare_page(report, shown)));
  return report["votes"];
}

}  // namespace darkroom
