// Cholesky factors of small matrices in float64: a few dozen rows, factorised at each step of a collapsed chain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/tiles/aligned_array.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// A square matrix in rows of whole vectors, padded to whole blocks of rows.
class BlockedMatrix {
public:
    using D = Vec<double>;
    static constexpr std::int64_t lanes = lanes_v<D>;
    static constexpr int block = 4;  // rows whose sums are kept in registers together

    explicit BlockedMatrix(std::int64_t size)
        : rows_((size + block - 1) / block * block), row_((rows_ + lanes - 1) / lanes * lanes), values_(rows_ * row_) {}

    std::int64_t rows() const { return rows_; }  // padding included
    std::int64_t row_size() const { return row_; }
    double* row(std::int64_t i) { return values_.data() + i * row_; }
    const double* row(std::int64_t i) const { return values_.data() + i * row_; }

private:
    std::int64_t rows_ = 0, row_ = 0;
    AlignedArray<double> values_;
};

// into[i0 + r][j..] = start(r) + sign * sum over k in [first, end) of left[k][i0 + r] * right[k][j..], r < 4.
template <class Start>
PATRAC_FN void sum_of_outer(const BlockedMatrix& left, const BlockedMatrix& right, std::int64_t first, std::int64_t end,
                            std::int64_t i0, std::int64_t j, double sign, const Start& start, BlockedMatrix& into) {
    using D = BlockedMatrix::D;
    constexpr int n = BlockedMatrix::block;
    D sum[n];
    for (int r = 0; r < n; ++r) sum[r] = start(r);
    for (std::int64_t k = first; k < end; ++k) {
        const D x = broadcast<D>(sign) * load<D>(right.row(k) + j);
        const double* const factor = left.row(k) + i0;
        for (int r = 0; r < n; ++r) sum[r] = fma(broadcast<D>(factor[r]), x, sum[r]);
    }
    for (int r = 0; r < n; ++r) store<D>(into.row(i0 + r) + j, sum[r]);
}

// Turns the upper triangle of A into that of U, A = U'U, and returns log det A: NaN if A is not positive definite.
// Padding rows must be those of the identity. Entries below the diagonal are neither read nor preserved.
inline double factorise(BlockedMatrix& a) {
    using D = BlockedMatrix::D;
    constexpr std::int64_t n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    double log_determinant = 0.0;
    for (std::int64_t i0 = 0; i0 < a.rows(); i0 += n) {
        const std::int64_t first = i0 / lanes * lanes;
        for (std::int64_t j = first; j < a.row_size(); j += lanes)
            sum_of_outer(
                a, a, 0, i0, i0, j, -1.0,
                [&](int r) __attribute__((always_inline)) { return load<D>(a.row(i0 + r) + j); }, a);
        double pivots = 1.0;
        for (std::int64_t i = i0; i < i0 + n; ++i) {
            double* const row = a.row(i);
            pivots *= row[i];
            const D scale = broadcast<D>(1.0 / std::sqrt(row[i]));
            for (std::int64_t j = first; j < a.row_size(); j += lanes) store<D>(row + j, scale * load<D>(row + j));
            for (std::int64_t s = i + 1; s < i0 + n; ++s) {
                const D factor = broadcast<D>(-row[s]);
                for (std::int64_t j = first; j < a.row_size(); j += lanes)
                    store<D>(a.row(s) + j, fma(factor, load<D>(row + j), load<D>(a.row(s) + j)));
            }
        }
        log_determinant += std::log(pivots);
    }
    return log_determinant;
}

// W = (U')^-1, lower triangular, by forward substitution; above its diagonal W is zero and stays so.
inline void invert_factor(const BlockedMatrix& u, BlockedMatrix& w) {
    using D = BlockedMatrix::D;
    constexpr std::int64_t n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    for (std::int64_t i0 = 0; i0 < u.rows(); i0 += n) {
        // Columns up to i0 + 3; of row k those beyond k are zero.
        for (std::int64_t j = 0; j < i0 + n; j += lanes)
            sum_of_outer(
                u, w, 0, i0, i0, j, -1.0,
                [&](int r) __attribute__((always_inline)) {
                    D unit = {};
                    if (const std::int64_t lane = i0 + r - j; lane >= 0 && lane < lanes) unit[lane] = 1.0;
                    return unit;
                },
                w);
        for (std::int64_t i = i0; i < i0 + n; ++i) {
            const D scale = broadcast<D>(1.0 / u.row(i)[i]);
            for (std::int64_t j = 0; j < i0 + n; j += lanes) store<D>(w.row(i) + j, scale * load<D>(w.row(i) + j));
            for (std::int64_t s = i + 1; s < i0 + n; ++s) {
                const D factor = broadcast<D>(-u.row(i)[s]);
                for (std::int64_t j = 0; j < i0 + n; j += lanes)
                    store<D>(w.row(s) + j, fma(factor, load<D>(w.row(i) + j), load<D>(w.row(s) + j)));
            }
        }
    }
}

// All of W'W = A^-1.
inline void multiply_factor(const BlockedMatrix& w, BlockedMatrix& inverse) {
    using D = BlockedMatrix::D;
    constexpr std::int64_t n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    for (std::int64_t i0 = 0; i0 < w.rows(); i0 += n)
        for (std::int64_t j = 0; j < w.row_size(); j += lanes)
            sum_of_outer(
                w, w, std::max(i0, j), w.rows(), i0, j, 1.0, [](int) __attribute__((always_inline)) { return D{}; },
                inverse);
}

// y = W x; x and y are a row long, zero in padding.
inline void multiply(const BlockedMatrix& w, const double* x, double* y) {
    using D = BlockedMatrix::D;
    for (std::int64_t i = 0; i < w.rows(); ++i) {
        D sum = {};
        for (std::int64_t j = 0; j <= i; j += BlockedMatrix::lanes)
            sum = fma(load<D>(w.row(i) + j), load<D>(x + j), sum);
        y[i] = reduce_add(sum);
    }
}

// y = W'x.
inline void multiply_transposed(const BlockedMatrix& w, const double* x, double* y) {
    using D = BlockedMatrix::D;
    for (std::int64_t j = 0; j < w.row_size(); j += BlockedMatrix::lanes) {
        D sum = {};
        for (std::int64_t i = j; i < w.rows(); ++i) sum = fma(broadcast<D>(x[i]), load<D>(w.row(i) + j), sum);
        store<D>(y + j, sum);
    }
}

}  // namespace patrac::PATRAC_LEVEL
