// Register-blocked contractions of a tile: nodes x rows, lanes over rows.
//
// A group of node values is node-major: value of node s at tile row r is base[s * stride + r]. A block keeps (nodes x
// vectors of rows) accumulators in registers while it runs over the sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/tiles/half_vector.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// `count` sources read through consecutive columns of the weight matrix.
template <class T>
struct Sources {
    const T* base;
    std::int64_t count;
    std::int64_t stride;
};

// Vector registers of the level.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int registers = 32;
#else
inline constexpr int registers = 16;
#endif

// The largest number of vectors of rows in a block of N nodes: accumulators, one vector of each row block and one
// weight fill the registers. For the two or three nodes that remain after groups of four, eight accumulators keep the
// units busy, and more would be the larger part of what the level with 32 registers compiles.
template <int N>
inline constexpr int max_vectors = std::min(N == 2 || N == 3 ? 4 : 8, (registers - 1) / (N + 1));

// `count` nodes from `sources` through weights w[o * out_step + s * source_step] into out (nodes, stride).
// Aliasing: out overlaps no source; result(row, ..) may read out at that row.
template <class T>
struct Contraction {
    std::int64_t count;
    const T* weights;
    std::int64_t out_step, source_step;
    const Sources<T>* sources;
    int n_groups;
    T* out;
    std::int64_t stride;     // of out
    std::int64_t n_vectors;  // of rows
    // Whether only the lower half of the last vector must be correct (has_halves): the upper half may then hold old
    // values and must not be summed over lanes.
    bool ends_in_half = false;
};

// Every contraction computes out[o][r] = value(result(o, r, start(o, r) + sum_s w[o][s] source[s][r])). `Ends` is
//   at(o)                what belongs to node o, with start(row) and result(row, sum)
// and `Finish` the last step, expensive and elementwise, in a loop of its own so that the blocks are compiled once for
// all activations:
//   acts                 whether there is one
//   keep(node, row, z)   stores what else is wanted of z, a vector or a half one
//   value(z)             what takes the place of z

// No last step.
struct NoFinish {
    static constexpr bool acts = false;
};

// N nodes, M vectors of rows, the last of them a half one if `Half`, without the last step.
template <class T, int N, int M, bool Half, class Ends>
PATRAC_FN void contract_block(const Contraction<T>& c, std::int64_t node, std::int64_t row, const Ends& ends) {
    using V = Vec<T>;
    using H = HalfVec<T>;
    constexpr int lanes = lanes_v<V>, whole = M - Half;
    V sum[N][M];
    H tail[N];
    const std::int64_t tail_row = row + whole * lanes;
    unrolled<N>([&](int i) __attribute__((always_inline)) {
        const auto at = ends.at(node + i);
        unrolled<whole>([&](int k)
                            __attribute__((always_inline)) { sum[i][k] = at.template start<V>(row + k * lanes); });
        if constexpr (Half) tail[i] = at.template start<H>(tail_row);
    });
    const T* weight = c.weights + node * c.out_step;
    const std::int64_t out_step = c.out_step, source_step = c.source_step;
    for (int group = 0; group < c.n_groups; ++group) {
        const std::int64_t count = c.sources[group].count, stride = c.sources[group].stride;
        const T* value = c.sources[group].base + row;
        for (std::int64_t s = 0; s < count; ++s, value += stride, weight += source_step) {
            V x[M];
            H x_tail;
            unrolled<whole>([&](int k) __attribute__((always_inline)) { x[k] = load<V>(value + k * lanes); });
            if constexpr (Half) x_tail = load<H>(value + whole * lanes);
            unrolled<N>([&](int i) __attribute__((always_inline)) {
                const V wi = broadcast<V>(weight[i * out_step]);
                unrolled<whole>([&](int k) __attribute__((always_inline)) { sum[i][k] = fma(wi, x[k], sum[i][k]); });
                if constexpr (Half) tail[i] = fma(broadcast<H>(weight[i * out_step]), x_tail, tail[i]);
            });
        }
    }
    unrolled<N>([&](int i) __attribute__((always_inline)) {
        const auto at = ends.at(node + i);
        T* const out = c.out + (node + i) * c.stride;
        unrolled<whole>([&](int k) __attribute__((always_inline)) {
            store<V>(out + row + k * lanes, at.result(row + k * lanes, sum[i][k]));
        });
        if constexpr (Half) store<H>(out + tail_row, at.result(tail_row, tail[i]));
    });
}

template <class T, int N, int M, bool Half, class Ends>
PATRAC_FN void contract_vectors(int vectors, const Contraction<T>& c, std::int64_t node, std::int64_t row,
                                const Ends& ends) {
    if constexpr (M > 0) {
        if (vectors == M)
            contract_block<T, N, M, Half>(c, node, row, ends);
        else
            contract_vectors<T, N, M - 1, Half>(vectors, c, node, row, ends);
    }
}

