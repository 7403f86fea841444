#pragma once

#include <set>

namespace darkroom {

/// Says which of several orders should be done first so that none is done later than if all had shared the machine equally: the order in
/// which equal sharing would finish them (Friedman and Henderson 2003, "Fairness and efficiency in web server protocols": fair sojourn
/// protocol). Short orders pass long ones, and a long one is passed only as often as its own share allows. Thread safety: none.
class FairOrder {
 public:
  /// A new order of `cost`: returns its tag; the least tag goes first. REQUIRES: cost > 0.
  double join(double cost);
  /// So much work was done, whoever's it was.
  void work_done(double cost);
  /// An order that is given up takes no further share. Nothing happens for one whose share is used up.
  void leave(double tag);

 private:
  double share_ = 0.0;          // What each order that is still here under equal sharing has had since the beginning.
  std::multiset<double> tags_;  // Of these orders: share_ at which each would be done.
};

}  // namespace darkroom
