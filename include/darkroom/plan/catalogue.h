#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// From what to what a number may be. Both ends are 0 or more, low <= high.
struct Range {
  double low = 0;
  double high = 0;

  bool operator==(const Range&) const = default;
};

/// Where the program's own catalogue lies, for find_resource(), and how messages and plans name it.
inline constexpr const char* kCatalogueResource = "prices/catalogue.toml";

/// Who says so, and when. Every line of the catalogue has one.
struct Origin {
  std::string file;    ///< As messages name it.
  std::string date;    ///< "2026-11-23": when it was so, or when it was looked up.
  std::string source;  ///< For people.

  std::string to_text() const { return file + ": " + source + " (" + date + ")"; }
};

/// A kind of machine that can be rented.
struct Machine {
  std::string name;
  std::string accelerator;       ///< "A100-80GB"; "cpu": none, the machine itself is the one accelerator.
  int64_t num_accelerators = 1;  ///< At least 1.
  double watts = 0;              ///< Of the whole machine at work.
  Origin origin;
};

inline constexpr const char* kPurchases[] = {"on_demand", "reserved", "spot"};

struct Price {
  std::string machine;
  std::string purchase;  ///< One of kPurchases.
  double dollars_per_hour = 0;
  Origin origin;
};

/// How fast one accelerator is.
struct Rate {
  std::string task;         ///< "train", "encode" (pictures/s), "download" (rows/s).
  std::string accelerator;  ///< As Machine::accelerator, or a machine's name.
  int64_t resolution = 0;   ///< 0: of any.
  double per_second = 0;
  Origin origin;
  int64_t layer = 0;  ///< Files that the catalogue took in before its own; lines of later ones go over those of earlier ones.
};

/// How often a machine of a purchase is lost, and what that costs.
struct Loss {
  std::string purchase;
  double hours_between = 0;  ///< Mean hours of one machine between two losses.
  double wait_hours = 0;     ///< Mean time until there is another machine; not paid.
  double restart_hours = 0;  ///< From the machine's start until training goes on; paid.
  Origin origin;
};

/// What a store of objects costs.
struct StorePrice {
  std::string name;
  double dollars_per_gib_month = 0;
  double least_dollars_per_gib_month = 0;  ///< Of its cheapest tier.
  double dollars_per_1000_writes = 0;
  double dollars_per_1000_reads = 0;
  double dollars_per_gib_out = 0;  ///< To the internet.
  Origin origin;
};

/// Any other number that plans use, by name.
struct Fact {
  std::string name;
  double value = 0;
  Range range = {};  ///< Around it, for estimates; the value alone where the file says no more.
  std::string unit;
  std::string label;
  Origin origin;
};

/// A number that estimates of jobs use, by name.
struct RangedFigure {
  std::string name = {};
  Range value = {};
  std::string unit = {};
  Origin origin = {};
};

/// What was published about the run that is planned without arguments.
struct Published {
  std::string figure;
  double value = 0;
  Origin origin;
};

/// Prices, rates and facts as data (docs/plan.md). Thread safety: a value type.
struct Catalogue {
  std::string name = {};  ///< Of its file, or files.
  int64_t num_files = 0;
  std::vector<Machine> machines = {};
  std::vector<Price> prices = {};
  std::vector<Rate> rates = {};
  std::vector<Loss> losses = {};
  std::vector<StorePrice> stores = {};
  std::vector<Fact> facts = {};
  std::vector<RangedFigure> ranges = {};
  std::vector<Published> published = {};

  /// Takes the lines of a file in: those whose names are known already are replaced, so that own ones go over those that are shipped.
  /// `file` is how messages call it. Errors: kInvalidArgument naming file, line, key and value: no TOML, a missing or unknown key, a number
  /// out of its range, a name that comes twice; nothing has changed then.
  Status add(std::string_view toml, const std::string& file);
  /// Whether plans can be made. Errors: kInvalidArgument (a price of an unknown machine, a missing fact, no store).
  Status validate() const;

  /// What estimates of jobs ask for by name: a [[range]], else a fact or the first store's price as a range. Errors: kFailedPrecondition.
  Result<RangedFigure> find(const std::string& name) const;

  /// Null where there is none.
  const Machine* machine(std::string_view name) const;
  const Price* price(std::string_view machine, std::string_view purchase) const;
  /// Of a machine's accelerator, or of the machine itself; of that resolution, or of any. Where several lines fit: that of the file that
  /// was taken in last, of these the one of the machine itself, of these the one of that resolution.
  const Rate* rate(std::string_view task, const Machine& machine, int64_t resolution) const;
  const Loss* loss(std::string_view purchase) const;
  const StorePrice* store(std::string_view name) const;
  const Fact* fact(std::string_view name) const;
};

/// A catalogue of one file: add() and validate().
Result<Catalogue> parse_catalogue(std::string_view toml, const std::string& file);
/// That of the program at `shipped`, which goes by kCatalogueResource, with the lines of the file `own` (empty: none) over it. Errors: as
/// above; kInvalidArgument where `own` cannot be read.
Result<Catalogue> load_catalogue(FileSystem& files, const std::string& shipped, const std::string& own = {});

/// The known word that is least mistyped as `word`; "" where none is known. For messages.
std::string nearest_word(const std::vector<std::string>& known, std::string_view word);

}  // namespace darkroom
