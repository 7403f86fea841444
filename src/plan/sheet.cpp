#include "darkroom/plan/sheet.h"

#include <utility>

#include "darkroom/core/check.h"
#include "formula.h"

namespace darkroom {

Unit::Unit(std::string_view text) {
  int sign = 1;
  while (!text.empty()) {
    const size_t end = text.find_first_of("*/");
    const std::string symbol(text.substr(0, end));
    DARKROOM_CHECK(!symbol.empty(), "a unit lacks a symbol:", text);
    if (symbol != "1" && (powers_[symbol] += sign) == 0) {
      powers_.erase(symbol);
    }
    if (end == std::string_view::npos) {
      return;
    }
    sign = text[end] == '*' ? 1 : -1;
    text.remove_prefix(end + 1);
  }
}

Unit Unit::combined(const Unit& other, int sign) const {
  Unit result = *this;
  for (const auto& [symbol, power] : other.powers_) {
    if ((result.powers_[symbol] += sign * power) == 0) {
      result.powers_.erase(symbol);
    }
  }
  return result;
}

Unit Unit::square_root() const {
  Unit result;
  for (const auto& [symbol, power] : powers_) {
    DARKROOM_CHECK(power % 2 == 0, "the square root of a unit that is no square:", to_text());
    result.powers_[symbol] = power / 2;
  }
  return result;
}

std::string Unit::to_text() const {
  std::string above, below;
  for (const auto& [symbol, power] : powers_) {
    for (int i = 0; i < (power < 0 ? -power : power); ++i) {
      std::string& side = power > 0 ? above : below;
      side += (power > 0 ? (side.empty() ? "" : "*") : "/") + symbol;
    }
  }
  return (above.empty() ? "1" : above) + below;
}

double Sheet::give(const std::string& name, double value, const std::string& unit, const std::string& source, const std::string& label) {
  add({.section = section_, .name = name, .label = label, .value = value, .unit = unit, .source = source});
  return value;
}

double Sheet::derive(const std::string& name, const std::string& unit, const std::string& formula, const std::string& label) {
  const Quantity result = evaluate_formula(formula, [&](const std::string& input) {
    const Figure& found = figure(input);
    return Quantity{found.value, Unit(found.unit)};
  });
  DARKROOM_CHECK(result.unit == Unit(unit), "a figure's formula has another unit (figure, stated, worked out):", name, unit,
                 result.unit.to_text());
  add({.section = section_,
       .name = name,
       .label = label,
       .value = result.value,
       .unit = unit,
       .formula = formula,
       .inputs = names_in_formula(formula)});
  return result.value;
}

void Sheet::add(Figure figure) {
  const bool is_new = index_.emplace(figure.name, figures_.size()).second;
  DARKROOM_CHECK(is_new, "a figure is there already:", figure.name);
  figures_.push_back(std::move(figure));
}

const Figure& Sheet::figure(std::string_view name) const {
  const auto found = index_.find(name);
  DARKROOM_CHECK(found != index_.end(), "no such figure:", name);
  return figures_[found->second];
}

Sheet Sheet::with(const std::map<std::string, double>& given) const {
  for (const auto& [name, value] : given) {
    DARKROOM_CHECK(figure(name).formula.empty(), "a figure is computed, not given:", name);
  }
  Sheet changed;
  for (const Figure& one : figures_) {
    changed.section(one.section);
    const auto other = given.find(one.name);
    if (one.formula.empty()) {
      changed.give(one.name, other == given.end() ? one.value : other->second, one.unit, one.source, one.label);
    } else {
      changed.derive(one.name, one.unit, one.formula, one.label);
    }
  }
  return changed;
}

}  // namespace darkroom
