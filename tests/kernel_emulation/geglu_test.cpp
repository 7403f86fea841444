#include <cmath>

#include "kernel_cases.h"

// geglu.cu against value * gate * Phi(gate) in double, Phi(x) = (1 + erf(x / sqrt 2)) / 2.
//
// Bounds, u = 2^-24 the rounding of float32, r that of the result's type (rounding_of). With t = gate / sqrt 2 in float32 (constant and
// product: 2u of t) erf is off by 2u |t erf'(t)| <= 2u * 0.484 < u and by its own 2 ulp, 4u; adding 1 rounds by at most 2u; halving is
// exact. So Phi is off by at most 3.5u, taken as 4u, absolutely.
//   y = v * (g * Phi): 4u |v g| + 2u |y| + r |y|.
//   gradient of the value, (dy * g) * Phi: 4u |dy g| + 2u of it + r of it.
//   gradient of the gate, (dy * v) * S with S = Phi + g * phi: the exponent a = g^2 / 2 is off by u a; expf by 2 ulp, 4u; constant and
//   product 2u; times g u: g phi is off by (a + 7) u of itself, S by 4u + that + u |S|. So |dy v| * (that) + 2u + r of it.

namespace darkroom::kernel_tests {
namespace {

struct GegluCase {
  int64_t num_rows, width;
  int64_t offset;  // Of the arrays, in elements, where single elements are accessed.

  std::string name() const { return std::to_string(num_rows) + " x 2 x " + std::to_string(width); }
};

template <typename Scalar>
GegluCase random_geglu_case(Draws& draws, bool with_vectors) {
  constexpr int64_t kWide = 16 / sizeof(Scalar);
  const int64_t widest = draws.chance(0.1) ? 3000 : draws.chance(0.3) ? 257 : 40;
  int64_t width = draws.between(1, widest);
  if (with_vectors) {
    width = (width + kWide - 1) / kWide * kWide;
  } else if (width % kWide == 0) {
    width += draws.between(1, kWide - 1);
  }
  const int64_t rows = draws.between(1, widest > 1000 ? 3 : 60);
  return {rows, width, with_vectors ? 0 : draws.between(0, kWide - 1)};
}

double cdf_of(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double density_of(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI); }

// Gates of common size, at both ends of Phi, and zero.
double draw_gate(Draws& draws) { return draws.chance(0.02) ? 0.0 : draws.normal() * (draws.chance(0.1) ? 12.0 : 1.5); }

template <typename Scalar>
void compare_value(const GegluCase& one, const Array<Scalar>& x, const Array<Scalar>& y) {
  Comparison comparison("geglu " + one.name());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / one.width, column = i % one.width;
    const double value = x[row * 2 * one.width + column], gate = x[(row * 2 + 1) * one.width + column];
    const double want = value * gate * cdf_of(gate);
    comparison.near(i, y[i], want, 4 * kUnit * std::abs(value * gate) + 2 * kUnit * std::abs(want) + rounding_of<Scalar>(want));
  }
}

template <typename Scalar>
void compare_gradient(const GegluCase& one, const Array<Scalar>& grad_y, const Array<Scalar>& x, const Array<Scalar>& grad_x) {
  Comparison of_value("gradient of geglu's value " + one.name()), of_gate("gradient of geglu's gate " + one.name());
  const auto last = [](double want) { return 2 * kUnit * std::abs(want) + rounding_of<Scalar>(want); };
  for (int64_t i = 0; i < grad_y.size(); ++i) {
    const int64_t row = i / one.width, column = i % one.width;
    const int64_t value_at = row * 2 * one.width + column, gate_at = value_at + one.width;
    const double value = x[value_at], gate = x[gate_at], grad = grad_y[i];
    const double want_value = grad * gate * cdf_of(gate);
    of_value.near(value_at, grad_x[value_at], want_value, 4 * kUnit * std::abs(grad * gate) + last(want_value));
    const double bump = gate * density_of(gate), slope = cdf_of(gate) + bump, exponent = 0.5 * gate * gate;
    const double slope_error = kUnit * (4 + std::abs(bump) * (exponent + 7) + std::abs(slope));
    const double want_gate = grad * value * slope;
    of_gate.near(gate_at, grad_x[gate_at], want_gate, std::abs(grad * value) * slope_error + last(want_gate));
  }
}

template <typename Scalar>
void check_geglu_kernels(bool with_vectors) {
  Draws draws(with_vectors ? 11 : 12);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const GegluCase one = random_geglu_case<Scalar>(draws, with_vectors);
    const int64_t size = one.num_rows * one.width;
    const Array<Scalar> x(2 * size, draws, draw_gate, one.offset);
    const Array<Scalar> grad_y(
        size, draws, [](Draws& d) { return d.normal(); }, one.offset);
    std::vector<Array<Scalar>> y(std::size(kOrders), Array<Scalar>(size, one.offset));
    std::vector<Array<Scalar>> grad_x(std::size(kOrders), Array<Scalar>(2 * size, one.offset));
    for (size_t order = 0; order < std::size(kOrders); ++order) {
      run_in_order(kOrders[order],
                   [&] { return launch_geglu(kElement<Scalar>, x.data(), y[order].data(), one.num_rows, one.width, nullptr); });
      run_in_order(kOrders[order], [&] {
        return launch_geglu_backward(kElement<Scalar>, grad_y.data(), x.data(), grad_x[order].data(), one.num_rows, one.width, nullptr);
      });
      EXPECT_TRUE(y[order].has_bits_of(y[0]) && grad_x[order].has_bits_of(grad_x[0])) << one.name() << ": other bits in another order";
    }
    compare_value(one, x, y[0]);
    compare_gradient(one, grad_y, x, grad_x[0]);
  }
}

