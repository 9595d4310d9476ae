// Cholesky factors of small matrices in float64: a few dozen rows, factorised at each step of a collapsed chain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cpu/tiles/aligned_array.hpp"
#include "cpu/tiles/contraction.hpp"
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

// Computes rows i0 .. i0 + 3 of `into`, M vectors of columns from j on, kept in registers meanwhile:
// finish(start(r, column) + or - sum over s in [first, end) of left[s][i0 + r] * right[s][column]).
// Aliasing: `into` may be `left` or `right` if these rows are not in [first, end).
template <int M, bool Subtracts, class Start, class Finish>
PATRAC_FN void block_of_products(const BlockedMatrix& left, const BlockedMatrix& right, std::int64_t first,
                                 std::int64_t end, std::int64_t i0, std::int64_t j, const Start& start,
                                 const Finish& finish, BlockedMatrix& into) {
    using D = BlockedMatrix::D;
    constexpr int n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    D sum[n][M];
    unrolled<n>([&](int r) __attribute__((always_inline)) {
        unrolled<M>([&](int k) __attribute__((always_inline)) { sum[r][k] = start(r, j + k * lanes); });
    });
    for (std::int64_t s = first; s < end; ++s) {
        const double* const weight = left.row(s) + i0;
        D x[M];
        unrolled<M>([&](int k) __attribute__((always_inline)) { x[k] = load<D>(right.row(s) + j + k * lanes); });
        unrolled<n>([&](int r) __attribute__((always_inline)) {
            const D w = broadcast<D>(weight[r]);
            unrolled<M>([&](int k) __attribute__((always_inline)) {
                sum[r][k] = Subtracts ? fnma(w, x[k], sum[r][k]) : fma(w, x[k], sum[r][k]);
            });
        });
    }
    finish(sum);
    unrolled<n>([&](int r) __attribute__((always_inline)) {
        double* const row = into.row(i0 + r) + j;
        unrolled<M>([&](int k) __attribute__((always_inline)) { store<D>(row + k * lanes, sum[r][k]); });
    });
}

// The largest number of vectors in a block: four rows of sums, its vectors and a weight fill the registers. Without
// fused products one more is needed, for the product.
inline constexpr int max_block_vectors = std::min(4, max_vectors<BlockedMatrix::block> - !has_fma);

// Calls visit(column, std::integral_constant<int, M>()) for blocks of M <= max_block_vectors vectors, of nearly equal
// width, which together cover the columns [begin, end).
template <class Visit>
PATRAC_FN void visit_columns(std::int64_t begin, std::int64_t end, const Visit& visit) {
    constexpr std::int64_t lanes = BlockedMatrix::lanes;
    const std::int64_t n_vectors = (end - begin + lanes - 1) / lanes;
    const std::int64_t n_blocks = (n_vectors + max_block_vectors - 1) / max_block_vectors;
    std::int64_t done = 0;
    for (std::int64_t block = 1; block <= n_blocks; ++block) {
        const std::int64_t next = block * n_vectors / n_blocks, column = begin + done * lanes;
        unrolled<max_block_vectors>([&](auto k) __attribute__((always_inline)) {
            if (next - done == k + 1) visit(column, std::integral_constant<int, k + 1>());
        });
        done = next;
    }
}

// Forward substitution with rows i0 .. i0 + 3 of U: x_i = scale_i b_i, then b_s -= factor[i][s] x_i for s > i.
struct BlockSolve {
    static constexpr int n = BlockedMatrix::block;
    double scale[n];
    double factor[n][n];  // U[i0 + i][i0 + s] for s > i; the others are not set

    template <int M>
    PATRAC_FN void operator()(BlockedMatrix::D (&rows)[n][M]) const {
        using D = BlockedMatrix::D;
        unrolled<n>([&](auto i) __attribute__((always_inline)) {
            unrolled<M>([&](int k)
                            __attribute__((always_inline)) { rows[i][k] = broadcast<D>(scale[i]) * rows[i][k]; });
            unrolled<n - 1 - i>([&](int below) __attribute__((always_inline)) {
                const int s = i + 1 + below;
                unrolled<M>([&](int k) __attribute__((always_inline)) {
                    rows[s][k] = fnma(broadcast<D>(factor[i][s]), rows[i][k], rows[s][k]);
                });
            });
        });
    }

