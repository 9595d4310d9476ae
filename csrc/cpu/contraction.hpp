// Register-blocked contractions of a tile: nodes x rows, lanes over rows.
//
// A group of node values is node-major: value of node s at tile row r is base[s * stride + r]. A block keeps (nodes x
// vectors of rows) accumulators in registers while it runs over the sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "../shared/lanes.hpp"

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

// Most vectors of rows in a block of N nodes: the accumulators, one vector of each row block and one weight fill the
// registers.
template <int N>
inline constexpr int max_vectors = std::min(8, (registers - 1) / (N + 1));

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
};

// Every contraction computes out[o][r] = finish(result(o, r, start(o, r) + sum_s w[o][s] source[s][r])). `Ends` is
//   at(o)                  what belongs to node o, with start(row) and result(row, sum)
//   finishes, finish(x)    whether there is a last step, elementwise and dear, that is better a loop of its own.

// N nodes, M vectors of rows, without the last step.
template <class T, int N, int M, class Ends>
PATRAC_FN void contract_block(const Contraction<T>& c, std::int64_t node, std::int64_t row, const Ends& ends) {
    using V = Vec<T>;
    constexpr int lanes = lanes_v<V>;
    V sum[N][M];
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
        const auto at = ends.at(node + i);
        unrolled<M>([&](auto k) __attribute__((always_inline)) { sum[i][k] = at.start(row + k * lanes); });
    });
    const T* weight = c.weights + node * c.out_step;
    const std::int64_t out_step = c.out_step, source_step = c.source_step;
    for (int group = 0; group < c.n_groups; ++group) {
        const std::int64_t count = c.sources[group].count, stride = c.sources[group].stride;
        const T* value = c.sources[group].base + row;
        for (std::int64_t s = 0; s < count; ++s, value += stride, weight += source_step) {
            V x[M];
            unrolled<M>([&](auto k) __attribute__((always_inline)) { x[k] = load<V>(value + k * lanes); });
            unrolled<N>([&](auto i) __attribute__((always_inline)) {
                const V wi = broadcast<V>(weight[i * out_step]);
                unrolled<M>([&](auto k) __attribute__((always_inline)) { sum[i][k] = fma(wi, x[k], sum[i][k]); });
            });
        }
    }
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
        const auto at = ends.at(node + i);
        T* const out = c.out + (node + i) * c.stride + row;
        unrolled<M>([&](auto k) __attribute__((always_inline)) {
            store<V>(out + k * lanes, at.result(row + k * lanes, sum[i][k]));
        });
    });
}

template <class T, int N, int M, class Ends>
PATRAC_FN void contract_vectors(int vectors, const Contraction<T>& c, std::int64_t node, std::int64_t row,
                                const Ends& ends) {
    if constexpr (M > 0) {
        if (vectors == M)
            contract_block<T, N, M>(c, node, row, ends);
        else
            contract_vectors<T, N, M - 1>(vectors, c, node, row, ends);
    }
}

// N nodes over all rows: the rows are cut into blocks of nearly equal width.
template <class T, int N, class Ends>
void contract_nodes(const Contraction<T>& c, std::int64_t node, const Ends& ends) {
    using V = Vec<T>;
    constexpr std::int64_t most = max_vectors<N>;
    const std::int64_t n_blocks = (c.n_vectors + most - 1) / most;
    std::int64_t done = 0;
    for (std::int64_t block = 0; block < n_blocks; ++block) {
        const std::int64_t end = (block + 1) * c.n_vectors / n_blocks;
        contract_vectors<T, N, most>(static_cast<int>(end - done), c, node, done * lanes_v<V>, ends);
        done = end;
    }
    if constexpr (Ends::finishes)
        for (std::int64_t i = node; i < node + N; ++i) {  // while it is in L1
            T* const out = c.out + i * c.stride;
            for (std::int64_t row = 0; row < c.n_vectors * lanes_v<V>; row += lanes_v<V>)
                store<V>(out + row, ends.finish(load<V>(out + row)));
        }
}

// Up to this many sources are read anew for every node: a block's accumulators would not repay what they cost to set
// up.
inline constexpr int few_sources = 8;

