#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/measure/feature_distance.h"

namespace darkroom {
namespace {

// A matrix, row by row, that is changed in place.
struct Matrix {
  std::vector<double>& values;
  size_t num_rows;
  size_t num_columns;
  double* row(size_t i) { return values.data() + i * num_columns; }
};

// Makes v the Householder vector, v[0] = 1, that takes what was v to (alpha, 0, ..., 0), and returns alpha and the factor of the
// reflection.
std::pair<double, double> reflect_to_axis(std::vector<double>& v) {
  double largest = 0;
  for (const double value : v) {
    largest = std::max(largest, std::abs(value));
  }
  if (largest == 0) {
    return {0.0, 0.0};
  }
  double sum = 0;
  for (const double value : v) {
    sum += (value / largest) * (value / largest);
  }
  const double norm = largest * std::sqrt(sum);
  const double alpha = v[0] > 0 ? -norm : norm;
  const double head = v[0] - alpha;
  for (double& value : v) {
    value /= head;
  }
  v[0] = 1;
  return {alpha, -head / alpha};
}

// Rows k.. and columns first.. less factor * v (v^T rows).
void reflect_rows(Matrix& matrix, size_t k, size_t first, const std::vector<double>& v, double factor, std::vector<double>& sums) {
  sums.assign(matrix.num_columns, 0.0);
  for (size_t i = 0; i < v.size(); ++i) {
    const double* row = matrix.row(k + i);
    for (size_t j = first; j < matrix.num_columns; ++j) {
      sums[j] += v[i] * row[j];
    }
  }
  for (size_t i = 0; i < v.size(); ++i) {
    double* row = matrix.row(k + i);
    const double step = factor * v[i];
    for (size_t j = first; j < matrix.num_columns; ++j) {
      row[j] -= step * sums[j];
    }
  }
}

void reflect_columns(Matrix& matrix, size_t first_row, size_t k, const std::vector<double>& v, double factor) {
  for (size_t i = first_row; i < matrix.num_rows; ++i) {
    double* row = matrix.row(i) + k;
    double sum = 0;
    for (size_t j = 0; j < v.size(); ++j) {
      sum += row[j] * v[j];
    }
    sum *= factor;
    for (size_t j = 0; j < v.size(); ++j) {
      row[j] -= sum * v[j];
    }
  }
}

// The bidiagonal matrix's diagonal and what stands above it, one after the other: the couplings of the symmetric form [0 B; B^T 0] once its
// rows are shuffled into each other (Golub and Van Loan, 8.6.1).
std::vector<double> couplings_of(Matrix matrix, const std::stop_token& stop) {
  std::vector<double> couplings, v, sums;
  for (size_t k = 0; k < matrix.num_columns && !stop.stop_requested(); ++k) {
    v.clear();
    for (size_t i = k; i < matrix.num_rows; ++i) {
      v.push_back(matrix.row(i)[k]);
    }
    const auto [diagonal, row_factor] = reflect_to_axis(v);
    reflect_rows(matrix, k, k + 1, v, row_factor, sums);
    couplings.push_back(diagonal);
    if (k + 1 == matrix.num_columns) {
      break;
    }
    v.assign(matrix.row(k) + k + 1, matrix.row(k) + matrix.num_columns);
    const auto [above, column_factor] = reflect_to_axis(v);
    reflect_columns(matrix, k + 1, k + 1, v, column_factor);
    couplings.push_back(above);
  }
  return couplings;
}

// One implicit QL step on rows first..last of a symmetric tridiagonal matrix (EISPACK's imtql1).
void ql_step(std::vector<double>& diagonal, std::vector<double>& couplings, size_t first, size_t last) {
  double g = (diagonal[first + 1] - diagonal[first]) / (2 * couplings[first]);
  double r = std::hypot(g, 1.0);
  g = diagonal[last] - diagonal[first] + couplings[first] / (g + std::copysign(r, g));
  double s = 1, c = 1, p = 0;
  for (size_t i = last; i-- > first;) {
    const double f = s * couplings[i];
    const double b = c * couplings[i];
    r = std::hypot(f, g);
    couplings[i + 1] = r;
    if (r == 0) {
      diagonal[i + 1] -= p;
      couplings[last] = 0;
      return;
    }
    s = f / r;
    c = g / r;
    g = diagonal[i + 1] - p;
    r = (diagonal[i] - g) * s + 2 * c * b;
    p = s * r;
    diagonal[i + 1] = g + p;
    g = c * r - b;
  }
  diagonal[first] -= p;
  couplings[first] = g;
  couplings[last] = 0;
}

// The eigenvalues of a symmetric tridiagonal matrix with zeros on its diagonal.
std::vector<double> eigenvalues(std::vector<double> couplings) {
  constexpr int kMostSteps = 60;  // About two each are needed.
  std::vector<double> diagonal(couplings.size() + 1, 0.0);
  double largest = 0;
  for (const double coupling : couplings) {
    largest = std::max(largest, std::abs(coupling));
  }
  const double negligible = std::numeric_limits<double>::epsilon() * largest;
  couplings.push_back(0.0);
  for (size_t first = 0; first < diagonal.size(); ++first) {
    for (int step = 0;; ++step) {
      size_t last = first;
      while (last + 1 < diagonal.size() && std::abs(couplings[last]) > negligible) {
        ++last;
      }
      if (last == first) {
        break;
      }
      DARKROOM_CHECK(step < kMostSteps, "the singular values do not converge; rows:", diagonal.size());
      ql_step(diagonal, couplings, first, last);
    }
  }
  return diagonal;
}

}  // namespace

double sum_of_singular_values(std::vector<double> matrix, size_t num_rows, size_t num_columns, const std::stop_token& stop) {
  DARKROOM_CHECK(num_rows >= 1 && num_columns >= 1 && matrix.size() == num_rows * num_columns,
                 "no such matrix (rows, columns, values):", num_rows, num_columns, matrix.size());
  if (num_rows < num_columns) {
    std::vector<double> turned(matrix.size());
    for (size_t i = 0; i < num_rows; ++i) {
      for (size_t j = 0; j < num_columns; ++j) {
        turned[j * num_rows + i] = matrix[i * num_columns + j];
      }
    }
    matrix = std::move(turned);
    std::swap(num_rows, num_columns);
  }
  double sum = 0;
  for (const double value : eigenvalues(couplings_of({matrix, num_rows, num_columns}, stop))) {
    sum += std::abs(value);  // Each singular value stands there twice, once with either sign.
  }
  return 0.5 * sum;
}

}  // namespace darkroom
