// Points times a small matrix, each point the same whatever its neighbours are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "packed.hpp"
#include "wide.hpp"

namespace patrac::PATRAC_LEVEL {

// out[b][i] = sum_j matrix[i][j] points[b][j], summed over j in order in float64; matrix (dim, dim), the rest (count,
// dim). (A BLAS rounds by the shape of the whole product, and a draw must not depend on the length of its run.)
template <class T>
void rotate(const double* matrix, const T* points, std::int64_t count, std::int64_t dim, T* out) {
    using D = Vec<double>;
    constexpr std::int64_t lanes = lanes_v<D>;
    constexpr int together = 4;  // points that share a load of the matrix
    const std::int64_t row = (dim + lanes - 1) / lanes * lanes;
    AlignedArray<double> transposed(dim * row), x(together * dim), y(row);
    for (std::int64_t i = 0; i < dim; ++i)
        for (std::int64_t j = 0; j < dim; ++j) transposed[j * row + i] = matrix[i * dim + j];
    for (std::int64_t b = 0; b < count; b += together) {
        const std::int64_t used = std::min<std::int64_t>(together, count - b);
        for (std::int64_t i = 0; i < used * dim; ++i) x[i] = static_cast<double>(points[b * dim + i]);
        for (std::int64_t i = 0; i < row; i += lanes) {
            D sum[together] = {};
            for (std::int64_t j = 0; j < dim; ++j) {
                const D column = load<D>(transposed.data() + j * row + i);
                for (int p = 0; p < together; ++p) sum[p] = fma(broadcast<D>(x[p * dim + j]), column, sum[p]);
            }
            const std::int64_t wanted = std::min(lanes, dim - i);
            for (std::int64_t p = 0; p < used; ++p) {
                store<D>(y.data(), sum[p]);
                narrow(y.data(), wanted, out + (b + p) * dim + i);
            }
        }
    }
}

}  // namespace patrac::PATRAC_LEVEL
