// Register-blocked contractions of a tile: nodes x rows, lanes over rows.
//
// A group of node values is node-major: value of node s at tile row r is base[s * stride + r], stride a whole number of
// vectors. A block keeps (nodes x vectors of rows) accumulators in registers while it runs over the sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// `count` sources read through consecutive columns of the weight matrix.
template <class T>
struct Sources {
    const T* base;
    std::int64_t count;
};

// Most vectors of rows in a block of N nodes: enough independent accumulators to hide the latency of fma, few enough
// for 16 registers.
template <int N>
inline constexpr int max_vectors = N == 1   ? 8
                                   : N == 2 ? 5
                                            : 3;

// out[o][r] = init(o, r) + sum_s w[o * out_step + s * source_step] * source[s][r] for N nodes, M vectors of
// rows. Aliasing: out overlaps no source.
template <class T, int N, int M, class Init>
PATRAC_FN void contract_block(const T* w, std::int64_t out_step, std::int64_t source_step, const Sources<T>* sources,
                              int n_groups, std::int64_t stride, std::int64_t node, std::int64_t row, T* out,
                              const Init& init) {
    using V = Vec<T>;
    constexpr int lanes = lanes_v<V>;
    V sum[N][M];
    for (int i = 0; i < N; ++i)
        for (int k = 0; k < M; ++k) sum[i][k] = init(node + i, row + k * lanes);
    const T* weight = w + node * out_step;
    for (int group = 0; group < n_groups; ++group) {
        const T* value = sources[group].base + row;
        for (std::int64_t s = 0; s < sources[group].count; ++s, value += stride, weight += source_step) {
            V x[M];
            for (int k = 0; k < M; ++k) x[k] = load<V>(value + k * lanes);
            for (int i = 0; i < N; ++i) {
                const V wi = broadcast<V>(weight[i * out_step]);
                for (int k = 0; k < M; ++k) sum[i][k] = fma(wi, x[k], sum[i][k]);
            }
        }
    }
    for (int i = 0; i < N; ++i)
        for (int k = 0; k < M; ++k) store<V>(out + (node + i) * stride + row + k * lanes, sum[i][k]);
}

template <class T, int N, int M, class... Args>
PATRAC_FN void contract_vectors(int vectors, const Args&... args) {
    if constexpr (M > 0) {
        if (vectors == M)
            contract_block<T, N, M>(args...);
        else
            contract_vectors<T, N, M - 1>(vectors, args...);
    }
}

// N nodes over all rows: the rows are cut into blocks of nearly equal width.
template <class T, int N, class Init, class Finish>
void contract_nodes(const T* w, std::int64_t out_step, std::int64_t source_step, const Sources<T>* sources,
                    int n_groups, std::int64_t stride, std::int64_t n_vectors, std::int64_t node, T* out,
                    const Init& init, const Finish& finish) {
    constexpr std::int64_t most = max_vectors<N>;
    const std::int64_t n_blocks = (n_vectors + most - 1) / most;
    std::int64_t done = 0;
    for (std::int64_t block = 0; block < n_blocks; ++block) {
        const std::int64_t end = (block + 1) * n_vectors / n_blocks;
        contract_vectors<T, N, most>(static_cast<int>(end - done), w, out_step, source_step, sources, n_groups, stride,
                                     node, done * lanes_v<Vec<T>>, out, init);
        done = end;
    }
    for (std::int64_t i = node; i < node + N; ++i) finish(i, out + i * stride);
}

// The whole contraction. init(o, r) gives a vector to start from; finish(o, row pointer) is called on each completed
// row of `out` while it is in L1.
template <class T, class Init, class Finish>
void contract(std::int64_t n_out, const T* w, std::int64_t out_step, std::int64_t source_step,
              const Sources<T>* sources, int n_groups, std::int64_t stride, std::int64_t n_vectors, T* out,
              const Init& init, const Finish& finish) {
    std::int64_t node = 0;
    for (; node + 4 <= n_out; node += 4)
        contract_nodes<T, 4>(w, out_step, source_step, sources, n_groups, stride, n_vectors, node, out, init, finish);
    if (n_out - node == 3)
        contract_nodes<T, 3>(w, out_step, source_step, sources, n_groups, stride, n_vectors, node, out, init, finish);
    if (n_out - node == 2)
        contract_nodes<T, 2>(w, out_step, source_step, sources, n_groups, stride, n_vectors, node, out, init, finish);
    if (n_out - node == 1)
        contract_nodes<T, 1>(w, out_step, source_step, sources, n_groups, stride, n_vectors, node, out, init, finish);
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
    constexpr int n = lanes_v<V>;
    return shuffle(a, b, std::integer_sequence<int, ((L & 2) / 2 * n + (L & ~3) + (L & 1) * 2)...>{}) +
           shuffle(a, b, std::integer_sequence<int, ((L & 2) / 2 * n + (L & ~3) + (L & 1) * 2 + 1)...>{});
}

// Lanes 4 Group .. 4 Group + 3.
template <int Group, class V>
PATRAC_FN Four<scalar_t<V>> four_lanes(V x) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(x, x, 4 * Group, 4 * Group + 1, 4 * Group + 2, 4 * Group + 3);
#else
    return Four<scalar_t<V>>{x[4 * Group], x[4 * Group + 1], x[4 * Group + 2], x[4 * Group + 3]};
