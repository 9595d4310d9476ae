// The contractions of a tile by one block; each thread keeps a tile of sums in registers (twin of
// cpu/tiles/contraction.hpp).
#pragma once

#include <type_traits>
#include <utility>

#include "cuda/block/thread_block.hpp"

namespace patrac::PATRAC_LEVEL {

// Node-major values: item s at base + s * step, `count` of them.
template <class T>
struct DeviceSources {
    const T* base;
    int count;
    std::int64_t step;
};

// out[o][r] = end(o, r, sum over sources s of weight(o, s) * source[s][r]).
template <class T>
struct DeviceContraction {
    int count;  // of outputs o
    DeviceSources<T> sources;
    const T* weights;
    int pitch;
    int rows;  // a multiple of four
};

// Adds the products of sources to the sums of N nodes and four rows. Transposed: weight(o, s) is at weights[s * pitch +
// o], and several nodes follow on each other from a multiple of four on; else it is at weights[o * pitch + s].
template <int N, bool Transposed, class T>
PATRAC_DEVICE void add_products(const DeviceSources<T>& sources, const T* weights, int pitch, const int (&node)[N],
                                int row, T (&sum)[N][4]) {
    const T* value = sources.base + row;
    int s = 0;
    if constexpr (!Transposed) {
        // Weights of a node lie side by side and start at a multiple of four: four of them are one load.
        for (; s + 4 <= sources.count; s += 4) {
            Four<T> weight[N];
#pragma unroll
            for (int k = 0; k < N; ++k) weight[k] = load_four(weights + node[k] * pitch + s);
#pragma unroll
            for (int i = 0; i < 4; ++i, value += sources.step) {
                const Four<T> x = load_four(value);
#pragma unroll
                for (int k = 0; k < N; ++k)
#pragma unroll
                    for (int r = 0; r < 4; ++r) sum[k][r] = fma(weight[k].x[i], x.x[r], sum[k][r]);
            }
        }
    }
    // The remaining nodes; all of them where weights are transposed, which take one load for each source.
#pragma unroll Transposed ? 4 : 1
    for (; s < sources.count; ++s, value += sources.step) {
        const Four<T> x = load_four(value);
        Four<T> weight;
        if constexpr (Transposed && N == 4) {
            weight = load_four(weights + s * pitch + node[0]);
        } else {
#pragma unroll
            for (int k = 0; k < N; ++k) weight.x[k] = weights[Transposed ? s * pitch + node[k] : node[k] * pitch + s];
        }
#pragma unroll
        for (int k = 0; k < N; ++k)
#pragma unroll
            for (int r = 0; r < 4; ++r) sum[k][r] = fma(weight.x[k], x.x[r], sum[k][r]);
    }
}

// A thread's nodes are spread evenly over the layer, o = group + k * groups, or transposed follow on each other. `ends`
// has
//   start(o, row)         the four sums to begin with
//   finish(o, row, sums)  uses the completed sums
// `constants`: further sources, with weights further_column to the right of the first.
template <int N, bool Transposed, class T, class Ends>
PATRAC_DEVICE void contract_by(const ThreadBlock& block, const DeviceContraction<T>& c,
                               const DeviceSources<T>& constants, int further_column, const Ends& ends) {
    const int groups = (c.count + N - 1) / N, quads = c.rows / 4;
#pragma unroll 1
    for (int item = block.thread; item < groups * quads; item += block.threads) {
        const int group = item / quads, row = item % quads * 4;
        int node[N];
        T sum[N][4];
        const auto own = [&](int k) { return Transposed ? N * group + k : group + k * groups; };
#pragma unroll
        for (int k = 0; k < N; ++k) {
            // Beyond the last node the last one is computed again and not stored, or, transposed, what the padding of
            // the weights makes.
            node[k] = Transposed || own(k) < c.count ? own(k) : c.count - 1;
            const Four<T> start = ends.start(node[k], row);
#pragma unroll
            for (int r = 0; r < 4; ++r) sum[k][r] = start.x[r];
        }
        add_products<N, Transposed>(c.sources, c.weights, c.pitch, node, row, sum);
        if constexpr (!Transposed)
            add_products<N, false>(constants, c.weights + further_column, c.pitch, node, row, sum);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (own(k) < c.count) ends.finish(node[k], row, Four<T>{sum[k][0], sum[k][1], sum[k][2], sum[k][3]});
    }
}

// Whether threads take four nodes at once, or one: four need fewer loads for each product, but each round of the
// block's threads must have work. Cost in products and loads of four rows.
PATRAC_DEVICE bool takes_four_nodes(int count, int quads, int threads) {
    const int of_four = ((count + 3) / 4 * quads + threads - 1) / threads,
              of_one = (count * quads + threads - 1) / threads;
    return 11 * of_four <= 5 * of_one;
}

template <bool Transposed, class T, class Ends>
PATRAC_DEVICE void contract(const ThreadBlock& block, const DeviceContraction<T>& c, const DeviceSources<T>& constants,
                            int further_column, const Ends& ends) {
    if (takes_four_nodes(c.count, c.rows / 4, block.threads))
        contract_by<4, Transposed>(block, c, constants, further_column, ends);
    else
        contract_by<1, Transposed>(block, c, constants, further_column, ends);
}

// Sums over rows: G[i][j] = sum_r left(i)[r] * right(j)[r] for i < n_left, j < n_right, left and right giving the rows'
// addresses; put(i, j, sum) is called once for each. Several threads share the rows of one tile of sums where there are
// fewer tiles than threads. Sums are of type S; where that is wider than T, each product has a factor weight[r] too.
template <int N, class T, class S, class Left, class Right, class Put>
PATRAC_DEVICE void outer_by(const ThreadBlock& block, int n_left, int n_right, int rows, const T* weight,
                            const Left& left, const Right& right, const Put& put) {
    const int left_groups = (n_left + N - 1) / N, right_groups = (n_right + N - 1) / N;
    const int tiles = left_groups * right_groups;
    int lanes = 1;
    const int max_lanes = block.threads < exchange_size ? block.threads : exchange_size;
    while (lanes < max_lanes && 2 * lanes * tiles <= block.threads && 8 * lanes <= rows) lanes *= 2;
    // All threads make the same rounds: those without a tile take part in the sums over lanes.
#pragma unroll 1
    for (int first = 0; first < tiles * lanes; first += block.threads) {
        const int item = first + block.thread, tile = item / lanes, part = item % lanes;
        const bool works = tile < tiles;
        const int i0 = works ? tile / right_groups : 0, j0 = works ? tile % right_groups : 0;
        const T *x[N], *y[N];
        S sum[N][N] = {};
#pragma unroll
        for (int k = 0; k < N; ++k) {
            x[k] = left(i0 + k * left_groups < n_left ? i0 + k * left_groups : n_left - 1);
            y[k] = right(j0 + k * right_groups < n_right ? j0 + k * right_groups : n_right - 1);
        }
        if (works) {
#pragma unroll 1
            for (int row = 4 * part; row < rows; row += 4 * lanes) {
                S a[N][4];
#pragma unroll
                for (int k = 0; k < N; ++k) {
                    const Four<T> values = load_four(x[k] + row);
#pragma unroll
                    for (int r = 0; r < 4; ++r) a[k][r] = static_cast<S>(values.x[r]);
                    if constexpr (!std::is_same_v<S, T>) {
                        const Four<T> factors = load_four(weight + row);
#pragma unroll
                        for (int r = 0; r < 4; ++r) a[k][r] *= static_cast<S>(factors.x[r]);
                    }
                }
#pragma unroll
                for (int l = 0; l < N; ++l) {
                    const Four<T> b = load_four(y[l] + row);
#pragma unroll
                    for (int k = 0; k < N; ++k)
#pragma unroll
                        for (int r = 0; r < 4; ++r) sum[k][l] = fma(a[k][r], static_cast<S>(b.x[r]), sum[k][l]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < N; ++k)
#pragma unroll
            for (int l = 0; l < N; ++l) {
                const S total = block.sum_over_lanes(sum[k][l], lanes);
                const int i = i0 + k * left_groups, j = j0 + l * right_groups;
                if (works && part == 0 && i < n_left && j < n_right) put(i, j, total);
            }
    }
}

template <class T, class Left, class Right, class Put>
PATRAC_DEVICE void outer(const ThreadBlock& block, int n_left, int n_right, int rows, const Left& left,
                         const Right& right, const Put& put) {
    const T* const no_weight = nullptr;
    if (n_left >= 16 && n_right >= 16)
        outer_by<4, T, T>(block, n_left, n_right, rows, no_weight, left, right, put);
    else
        outer_by<1, T, T>(block, n_left, n_right, rows, no_weight, left, right, put);
}

// The same in float64, of float32 values: their products are exact. 2 by 2 sums keep the registers of 4 by 4 above.
template <class Left, class Right, class Put>
PATRAC_DEVICE void wide_outer(const ThreadBlock& block, int n_left, int n_right, int rows, const float* weight,
                              const Left& left, const Right& right, const Put& put) {
    outer_by<2, float, double>(block, n_left, n_right, rows, weight, left, right, put);
}

}  // namespace patrac::PATRAC_LEVEL
