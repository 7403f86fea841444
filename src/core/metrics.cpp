#include "darkroom/core/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

template <typename Kind>
constexpr std::string_view kTypeName = "counter";
template <>
constexpr std::string_view kTypeName<Gauge> = "gauge";
template <>
constexpr std::string_view kTypeName<Histogram> = "histogram";

constexpr std::array<std::string_view, 4> kReservedEndings = {"_total", "_bucket", "_sum", "_count"};

bool is_metric_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && !is_digit(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

template <typename Kind>
void check_metric_name(std::string_view name) {
  constexpr bool kInSeconds = std::is_same_v<Kind, SecondsCounter>;
  DARKROOM_CHECK(is_metric_name(name), "no name of a metric:", name);
  DARKROOM_CHECK(name.ends_with("_seconds_total") == kInSeconds,
                 "the name of a seconds counter, of no other, ends with _seconds_total:", name);
  if constexpr (std::is_same_v<Kind, Counter>) {
    DARKROOM_CHECK(name.ends_with("_total"), "a counter's name ends with _total:", name);
  } else if constexpr (!kInSeconds) {
    for (const auto ending : kReservedEndings) {
      DARKROOM_CHECK(!name.ends_with(ending), "an ending of counters and of a histogram's lines:", name);
    }
  }
}

void check_bounds(const std::vector<double>& bounds) {
  DARKROOM_CHECK(!bounds.empty(), "a histogram has no bounds");
  for (size_t i = 0; i < bounds.size(); ++i) {
    DARKROOM_CHECK(std::isfinite(bounds[i]), "a histogram's bound is not finite:", bounds[i]);
    DARKROOM_CHECK(i == 0 || bounds[i - 1] < bounds[i], "a histogram's bound does not ascend:", bounds[i]);
  }
}

/// The labels in the order of their names, with values that can be printed.
Labels checked_labels(Labels labels, std::string_view metric, bool is_histogram) {
  for (auto& [name, value] : labels) {
    DARKROOM_CHECK(is_metric_name(name) && !name.starts_with("__"), "no name of a label (metric, label):", metric, name);
    DARKROOM_CHECK(!is_histogram || name != "le", "a histogram labels its lines \"le\" itself:", metric);
    value = replace_invalid_utf8(value).first;
  }
  std::sort(labels.begin(), labels.end());
  const auto twice =
      std::adjacent_find(labels.begin(), labels.end(), [](const auto& one, const auto& next) { return one.first == next.first; });
  DARKROOM_CHECK(twice == labels.end(), "a label stands twice (metric, label):", metric, twice->first);
  return labels;
}

/// Of a help text; of a label's value quotes are escaped as well.
std::string escaped(std::string_view text, bool with_quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (c == '"' && with_quotes)) {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string labels_text(const Labels& labels) {
  if (labels.empty()) {
    return {};
  }
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? '{' : ',', name, escaped(value, true));
  }
  return out + '}';
}

/// The shortest text that reads as the same number.
std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return fmt::format("{}", value);
}

void append_samples(std::string& out, std::string_view name, const Labels& labels, const Counter& counter) {
  out += fmt::format("{}{} {}\n", name, labels_text(labels), counter.value());
}

void append_samples(std::string& out, std::string_view name, const Labels& labels, const SecondsCounter& counter) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t nanoseconds = counter.value().count();
  out += fmt::format("{}{} {}.{:09}\n", name, labels_text(labels), nanoseconds / kSecond, nanoseconds % kSecond);
}

void append_samples(std::string& out, std::string_view name, const Labels& labels, const Gauge& gauge) {
  out += fmt::format("{}{} {}\n", name, labels_text(labels), number_text(gauge.value()));
}

void append_samples(std::string& out, std::string_view name, const Labels& labels, const Histogram& histogram) {
  const auto& bounds = histogram.bounds();
  int64_t count = 0;
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  for (size_t i = 0; i <= bounds.size(); ++i) {
    count += histogram.bucket(i);
    with_bound.back().second = i < bounds.size() ? number_text(bounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{} {}\n", name, labels_text(with_bound), count);
  }
  out += fmt::format("{}_sum{} {}\n", name, labels_text(labels), number_text(histogram.sum()));
  out += fmt::format("{}_count{} {}\n", name, labels_text(labels), count);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), buckets_(bounds_.size() + 1) { check_bounds(bounds_); }

void Histogram::observe(double value) noexcept {
  const size_t i = std::isnan(value) ? bounds_.size() : std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  if (std::isfinite(value)) {
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
}

std::vector<double> latency_bounds() {
  std::vector<double> bounds;
  for (int exponent = -10; exponent <= 10; ++exponent) {
    bounds.push_back(std::ldexp(1.0, exponent));
  }
  return bounds;
}

template <typename Kind>
Kind& MetricsRegistry::find_or_make(std::string_view name, std::string_view help, Labels labels, std::vector<double> bounds) {
  constexpr bool kIsHistogram = std::is_same_v<Kind, Histogram>;
  check_metric_name<Kind>(name);
  labels = checked_labels(std::move(labels), name, kIsHistogram);
  Shape shape{kTypeName<Kind>, std::string(help), {}, std::move(bounds)};
  for (const auto& label : labels) {
    shape.label_names.push_back(label.first);
  }
  const std::lock_guard lock(mutex_);
  auto& family = families_.try_emplace(std::string(name), Family{shape, {}}).first->second;
  DARKROOM_CHECK(family.shape == shape, "a metric was registered before as another type, or with another help, labels or bounds:", name);
  if constexpr (kIsHistogram) {
    return std::get<Kind>(family.series.try_emplace(std::move(labels), std::in_place_type<Kind>, shape.bounds).first->second);
  } else {
    return std::get<Kind>(family.series.try_emplace(std::move(labels), std::in_place_type<Kind>).first->second);
  }
}

Counter& MetricsRegistry::counter(std::string_view name, std::string_view help, Labels labels) {
  return find_or_make<Counter>(name, help, std::move(labels));
}

SecondsCounter& MetricsRegistry::seconds_counter(std::string_view name, std::string_view help, Labels labels) {
  return find_or_make<SecondsCounter>(name, help, std::move(labels));
}

Gauge& MetricsRegistry::gauge(std::string_view name, std::string_view help, Labels labels) {
  return find_or_make<Gauge>(name, help, std::move(labels));
}

Histogram& MetricsRegistry::histogram(std::string_view name, std::string_view help, std::vector<double> bounds, Labels labels) {
  check_bounds(bounds);
  return find_or_make<Histogram>(name, help, std::move(labels), std::move(bounds));
}

MetricsRegistry::Collection MetricsRegistry::collect(std::function<void(MetricsRegistry&)> before_each_scrape) {
  const std::lock_guard lock(collecting_);
  callbacks_.emplace(next_callback_, std::move(before_each_scrape));
  return Collection(*this, next_callback_++);
}

MetricsRegistry::Collection::~Collection() {
  if (registry_ != nullptr) {
    const std::lock_guard lock(registry_->collecting_);
    registry_->callbacks_.erase(id_);
  }
}

std::string MetricsRegistry::to_prometheus() {
  {
    const std::lock_guard lock(collecting_);
    for (const auto& [id, before_each_scrape] : callbacks_) {
      before_each_scrape(*this);
    }
  }
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(family.shape.help, false), name, family.shape.type);
    for (const auto& [labels, metric] : family.series) {
      std::visit([&, &labels = labels, &name = name](const auto& kind) { append_samples(out, name, labels, kind); }, metric);
    }
  }
  return out;
}

}  // namespace darkroom
