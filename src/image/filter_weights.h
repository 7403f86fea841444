#pragma once

#include <cstdint>
#include <vector>

#include "darkroom/image/resample.h"
#include "resample_kernels.h"

namespace darkroom {

/// Fixed-point weights of one resampling pass. The integers are Pillow's; 22 fractional bits.
struct FilterWeights {
  struct Span {
    int first = 0;  ///< First input sample.
    int count = 0;  ///< Input samples.
  };
  static constexpr int kFractionBits = 22;

  std::vector<Span> spans;       ///< One per output sample.
  std::vector<int32_t> weights;  ///< num_taps per output sample; beyond count they are 0.
  int num_taps = 0;

  const int32_t* of(size_t output) const { return weights.data() + output * static_cast<size_t>(num_taps); }
};

/// Weights of outputs first_output .. first_output + num_outputs - 1 when in_size samples become out_size.
FilterWeights make_filter_weights(int in_size, int out_size, Filter filter, int first_output, int num_outputs);

/// Weights of outputs first_output .. first_output + num_outputs - 1 that take their inputs unchanged.
FilterWeights make_identity_weights(int first_output, int num_outputs);

/// The same weights for the kernels: by quads of inputs, counted from the first input that any output uses.
struct QuadWeights {
  int first_input = 0;
  int num_inputs = 0;
  std::vector<QuadSpan> spans;   ///< One per output sample.
  std::vector<uint32_t> packed;  ///< kPackedWords per quad; weights outside a span are 0.
};

QuadWeights make_quad_weights(const FilterWeights& weights);

}  // namespace darkroom
