#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// A URL's path and query in the one form in which robots.txt compares them (RFC 9309, section 2.2.2): escapes of unreserved
/// characters are undone, every other octet is escaped with capital digits, "/" and "?" stay. In the path "%2F" and "%3F" are other
/// characters than "/" and "?", in the query they are the same ones. The fragment is dropped; what does not begin with "/" gets one.
std::string canonical_path(std::string_view path_and_query);

/// Verdicts by path pattern, the longest pattern that matches decides (RFC 9309, section 2.2.2, and draft-ietf-aipref-attach).
///
/// A pattern matches from the first octet of the path; "*" stands for any octets, "$" at the end for the end of the path. Its length
/// is that of its canonical form, "*" and "$" included. Behind a "*" it may be in the path or in the query; "%2F" and "%3F" there match
/// what they match in either.
///
/// Cost of add(): linear. Of match(): O(log patterns + length of the path) for those without "*" and "$"; all others together are
/// stopped after kMaxSteps compared octets (some milliseconds), because patterns and paths may be made to be slow; the answer is then
/// false. No file that a person wrote comes near. Thread safety: const members may be called by any thread.
class PathRules {
 public:
  static constexpr size_t kMaxSteps = size_t{1} << 22;

  /// `tie`: the verdict that counts between equally long patterns.
  explicit PathRules(bool tie) : tie_(tie) {}

  /// An empty pattern is no pattern. One that begins neither with "/" nor with "*" gets a "/".
  void add(std::string_view pattern, bool verdict);
  /// Takes over all patterns of `other`.
  void add_all(const PathRules& other);
  /// REQUIRED after the last add(), before match().
  void finish();

  /// Of a canonical path. nullopt: no pattern matches.
  std::optional<bool> match(std::string_view canonical) const;

  bool empty() const { return plain_.empty() && special_.empty(); }
  size_t num_bytes() const;  ///< Memory held, about.

 private:
  struct Rule {
    std::string pattern;  // Canonical.
    bool verdict;
    bool may_be_in_query = false;  // Of a special pattern: it has "%2F" or "%3F" behind a "*".
    int32_t parent = -1;           // Of a plain pattern: the longest other one that it begins with.
  };

  const Rule* longest_plain(std::string_view path) const;
  void drop_doubles(std::vector<Rule>& rules) const;

  bool tie_;
  std::vector<Rule> plain_;    // Without "*" and "$": in byte order.
  std::vector<Rule> special_;  // The others: longest first, those of the verdict tie_ first.
};

}  // namespace darkroom
