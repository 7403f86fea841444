#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "value_definition.h"

namespace darkroom {

/// Flags and positionals that were given, on the command line or by --config, with their words.
using GivenWords = std::map<std::string, std::vector<std::string>>;

/// What a verb's action gets from main and hands back to it.
struct VerbContext {
  std::stop_token stop;  ///< Requested by SIGINT and SIGTERM.
  GivenWords given = {};
  std::string summary_path = {};                      ///< --json-summary; empty: none.
  std::function<void()> is_rank = [] {};              ///< The verb says: a second signal must not end this process (a rank, a notice).
  bool writes_summary = true;                         ///< False: another process of the same run writes --json-summary.
  bool ends_with_threads = false;                     ///< Threads of the verb still run: the process ends without what comes after main.
  nlohmann::json summary = nlohmann::json::object();  ///< Written to --json-summary, also when the verb fails: fill it as you go.
};

/// Exit code of a verb that ended by itself: 0 done, 1 failed with its message logged, 3 finished over the error budget. A Status
/// otherwise: main maps kInvalidArgument to 2, kCancelled to 130 / 143 (by the signal), everything else to 1.
using VerbAction = std::function<Result<int>(VerbContext&)>;

/// One flag or positional of a verb. The one place that parser, --config, help, completion and man page read.
struct FlagDefinition {
  std::string name;  ///< "--limit"; of a positional its name in the help: "OUTPUT_URI".
  std::string help;
  std::string group;
  ValueDefinition value;
  bool is_positional = false;
  bool is_required = false;
  std::string unless = {};       ///< A switch with which it is not required after all.
  std::string with = {};         ///< A switch without which it would do nothing, and is refused.
  bool is_later = false;         ///< Of the contract, but not built yet: absent from help, refused by name.
  std::string later_value = {};  ///< The one value of a later flag that is accepted: what the program does already.

  FlagDefinition& required() {
    is_required = true;
    return *this;
  }
  FlagDefinition& required_unless(std::string switch_name) {
    unless = std::move(switch_name);
    return required();
  }
  FlagDefinition& only_with(std::string switch_name) {
    with = std::move(switch_name);
    return *this;
  }
  /// Without the dashes: its key in a configuration file.
  std::string key() const { return is_positional ? name : name.substr(2); }
};

struct VerbExample {
  std::string command;
  std::string what;
};

/// One verb: its flags, bound to options that the action captures, and its action.
class VerbDefinition {
 public:
  VerbDefinition(std::string name, std::string summary) : name_(std::move(name)), summary_(std::move(summary)) {}

  /// Also a verb of two words: "models init".
  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  const std::deque<FlagDefinition>& flags() const { return flags_; }
  const std::vector<VerbExample>& examples() const { return examples_; }
  bool is_hidden() const { return is_hidden_; }
  const VerbAction& action() const { return action_; }

  /// The heading in the help of the flags that follow.
  void group(std::string title) { group_ = std::move(title); }
  FlagDefinition& positional(std::string name, ValueDefinition value, std::string help);
  FlagDefinition& flag(std::string name, ValueDefinition value, std::string help);
  /// Flags of the contract that a later release brings.
  void later(std::initializer_list<const char*> names);
  /// A flag that a later release brings, of which `accepted` is what the program does already.
  void later_except(std::string name, std::string accepted);
  void example(std::string command, std::string what) { examples_.push_back({std::move(command), std::move(what)}); }
  /// Not listed in the program's help.
  void hide() { is_hidden_ = true; }
  void run(VerbAction action) { action_ = std::move(action); }

 private:
  std::string name_;
  std::string summary_;
  std::string group_ = "Flags";
  std::deque<FlagDefinition> flags_;  // A deque: flag() hands out references.
  std::vector<VerbExample> examples_;
  VerbAction action_;
  bool is_hidden_ = false;
};

}  // namespace darkroom