TEST(geglu_kernel, equals_the_definition_in_float32_vectors) { check_geglu_kernels<float>(true); }
TEST(geglu_kernel, equals_the_definition_in_float32_single_elements) { check_geglu_kernels<float>(false); }
TEST(geglu_kernel, equals_the_definition_in_float16_vectors) { check_geglu_kernels<__half>(true); }
TEST(geglu_kernel, equals_the_definition_in_float16_single_elements) { check_geglu_kernels<__half>(false); }
TEST(geglu_kernel, equals_the_definition_in_bfloat16_vectors) { check_geglu_kernels<__nv_bfloat16>(true); }
TEST(geglu_kernel, equals_the_definition_in_bfloat16_single_elements) { check_geglu_kernels<__nv_bfloat16>(false); }

// What is infinite, no number, or too large for the type, is that by the definition, and is so there alone.
template <typename Scalar>
void check_what_is_not_finite(int64_t width) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kLarge = 60000.0;
  const double numbers[][2] = {{kInfinity, 1.0}, {1.0, kInfinity}, {1.0, -kInfinity}, {NAN, 1.0}, {1.0, NAN},
                               {kLarge, 2.0},    {-kLarge, 2.0},   {0.0, kInfinity},  {3.0, 0.5}, {-kInfinity, -1.0}};
  const auto rows = static_cast<int64_t>(std::size(numbers));
  Array<Scalar> x(2 * rows * width), grad_y(rows * width), y(rows * width), grad_x(2 * rows * width);
  for (int64_t i = 0; i < 2 * rows * width; ++i) {
    const int64_t row = i / (2 * width), half = i / width % 2;
    x.data()[i] = rounded_to<Scalar>(i % width == 1 ? numbers[row][half] : 0.75);
    grad_y.data()[i / 2] = rounded_to<Scalar>(2.0);
  }
  run_in_order(1, [&] { return launch_geglu(kElement<Scalar>, x.data(), y.data(), rows, width, nullptr); });
  run_in_order(1, [&] { return launch_geglu_backward(kElement<Scalar>, grad_y.data(), x.data(), grad_x.data(), rows, width, nullptr); });
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t value_at = i / width * 2 * width + i % width, gate_at = value_at + width;
    const double value = x[value_at], gate = x[gate_at], slope = cdf_of(gate) + gate * density_of(gate);
    const auto as_stored = [](double want) { return as_double(rounded_to<Scalar>(want)); };
    EXPECT_TRUE(is_of_kind(y[i], as_stored(value * (gate * cdf_of(gate))))) << value << " and " << gate << ": " << y[i];
    EXPECT_TRUE(is_of_kind(grad_x[value_at], as_stored(2.0 * gate * cdf_of(gate)))) << gate << ": " << grad_x[value_at];
    EXPECT_TRUE(is_of_kind(grad_x[gate_at], as_stored(2.0 * value * slope))) << value << " and " << gate << ": " << grad_x[gate_at];
  }
}

TEST(geglu_kernel, gives_infinities_and_nan_by_the_definition) {
  for (const int64_t width : {5, 8}) {
    check_what_is_not_finite<float>(width);
    check_what_is_not_finite<__half>(width);
    check_what_is_not_finite<__nv_bfloat16>(width);
  }
}

TEST(geglu_kernel, refuses_vectors_at_a_misaligned_place) {
  const Array<float> x(16, 2);
  Array<float> y(8);
  EXPECT_NE(launch_geglu(Element::kFloat32, x.data(), y.data(), 1, 8, nullptr), cudaSuccess);
  EXPECT_NE(emulation::take_fault().find("misaligned"), std::string::npos);
}

// The gradient formulas of this file against differences of its values.
TEST(geglu_kernel, the_reference_gradient_is_the_slope_of_the_reference) {
  for (double gate = -6.0; gate <= 6.0; gate += 0.37) {
    constexpr double kStep = 1e-5;
    const auto value = [](double g) { return g * cdf_of(g); };
    const double slope = (value(gate + kStep) - value(gate - kStep)) / (2 * kStep);
    // Central differences: the third derivative, at most 2, times step^2 / 6, and 2^-53 of values up to 6 over the step.
    EXPECT_TRUE(is_near(cdf_of(gate) + gate * density_of(gate), slope, kStep * kStep + 6 * 0x1p-52 / kStep));
  }
}

}  // namespace
}  // namespace darkroom::kernel_tests