#endif
}

// Sums over lanes of four vectors, as (a, b, c, d).
template <class V>
PATRAC_FN Four<scalar_t<V>> four_sums(V a, V b, V c, V d) {
    constexpr int n = lanes_v<V>;
    if constexpr (n == 2) {
        return Four<scalar_t<V>>{a[0] + a[1], b[0] + b[1], c[0] + c[1], d[0] + d[1]};
    } else {
        constexpr auto lanes = std::make_integer_sequence<int, n>{};
        // Each group of four lanes holds one partial sum of each.
        const V groups = pair_sums(pair_sums(a, b, lanes), pair_sums(c, d, lanes), lanes);
        Four<scalar_t<V>> total = four_lanes<0>(groups);
        if constexpr (n >= 8) total += four_lanes<1>(groups);
        if constexpr (n >= 16) total += four_lanes<2>(groups) + four_lanes<3>(groups);
        return total;
    }
}

// Writes `used` <= 4 sums in float64 at target[0], target[step], ..: added to what is there, or in its place when
// `first`.
template <class V>
PATRAC_FN void put_sums(V a, V b, V c, V d, int used, bool first, double* target, std::int64_t step) {
    using Wide = Four<double>;
    Wide sums = __builtin_convertvector(four_sums(a, b, c, d), Wide);
    if (used == 4 && step == 1) {
        Wide before;
        if (!first) {
            __builtin_memcpy(&before, target, sizeof(before));
            sums += before;
        }
        __builtin_memcpy(target, &sums, sizeof(sums));
    } else {
        for (int j = 0; j < used; ++j) target[j * step] = sums[j] + (first ? 0.0 : target[j * step]);
    }
}

// total[i * row_step + j * source_step] += sum_r delta[i][r] * source[j][r], i < N, j < `used` <= 4; `first` as in
// put_sums. Pointers of unused sources repeat a used one.
template <class T, int N>
PATRAC_FN void outer_block(const T* const* delta, const T* const* source, std::int64_t n_vectors, int used, bool first,
                           double* total, std::int64_t row_step, std::int64_t source_step) {
    using V = Vec<T>;
    V sum[N][4];
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] = V{};
    for (std::int64_t k = 0; k < n_vectors; ++k) {
        V x[4];
        for (int j = 0; j < 4; ++j) x[j] = load<V>(source[j] + k * lanes_v<V>);
        for (int i = 0; i < N; ++i) {
            const V d = load<V>(delta[i] + k * lanes_v<V>);
            for (int j = 0; j < 4; ++j) sum[i][j] = fma(d, x[j], sum[i][j]);
        }
    }
    // Unrolled by hand: a loop left over would keep all accumulators in memory.
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i)
        put_sums(sum[i][0], sum[i][1], sum[i][2], sum[i][3], used, first, total + i * row_step, source_step);
}

// The weight gradient of a tile over lists of rows and sources; delta(i) and source(j) give the pointers of their
// entries. Sums of one tile are in T over lanes, sums over tiles in double; the first tile overwrites.
template <class T, class Delta, class Source>
void accumulate_outer(std::int64_t n_rows, const Delta& delta, std::int64_t n_sources, const Source& source,
                      std::int64_t n_vectors, bool first, double* total, std::int64_t row_step,
                      std::int64_t source_step) {
    for (std::int64_t j = 0; j < n_sources; j += 4) {
        const T* x[4];
        const int used = static_cast<int>(std::min<std::int64_t>(4, n_sources - j));
        for (int k = 0; k < 4; ++k) x[k] = source(j + std::min(k, used - 1));
        for (std::int64_t i = 0; i < n_rows; i += 3) {
            const std::int64_t left = n_rows - i;
            const T* d[3] = {delta(i), left > 1 ? delta(i + 1) : nullptr, left > 2 ? delta(i + 2) : nullptr};
            double* target = total + i * row_step + j * source_step;
            if (left >= 3)
                outer_block<T, 3>(d, x, n_vectors, used, first, target, row_step, source_step);
            else if (left == 2)
                outer_block<T, 2>(d, x, n_vectors, used, first, target, row_step, source_step);
            else
                outer_block<T, 1>(d, x, n_vectors, used, first, target, row_step, source_step);
        }
    }
}

// total[i] += sum_r delta(i)[r]; the first tile overwrites.
template <class T, class Delta>
void accumulate_rows(std::int64_t n_rows, const Delta& delta, std::int64_t n_vectors, bool first, double* total) {
    using V = Vec<T>;
    for (std::int64_t i = 0; i < n_rows; i += 4) {
        const int used = static_cast<int>(std::min<std::int64_t>(4, n_rows - i));
        const T* d[4];
        for (int k = 0; k < 4; ++k) d[k] = delta(i + std::min(k, used - 1));
        V sum[4] = {};
        for (std::int64_t v = 0; v < n_vectors; ++v)
            for (int k = 0; k < 4; ++k) sum[k] += load<V>(d[k] + v * lanes_v<V>);
        put_sums(sum[0], sum[1], sum[2], sum[3], used, first, total + i, 1);
    }
}

}  // namespace patrac::PATRAC_LEVEL
