// The outer product of two wide sides, summed over a tile's rows. One side is transposed first: lanes then run over it,
// every row is one step of a sum, and no sum over lanes is needed at the end (outer_product.hpp), whose cost 100 rows
// would not amortise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/tiles/outer_product.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/wide.hpp"

namespace patrac::PATRAC_LEVEL {

// The least number of values on either side: fewer leave too many lanes empty.
inline constexpr std::int64_t least_wide = 16;

// In every 16 bytes, chunks of `Grain` lanes of a and of b in turn, from the lower or the upper half of both: one
// instruction of the kind that processors have most of.
template <bool Upper, int Grain, class V, int... Lane>
PATRAC_FN V interleaved(V a, V b, std::integer_sequence<int, Lane...>) {
    constexpr int n = sizeof...(Lane), lanes = 16 / sizeof(scalar_t<V>);
    constexpr auto source = [](int lane) {
        const int chunk = lane % lanes / Grain;
        return lane / lanes * lanes + (Upper ? lanes / 2 : 0) + chunk / 2 * Grain + lane % Grain + chunk % 2 * n;
    };
    return shuffle(a, b, std::integer_sequence<int, source(Lane)...>{});
}

// In every 16 bytes, lane j of x[i] <-> lane i of x[j], as many vectors as lanes in 16 bytes.
template <class V>
PATRAC_FN void transpose(V* x) {
    constexpr auto lanes = std::make_integer_sequence<int, lanes_v<V>>{};
    const V a = interleaved<false, 1>(x[0], x[1], lanes), b = interleaved<true, 1>(x[0], x[1], lanes);
    if constexpr (sizeof(scalar_t<V>) == 8) {
        x[0] = a;
        x[1] = b;
    } else {
        const V c = interleaved<false, 1>(x[2], x[3], lanes), d = interleaved<true, 1>(x[2], x[3], lanes);
        x[0] = interleaved<false, 2>(a, c, lanes);
        x[1] = interleaved<true, 2>(a, c, lanes);
        x[2] = interleaved<false, 2>(b, d, lanes);
        x[3] = interleaved<true, 2>(b, d, lanes);
    }
}

template <class T>
class WideOuter {
public:
    using V = Vec<T>;

    static bool supports(std::int64_t n_rows, std::int64_t n_columns) {
        return std::min(n_rows, n_columns) >= least_wide;
    }

    // Room to transpose one side of `n_values` in tiles of up to `tile_rows`, a whole number of vectors.
    void reserve(std::int64_t n_values, std::int64_t tile_rows) {
        const std::int64_t size = whole(n_values) * tile_rows;
        if (size > transposed_.size()) transposed_ = AlignedArray<T>(size);
    }

    // target(i, j) += sum_r row[i][r] * column[j][r], as accumulate_outer(), where one of the target's steps is 1. The
    // side that fills fewer vectors is transposed, of equal ones the columns: reserve() rounds up to whole vectors, so
    // that there is room for either.
    void accumulate(const T* const* rows, std::int64_t n_rows, const T* const* columns, std::int64_t n_columns,
                    std::int64_t tile_rows, const OuterTarget& target) {
        if (whole(n_rows) < whole(n_columns))
            return accumulate(columns, n_columns, rows, n_rows, tile_rows, target.transposed());
        transpose_side(columns, n_columns, tile_rows);
        constexpr std::int64_t lanes = lanes_v<V>, most = std::min(4, max_vectors<4>);
        const std::int64_t n_vectors = (n_columns + lanes - 1) / lanes, n_blocks = (n_vectors + most - 1) / most;
        std::int64_t done = 0;
        for (std::int64_t block = 1; block <= n_blocks; ++block) {
            const std::int64_t end = block * n_vectors / n_blocks;
            const Stripe stripe{transposed_.data() + done * lanes, whole(n_columns), tile_rows,
                                std::min(end * lanes, n_columns) - done * lanes, target.at(0, done * lanes)};
            const bool half = rest_fits_half<T>(stripe.used);
            std::int64_t i = 0;
            for (; i + 4 <= n_rows; i += 4) add_rows<4, most>(end - done, half, rows, i, stripe);
            if (n_rows - i == 3) add_rows<3, most>(end - done, half, rows, i, stripe);
            if (n_rows - i == 2) add_rows<2, most>(end - done, half, rows, i, stripe);
            if (n_rows - i == 1) add_rows<1, most>(end - done, half, rows, i, stripe);
            done = end;
        }
    }

private:
    // Some of the transposed side's values.
    struct Stripe {
        const T* values;  // (tile_rows, step)
        std::int64_t step, tile_rows;
        std::int64_t used;   // of the values in its vectors
        OuterTarget target;  // of row 0
    };

    template <class H>
    static PATRAC_FN Half<H> sixteen_bytes(const T* source) {
        Half<H> result;
        static_assert(sizeof(result) == 16);
        std::memcpy(&result, source, sizeof(result));
        return result;
    }

