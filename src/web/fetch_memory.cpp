// Who may begin, where bodies lie in a memory of the caller (FetchOptions::memory) that others use, too.
#include "fetch_engine.h"

namespace darkroom {

// The row at the door asks for what its body is expected to be. When it is not granted that at once, it goes back to the scheduler, so that
// an older one may come first, and its question stays to wake the thread.
bool Fetcher::Engine::is_admitted(const Row& row) {
  if (!is_shared(row)) {
    return true;
  }
  const auto wake = [inbox = inbox_] { inbox->wake(); };
  if (memory_.ask(row.order, static_cast<size_t>(expected_bytes(row)), wake) == BodyMemory::Answer::kGranted) {
    return true;
  }
  door_ = row.order;
  return false;
}

void Fetcher::Engine::close_door() {
  if (door_ && !memory_.withdraw(*door_)) {
    memory_.set_held(*door_, 0);
  }
  door_.reset();
}

void Fetcher::Engine::enter_memory(const Row& row) {
  if (!is_shared(row)) {
    own_memory_.enter(row.order);
  }
}

void Fetcher::Engine::leave_memory(const Row& row) {
  if (is_shared(row)) {
    memory_.withdraw(row.order);
    memory_.set_held(row.order, 0);
  } else {
    own_memory_.leave(row.order);
  }
}

// Nobody may be called back any more. REQUIRES: no thread of ours runs.
void Fetcher::Engine::empty_shared_memory() {
  if (options_.memory == nullptr) {
    return;
  }
  close_door();
  for (const auto& [number, flight] : flights_) {
    leave_memory(rows_.at(flight->attempt->row));
  }
}

}  // namespace darkroom