    // Factorises a block on the diagonal, whose rows are `step` apart, as the substitution of whole vectors will, with
    // the same rounding: its factors must be known first. Overwrites the block and returns the product of its pivots.
    double factorise(double* block, std::int64_t step) {
        double pivots = 1.0;
        for (int i = 0; i < n; ++i) {
            pivots *= block[i * step + i];
            scale[i] = 1.0 / std::sqrt(block[i * step + i]);
            for (int s = i + 1; s < n; ++s) {
                factor[i][s] = scale[i] * block[i * step + s];
                for (int t = i + 1; t <= s; ++t)
                    block[t * step + s] = fnma(factor[i][t], factor[i][s], block[t * step + s]);
            }
        }
        return pivots;
    }
};

// Turns the upper triangle of A into that of U, A = U'U, and returns log det A: NaN if A is not positive definite.
// Padding rows must be those of the identity. Entries below the diagonal are neither read nor preserved.
inline double factorise(BlockedMatrix& a) {
    using D = BlockedMatrix::D;
    constexpr int n = BlockedMatrix::block, lanes = BlockedMatrix::lanes, diagonal_vectors = std::max(1, n / lanes);
    double log_determinant = 0.0;
    for (std::int64_t i0 = 0; i0 < a.rows(); i0 += n) {
        const auto before = [&](int r, std::int64_t column)
                                __attribute__((always_inline)) { return load<D>(a.row(i0 + r) + column); };
        const std::int64_t first_column = i0 / lanes * lanes;  // of the vectors that hold the block on the diagonal
        BlockSolve solve;
        block_of_products<diagonal_vectors, true>(
            a, a, 0, i0, i0, first_column, before,
            [&](D(&rows)[n][diagonal_vectors]) __attribute__((always_inline)) {
                double block[n][diagonal_vectors * lanes];
                unrolled<n>([&](int r) __attribute__((always_inline)) {
                    unrolled<diagonal_vectors>(
                        [&](int k) __attribute__((always_inline)) { store<D>(block[r] + k * lanes, rows[r][k]); });
                });
                log_determinant += std::log(solve.factorise(block[0] + (i0 - first_column), diagonal_vectors * lanes));
                solve(rows);
            },
            a);
        visit_columns(first_column + diagonal_vectors * lanes, a.row_size(),
                      [&]<int M>(std::int64_t j, std::integral_constant<int, M>) __attribute__((always_inline)) {
                          block_of_products<M, true>(a, a, 0, i0, i0, j, before, solve, a);
                      });
    }
    return log_determinant;
}

// W = (U')^-1, lower triangular, by forward substitution; above its diagonal W is zero and stays so.
inline void invert_factor(const BlockedMatrix& u, BlockedMatrix& w) {
    using D = BlockedMatrix::D;
    constexpr int n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    for (std::int64_t i0 = 0; i0 < u.rows(); i0 += n) {
        BlockSolve solve;
        for (int i = 0; i < n; ++i) {
            solve.scale[i] = 1.0 / u.row(i0 + i)[i0 + i];
            for (int s = i + 1; s < n; ++s) solve.factor[i][s] = u.row(i0 + i)[i0 + s];
        }
        const auto unit = [&](int r, std::int64_t column) __attribute__((always_inline)) {
            D result = {};
            if (const std::int64_t lane = i0 + r - column; lane >= 0 && lane < lanes) result[lane] = 1.0;
            return result;
        };
        // In columns from j on, rows of W above row j are zero; adding these zeros would change no bit. With vectors of
        // two lanes, j reaches beyond i0.
        visit_columns(0, i0 + n,
                      [&]<int M>(std::int64_t j, std::integral_constant<int, M>) __attribute__((always_inline)) {
                          block_of_products<M, true>(u, w, std::min(i0, j), i0, i0, j, unit, solve, w);
                      });
    }
}

// Computes A^-1 = W'W: on and above the diagonal, where rows of W above row max(i0, j) have zeros, and its mirror
// image.
inline void multiply_factor(const BlockedMatrix& w, BlockedMatrix& inverse) {
    using D = BlockedMatrix::D;
    constexpr std::int64_t n = BlockedMatrix::block, lanes = BlockedMatrix::lanes;
    for (std::int64_t i0 = 0; i0 < w.rows(); i0 += n) {
        const auto zero = [](int, std::int64_t) __attribute__((always_inline)) { return D{}; };
        visit_columns(i0 / lanes * lanes, w.row_size(),
                      [&]<int M>(std::int64_t j, std::integral_constant<int, M>) __attribute__((always_inline)) {
                          block_of_products<M, false>(
                              w, w, std::max(i0, j), w.rows(), i0, j, zero, [](auto&) {}, inverse);
                      });
        for (std::int64_t i = i0; i < i0 + n; ++i)
            for (std::int64_t j = 0; j < i0; ++j) inverse.row(i)[j] = inverse.row(j)[i];
    }
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
