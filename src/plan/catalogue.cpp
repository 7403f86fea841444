#include "darkroom/plan/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "darkroom/core/typing_mistakes.h"
#include "plan_facts.h"
#include "toml_fields.h"

namespace darkroom {
namespace {

constexpr int64_t kCatalogueFormat = 1;

template <typename T, typename Predicate>
const T* find_in(const std::vector<T>& list, Predicate fits) {
  const auto found = std::find_if(list.begin(), list.end(), fits);
  return found == list.end() ? nullptr : &*found;
}

Origin take_origin(TomlFields& fields) { return {fields.date("date"), fields.text("source")}; }

const std::vector<std::string>& purchase_words() {
  static const std::vector<std::string> words(std::begin(kPurchases), std::end(kPurchases));
  return words;
}

Machine take_machine(TomlFields& fields) {
  Machine machine;
  machine.name = fields.text("name");
  machine.accelerator = fields.text("accelerator");
  machine.num_accelerators = fields.count("accelerators");
  if (machine.num_accelerators == 0) {
    fields.fail("accelerators", "must be at least 1 (of a machine without any: accelerator = \"cpu\", accelerators = 1), got: 0");
  }
  if (machine.name.find_first_of(",=: ") != std::string::npos) {
    fields.fail("name", fmt::format("must hold no comma, colon, equals sign or blank, got: '{}'", machine.name));
  }
  machine.watts = fields.number("watts", kAboveZero);
  machine.origin = take_origin(fields);
  return machine;
}

Price take_price(TomlFields& fields) {
  Price price;
  price.machine = fields.text("machine");
  price.purchase = fields.choice("purchase", purchase_words());
  price.dollars_per_hour = fields.number("dollars_per_hour", kAboveZero);
  price.origin = take_origin(fields);
  return price;
}

Rate take_rate(TomlFields& fields) {
  Rate rate;
  rate.task = fields.choice("task", {"train", "encode", "download"});
  rate.accelerator = fields.text("accelerator");
  rate.resolution = fields.count_or("resolution", 0);
  if (rate.task != "download" && rate.resolution != 256 && rate.resolution != 512) {
    fields.fail("resolution", fmt::format("must be 256 or 512 for the task {}, got: {}", rate.task, rate.resolution));
  }
  rate.per_second = fields.number("per_second", kAboveZero);
  rate.origin = take_origin(fields);
  return rate;
}

Loss take_loss(TomlFields& fields) {
  Loss loss;
  loss.purchase = fields.choice("purchase", purchase_words());
  loss.hours_between = fields.number("hours_between", kAboveZero);
  loss.wait_hours = fields.number("wait_hours");
  loss.restart_hours = fields.number("restart_hours");
  loss.origin = take_origin(fields);
  return loss;
}

StorePrice take_store(TomlFields& fields) {
  StorePrice store;
  store.name = fields.text("name");
  store.dollars_per_gb_month = fields.number("dollars_per_gb_month");
  store.dollars_per_1000_writes = fields.number("dollars_per_1000_writes");
  store.dollars_per_1000_reads = fields.number("dollars_per_1000_reads");
  store.dollars_per_gb_out = fields.number("dollars_per_gb_out");
  store.origin = take_origin(fields);
  return store;
}

Fact take_fact(TomlFields& fields) {
  Fact fact;
  fact.name = fields.text("name");
  const PlanFact* known = find_plan_fact(fact.name);
  if (known == nullptr && fields.status().is_ok()) {
    fields.fail("name", fmt::format("names a fact that plans do not use; did you mean '{}'? got: '{}'",
                                    nearest_word(plan_fact_names(), fact.name), fact.name));
  }
  const bool may_be_zero = known != nullptr && known->may_be_zero;
  fact.value = fields.number("value", may_be_zero ? NumberRange{} : kAboveZero);
  if (known != nullptr) {
    fact.unit = known->unit;
    fact.label = known->label;
    if (fact.value > known->most) {
      fields.fail("value", fmt::format("must be at most {}, got: {}", known->most, fact.value));
    }
  }
  fact.origin = take_origin(fields);
  return fact;
}

Published take_published(TomlFields& fields) {
  Published published;
  published.figure = fields.text("figure");
  published.value = fields.number("value", kAboveZero);
  published.origin = take_origin(fields);
  return published;
}

/// Reads every [[key]] with `take` into `list`; `name_of` says what must not come twice.
template <typename T, typename Take, typename NameOf>
Status take_list(TomlFields& file, const std::string& key, std::vector<T>& list, Take take, NameOf name_of) {
  std::set<std::string> names;
  for (TomlFields& fields : file.tables(key)) {
    list.push_back(take(fields));
    DARKROOM_RETURN_IF_ERROR(fields.finish());
    if (!names.insert(name_of(list.back())).second) {
      return Status::invalid_argument(fmt::format("{} comes twice, remove one:", fields.where()), name_of(list.back()));
    }
  }
  return file.status();
}

Status check_machines(const Catalogue& catalogue) {
  for (const Price& price : catalogue.prices) {
    if (catalogue.machine(price.machine) == nullptr) {
      std::vector<std::string> names;
      for (const Machine& machine : catalogue.machines) {
        names.push_back(machine.name);
      }
      return Status::invalid_argument(fmt::format("{}: a [[price]] is of a machine that has no [[machine]]; did you mean '{}'? machine:",
                                                  catalogue.name, nearest_word(names, price.machine)),
                                      price.machine);
    }
  }
  return Status::ok();
}

Status check_facts(const Catalogue& catalogue) {
  for (const std::string& name : plan_fact_names()) {
    if (catalogue.fact(name) == nullptr) {
      return Status::invalid_argument(fmt::format("{}: a [[fact]] that every plan needs is missing, name:", catalogue.name), name);
    }
  }
  return catalogue.stores.empty() ? Status::invalid_argument(fmt::format("{}: there must be a [[store]]", catalogue.name)) : Status::ok();
}

}  // namespace

const Machine* Catalogue::machine(std::string_view wanted) const {
  return find_in(machines, [&](const Machine& one) { return one.name == wanted; });
}

const Price* Catalogue::price(std::string_view machine_name, std::string_view purchase) const {
  return find_in(prices, [&](const Price& one) { return one.machine == machine_name && one.purchase == purchase; });
}

const Rate* Catalogue::rate(std::string_view task, const Machine& of, int64_t resolution) const {
  return find_in(rates, [&](const Rate& one) {
    return one.task == task && (one.accelerator == of.name || one.accelerator == of.accelerator) &&
           (one.resolution == resolution || one.resolution == 0);
  });
}

const Loss* Catalogue::loss(std::string_view purchase) const {
  return find_in(losses, [&](const Loss& one) { return one.purchase == purchase; });
}

const StorePrice* Catalogue::store(std::string_view wanted) const {
  return find_in(stores, [&](const StorePrice& one) { return one.name == wanted; });
}

const Fact* Catalogue::fact(std::string_view wanted) const {
  return find_in(facts, [&](const Fact& one) { return one.name == wanted; });
}

std::string nearest_word(const std::vector<std::string>& known, std::string_view word) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return typing_mistakes(a, word) < typing_mistakes(b, word);
  });
  return nearest == known.end() ? "" : *nearest;
}

