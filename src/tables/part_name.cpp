#include "darkroom/tables/part_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr std::string_view kPrefix = "part-";
constexpr std::array<std::pair<PartContainer, std::string_view>, 3> kPartEndings = {
    {{PartContainer::kParquet, ".parquet"}, {PartContainer::kTar, ".tar"}, {PartContainer::kMds, ".mds"}}};

std::string_view ending_of(PartContainer container) {
  return std::ranges::find(kPartEndings, container, &std::pair<PartContainer, std::string_view>::first)->second;
}

/// The number that `text` begins with, which is taken off it: digits only, so many that it is what printing it gives.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || text.starts_with('-')) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take_off(std::string_view& text, std::string_view beginning) {
  if (!text.starts_with(beginning)) {
    return false;
  }
  text.remove_prefix(beginning.size());
  return true;
}

}  // namespace

std::string PartName::text() const {
  DARKROOM_CHECK(item >= 0 && generation >= 0 && considered.value_or(0) >= 0, "a part's name has no negative number:", item, generation);
  std::string name = fmt::format("{}{:06d}", kPrefix, item);
  if (generation > 0) {
    name += fmt::format("-g{}", generation);
  }
  if (considered) {
    name += fmt::format("-r{:05d}", *considered);
  }
  return name.append(ending_of(container));
}

std::optional<PartName> PartName::parse(std::string_view name) {
  std::string_view rest = name;
  if (!take_off(rest, kPrefix)) {
    return std::nullopt;
  }
  PartName part;
  const std::optional<int64_t> item = take_number(rest);
  const std::optional<int64_t> generation = take_off(rest, "-g") ? take_number(rest) : std::optional<int64_t>(0);
  const bool is_cut = take_off(rest, "-r");
  part.considered = is_cut ? take_number(rest) : std::nullopt;
  if (!item || !generation || *generation > kMostGenerations || (is_cut && !part.considered)) {
    return std::nullopt;
  }
  part.item = *item;
  part.generation = *generation;
  for (const auto& [container, ending] : kPartEndings) {
    if (rest == ending) {
      part.container = container;
    }
  }
  return part.text() == name ? std::optional(part) : std::nullopt;
}

bool PartName::goes_before(const PartName& other) const {
  if (considered.has_value() != other.considered.has_value()) {
    return !considered.has_value();
  }
  if (!considered || generation != other.generation) {
    return generation > other.generation;
  }
  return *considered > *other.considered;
}

std::vector<FileInfo> take_out_superseded_parts(std::vector<FileInfo>& listing) {
  using PlaceOfItem = std::tuple<std::string, int64_t, PartContainer>;  // Parts of two kinds are of two jobs.
  const auto place_of = [](const FileInfo& file, const PartName& part) {
    return PlaceOfItem(parent_folder(file.path), part.item, part.container);
  };
  std::map<PlaceOfItem, PartName> best;
  for (const FileInfo& file : listing) {
    if (const std::optional<PartName> part = PartName::parse(file_name(file.path))) {
      const auto [known, is_new] = best.try_emplace(place_of(file, *part), *part);
      if (!is_new && part->goes_before(known->second)) {
        known->second = *part;
      }
    }
  }
  std::vector<FileInfo> superseded;
  std::erase_if(listing, [&](FileInfo& file) {
    const std::optional<PartName> part = PartName::parse(file_name(file.path));
    const bool is_superseded = part && best.at(place_of(file, *part)) != *part;
    if (is_superseded) {
      superseded.push_back(file);
    }
    return is_superseded;
  });
  return superseded;
}

}  // namespace darkroom
