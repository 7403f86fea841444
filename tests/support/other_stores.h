#pragma once

#include <utility>
#include <vector>

#include "darkroom/stores/stores.h"

namespace darkroom {

/// The options of a StoreSet that also finds the addresses of these stores' schemes.
inline StoreSetOptions with_other_stores(std::vector<Store*> others) {
  StoreSetOptions options;
  options.others = std::move(others);
  return options;
}

}  // namespace darkroom
