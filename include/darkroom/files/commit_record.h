#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "darkroom/files/store.h"

namespace darkroom {

// First-wins where a store cannot publish without replacing (docs/formats/commit.md): OUT/_tmp/NAME.commit-K, K = 1, 2, ..., each made by
// exclusive creation, immutable, names one contender for OUT/NAME. Record K + 1 is made only when the contender of record K is gone for
// good. Whoever meets a record completes its contender, so a writer that dies or pauses after its record stops nobody.
//
// Why no second object replaces the first: suppose the contenders of records I and J both became NAME, I's first, at the instant t. J's was
// completed by somebody who read record J and then saw no NAME, so record J was made before t, and record I too. If I = J, one record was
// removed before the other was made; but records are removed only when NAME is visible, so after t. If I < J, the maker of J had found I's
// contender gone, so it cannot have become NAME at t; if I > J, J's was gone. (Contenders' names are never used twice.)

/// What a commit record holds.
struct CommitRecord {
  std::string contender = {};  ///< A temporary's name or an upload's id; never used twice.
  std::string body = {};       ///< What else the store needs to complete it (the parts of an upload).

  bool operator==(const CommitRecord&) const = default;
};

/// What became of a contender.
enum class Completion {
  kDone,          ///< It is the object, now or since before.
  kAnotherThere,  ///< Another object has the name; it changed nothing.
  kGone,          ///< It is not there any more and never will be, and no object has the name.
};

/// Looks whether `object` is there, and only when it is not makes the contender `object`, replacing or not. Must say which of the three
/// holds whoever else does the same meanwhile. kDone and kAnotherThere: the object is durable.
using CompleteContender = std::function<Result<Completion>(const Location& object, const CommitRecord& record)>;

/// Makes `mine` the contender for `object` or finds who is, and completes that one. `mine` is whole and durable before.
/// Errors: those of the store; kCorruptData for a record that is none; kUnavailable when `mine` was swept meanwhile.
Result<PublishOutcome> publish_by_record(const Location& object, const CommitRecord& mine, const CompleteContender& complete);

/// Completes what the records below `output_folder`/_tmp name, and removes the records of every object that is visible. Those of an object
/// whose contenders are all gone stay, because a writer may be about to make the next one. Returns how many objects it made visible.
/// An unreadable record of an object that is not visible stays, too: publish_by_record names it. Errors: those of the store and of
/// `complete`; an error about one object is logged, the other objects are settled, and the first is returned at the end.
Result<int64_t> sweep_records(const Location& output_folder, const CompleteContender& complete);

/// Whether a name below _tmp is that of a record.
bool is_commit_record(const std::string& name);

}  // namespace darkroom
