#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "darkroom/core/status.h"

namespace darkroom {

/// Reads a published config.json field by field. The first fault is kept and every later call is harmless, so that a reader
/// is a flat list of calls with one check at its end. A field that is absent (or null, where null means the default)
/// leaves the target as it is.
class ConfigReader {
 public:
  /// `class_name` is what the config must say under `class_key` when it says anything.
  ConfigReader(const nlohmann::json& config, std::string class_name);

  /// The class that the config names under `key` must be ours; absent is fine.
  void require_class(const std::string& key);
  void read(const std::string& key, int64_t& value, int64_t minimum);
  void read(const std::string& key, double& value);
  void read(const std::string& key, bool& value);
  void read(const std::string& key, std::string& value);
  /// A list of texts, or of numbers of at least `minimum`.
  void read(const std::string& key, std::vector<std::string>& value);
  void read(const std::string& key, std::vector<int64_t>& value, int64_t minimum);
  /// One number for all `count` levels, or a list of `count` numbers.
  void read_levels(const std::string& key, std::vector<int64_t>& value, size_t count, int64_t minimum);
  /// A size: one number, or [n, n].
  void read_size(const std::string& key, int64_t& value);
  /// The field may be absent or null or have one of these values; nothing else can be computed here.
  void only(const std::string& key, std::initializer_list<nlohmann::json> supported);
  /// Fields of other tools that change no number.
  void ignore(std::initializer_list<const char*> keys);
  /// Refuses `key` with its value and a reason.
  void refuse(const std::string& key, const std::string& reason);
  /// Every key not named so far must be null, false or start with an underscore.
  void refuse_unknown();

  bool failed() const { return !status_.is_ok(); }
  const Status& status() const { return status_; }

 private:
  // The field's value, or null when it is absent, null, or there was a fault before.
  const nlohmann::json* find(const std::string& key);
  void read_number(const std::string& key, const nlohmann::json& field, int64_t& value, int64_t minimum);

  const nlohmann::json& config_;
  std::string class_name_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace darkroom
