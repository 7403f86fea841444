#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/files/claim.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// The items of a job that this process works on, said to others that share the job (files/claim.h): OUT/_claims/000042. Saves work and
/// nothing else: whatever a claim says, the first part of an item that is published counts. Claims that are held are renewed every three
/// minutes by a thread of this object and given back when it dies, which ends with the first that its store, being down, does not take
/// back. A claim that cannot be renewed or given back is said once; it expires. One that expired and is another's by now (of whom our
/// renewal finds it) is left to them: the work on the item goes on, and the first part counts. Thread safety: any thread.
class ItemClaims {
 public:
  /// REQUIRES: `output`'s store and `clock` outlive it; `owner` as of files/claim.h.
  ItemClaims(Location output, std::string owner, Clock& clock);
  ~ItemClaims();
  ItemClaims(const ItemClaims&) = delete;
  ItemClaims& operator=(const ItemClaims&) = delete;

  /// Takes an item's claim, or says that another owner is at it. A claim of a dead process of this machine is no claim. Errors: the
  /// store's.
  Result<ClaimHolder> take(int64_t item);
  /// After the item's commit, or when it was given up.
  void release(int64_t item);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Uploads and files of other machines that are older belong to the dead where a claim says that somebody works on the job: a slow item
/// takes more than a day.
inline constexpr std::chrono::hours kLeftoverAgeBesideOthers{7 * 24};

/// What one look at the claims on a job's items shows; where it cannot be found out, all of it.
struct ClaimsSeen {
  bool may_live = false;        ///< A claim lives: somebody works on the job.
  bool have_leftovers = false;  ///< Somebody who wrote one has left something beside them, for a sweep.
};
ClaimsSeen look_at_claims(const Location& output, std::chrono::system_clock::time_point now);
/// Where the claims of a job lie.
Location claims_folder(const Location& output);

/// The owner of this process: the same as long as it lives.
const std::string& owner_of_this_process();

}  // namespace darkroom
