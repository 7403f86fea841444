#include "filter_weights.h"

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The kernels, each as a function of the distance from the centre. Mitchell & Netravali 1988 and Keys 1981 for the
// cubic (a = -0.5), Duchon 1979 for lanczos. Operation order matters: the weights must equal Pillow's to the last bit.
double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double hamming(double x) {
  x = std::fabs(x);
  if (x == 0.0) {
    return 1.0;
  }
  if (x >= 1.0) {
    return 0.0;
  }
  x *= kPi;
  return std::sin(x) / x * (0.54F + 0.46F * std::cos(x));
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) {
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  }
  if (x < 2.0) {
    return (((x - 5) * x + 8) * x - 4) * a;
  }
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) {
    return 1.0;
  }
  x *= kPi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct Kernel {
  double (*value)(double);
  double radius;
};

Kernel kernel_of(Filter filter) {
  switch (filter) {
    case Filter::kBilinear:
      return {bilinear, 1.0};
    case Filter::kBicubic:
      return {bicubic, 2.0};
    case Filter::kLanczos:
      return {lanczos, 3.0};
    case Filter::kHamming:
      return {hamming, 1.0};
    case Filter::kBox:
      return {box, 0.5};
  }
  DARKROOM_CHECK(false, "a filter outside its enumeration:", static_cast<int>(filter));
}

int32_t to_fixed_point(double weight) {
  const double scaled = weight * (1 << FilterWeights::kFractionBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace

FilterWeights make_filter_weights(int in_size, int out_size, Filter filter, int first_output, int num_outputs) {
  const Kernel kernel = kernel_of(filter);
  const double scale = static_cast<double>(in_size) / out_size;
  const double filter_scale = std::max(scale, 1.0);  // Shrinking widens the kernel: antialiasing.
  const double inverse_scale = 1.0 / filter_scale;
  const double support = kernel.radius * filter_scale;

  FilterWeights result;
  result.num_taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  result.spans.reserve(static_cast<size_t>(num_outputs));
  result.weights.assign(static_cast<size_t>(num_outputs) * static_cast<size_t>(result.num_taps), 0);
  std::vector<double> values(static_cast<size_t>(result.num_taps));
  for (int output = 0; output < num_outputs; ++output) {
    const double centre = (first_output + output + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int count = std::min(static_cast<int>(centre + support + 0.5), in_size) - first;
    double sum = 0.0;
    for (int tap = 0; tap < count; ++tap) {
      values[tap] = kernel.value((tap + first - centre + 0.5) * inverse_scale);
      sum += values[tap];
    }
    int32_t* out = result.weights.data() + static_cast<size_t>(output) * static_cast<size_t>(result.num_taps);
    for (int tap = 0; tap < count; ++tap) {
      out[tap] = to_fixed_point(sum != 0.0 ? values[tap] / sum : values[tap]);
    }
    result.spans.push_back({first, count});
  }
  return result;
}

FilterWeights make_identity_weights(int first_output, int num_outputs) {
  FilterWeights result;
  result.num_taps = 1;
  result.weights.assign(static_cast<size_t>(num_outputs), 1 << FilterWeights::kFractionBits);
  for (int output = 0; output < num_outputs; ++output) {
    result.spans.push_back({first_output + output, 1});
  }
  return result;
}

QuadWeights make_quad_weights(const FilterWeights& weights) {
  QuadWeights result;
  result.first_input = weights.spans.front().first;
  result.num_inputs = weights.spans.back().first + weights.spans.back().count - result.first_input;
  for (size_t output = 0; output < weights.spans.size(); ++output) {
    const auto [first, count] = weights.spans[output];
    const int begin = first - result.first_input;
    QuadSpan span{.first = begin / 4, .packed = result.packed.size()};
    span.count = (begin + count + 3) / 4 - span.first;
    result.packed.resize(span.packed + static_cast<size_t>(span.count) * kPackedWords);
    for (int quad = 0; quad < span.count; ++quad) {
      int32_t values[4] = {};
      for (int i = 0; i < 4; ++i) {
        const int tap = (span.first + quad) * 4 + i - begin;
        values[i] = tap >= 0 && tap < count ? weights.of(output)[tap] : 0;
      }
      pack_quad(values, result.packed.data() + span.packed + static_cast<size_t>(quad) * kPackedWords);
    }
    result.spans.push_back(span);
  }
  return result;
}

}  // namespace darkroom
