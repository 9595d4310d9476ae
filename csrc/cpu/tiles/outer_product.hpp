// Outer products of a tile, summed over its rows: the gradient of weights, the Gram matrix of features.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/tiles/contraction.hpp"

namespace patrac::PATRAC_LEVEL {

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

// Destination of a block of sums: entry (i, j) at total[i * row_step + j * column_step], added to its value or, when
// `first`, replacing it.
struct OuterTarget {
    double* total;
    std::int64_t row_step, column_step;
    bool first;

    PATRAC_FN OuterTarget at(std::int64_t i, std::int64_t j) const {
        return {total + i * row_step + j * column_step, row_step, column_step, first};
    }
    PATRAC_FN OuterTarget transposed() const { return {total, column_step, row_step, first}; }

    // Four sums that are neighbours in memory.
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

// Half vectors: sums over lanes then cost half as much, and rows are rounded up to fewer.
template <class T>
using OuterVec = HalfVec<T>;
// target(i, j) += sum_r row[i][r] * column[j][r], i < N, j < `used` <= J, over n_rows tile rows rounded up to vectors.
template <class T, class V, int N, int J>
void outer_block(const T* const* rows, const T* const* columns, std::int64_t n_rows, int used,
                 const OuterTarget& target) {
    const T *row[N], *column[J];
    unrolled<N>([&](int i) __attribute__((always_inline)) { row[i] = rows[i]; });
    unrolled<J>([&](int j) __attribute__((always_inline)) { column[j] = columns[j < used ? j : 0]; });
    V sum[N][J];
    unrolled<N>([&](int i) __attribute__((always_inline)) {
        unrolled<J>([&](int j) __attribute__((always_inline)) { sum[i][j] = V{}; });
    });
    for (std::int64_t k = 0; k < n_rows; k += lanes_v<V>) {
        V x[J];
        unrolled<J>([&](int j) __attribute__((always_inline)) { __builtin_memcpy(&x[j], column[j] + k, sizeof(V)); });
        unrolled<N>([&](int i) __attribute__((always_inline)) {
            V d;
            __builtin_memcpy(&d, row[i] + k, sizeof(d));
            unrolled<J>([&](int j) __attribute__((always_inline)) { sum[i][j] = fma(d, x[j], sum[i][j]); });
        });
    }
    const bool dense = used == J && target.column_step == 1;
    unrolled<N>([&](int i) __attribute__((always_inline)) {
        unrolled<J / 4>([&](int quad) __attribute__((always_inline)) {
            const int j = 4 * quad;
            const auto sums = four_sums<V>(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            if (dense)
                target.at(i, j).put(sums);
            else
                target.at(i, j).put(sums, std::min(4, used - j));
        });
    });
}

// The weight gradient of a tile: all pairs of rows and columns, lists of pointers to tile_rows values each, up to whole
// vectors V. Sums of one tile are in T over lanes, sums over tiles in double.
template <class T, class V = OuterVec<T>>
void accumulate_outer(const T* const* rows, std::int64_t n_rows, const T* const* columns, std::int64_t n_columns,
                      std::int64_t tile_rows, const OuterTarget& target) {
    // The shorter side, and the columns that remain after groups of four, run along the rows of a block.
    if (n_columns < 4 && n_rows > n_columns)
        return accumulate_outer<T, V>(columns, n_columns, rows, n_rows, tile_rows, target.transposed());
    if (const std::int64_t left = n_columns % 4; left > 0 && n_rows > 3) {
        n_columns -= left;
        accumulate_outer<T, V>(columns + n_columns, left, rows, n_rows, tile_rows,
                               target.at(0, n_columns).transposed());
    }
    const std::int64_t width = n_rows == 1 && n_columns > 4 ? 8 : 4;
    for (std::int64_t j = 0; j < n_columns; j += width) {
        const int used = static_cast<int>(std::min(width, n_columns - j));
        if (width == 8) {
            outer_block<T, V, 1, 8>(rows, columns + j, tile_rows, used, target.at(0, j));
            continue;
        }
        std::int64_t i = 0;
        for (; i + 3 <= n_rows; i += 3)
            outer_block<T, V, 3, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
        if (n_rows - i == 2) outer_block<T, V, 2, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
        if (n_rows - i == 1) outer_block<T, V, 1, 4>(rows + i, columns + j, tile_rows, used, target.at(i, j));
    }
}

}  // namespace patrac::PATRAC_LEVEL
