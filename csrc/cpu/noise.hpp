// Standard normals in bulk: one Philox block a lane, coordinates stored in order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "packed.hpp"
#include "../shared/normal.hpp"

namespace patrac::PATRAC_LEVEL {

// Normals that one block gives.
template <class T>
inline constexpr std::int64_t normals_per_block = std::is_same_v<T, float> ? 4 : 2;

// Blocks that fill the lanes once: float takes two Words of blocks.
template <class T>
inline constexpr std::int64_t group_blocks = std::is_same_v<T, float> ? 2 * word_lanes : word_lanes;

// The blocks of several steps, enumerated step by step: index q is block q % blocks_per_step of step
// first_step + q / blocks_per_step. Lanes take consecutive indices, so small K leaves none of them idle.
class BlockWalk {
public:
    BlockWalk(std::uint64_t first_step, std::uint64_t blocks_per_step)
        : step_(first_step), blocks_per_step_(blocks_per_step) {}

    // The counters of the next word_lanes blocks.
    PATRAC_FN PhiloxBlock<Words> next(Purpose purpose) {
        Words block, step;
        if (block_ + word_lanes < blocks_per_step_) {  // the common case of many coordinates
            for (int lane = 0; lane < word_lanes; ++lane) block[lane] = static_cast<std::uint64_t>(lane);
            block += block_;
            step = step_ + Words{};
            block_ += word_lanes;
        } else {
            for (int lane = 0; lane < word_lanes; ++lane) {
                block[lane] = block_;
                step[lane] = step_;
                if (++block_ == blocks_per_step_) {
                    block_ = 0;
                    ++step_;
                }
            }
        }
        return philox_counter(block, purpose, step);
    }

private:
    std::uint64_t step_;
    std::uint64_t blocks_per_step_;
    std::uint64_t block_ = 0;
};

// The low halves of two vectors of words, first a's then b's, as 32-bit lanes.
template <int... Lane>
PATRAC_FN int_t<Vec<float>> low_halves(Words a, Words b, std::integer_sequence<int, Lane...>) {
    static_assert(std::endian::native == std::endian::little, "a word's low half comes first");
    return shuffle(int_t<Vec<float>>(a), int_t<Vec<float>>(b), std::integer_sequence<int, (2 * Lane)...>{});
}

// a0 b0 a1 b1 .. of two vectors: the first or the second half of the lanes.
template <bool SecondHalf, class V, int... Lane>
PATRAC_FN V interleave(V a, V b, std::integer_sequence<int, Lane...>) {
    constexpr int n = lanes_v<V>, from = SecondHalf ? n / 2 : 0;
    return shuffle(a, b, std::integer_sequence<int, ((Lane & 1) * n + from + Lane / 2)...>{});
}

// The same with pairs of lanes for elements: a0 a1 b0 b1 a2 a3 b2 b3 ..
template <bool SecondHalf, class V, int... Lane>
PATRAC_FN V interleave_pairs(V a, V b, std::integer_sequence<int, Lane...>) {
    constexpr int n = lanes_v<V>, from = SecondHalf ? n / 2 : 0;
    return shuffle(a, b, std::integer_sequence<int, ((Lane & 2) / 2 * n + from + Lane / 4 * 2 + (Lane & 1))...>{});
}

PATRAC_FN void fill_group(PhiloxKey key, BlockWalk& walk, Purpose purpose, float* out) {
    using V = Vec<float>;
    constexpr auto lanes = std::make_integer_sequence<int, lanes_v<V>>{};
    const auto a = philox4x32_10(walk.next(purpose), key);
    const auto b = philox4x32_10(walk.next(purpose), key);
    const NormalPair<V> z01 =
        box_muller(unit_float<V>(low_halves(a.x0, b.x0, lanes)), turn_float<V>(low_halves(a.x1, b.x1, lanes)));
    const NormalPair<V> z23 =
        box_muller(unit_float<V>(low_halves(a.x2, b.x2, lanes)), turn_float<V>(low_halves(a.x3, b.x3, lanes)));
    // From one vector for each of the four normals to four consecutive values for each block.
    const V low01 = interleave<false>(z01.first, z01.second, lanes);
    const V high01 = interleave<true>(z01.first, z01.second, lanes);
    const V low23 = interleave<false>(z23.first, z23.second, lanes);
    const V high23 = interleave<true>(z23.first, z23.second, lanes);
    store<V>(out, interleave_pairs<false>(low01, low23, lanes));
    store<V>(out + lanes_v<V>, interleave_pairs<true>(low01, low23, lanes));
    store<V>(out + 2 * lanes_v<V>, interleave_pairs<false>(high01, high23, lanes));
    store<V>(out + 3 * lanes_v<V>, interleave_pairs<true>(high01, high23, lanes));
}

PATRAC_FN void fill_group(PhiloxKey key, BlockWalk& walk, Purpose purpose, double* out) {
    using V = Vec<double>;
    const auto words = philox4x32_10(walk.next(purpose), key);
    const NormalPair<V> z = box_muller(unit_double<V>(words.x0, words.x1), turn_double<V>(words.x2, words.x3));
    constexpr auto lanes = std::make_integer_sequence<int, lanes_v<V>>{};
    store<V>(out, interleave<false>(z.first, z.second, lanes));
    store<V>(out + lanes_v<V>, interleave<true>(z.first, z.second, lanes));
}

// Values that `steps` steps of `dim` coordinates take in fill_steps: each step starts a block of its own, and the last
// group is written whole.
template <class T>
constexpr std::int64_t noise_size(std::int64_t steps, std::int64_t dim) {
    constexpr std::int64_t per_block = normals_per_block<T>, blocks = group_blocks<T>;
    const std::int64_t all = steps * ((dim + per_block - 1) / per_block);
    return (all + blocks - 1) / blocks * blocks * per_block;
}

// The normals of coordinates 0..dim-1 at `steps` consecutive steps. Step s starts at out[s * row], row = dim rounded up
// to whole blocks; out holds noise_size values.
template <class T>
void fill_steps(PhiloxKey key, Purpose purpose, std::uint64_t first_step, std::int64_t steps, std::int64_t dim,
                T* out) {
    constexpr std::int64_t per_block = normals_per_block<T>;
    BlockWalk walk(first_step, static_cast<std::uint64_t>((dim + per_block - 1) / per_block));
    const std::int64_t size = noise_size<T>(steps, dim);
    for (std::int64_t i = 0; i < size; i += group_blocks<T> * per_block) fill_group(key, walk, purpose, out + i);
}

// The noise of a chain, drawn for several steps at once: every value is a function of its counter, so the batch changes
// none of them.
template <class T>
class StepNoise {
public:
    StepNoise(PhiloxKey key, std::int64_t dim)
        : key_(key),
          dim_(dim),
          row_((dim + normals_per_block<T> - 1) / normals_per_block<T> * normals_per_block<T>),
          normals_(noise_size<T>(batch(dim), dim)) {}

