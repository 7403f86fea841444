#include "darkroom/web/robots.h"

#include "darkroom/web/header_text.h"
#include "darkroom/web/opt_out.h"

namespace darkroom {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kLineEnds = "\r\n";
constexpr std::string_view kLineBlanks = " \t";

// The beginning of a User-agent value that may be a product token (RFC 9309, section 2.2.1).
std::string_view product_token(std::string_view value) {
  size_t length = 0;
  const auto is_token = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_'; };
  while (length < value.size() && is_token(value[length])) {
    ++length;
  }
  return value.substr(0, length);
}

// What of the file counts. A line that the limit cuts would be a rule about more than its author meant.
std::string_view cut_to_limit(std::string_view text) {
  if (text.size() <= RobotsRules::kMaxBytes) {
    return text;
  }
  const bool ends_whole = kLineEnds.find(text[RobotsRules::kMaxBytes]) != std::string_view::npos;
  text = text.substr(0, RobotsRules::kMaxBytes);
  const size_t last_end = ends_whole ? text.size() : text.find_last_of(kLineEnds);
  return text.substr(0, last_end == std::string_view::npos ? 0 : last_end);
}

}  // namespace

class RobotsRules::Parser {
 public:
  explicit Parser(std::string_view agent) : agent_(product_token(agent)) {}

  void take_line(std::string_view line) {
    line = line.substr(0, line.find('#'));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return;
    }
    const std::string_view key = trim_blanks(line.substr(0, colon));
    const std::string_view value = trim_blanks(line.substr(colon + 1));
    if (same_word(key, "user-agent")) {
      take_agent(value);
    } else if (same_word(key, "allow") || same_word(key, "disallow")) {
      take_access(value, same_word(key, "allow"));
    } else if (same_word(key, "content-usage") || same_word(key, "content-signal")) {
      take_usage(value);
    }
  }

  RobotsRules finish() {
    Group& chosen = ours_.is_there ? ours_ : everybodys_;
    chosen.rules.usage_.add_all(outside_);
    chosen.rules.access_.finish();
    chosen.rules.usage_.finish();
    return std::move(chosen.rules);
  }

 private:
  struct Group {
    bool is_there = false;  // A User-agent line named it.
    bool is_open = false;   // The rules that follow belong to it.
    RobotsRules rules;
  };

  void take_agent(std::string_view value) {
    if (!in_header_) {
      ours_.is_open = everybodys_.is_open = false;
    }
    in_header_ = has_group_ = true;
    // "* something" is meant for everybody, too; "*bot" for nobody.
    const bool is_star = value.starts_with('*') && (value.size() == 1 || kLineBlanks.find(value[1]) != std::string_view::npos);
    if (is_star) {
      everybodys_.is_open = everybodys_.is_there = true;
    } else if (!agent_.empty() && same_word(product_token(value), agent_)) {
      ours_.is_open = ours_.is_there = true;
    }
  }

  void take_access(std::string_view pattern, bool verdict) {
    in_header_ = false;
    for (Group* group : {&ours_, &everybodys_}) {
      if (group->is_open) {
        group->rules.access_.add(pattern, verdict);
      }
    }
  }

  void take_usage(std::string_view value) {
    in_header_ = false;
    std::string_view pattern = "/";
    if (value.starts_with('/')) {
      pattern = value.substr(0, value.find_first_of(kLineBlanks));
      value.remove_prefix(pattern.size());
    }
    const auto verdict = training_preference(value);
    if (!verdict) {
      return;
    }
    if (!has_group_) {
      outside_.add(pattern, *verdict);
    }
    for (Group* group : {&ours_, &everybodys_}) {
      if (group->is_open) {
        group->rules.usage_.add(pattern, *verdict);
      }
    }
  }

  std::string_view agent_;
  bool in_header_ = false;  // The last rule or User-agent line was a User-agent line.
  bool has_group_ = false;
  Group ours_, everybodys_;
  PathRules outside_{false};
};

RobotsRules RobotsRules::parse(std::string_view text, std::string_view agent) {
  text = cut_to_limit(text);
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  Parser parser(agent);
  while (!text.empty()) {
    const size_t end = text.find_first_of(kLineEnds);
    parser.take_line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parser.finish();
}

bool RobotsRules::allows(std::string_view path_and_query) const {
  if (access_.empty()) {
    return true;
  }
  const std::string path = canonical_path(path_and_query);
  return path == "/robots.txt" || access_.match(path).value_or(true);
}

std::optional<bool> RobotsRules::trains(std::string_view path_and_query) const {
  return usage_.empty() ? std::nullopt : usage_.match(canonical_path(path_and_query));
}

}  // namespace darkroom
