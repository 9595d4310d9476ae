// What the pass through narrow hidden layers (narrow_loop.hpp) does in a tile where the output weights are integrated
// out: the moments of the last hidden activations, and the likelihood and its slopes at the conditional mean.
#pragma once

#include <cstdint>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/narrow_loop.hpp"
#include "cpu/tiles/totals.hpp"
#include "cpu/tiles/wide.hpp"

namespace patrac::PATRAC_LEVEL {

// The features are the W activations and 1. Row i of their moments holds the sums with features i .. W, then that with
// y - o: the rows of the Gram matrix from its diagonal on, each beside an entry of the cross moments.
constexpr int narrow_moments_before(int width, int row) {
    return row * (width + 2) - row * (row - 1) / 2;
}
constexpr int n_narrow_moments(int width) {
    return narrow_moments_before(width, width + 1);
}

// How many rows of the moments, from row `first` on, have their sums in registers together.
constexpr int narrow_moment_rows(int width, int first) {
    int count = 1;
    while (first + count <= width &&
           narrow_moments_before(width, first + count + 1) - narrow_moments_before(width, first) <= registers - 2)
        ++count;
    return count;
}

// The vectors whose sums over lanes are the moments of a tile, row by row, from row `First` on. Vector k of activation
// j is at value + k * step + j * lanes.
template <class T, int W, int First = 0>
PATRAC_FN void narrow_moments(const NarrowTile<T>& tile, const T* value, std::int64_t step, Vec<T>* sums) {
    using V = Vec<T>;
    constexpr std::int64_t lanes = lanes_v<V>;
    constexpr int count = narrow_moment_rows(W, First);
    V sum[count][W + 2] = {};
    for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
        const T* const activation = value + k * step;
        const V weight = load<V>(tile.weight + k * lanes);
        const V residual = load<V>(tile.target + k * lanes) - load<V>(tile.offset + k * lanes);
        unrolled<count>([&](int c) __attribute__((always_inline)) {
            const int i = First + c;
            const V x = i < W ? weight * load<V>(activation + i * lanes) : weight;
            unrolled<W>([&](int j) __attribute__((always_inline)) {
                if (j >= i) sum[c][j] = fma(x, load<V>(activation + j * lanes), sum[c][j]);
            });
            sum[c][W] += x;
            sum[c][W + 1] = fma(x, residual, sum[c][W + 1]);
        });
    }
    unrolled<count>([&](int c) __attribute__((always_inline)) {
        const int i = First + c;
        unrolled<W + 2>([&](int j) __attribute__((always_inline)) {
            if (j >= i) sums[narrow_moments_before(W, i) + j - i] = sum[c][j];
        });
    });
    if constexpr (First + count <= W) narrow_moments<T, W, First + count>(tile, value, step, sums);
}

// The log-likelihood of a tile at the output weights (W,) and bias, without its constant, and, unless `reverse` is
// null, dl/d(pre-activation) of the last hidden layer, to `delta`: `reverse` (W, W + 2) holds for each activation its
// output weight, then what the features add to the slope, see TilePass::evaluate_collapsed. Activations and slopes are
// `step` apart from one vector of rows to the next.
template <class T, int W, class Zeta>
double narrow_collapsed(const NarrowTile<T>& tile, const T* output, const T* reverse, T precision, const T* value,
                        T* delta, std::int64_t step) {
    using V = Vec<T>;
    constexpr std::int64_t lanes = lanes_v<V>;
    const V scale = broadcast<V>(precision);
    WideSum<T> total;
    for (std::int64_t k = 0; k < tile.n_vectors; ++k, value += step, delta += step) {
        V a[W];
        V f = broadcast<V>(output[W]) + load<V>(tile.offset + k * lanes);
        unrolled<W>([&](int i) __attribute__((always_inline)) {
            a[i] = load<V>(value + i * lanes);
            f = fma(broadcast<V>(output[i]), a[i], f);
        });
        const V weight = load<V>(tile.weight + k * lanes), residual = load<V>(tile.target + k * lanes) - f;
        const V slope = scale * residual;
        total.add(broadcast<V>(T(-0.5)) * residual * (weight * slope));
        if (!reverse) continue;
        unrolled<W>([&](int i) __attribute__((always_inline)) {
            const T* const row = reverse + i * (W + 2);
            V sum = broadcast<V>(row[W + 1]);
            unrolled<W>([&](int j) __attribute__((always_inline)) { sum = fma(broadcast<V>(row[1 + j]), a[j], sum); });
            sum = fma(broadcast<V>(row[0]), slope, sum);  // last, since it waits for f
            store<V>(delta + i * lanes, weight * sum * Zeta::derivative(a[i]));
        });
    }
    return total.total();
}

}  // namespace patrac::PATRAC_LEVEL
