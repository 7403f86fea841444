#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "verb_definition.h"

namespace darkroom {

/// The flags that every verb has.
struct SharedFlags {
  std::string summary_path = {};  ///< --json-summary.
  std::string config_path = {};   ///< --config.
  bool quiet = false;
  bool verbose = false;
};

/// What a command line asks for.
struct Call {
  const VerbDefinition* verb = nullptr;  ///< Its options are filled; run its action. Null: print `text` and end with 0.
  std::string text = {};
  /// The settings that were given and where: "--limit 10 (command line)". For --verbose.
  std::vector<std::string> settings = {};
  GivenWords given = {};  ///< The same by flag or positional.
};

/// Why a command line is refused: a sentence about the flag and its value, and where to read on.
struct Refusal {
  std::string message;
  std::string hint;
};

/// All verbs of the program, and how a command line becomes a call of one of them. One object reads one command line, because the
/// verbs' options keep what was read. Thread safety: none.
class CommandLine {
 public:
  CommandLine(std::string program, std::string summary, std::string version);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// The heading in the program's help of the verbs that follow.
  void group(std::string title) { group_ = std::move(title); }
  VerbDefinition& add_verb(std::string name, std::string summary);
  /// A verb of the contract that a later release brings; also of two words.
  void add_later_verb(std::string name) { later_verbs_.push_back(std::move(name)); }
  /// What the words before a verb of two words stand for: describe("models", "...").
  void describe(std::string name, std::string summary) { families_.emplace_back(std::move(name), std::move(summary)); }

  /// Reads the arguments (without the program's name), then --config for flags that were not given.
  /// Returns nothing when the call is good, else why it is refused.
  std::optional<Refusal> read(const std::vector<std::string>& arguments, Call& call);

  const std::string& program() const { return program_; }
  const std::string& summary() const { return summary_; }
  const std::string& version() const { return version_; }
  const SharedFlags& shared() const { return shared_; }
  const std::deque<VerbDefinition>& verbs() const { return verbs_; }
  const std::vector<std::string>& later_verbs() const { return later_verbs_; }
  const std::vector<std::pair<std::string, std::string>>& families() const { return families_; }
  /// The heading of a verb.
  const std::string& group_of(const VerbDefinition& verb) const;
  /// A verb's own flags and positionals, then those that every verb has.
  std::vector<const FlagDefinition*> flags_of(const VerbDefinition& verb) const;
  /// Null when there is none of this name.
  const VerbDefinition* find_verb(std::string_view name) const;

 private:
  std::optional<Refusal> choose_verb(const std::vector<std::string>& arguments, size_t& num_words, Call& call) const;
  std::optional<Refusal> unknown_verb(const std::vector<std::string>& arguments) const;

  std::string program_;
  std::string summary_;
  std::string version_;
  std::string group_;
  SharedFlags shared_;
  VerbDefinition shared_definition_;
  std::deque<VerbDefinition> verbs_;  // A deque: add_verb() hands out references.
  std::vector<std::string> groups_;   // Of verbs_, by index.
  std::vector<std::string> later_verbs_;
  std::vector<std::pair<std::string, std::string>> families_;
};

}  // namespace darkroom
