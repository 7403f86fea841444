#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace darkroom {

/// A NumPy array over values that it takes along. REQUIRES: the GIL is held; the extents multiply to values.size().
template <typename T>
nanobind::ndarray<nanobind::numpy, T> owned_array(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const nanobind::capsule owner(kept.get(), [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  kept.release();
  return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

}  // namespace darkroom
