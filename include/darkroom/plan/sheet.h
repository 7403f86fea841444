#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// A unit as powers of symbols: "pictures/s/accelerators", "$/GB/month", "W*h"; "1" is a pure number. Two units are the same when their
/// symbols have the same powers; nothing is converted ("h" and "s" are two symbols). Thread safety: a value type.
class Unit {
 public:
  Unit() = default;
  /// REQUIRES: names joined by * and /.
  explicit Unit(std::string_view text);

  friend Unit operator*(const Unit& a, const Unit& b) { return a.combined(b, 1); }
  friend Unit operator/(const Unit& a, const Unit& b) { return a.combined(b, -1); }
  friend bool operator==(const Unit& a, const Unit& b) { return a.powers_ == b.powers_; }
  /// REQUIRES: every power is even.
  Unit square_root() const;
  std::string to_text() const;

 private:
  Unit combined(const Unit& other, int sign) const;

  std::map<std::string, int> powers_;  // No power is 0.
};

/// A number of a plan, with where it comes from: a formula over other figures, or a source.
struct Figure {
  std::string section;  ///< "training", "storage", ...
  std::string name;     ///< In formulas: "train_hours_256".
  std::string label;    ///< For people.
  double value = 0;
  std::string unit;
  std::string formula = {};              ///< Of names, numbers, + - * / ( ) and min, max, ceil, sqrt; empty for what is given.
  std::vector<std::string> inputs = {};  ///< The names in the formula, each once, in its order.
  std::string source = {};               ///< Of what is given: who says so, and when.
};

/// What is given, and formulas over it: a value cannot differ from its formula, because the formula is what computes it, and every
/// formula's units are worked out and must be those of its figure. A broken formula is a bug: DARKROOM_CHECK. Thread safety: a value type.
class Sheet {
 public:
  /// The heading of the figures that follow.
  void section(std::string title) { section_ = std::move(title); }
  /// REQUIRES of both: a new name.
  double give(const std::string& name, double value, const std::string& unit, const std::string& source, const std::string& label);
  double derive(const std::string& name, const std::string& unit, const std::string& formula, const std::string& label);

  const std::vector<Figure>& figures() const { return figures_; }
  bool has(std::string_view name) const { return index_.find(name) != index_.end(); }
  /// REQUIRES: has(name).
  const Figure& figure(std::string_view name) const;
  double value(std::string_view name) const { return figure(name).value; }

  /// The same sheet with other values of what is given. REQUIRES: names of given figures.
  Sheet with(const std::map<std::string, double>& given) const;

 private:
  void add(Figure figure);

  std::string section_;
  std::vector<Figure> figures_;  // A formula's inputs stand before it.
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace darkroom