// The last step of nodes first .. first + N - 1.
template <class T, int N, class Finish>
PATRAC_FN void finish_nodes(const Contraction<T>& c, std::int64_t first, const Finish& finish, bool half) {
    using V = Vec<T>;
    using H = HalfVec<T>;
    const std::int64_t end = (c.n_vectors - half) * lanes_v<V>;
    for (std::int64_t node = first; node < first + N; ++node) {
        T* const out = c.out + node * c.stride;
        for (std::int64_t row = 0; row < end; row += lanes_v<V>) {
            const V z = load<V>(out + row);
            finish.keep(node, row, z);
            store<V>(out + row, finish.value(z));
        }
    }
    if constexpr (has_halves<T> && N % 2 == 0)
        if (half)
            unrolled<N / 2>([&](int pair) __attribute__((always_inline)) {
                const std::int64_t node = first + 2 * pair;
                T* const tail = c.out + node * c.stride + end;
                const H a = load<H>(tail), b = load<H>(tail + c.stride);
                finish.keep(node, end, a);
                finish.keep(node + 1, end, b);
                const V both = finish.value(concatenated<V>(a, b));
                store<H>(tail, half_of<0>(both));
                store<H>(tail + c.stride, half_of<1>(both));
            });
}

// The nodes that remain after groups of four do not justify specialised code for half vectors.
template <class T, int N>
PATRAC_FN bool ends_in_half(const Contraction<T>& c) {
    return has_halves<T> && N == 4 && c.ends_in_half;
}

// N nodes over all rows, without the last step: the rows are cut into blocks of nearly equal width.
template <class T, int N, class Ends>
void contract_nodes(const Contraction<T>& c, std::int64_t node, const Ends& ends) {
    using V = Vec<T>;
    constexpr std::int64_t most = max_vectors<N>;
    const bool half = ends_in_half<T, N>(c);
    const std::int64_t n_blocks = (c.n_vectors + most - 1) / most;
    std::int64_t done = 0;
    for (std::int64_t block = 1; block <= n_blocks; ++block) {
        const std::int64_t end = block * c.n_vectors / n_blocks, row = done * lanes_v<V>;
        const int vectors = static_cast<int>(end - done);
        done = end;
        if constexpr (has_halves<T> && N == 4)
            if (half && block == n_blocks) {
                contract_vectors<T, N, most, true>(vectors, c, node, row, ends);
                continue;
            }
        contract_vectors<T, N, most, false>(vectors, c, node, row, ends);
    }
}

// Up to this many sources, each node reads them again: setting up a block's accumulators would cost more than it saves.
inline constexpr int few_sources = 8;

// The whole contraction from S sources.
template <class T, int S, class Ends, class Finish>
void contract_few(const Contraction<T>& c, const Ends& ends, const Finish& finish) {
    using V = Vec<T>;
    const T* source[S] = {};
    for (int group = 0, s = 0; group < c.n_groups; ++group)
        for (std::int64_t i = 0; i < c.sources[group].count; ++i)
            source[s++] = c.sources[group].base + i * c.sources[group].stride;
    for (std::int64_t node = 0; node < c.count; ++node) {
        V weight[S];
        unrolled<S>([&](int s) __attribute__((always_inline)) {
            weight[s] = broadcast<V>(c.weights[node * c.out_step + s * c.source_step]);
        });
        const auto at = ends.at(node);
        T* const out = c.out + node * c.stride;
        for (std::int64_t row = 0; row < c.n_vectors * lanes_v<V>; row += lanes_v<V>) {
            V sum = at.template start<V>(row);
            unrolled<S>([&](int s)
                            __attribute__((always_inline)) { sum = fma(weight[s], load<V>(source[s] + row), sum); });
            sum = at.result(row, sum);
            if constexpr (Finish::acts) {
                finish.keep(node, row, sum);
                sum = finish.value(sum);
            }
            store<V>(out + row, sum);
        }
    }
}

template <class T, int S, class Ends, class Finish>
PATRAC_FN bool contract_if_few(std::int64_t n_sources, const Contraction<T>& c, const Ends& ends,
                               const Finish& finish) {
    if constexpr (S > few_sources) {
        return false;
    } else {
        if (n_sources != S) return contract_if_few<T, S + 1>(n_sources, c, ends, finish);
        contract_few<T, S>(c, ends, finish);
        return true;
    }
}

template <class T, class Ends, class Finish = NoFinish>
void contract(const Contraction<T>& c, const Ends& ends, const Finish& finish = {}) {
    std::int64_t n_sources = 0;
    for (int group = 0; group < c.n_groups; ++group) n_sources += c.sources[group].count;
    if (contract_if_few<T, 1>(n_sources, c, ends, finish)) return;
    const auto nodes = [&]<int N>(std::int64_t node, std::integral_constant<int, N>) {
        contract_nodes<T, N>(c, node, ends);
        if constexpr (Finish::acts) finish_nodes<T, N>(c, node, finish, ends_in_half<T, N>(c));  // while they are in L1
    };
    std::int64_t node = 0;
    for (; node + 4 <= c.count; node += 4) nodes(node, std::integral_constant<int, 4>{});
    if (c.count - node == 3) nodes(node, std::integral_constant<int, 3>{});
    if (c.count - node == 2) nodes(node, std::integral_constant<int, 2>{});
    if (c.count - node == 1) nodes(node, std::integral_constant<int, 1>{});
}

}  // namespace patrac::PATRAC_LEVEL
