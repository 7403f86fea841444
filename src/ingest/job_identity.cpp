#include "darkroom/ingest/job_identity.h"

#include <algorithm>

#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

// Beyond these a message says only how many more there are.
constexpr size_t kMaxDifferences = 8;

void describe_difference(const std::string& name, const nlohmann::json& had, const nlohmann::json& wants,
                         std::vector<std::string>& differences) {
  if (had != wants) {
    differences.push_back(name + " (had " + canonical_text(had) + ", asked for " + canonical_text(wants) + ")");
  }
}

void describe_fields(const nlohmann::json& had, const nlohmann::json& wants, std::vector<std::string>& differences) {
  nlohmann::json names = nlohmann::json::object();
  names.update(had);
  names.update(wants);
  for (const auto& [name, unused] : names.items()) {
    describe_difference(name, had.value(name, nlohmann::json()), wants.value(name, nlohmann::json()), differences);
  }
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

std::string canonical_text(const nlohmann::json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

nlohmann::json JobIdentity::to_json() const {
  return {{"version", kJobFormatVersion}, {"verb", verb}, {"fields", fields}, {"rows_per_file", rows_per_file}};
}

std::string JobIdentity::hash() const { return sha256_hex(canonical_text(to_json())); }

Location place_of(Store* otherwise, const JobInput& input) {
  Store* const store = input.store == nullptr ? otherwise : input.store;
  DARKROOM_CHECK(store != nullptr, "an input of no store:", input.path);
  return {.store = store, .path = input.path};
}

std::string WorkItem::part_name() const {
  PartName name{.item = number, .generation = generation, .container = container};
  if (generation == 0 && num_rows < whole_rows) {
    name.considered = num_rows;
  }
  return name.text();
}

int64_t num_items_of(int64_t num_rows, int64_t rows_per_file) { return num_rows / rows_per_file + (num_rows % rows_per_file > 0 ? 1 : 0); }

int64_t num_items_of(const std::vector<JobInput>& inputs, int64_t rows_per_file) {
  return inputs.empty() ? 0 : inputs.back().first_item + num_items_of(inputs.back().num_rows, rows_per_file);
}

void number_inputs(std::vector<JobInput>& inputs, int64_t rows_per_file) {
  int64_t row = 0;
  int64_t item = 0;
  for (JobInput& input : inputs) {
    input.first_row = row;
    input.first_item = item;
    row += input.num_rows;
    item += num_items_of(input.num_rows, rows_per_file);
  }
}

WorkItem find_item(const std::vector<JobInput>& inputs, int64_t rows_per_file, int64_t number) {
  // An input without rows has the same first item as the one after it, which is the one that counts.
  const auto after = std::upper_bound(inputs.begin(), inputs.end(), number,
                                      [](int64_t wanted, const JobInput& input) { return wanted < input.first_item; });
  DARKROOM_CHECK(after != inputs.begin(), "there is no such item:", number);
  const auto input = static_cast<size_t>(after - inputs.begin()) - 1;
  const int64_t first_row = (number - inputs[input].first_item) * rows_per_file;
  DARKROOM_CHECK(first_row < inputs[input].num_rows, "there is no such item:", number);
  const int64_t num_rows = std::min(rows_per_file, inputs[input].num_rows - first_row);
  return {.number = number,
          .input = input,
          .first_row = first_row,
          .num_rows = num_rows,
          .whole_rows = num_rows,
          .list_row = inputs[input].first_row + first_row};
}

std::string item_fingerprint(const std::string& job_hash, const JobInput& input, const WorkItem& item) {
  nlohmann::json file = {{"size_bytes", input.size_bytes}, {"tail_sha256", input.tail_sha256}};
  set_file_name(file, input.name);
  return sha256_hex(canonical_text({{"job", job_hash},
                                    {"input", std::move(file)},
                                    {"item", item.number},
                                    {"first_row", item.first_row},
                                    {"num_rows", item.whole_rows},
                                    {"list_row", item.list_row}}));
}

std::string row_key(int64_t list_row) { return fmt::format("{:012d}", list_row); }

void set_file_name(nlohmann::json& object, const std::string& name) {
  auto [text, was_invalid] = replace_invalid_utf8(name);
  object["name"] = std::move(text);
  if (was_invalid) {
    object["name_hex"] = to_hex(name);
  }
}

std::string get_file_name(const nlohmann::json& object) {
  std::string name = object.at("name").get<std::string>();
  const auto hex = object.find("name_hex");
  if (hex == object.end()) {
    return name;
  }
  const std::string digits = hex->get<std::string>();
  return digits.find_first_not_of("0123456789abcdef") == std::string::npos ? from_hex(digits) : name;
}

Status refuse_other_job(const std::string& output, const nlohmann::json& had, const JobIdentity& wants,
                        std::vector<std::string> more_differences) {
  const nlohmann::json wanted = wants.to_json();
  std::vector<std::string> differences;
  for (const char* name : {"version", "verb", "rows_per_file"}) {
    describe_difference(name, had.value(name, nlohmann::json()), wanted[name], differences);
  }
  const nlohmann::json had_fields = had.value("fields", nlohmann::json::object());
  describe_fields(had_fields.is_object() ? had_fields : nlohmann::json::object(), wanted["fields"], differences);
  differences.insert(differences.end(), more_differences.begin(), more_differences.end());
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMaxDifferences); ++i) {
    text += (text.empty() ? "" : "; ") + differences[i];
  }
  if (differences.size() > kMaxDifferences) {
    text += fmt::format("; and {} more", differences.size() - kMaxDifferences);
  }
  return Status::failed_precondition(
      "the output folder belongs to another job: nothing was changed; use another folder or the flags of that job (folder, differences):",
      output, text);
}

}  // namespace darkroom