// The whole contraction from S sources.
template <class T, int S, class Ends>
void contract_few(const Contraction<T>& c, const Ends& ends) {
    using V = Vec<T>;
    const T* source[S] = {};
    for (int group = 0, s = 0; group < c.n_groups; ++group)
        for (std::int64_t i = 0; i < c.sources[group].count; ++i)
            source[s++] = c.sources[group].base + i * c.sources[group].stride;
    for (std::int64_t node = 0; node < c.count; ++node) {
        V weight[S];
        unrolled<S>([&](auto s) __attribute__((always_inline)) {
            weight[s] = broadcast<V>(c.weights[node * c.out_step + s * c.source_step]);
        });
        const auto at = ends.at(node);
        T* const out = c.out + node * c.stride;
        for (std::int64_t row = 0; row < c.n_vectors * lanes_v<V>; row += lanes_v<V>) {
            V sum = at.start(row);
            unrolled<S>([&](auto s)
                            __attribute__((always_inline)) { sum = fma(weight[s], load<V>(source[s] + row), sum); });
            sum = at.result(row, sum);
            if constexpr (Ends::finishes) sum = ends.finish(sum);
            store<V>(out + row, sum);
        }
    }
}

template <class T, int S, class Ends>
PATRAC_FN bool contract_if_few(std::int64_t n_sources, const Contraction<T>& c, const Ends& ends) {
    if constexpr (S > few_sources) {
        return false;
    } else {
        if (n_sources != S) return contract_if_few<T, S + 1>(n_sources, c, ends);
        contract_few<T, S>(c, ends);
        return true;
    }
}

template <class T, class Ends>
void contract(const Contraction<T>& c, const Ends& ends) {
    std::int64_t n_sources = 0;
    for (int group = 0; group < c.n_groups; ++group) n_sources += c.sources[group].count;
    if (contract_if_few<T, 1>(n_sources, c, ends)) return;
    std::int64_t node = 0;
    for (; node + 4 <= c.count; node += 4) contract_nodes<T, 4>(c, node, ends);
    if (c.count - node == 3) contract_nodes<T, 3>(c, node, ends);
    if (c.count - node == 2) contract_nodes<T, 2>(c, node, ends);
    if (c.count - node == 1) contract_nodes<T, 1>(c, node, ends);
}

// Four lanes of T.
template <class T>
struct FourOf {
    typedef T type __attribute__((vector_size(4 * sizeof(T))));
};
template <class T>
using Four = typename FourOf<T>::type;

// In each group of four lanes the pair sums a01, a23, b01, b23: two shuffles of one instruction each, and an addition.
template <class V, int... L>
PATRAC_FN V pair_sums(V a, V b, std::integer_sequence<int, L...>) {
    constexpr int n = sizeof...(L);
    return shuffle(a, b, std::integer_sequence<int, ((L & 2) / 2 * n + (L & ~3) + (L & 1) * 2)...>{}) +
           shuffle(a, b, std::integer_sequence<int, ((L & 2) / 2 * n + (L & ~3) + (L & 1) * 2 + 1)...>{});
}

// Sums over lanes of four vectors, as (a, b, c, d).
template <class V, class T = std::remove_cvref_t<decltype(V{}[0])>>
PATRAC_FN Four<T> four_sums(V a, V b, V c, V d) {
    constexpr int n = sizeof(V) / sizeof(T);
    if constexpr (n == 2) {
        return Four<T>{a[0] + a[1], b[0] + b[1], c[0] + c[1], d[0] + d[1]};
    } else {
        constexpr auto lanes = std::make_integer_sequence<int, n>{};
        // Each group of four lanes holds one partial sum of each.
        const V groups = pair_sums(pair_sums(a, b, lanes), pair_sums(c, d, lanes), lanes);
        if constexpr (n == 4)
            return groups;
        else
            return folded(groups);
    }
}

// Where a block of sums goes: entry (i, j) at total[i * row_step + j * column_step], added to what is there or, when
// `first`, in its place.
struct OuterTarget {
    double* total;
    std::int64_t row_step, column_step;
    bool first;

    PATRAC_FN OuterTarget at(std::int64_t i, std::int64_t j) const {
        return {total + i * row_step + j * column_step, row_step, column_step, first};
    }
    PATRAC_FN OuterTarget transposed() const { return {total, column_step, row_step, first}; }

    // Four neighbouring sums of a row; column_step is 1.
    template <class Sums>
    PATRAC_FN void put(Sums narrow) const {
        Four<double> sums = __builtin_convertvector(narrow, Four<double>), before;
        if (!first) {
            __builtin_memcpy(&before, total, sizeof(before));
            sums += before;
        }
        __builtin_memcpy(total, &sums, sizeof(sums));
    }
    // `used` <= 4 of them, at any step.
    template <class Sums>
    PATRAC_FN void put(Sums sums, int used) const {
        for (int j = 0; j < used; ++j)
            total[j * column_step] = static_cast<double>(sums[j]) + (first ? 0.0 : total[j * column_step]);
    }
};

