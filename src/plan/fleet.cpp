#include "darkroom/plan/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace darkroom {
namespace {

constexpr int64_t kMostMachines = 1'000'000;

Status bad_group(std::string_view group, const std::string& what) {
  return Status::invalid_argument(fmt::format("the fleet's group '{}' {}", group.substr(0, 100), what));
}

// "4x" of "4xp4de.24xlarge"; 0 where no count stands there.
Result<int64_t> take_count(std::string_view group, std::string_view& rest) {
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits == rest.size() || rest[digits] != 'x') {
    return int64_t{0};
  }
  int64_t count = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, count);
  if (error != std::errc() || count < 1 || count > kMostMachines) {
    return bad_group(group, fmt::format("must have 1 to {} machines, got: {}", kMostMachines, rest.substr(0, digits)));
  }
  rest.remove_prefix(digits + 1);
  return count;
}

Result<Machine> find_machine(std::string_view group, std::string_view name, const Catalogue& catalogue) {
  if (const Machine* machine = catalogue.machine(name)) {
    return *machine;
  }
  std::vector<std::string> names;
  for (const Machine& machine : catalogue.machines) {
    names.push_back(machine.name);
  }
  return bad_group(
      group, fmt::format("names a machine that {} does not have: '{}'; did you mean '{}'? (COUNTxMACHINE, such as 4x{})", catalogue.name,
                         name.substr(0, 100), nearest_word(names, name), names.empty() ? "p4de.24xlarge" : names.front()));
}

Status check_price(std::string_view group, const Machine& machine, const Catalogue& catalogue) {
  for (const char* purchase : kPurchases) {
    if (catalogue.price(machine.name, purchase) != nullptr) {
      return Status::ok();
    }
  }
  return bad_group(group, fmt::format("is of a machine without any [[price]] in {}", catalogue.name));
}

}  // namespace

std::string Fleet::to_text() const {
  const auto group = [](const char* role, const FleetGroup& one) {
    return fmt::format("{}={}{}", role, one.count > 0 ? fmt::format("{}x", one.count) : "", one.machine.name);
  };
  std::string text = group("train", train);
  text += encode ? "," + group("encode", *encode) : "";
  return text + (download ? "," + group("download", *download) : "");
}

Result<Fleet> parse_fleet(std::string_view spec, const Catalogue& catalogue) {
  Fleet fleet;
  bool has_trainers = false;
  for (std::string_view left = spec;;) {
    const size_t comma = std::min(left.find(','), left.size());
    const std::string_view group = left.substr(0, comma);
    const size_t equals = group.find('=');
    const bool is_first = left.data() == spec.data();
    const std::string_view role = equals != std::string_view::npos ? group.substr(0, equals) : is_first ? "train" : "";
    std::string_view rest = equals == std::string_view::npos ? group : group.substr(equals + 1);
    if (role != "train" && role != "encode" && role != "download") {
      return bad_group(group, "must begin with its role: train=, encode= or download=");
    }
    DARKROOM_ASSIGN_OR_RETURN(const int64_t count, take_count(group, rest));
    DARKROOM_ASSIGN_OR_RETURN(const Machine machine, find_machine(group, rest, catalogue));
    DARKROOM_RETURN_IF_ERROR(check_price(group, machine, catalogue));
    const bool is_twice = role == "train" ? has_trainers : role == "encode" ? fleet.encode.has_value() : fleet.download.has_value();
    if (is_twice) {
      return bad_group(group, "has a role that another group has, too");
    }
    if (role == "train") {
      if (count == 0) {
        return bad_group(group, fmt::format("must say how many machines train, such as train=4x{}", machine.name));
      }
      fleet.train = {machine, count};
      has_trainers = true;
    } else {
      (role == "encode" ? fleet.encode : fleet.download) = FleetGroup{machine, count};
    }
    if (comma == left.size()) {
      break;
    }
    left.remove_prefix(comma + 1);
  }
  if (!has_trainers) {
    return Status::invalid_argument("the fleet has no trainers; name them as train=4xp4de.24xlarge, got:", spec.substr(0, 200));
  }
  return fleet;
}

}  // namespace darkroom
