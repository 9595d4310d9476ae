// A wide first layer on the matrix units: Z = X W' before the tiles, dl/dW = delta' X after them.
//
// Both are one product, out[m][n] = sum over k of A[m][k] B[n][k]: A are the inputs, kept once by rows and once by
// features, B the weights or dl/d(pre-activation), both n <= nodes of the layer wide. B is split into three bfloat16
// (matrix_warp.hpp) and so exact. Inputs that are whole numbers of a byte are exact in one bfloat16; others are split
// into three, and of the nine products six are formed: what is left out is about 2^-21 |a b| of each at most. A matrix
// unit sums 64 of k, and float32 adds those sums up, since the units may cut off where they add: the error of a sum
// stays within a few 2^-24 of the sum of |a b|, as in float32.
// A coarse gradient has one product in place of three or six, of factors rounded to one bfloat16 each. It is a function
// of theta as the exact one is, which is all that a step asks of it. Z, and so l, is always exact.
#pragma once

#include "cuda/block/matrix_warp.hpp"
#include "cuda/model/device_plan.hpp"

namespace patrac::PATRAC_LEVEL {

inline constexpr int wide_depth = 64;    // of k that are taken at once
inline constexpr int wide_columns = 64;  // of n at once
inline constexpr int wide_steps = wide_depth / 16;
// 32-bit words of shared memory: the split B of one depth.
template <class Parts>
inline constexpr int wide_words = Parts::count * wide_steps * (wide_columns / 8) * warp_size * 2;

// The order of k within a depth is free. Lane quarter q takes 16 consecutive k, so that it reads 16 bytes or four times
// four floats at once: step s has k = 16 q + 4 s + (0, 1) as columns 2q .. of its fragment and + (2, 3) as columns
// 2q + 8 ..

// Inputs as bytes: 32 rows m of a warp. B is split into Parts, the inputs need none.
template <class Parts_>
struct ByteInputs {
    using Parts = Parts_;
    static constexpr int parts = 1, tiles = 2;
    const std::uint8_t* base;
    int pitch;

    struct Fragments {
        FragmentA of[parts][wide_steps];
    };
    PATRAC_DEVICE void load(int m, int k, Fragments& to) const {
        std::uint32_t words[2][wide_steps];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto from = load_four(
                reinterpret_cast<const std::uint32_t*>(base + static_cast<std::int64_t>(m + 8 * half) * pitch + k));
#pragma unroll
            for (int s = 0; s < wide_steps; ++s) words[half][s] = from.x[s];
        }
#pragma unroll
        for (int s = 0; s < wide_steps; ++s)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                to.of[0][s].x[part] = bf16_of_bytes(words[part % 2][s], part / 2);
                keep(to.of[0][s].x[part]);  // or else each group of eight columns would convert the bytes again
            }
    }
};

// Inputs as floats, split as B is: 16 rows m of a warp, or 32 of one part.
template <class Parts_>
struct FloatInputs {
    using Parts = Parts_;
    static constexpr int parts = Parts::count, tiles = parts == 1 ? 2 : 1;
    const float* base;
    int pitch;

    struct Fragments {
        FragmentA of[parts][wide_steps];
    };
    PATRAC_DEVICE void load(int m, int k, Fragments& to) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int s = 0; s < wide_steps; ++s) {
                Parts::split(load_four(base + static_cast<std::int64_t>(m + 8 * half) * pitch + k + 4 * s),
                             [&](int p, std::uint32_t first, std::uint32_t second) {
                                 to.of[p][s].x[half] = first;
                                 to.of[p][s].x[2 + half] = second;
                             });
            }
    }
};

// Where the words of (part, step, eight columns, lane) lie in shared memory.
PATRAC_DEVICE int wide_word(int part, int step, int eight, int lane) {
    return (((part * wide_steps + step) * (wide_columns / 8) + eight) * warp_size + lane) * 2;
}