// Vectors of an outer product: 32 bytes where registers hold 64, since sums over lanes then cost half as much, and rows
// are rounded up to fewer.
#if defined(__AVX512F__)
template <class T>
struct OuterVectorOf {
    typedef T type __attribute__((vector_size(32)));
};
template <class T>
using OuterVec = typename OuterVectorOf<T>::type;

PATRAC_FN OuterVec<float> outer_fma(OuterVec<float> a, OuterVec<float> b, OuterVec<float> c) {
    return OuterVec<float>(_mm256_fmadd_ps(a, b, c));
}
PATRAC_FN OuterVec<double> outer_fma(OuterVec<double> a, OuterVec<double> b, OuterVec<double> c) {
    return OuterVec<double>(_mm256_fmadd_pd(a, b, c));
}
#else
template <class T>
using OuterVec = Vec<T>;

template <class V>
PATRAC_FN V outer_fma(V a, V b, V c) {
    return fma(a, b, c);
}
#endif
template <class T>
inline constexpr std::int64_t outer_lanes = sizeof(OuterVec<T>) / sizeof(T);

// target(i, j) += sum_r row[i][r] * column[j][r], i < N, j < `used` <= J, over n_rows tile rows rounded up to vectors.
template <class T, int N, int J>
void outer_block(const T* const* rows, const T* const* columns, std::int64_t n_rows, int used,
                 const OuterTarget& target) {
    using V = OuterVec<T>;
    const T *row[N], *column[J];
    unrolled<N>([&](auto i) __attribute__((always_inline)) { row[i] = rows[i]; });
    unrolled<J>([&](auto j) __attribute__((always_inline)) { column[j] = columns[j < used ? j : 0]; });
    V sum[N][J];
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
        unrolled<J>([&](auto j) __attribute__((always_inline)) { sum[i][j] = V{}; });
    });
    for (std::int64_t k = 0; k < n_rows; k += outer_lanes<T>) {
        V x[J];
        unrolled<J>([&](auto j) __attribute__((always_inline)) { __builtin_memcpy(&x[j], column[j] + k, sizeof(V)); });
        unrolled<N>([&](auto i) __attribute__((always_inline)) {
            V d;
            __builtin_memcpy(&d, row[i] + k, sizeof(d));
            unrolled<J>([&](auto j) __attribute__((always_inline)) { sum[i][j] = outer_fma(d, x[j], sum[i][j]); });
        });
    }
    const bool dense = used == J && target.column_step == 1;
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
        unrolled<J / 4>([&](auto quad) __attribute__((always_inline)) {
            constexpr int j = 4 * quad;
            const auto sums = four_sums<V>(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            if (dense)
                target.at(i, j).put(sums);
            else
                target.at(i, j).put(sums, std::min(4, used - j));
        });
    });
}

// The weight gradient of a tile: all pairs of rows and columns, lists of pointers to tile_rows values each. Sums of one
// tile are in T over lanes, sums over tiles in double.
template <class T>
void accumulate_outer(const T* const* rows, std::int64_t n_rows, const T* const* columns, std::int64_t n_columns,
                      std::int64_t tile_rows, const OuterTarget& target) {
    // The shorter side, and what four columns at a time leave over, run along the rows of a block.
    if (n_columns < 4 && n_rows > n_columns)
        return accumulate_outer(columns, n_columns, rows, n_rows, tile_rows, target.transposed());
    if (const std::int64_t left = n_columns % 4; left > 0 && n_rows > 3) {
        n_columns -= left;
        accumulate_outer(columns + n_columns, left, rows, n_rows, tile_rows, target.at(0, n_columns).transposed());
    }
    const std::int64_t width = n_rows == 1 && n_columns > 4 ? 8 : 4;
    for (std::int64_t j = 0; j < n_columns; j += width) {
        const int used = static_cast<int>(std::min(width, n_columns - j));
        if (width == 8) {
            outer_block<T, 1, 8>(rows, columns + j, tile_rows, used, target.at(0, j));
            continue;
        }
        std::int64_t i = 0;
        for (; i + 3 <= n_rows; i += 3) outer_block<T, 3, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
        if (n_rows - i == 2) outer_block<T, 2, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
        if (n_rows - i == 1) outer_block<T, 1, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
    }
}

}  // namespace patrac::PATRAC_LEVEL
