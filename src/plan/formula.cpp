#include "formula.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

/// Recursive descent over one formula.
class FormulaReader {
 public:
  FormulaReader(std::string_view text, const std::function<Quantity(const std::string&)>& look_up) : text_(text), look_up_(look_up) {}

  Quantity read() {
    const Quantity result = sum();
    skip_blanks();
    DARKROOM_CHECK(at_ == text_.size(), "a formula goes on behind its end:", text_);
    return result;
  }

 private:
  Quantity sum() {
    Quantity result = product();
    for (;;) {
      const char sign = take_one_of("+-");
      if (sign == '\0') {
        return result;
      }
      const Quantity right = product();
      require_same_unit(result, right);
      result.value += sign == '+' ? right.value : -right.value;
    }
  }

  Quantity product() {
    Quantity result = factor();
    for (;;) {
      const char sign = take_one_of("*/");
      if (sign == '\0') {
        return result;
      }
      const Quantity right = factor();
      result = sign == '*' ? Quantity{result.value * right.value, result.unit * right.unit}
                           : Quantity{result.value / right.value, result.unit / right.unit};
    }
  }

  Quantity factor() {
    if (take_one_of("-") != '\0') {
      const Quantity inner = factor();
      return {-inner.value, inner.unit};
    }
    if (take_one_of("(") != '\0') {
      const Quantity inner = sum();
      expect(')');
      return inner;
    }
    skip_blanks();
    DARKROOM_CHECK(at_ < text_.size(), "a formula ends too early:", text_);
    return std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 ? number() : name_or_function();
  }

  Quantity number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    DARKROOM_CHECK(error == std::errc(), "a formula holds a number that cannot be read:", text_);
    at_ = static_cast<size_t>(end - text_.data());
    return {value, Unit()};
  }

  Quantity name_or_function() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    const std::string name(text_.substr(begin, at_ - begin));
    DARKROOM_CHECK(!name.empty(), "a formula holds a character that it may not:", text_);
    return take_one_of("(") != '\0' ? function(name) : look_up_(name);
  }

  Quantity function(const std::string& name) {
    const Quantity first = sum();
    if (name == "ceil" || name == "sqrt") {
      expect(')');
      return name == "ceil" ? Quantity{std::ceil(first.value), first.unit} : Quantity{std::sqrt(first.value), first.unit.square_root()};
    }
    DARKROOM_CHECK(name == "min" || name == "max", "a formula holds an unknown function:", name, text_);
    expect(',');
    const Quantity second = sum();
    expect(')');
    require_same_unit(first, second);
    return {name == "min" ? std::min(first.value, second.value) : std::max(first.value, second.value), first.unit};
  }

  void require_same_unit(const Quantity& a, const Quantity& b) const {
    DARKROOM_CHECK(a.unit == b.unit, "a formula puts two units together:", text_, a.unit.to_text(), b.unit.to_text());
  }

  void expect(char wanted) {
    const char found = take_one_of(std::string_view(&wanted, 1));
    DARKROOM_CHECK(found == wanted, "a formula lacks a character:", text_, std::string(1, wanted));
  }

  char take_one_of(std::string_view characters) {
    skip_blanks();
    if (at_ == text_.size() || characters.find(text_[at_]) == std::string_view::npos) {
      return '\0';
    }
    return text_[at_++];
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }

  std::string_view text_;
  const std::function<Quantity(const std::string&)>& look_up_;
  size_t at_ = 0;
};

}  // namespace

Quantity evaluate_formula(std::string_view formula, const std::function<Quantity(const std::string&)>& look_up) {
  return FormulaReader(formula, look_up).read();
}

std::vector<std::string> names_in_formula(std::string_view formula) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < formula.size();) {
    size_t end = begin;
    while (end < formula.size() && (std::isalnum(static_cast<unsigned char>(formula[end])) != 0 || formula[end] == '_')) {
      ++end;
    }
    if (end > begin && std::isalpha(static_cast<unsigned char>(formula[begin])) != 0) {
      std::string name(formula.substr(begin, end - begin));
      const bool is_function = end < formula.size() && formula[end] == '(';
      if (!is_function && std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(std::move(name));
      }
    }
    begin = end + 1;
  }
  return names;
}

}  // namespace darkroom
