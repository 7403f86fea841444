#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace darkroom {

// What a job counts about itself, in the words of Prometheus. Adding is lock-free and never fails; each number is right by itself, but a
// scrape that happens meanwhile may see one number before and another one after an event.

/// Name and value of each label. Values come from closed sets (a stage, an error code), never from the web: each makes another series that
/// stays.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// A count that never falls. Thread safety: any thread.
class Counter {
 public:
  /// A count of 0 or less adds nothing.
  void add(int64_t n = 1) noexcept {
    if (n > 0) {
      value_.fetch_add(n, std::memory_order_relaxed);
    }
  }
  int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

/// A sum of durations that never falls: exact, whatever the order in which threads add. Shown in seconds. Thread safety: any thread.
class SecondsCounter {
 public:
  /// A duration of 0 or less adds nothing.
  void add(std::chrono::nanoseconds duration) noexcept { nanoseconds_.add(duration.count()); }
  std::chrono::nanoseconds value() const noexcept { return std::chrono::nanoseconds(nanoseconds_.value()); }

 private:
  Counter nanoseconds_;
};

/// A level that rises and falls; it may be infinite or no number, and is shown so. Thread safety: any thread.
class Gauge {
 public:
  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void add(double difference) noexcept { value_.fetch_add(difference, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0.0;
};

/// How many values lie at or below each bound, and their sum. Thread safety: any thread.
class Histogram {
 public:
  /// REQUIRES: bounds are finite and ascend.
  explicit Histogram(std::vector<double> bounds);

  /// Counts a value. One that is not finite is counted (-Inf below the first bound, +Inf and NaN above the last) but not summed, so that
  /// one bad measurement does not spoil the sum for ever.
  void observe(double value) noexcept;

  const std::vector<double>& bounds() const noexcept { return bounds_; }
  /// How many values lie above the bound before and at or below bound `i`; i = number of bounds: those above the last.
  int64_t bucket(size_t i) const noexcept { return buckets_[i].load(std::memory_order_relaxed); }
  double sum() const noexcept { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> buckets_;  // One more than bounds.
  std::atomic<double> sum_ = 0.0;
};

/// Bounds of latencies in seconds: the powers of two from 2^-10 (about 1 ms) to 2^10 (1,024 s).
std::vector<double> latency_bounds();

/// All metrics of one job. There is no global one: a job makes it and hands it on by reference. What is registered stays as long as the
/// registry, and so do the references. Breaking a REQUIRES is a bug of ours (CheckFailure). Thread safety: any thread.
class MetricsRegistry {
 public:
  /// These find the metric of this name and these labels, in whatever order the labels are given, or make it with the value 0. Label values
  /// are UTF-8; what is not becomes U+FFFD. REQUIRES: names of letters, digits and _; the name of a seconds counter, and of no other kind,
  /// ends with _seconds_total, that of a counter with _total, that of a gauge or histogram with none of _total, _bucket, _sum and _count;
  /// one name has one help, one set of label names and one list of bounds; a histogram has no label "le".
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  SecondsCounter& seconds_counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds, Labels labels = {});

  /// Keeps a callback of collect(), best as the last member of what the callback reads. Once it is destroyed the callback runs no more: a
  /// scrape in which it runs is waited for.
  class [[nodiscard]] Collection {
   public:
    Collection(Collection&& other) noexcept : registry_(std::exchange(other.registry_, nullptr)), id_(other.id_) {}
    Collection& operator=(Collection&&) = delete;
    ~Collection();

   private:
    friend class MetricsRegistry;
    Collection(MetricsRegistry& registry, int64_t id) : registry_(&registry), id_(id) {}

    MetricsRegistry* registry_;
    int64_t id_;
  };
  /// Has `before_each_scrape` called at the start of every to_prometheus(), one callback after the other in the order of registration: for
  /// what is read rather than counted (resident memory, queue depths). It may register metrics. REQUIRES: it neither scrapes nor makes nor
  /// ends a Collection; the registry outlives the Collection.
  Collection collect(std::function<void(MetricsRegistry&)> before_each_scrape);

  /// Every metric in Prometheus' text format 0.0.4
  /// (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format), ordered by name, then by labels: the same numbers
  /// give the same text. The count of a histogram is that of its last bucket. What a callback throws passes through.
  std::string to_prometheus();

 private:
  using Metric = std::variant<Counter, SecondsCounter, Gauge, Histogram>;
  /// What all metrics of one name share.
  struct Shape {
    std::string_view type;  ///< Prometheus' word; the name tells a counter from a seconds counter.
    std::string help;
    std::vector<std::string> label_names;  ///< Ascending.
    std::vector<double> bounds;            ///< Of histograms.
    bool operator==(const Shape&) const = default;
  };
  struct Family {
    Shape shape;
    std::map<Labels, Metric> series;  ///< Labels in the order of their names.
  };
  template <typename Kind>
  Kind& find_or_make(std::string_view name, std::string_view help, Labels labels, std::vector<double> bounds = {});

  std::mutex collecting_;  // Of callbacks_, also while they run; taken before mutex_.
  std::map<int64_t, std::function<void(MetricsRegistry&)>> callbacks_;
  int64_t next_callback_ = 0;
  std::mutex mutex_;  // Of families_.
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace darkroom
