#include "darkroom/slices/slice_fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "darkroom/core/log.h"
#include "slice_desk.h"
#include "slice_link.h"

namespace darkroom {

Status SliceFleetOptions::validate() const {
  for (const auto& [name, time] : {std::pair("timeout", timeout), std::pair("patience", patience), std::pair("look", look)}) {
    if (time < std::chrono::milliseconds(1)) {
      return Status::invalid_argument(fmt::format("a time of {} must be at least 1 ms (time, value in ms):", names.addresses_flag), name,
                                      time.count());
    }
  }
  return resolver.validate();
}

/// The links to all encoders that are named, and who looks after them.
class SliceFleet::Crew {
 public:
  Crew(const SliceFleetOptions& options, SliceReader read) : options_(options), read_(std::move(read)), desk_(options_) {}

  /// Errors: as read_encoder_addresses.
  Status begin() {
    DARKROOM_RETURN_IF_ERROR(renew_links());
    if (options_.encoders.starts_with('@')) {  // A cluster may replace encoders.
      watch_ = std::jthread([this](const std::stop_token& stop) { watch_file(stop); });
    }
    return {};
  }

  SliceDesk& desk() { return desk_; }

 private:
  /// Links to all that are named. One that is not named any more is kept as long as it works. Errors: also kResourceExhausted.
  Status renew_links() {
    try {
      return link_to_all();
    } catch (const std::system_error& failure) {
      return Status::resource_exhausted(fmt::format("cannot start a thread that asks {} (reason):", options_.names.a_peer()),
                                        failure.what());
    }
  }

  Status link_to_all() {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<EncoderAddress> addresses, read_encoder_addresses(options_.encoders, options_.names));
    const std::lock_guard lock(mutex_);
    links_.remove_if(
        [&](const auto& link) { return !link->is_joined() && std::ranges::find(addresses, link->address()) == addresses.end(); });
    for (const EncoderAddress& address : addresses) {
      if (std::ranges::none_of(links_, [&](const auto& link) { return link->address() == address; })) {
        links_.push_back(std::make_unique<SliceLink>(address, options_, read_, desk_));
      }
    }
    return {};
  }

  // A file that is being replaced may be away for a moment, or hold a line that is not whole.
  void watch_file(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any paused;
    std::string told;
    while (!stop.stop_requested()) {
      const Status renewed = renew_links();
      if (!renewed.is_ok() && renewed.message() != told) {
        log_warning("the addresses of the {}s cannot be read again: {}", options_.names.peer, renewed.message());
      }
      told = renewed.message();
      std::unique_lock lock(mutex);
      paused.wait_for(lock, stop, options_.look, [] { return false; });
    }
  }

  const SliceFleetOptions options_;
  const SliceReader read_;
  SliceDesk desk_;
  std::mutex mutex_;
  std::list<std::unique_ptr<SliceLink>> links_;  // Guarded by mutex_.
  std::jthread watch_;                           // Last: it uses all above.
};

Result<std::unique_ptr<SliceFleet>> SliceFleet::open(const SliceFleetOptions& options, SliceReader read) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  auto crew = std::make_unique<Crew>(options, std::move(read));
  DARKROOM_RETURN_IF_ERROR(crew->begin());
  DARKROOM_RETURN_IF_ERROR(crew->desk().await_first());
  return std::unique_ptr<SliceFleet>(new SliceFleet(std::move(crew)));
}

SliceFleet::SliceFleet(std::unique_ptr<Crew> crew) : crew_(std::move(crew)) {}
SliceFleet::~SliceFleet() = default;

uint64_t SliceFleet::ask(std::vector<int64_t> rows) { return crew_->desk().ask(std::move(rows)); }
Result<std::shared_ptr<const SliceContent>> SliceFleet::take(uint64_t slice) { return crew_->desk().take(slice); }
void SliceFleet::stop_waiting() { crew_->desk().stop_waiting(); }
int64_t SliceFleet::slice_rows() const { return crew_->desk().slice_rows(); }
FleetReport SliceFleet::report() const { return crew_->desk().report(); }

}  // namespace darkroom
