#pragma once

#include <cstdint>
#include <functional>

namespace darkroom {

/// Multiply-adds of the matrix products, convolutions and attentions that `run` asks of torch on this thread, backward
/// passes excluded; elementwise work and normalisations are not counted. One multiply-add is two floating-point operations.
/// Thread safety: safe; counts of one thread do not nest.
int64_t count_multiply_adds(const std::function<void()>& run);

}  // namespace darkroom