    // Standard normals (K,) of `step`; steps are asked for in increasing order.
    const T* normals(std::int64_t step) {
        if (step >= end_) refill(step);
        return normals_.data() + (step - first_) * row_;
    }

    // Log of the acceptance uniform of the step that normals() was last called for.
    double log_uniform(std::int64_t step) const { return log_uniforms_[step - first_]; }

private:
    // Enough steps to fill all lanes several times, at most what log_uniforms_ holds.
    static std::int64_t batch(std::int64_t dim) { return std::clamp<std::int64_t>(512 / dim, 1, max_steps); }

    void refill(std::int64_t step) {
        first_ = step;
        end_ = step + batch(dim_);
        fill_steps(key_, Purpose::proposal, static_cast<std::uint64_t>(step), end_ - first_, dim_, normals_.data());
        using V = Vec<double>;
        BlockWalk walk(static_cast<std::uint64_t>(step), 1);
        for (std::int64_t i = 0; i < end_ - first_; i += lanes_v<V>) {
            const auto words = philox4x32_10(walk.next(Purpose::acceptance), key_);
            store<V>(log_uniforms_ + i, log_unit(unit_double<V>(words.x0, words.x1)));
        }
    }

    static constexpr std::int64_t max_steps = 32;
    PhiloxKey key_;
    std::int64_t dim_;
    std::int64_t row_;
    std::int64_t first_ = 0;
    std::int64_t end_ = 0;
    AlignedArray<T> normals_;
    double log_uniforms_[max_steps];
};

}  // namespace patrac::PATRAC_LEVEL
