#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace darkroom {

/// Lets go of the network calls that the painters of this process have recorded on a GPU (src/paint/recorded_calls.h), for something that
/// found no memory beside them. Whether there were any; `reason` is logged the first time. REQUIRES: nobody paints on a GPU meanwhile:
/// those of one GPU take turns.
bool let_recordings_go(const std::string& reason);

/// What `work` gives, done again without the recordings where it finds no memory beside them. REQUIRES: it may be done again; that of
/// let_recordings_go.
template <typename Work>
auto with_memory_for(const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& failure) {
    if (!let_recordings_go(failure.what_without_backtrace())) {
      throw;
    }
  }
  return work();
}

}  // namespace darkroom