    static std::int64_t whole(std::int64_t n_values) { return (n_values + lanes_v<V> - 1) / lanes_v<V> * lanes_v<V>; }

    void transpose_side(const T* const* values, std::int64_t n_values, std::int64_t tile_rows) {
        using H = HalfVec<T>;
        constexpr int lanes = lanes_v<H>, rows = 16 / sizeof(T);
        const std::int64_t step = whole(n_values);
        for (std::int64_t first = 0; first < n_values; first += lanes) {
            const T* value[lanes];
            unrolled<lanes>([&](int s) __attribute__((always_inline)) {
                value[s] = first + s < n_values ? values[first + s] : values[first];  // not read
            });
            for (std::int64_t r = 0; r < tile_rows; r += rows) {
                H x[rows];
                unrolled<rows>([&](int i) __attribute__((always_inline)) {
                    if constexpr (lanes == rows)
                        x[i] = load<H>(value[i] + r);
                    else
                        x[i] = concatenated<H>(sixteen_bytes<H>(value[i] + r), sixteen_bytes<H>(value[i + rows] + r));
                });
                transpose(x);
                T* const out = transposed_.data() + r * step + first;
                unrolled<rows>([&](int i) __attribute__((always_inline)) { store<H>(out + i * step, x[i]); });
            }
        }
    }

    template <int N, int M>
    static PATRAC_FN void add_rows(std::int64_t vectors, bool half, const T* const* rows, std::int64_t i,
                                   const Stripe& stripe) {
        if constexpr (M > 0) {
            if (vectors != M) return add_rows<N, M - 1>(vectors, half, rows, i, stripe);
            if constexpr (has_halves<T>)
                if (half) return add_block<N, M, true>(rows + i, stripe, stripe.target.at(i, 0));
            add_block<N, M, false>(rows + i, stripe, stripe.target.at(i, 0));
        }
    }

    // N rows and M vectors of the stripe, the last of them a half one if `Half`.
    template <int N, int M, bool Half>
    static void add_block(const T* const* rows, const Stripe& stripe, const OuterTarget& target) {
        using H = HalfVec<T>;
        constexpr int lanes = lanes_v<V>, whole = M - Half;
        const T* row[N];
        unrolled<N>([&](int i) __attribute__((always_inline)) { row[i] = rows[i]; });
        V sum[N][M] = {};
        H tail[N] = {};
        const T* value = stripe.values;
        for (std::int64_t r = 0; r < stripe.tile_rows; ++r, value += stripe.step) {
            V x[M];
            H x_tail;
            unrolled<whole>([&](int k) __attribute__((always_inline)) { x[k] = load<V>(value + k * lanes); });
            if constexpr (Half) x_tail = load<H>(value + whole * lanes);
            unrolled<N>([&](int i) __attribute__((always_inline)) {
                const V d = broadcast<V>(row[i][r]);
                unrolled<whole>([&](int k) __attribute__((always_inline)) { sum[i][k] = fma(d, x[k], sum[i][k]); });
                if constexpr (Half) tail[i] = fma(broadcast<H>(row[i][r]), x_tail, tail[i]);
            });
        }
        alignas(V) T sums[N][M * lanes];
        unrolled<N>([&](int i) __attribute__((always_inline)) {
            unrolled<whole>([&](int k) __attribute__((always_inline)) { store<V>(sums[i] + k * lanes, sum[i][k]); });
            if constexpr (Half) store<H>(sums[i] + whole * lanes, tail[i]);
        });
        if (target.column_step == 1)
            for (int i = 0; i < N; ++i) put_row(sums[i], stripe.used, target.at(i, 0));
        else
            for (std::int64_t j = 0; j < stripe.used; ++j) put_column<N>(sums[0] + j, M * lanes, target.at(0, j));
    }

    // `count` sums of a row, side by side in the target.
    static PATRAC_FN void put_row(const T* sums, std::int64_t count, const OuterTarget& target) {
        using D = Vec<double>;
        std::int64_t j = 0;
        for (; j + lanes_v<D> <= count; j += lanes_v<D>) {
            const D before = target.first ? D{} : load<D>(target.total + j);
            store<D>(target.total + j, load_wide(sums + j) + before);
        }
        for (; j < count; ++j) target.at(0, j).put(sums + j, 1);
    }

    // The sums of N rows at one value of the stripe, side by side in the target where it is transposed.
    template <int N>
    static PATRAC_FN void put_column(const T* sums, std::int64_t step, const OuterTarget& target) {
        if constexpr (N == 4) {
            target.put(Four<T>{sums[0], sums[step], sums[2 * step], sums[3 * step]});
        } else {
            for (int i = 0; i < N; ++i) target.at(i, 0).put(sums + i * step, 1);
        }
    }

    AlignedArray<T> transposed_;  // (tile_rows, values of the transposed side up to whole vectors)
};

}  // namespace patrac::PATRAC_LEVEL