// out for the block's rows m, columns first_n .. and k_begin <= k < k_end, whole depths. factor(n, k) gives four of B
// from k on; it is asked for n < end_n alone. put(m, n, sum) is called for m < end_m and n < end_n.
template <class Inputs, class Factor, class Put>
PATRAC_DEVICE void wide_product(const ThreadBlock& block, const Inputs& inputs, int part, int end_m, int first_n,
                                int end_n, int k_begin, int k_end, std::uint32_t* shared, const Factor& factor,
                                const Put& put) {
    using Parts = typename Inputs::Parts;
    constexpr int tiles = Inputs::tiles, eights = wide_columns / 8;
    const int wanted = (part * warps_of(block) + warp_of(block)) * tiles * 16;
    const bool works = wanted < end_m;  // or else it helps to split B alone
    const int first_m = works ? wanted : 0;
    struct Totals {
        float x[tiles][eights][4];
    };
    PerLane<Totals> total;
    each_lane(block, [&](int lane) { total[lane] = {}; });
#pragma unroll 1
    for (int k = k_begin; k < k_end; k += wide_depth) {
        PerLane<typename Inputs::Fragments> loaded[tiles];
#pragma unroll
        for (int i = 0; i < tiles; ++i)
            each_lane(block,
                      [&](int lane) { inputs.load(first_m + 16 * i + lane / 4, k + lane % 4 * 16, loaded[i][lane]); });
        block.sync();  // the last depth's B is read no more
        for (int item = block.thread; item < wide_steps * eights * warp_size; item += block.threads) {
            const int lane = item % warp_size, eight = item / warp_size % eights, s = item / warp_size / eights;
            const int n = first_n + 8 * eight + lane / 4;
            Four<float> x = {};
            if (n < end_n) x = factor(n, k + lane % 4 * 16 + 4 * s);
            Parts::split(x, [&](int p, std::uint32_t first, std::uint32_t second) {
                *reinterpret_cast<FragmentB*>(shared + wide_word(p, s, eight, lane)) = {{first, second}};
            });
        }
        block.sync();
        // Of the block's columns: a constant number of loops keeps the sums in registers.
#pragma unroll
        for (int eight = 0; eight < eights; ++eight) {
            if (first_n + 8 * eight >= end_n) continue;
            PerLane<FragmentD> sum[tiles];
#pragma unroll
            for (int i = 0; i < tiles; ++i) each_lane(block, [&](int lane) { sum[i][lane] = {}; });
            // Small products first.
#pragma unroll
            for (int both = Parts::count - 1; both >= 0; --both)
#pragma unroll
                for (int s = 0; s < wide_steps; ++s)
#pragma unroll
                    for (int a = 0; a < Inputs::parts; ++a) {
                        if (a > both) continue;
                        PerLane<FragmentB> b;
                        each_lane(block, [&](int lane) {
                            b[lane] = *reinterpret_cast<const FragmentB*>(shared + wide_word(both - a, s, eight, lane));
                        });
#pragma unroll
                        for (int i = 0; i < tiles; ++i) {
                            PerLane<FragmentA> fragment;
                            each_lane(block, [&](int lane) { fragment[lane] = loaded[i][lane].of[a][s]; });
                            add_product(sum[i], fragment, b);
                        }
                    }
            each_lane(block, [&](int lane) {
#pragma unroll
                for (int i = 0; i < tiles; ++i)
#pragma unroll
                    for (int c = 0; c < 4; ++c) total[lane].x[i][eight][c] += sum[i][lane].x[c];
            });
        }
    }
    if (!works) return;
    each_lane(block, [&](int lane) {
#pragma unroll
        for (int i = 0; i < tiles; ++i)
#pragma unroll
            for (int eight = 0; eight < eights; ++eight)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int m = first_m + 16 * i + lane / 4 + c / 2 * 8;
                    const int n = first_n + 8 * eight + lane % 4 * 2 + c % 2;
                    if (m < end_m && n < end_n) put(m, n, total[lane].x[i][eight][c]);
                }
    });
}

// Z of the block's rows: z is (n_tiles, nodes, stride), weights (nodes, pitch).
template <class Inputs>
PATRAC_DEVICE void wide_forward(const ThreadBlock& block, const DevicePlan<float>& plan, int part, int first_n,
                                const float* packed, float* z, std::uint32_t* shared) {
    const FlatLayer& layer = plan.layers[0];
    const float* const weights = packed + layer.weights;
    const Inputs inputs{static_cast<decltype(Inputs::base)>(plan.wide.by_row), plan.wide.padded_features};
    wide_product(
        block, inputs, part, (plan.n_rows + 3) / 4 * 4, first_n, layer.n_rows, 0, plan.wide.padded_features, shared,
        [&](int n, int k) { return k < layer.pitch ? load_four(weights + n * layer.pitch + k) : Four<float>{}; },
        [&](int row, int n, float sum) {
            z[(static_cast<std::int64_t>(row / plan.stride) * layer.n_rows + n) * plan.stride + row % plan.stride] =
                sum;
        });
}

// Of split `split` of the rows: sums (nodes, sums_pitch), the biases' after the last feature.
template <class Inputs>
PATRAC_DEVICE void wide_gradient(const ThreadBlock& block, const DevicePlan<float>& plan, int part, int split,
                                 int n_splits, int first_n, const float* delta, float* sums, std::uint32_t* shared) {
    const FlatLayer& layer = plan.layers[0];
    const Inputs inputs{static_cast<decltype(Inputs::base)>(plan.wide.by_feature), plan.wide.padded_rows};
    const int depths = (plan.n_rows + wide_depth - 1) / wide_depth;
    const auto start = [&](int s) { return static_cast<int>(std::int64_t{depths} * s / n_splits) * wide_depth; };
    wide_product(
        block, inputs, part, plan.wide.features + 1, first_n, layer.n_rows, start(split), start(split + 1), shared,
        [&](int n, int row) {
            // Padding rows of the last tile have delta zero.
            if (row >= plan.n_rows) return Four<float>{};
            return load_four(delta + (static_cast<std::int64_t>(row / plan.stride) * layer.n_rows + n) * plan.stride +
                             row % plan.stride);
        },
        [&](int feature, int n, float sum) { sums[n * plan.wide.sums_pitch() + feature] = sum; });
}

}  // namespace patrac::PATRAC_LEVEL