Result<Catalogue> parse_catalogue(std::string_view text, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const toml::table table, parse_toml_file(text, name));
  TomlFields file(table, name, "");
  if (const int64_t format = file.count("format"); format != kCatalogueFormat) {
    file.fail("format", fmt::format("must be {}, got: {}", kCatalogueFormat, format));
  }
  DARKROOM_RETURN_IF_ERROR(file.status());
  Catalogue catalogue{.name = name};
  DARKROOM_RETURN_IF_ERROR(take_list(file, "machine", catalogue.machines, take_machine, [](const Machine& one) { return one.name; }));
  DARKROOM_RETURN_IF_ERROR(
      take_list(file, "price", catalogue.prices, take_price, [](const Price& one) { return one.machine + " " + one.purchase; }));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "rate", catalogue.rates, take_rate,
                                     [](const Rate& one) { return fmt::format("{} {} {}", one.task, one.accelerator, one.resolution); }));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "loss", catalogue.losses, take_loss, [](const Loss& one) { return one.purchase; }));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "store", catalogue.stores, take_store, [](const StorePrice& one) { return one.name; }));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "fact", catalogue.facts, take_fact, [](const Fact& one) { return one.name; }));
  DARKROOM_RETURN_IF_ERROR(
      take_list(file, "published", catalogue.published, take_published, [](const Published& one) { return one.figure; }));
  DARKROOM_RETURN_IF_ERROR(file.finish());
  DARKROOM_RETURN_IF_ERROR(check_machines(catalogue));
  DARKROOM_RETURN_IF_ERROR(check_facts(catalogue));
  return catalogue;
}

Result<Catalogue> load_catalogue(FileSystem& files, const std::string& path) {
  const auto text = read_file(files, path);
  if (!text.is_ok()) {
    return Status::invalid_argument("cannot read the catalogue of prices:", text.status().message());
  }
  return parse_catalogue(*text, path);
}

}  // namespace darkroom
