// Standard normals in bulk: each lane computes one Philox block, and coordinates are stored in order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "cpu/tiles/aligned_array.hpp"
#include "shared/normal.hpp"

namespace patrac::PATRAC_LEVEL {

// Blocks that fill the lanes once: float takes two Words of blocks.
template <class T>
inline constexpr std::int64_t group_blocks = std::is_same_v<T, float> ? 2 * word_lanes : word_lanes;

// The order in which 64-bit lanes take consecutive blocks: natural, or such that the normals of a group's block i end
// in the i-th 16 bytes after the transposition below, whose instructions work within 16 bytes.
enum class LaneOrder : std::uint8_t { natural, transposed };

// The blocks of several steps, enumerated step by step: index q is block q % blocks_per_step of step
// first_step + q / blocks_per_step. Lanes take consecutive indices, so small K leaves none of them idle.
class BlockWalk {
public:
    BlockWalk(LaneOrder order, std::uint64_t first_step, std::uint64_t blocks_per_step)
        : blocks_per_step_(blocks_per_step),
          block_stride_(word_lanes % blocks_per_step),
          step_stride_(word_lanes / blocks_per_step) {
        constexpr int n = word_lanes / 2;
        std::uint64_t block[word_lanes], step[word_lanes];
        for (int lane = 0; lane < word_lanes; ++lane) {
            const auto index =
                static_cast<std::uint64_t>(order == LaneOrder::natural ? lane : (lane & 1) * n + lane / 2);
            block[lane] = index % blocks_per_step;
            step[lane] = first_step + index / blocks_per_step;
        }
        __builtin_memcpy(&block_, block, sizeof(block));
        __builtin_memcpy(&step_, step, sizeof(step));
    }

    // The counters of the next word_lanes blocks.
    PATRAC_FN PhiloxBlock<Words> next(Purpose purpose) {
        const PhiloxBlock<Words> counter = philox_counter(block_, purpose, step_);
        block_ += block_stride_;
        step_ += step_stride_;
        // Both sides are below 2^63, where the comparison of signed lanes is one instruction.
        const Words beyond = Words(SignedWords(block_) >= SignedWords(blocks_per_step_ + Words{}));
        block_ -= beyond & blocks_per_step_;
        step_ -= beyond;
        return counter;
    }

private:
    typedef std::int64_t SignedWords __attribute__((vector_size(PATRAC_VECTOR_BYTES)));

    Words block_, step_;
    std::uint64_t blocks_per_step_, block_stride_, step_stride_;
};

// Shuffles within each 16 bytes. `Pattern`(lane) gives, for lanes 0..k-1 of the k in 16 bytes, a lane of a (0..k-1) or
// of b (k..2k-1).
template <class V, int... Pattern>
struct WithinSixteenBytes {
    template <int... Lane>
    static PATRAC_FN V of(V a, V b, std::integer_sequence<int, Lane...>) {
        constexpr int k = sizeof...(Pattern), n = PATRAC_VECTOR_BYTES / 16 * k;
        constexpr int pattern[] = {Pattern...};
        return shuffle(
            a, b, std::integer_sequence<int, (Lane / k * k + pattern[Lane % k] % k + pattern[Lane % k] / k * n)...>{});
    }
};
template <int... Pattern, class V>
PATRAC_FN V shuffle16(V a, V b) {
    return WithinSixteenBytes<V, Pattern...>::of(
        a, b, std::make_integer_sequence<int, PATRAC_VECTOR_BYTES / 16 * sizeof...(Pattern)>{});
}

// The low halves of two vectors of words.
PATRAC_FN Vec<float> low_halves(Words a, Words b) {
    static_assert(std::endian::native == std::endian::little, "a word's low half comes first");
    return shuffle16<0, 2, 4, 6>(bitcast<Vec<float>>(a), bitcast<Vec<float>>(b));
}

// A group is filled in two passes, first with uniform bits, which the second pass turns into normals in place. Each
// pass is a loop of short independent iterations, several of which the processor overlaps.

// float: words 0..3 of the group's blocks, a vector each.
PATRAC_FN void fill_bits(const PhiloxRoundKeys& keys, BlockWalk& walk, Purpose purpose, float* out) {
    using V = Vec<float>;
    PhiloxBlock<Words> a = walk.next(purpose), b = walk.next(purpose);
    for (int round = 0; round < philox_rounds; ++round) {  // side by side: each alone is one long chain
        a = philox_round(a, keys.k0[round], keys.k1[round]);
        b = philox_round(b, keys.k0[round], keys.k1[round]);
    }
    store<V>(out, low_halves(a.x0, b.x0));
    store<V>(out + lanes_v<V>, low_halves(a.x1, b.x1));
    store<V>(out + 2 * lanes_v<V>, low_halves(a.x2, b.x2));
    store<V>(out + 3 * lanes_v<V>, low_halves(a.x3, b.x3));
}

PATRAC_FN void bits_to_normals(float* out) {
    using V = Vec<float>;
    const auto word = [out](int i) { return bitcast<int_t<V>>(load<V>(out + i * lanes_v<V>)); };
    const NormalPair<V> z01 = box_muller(unit_float<V>(word(0)), turn_float<V>(word(1)));
    const NormalPair<V> z23 = box_muller(unit_float<V>(word(2)), turn_float<V>(word(3)));
    // From one vector for each of the four normals to four consecutive values for each block.
    const V low01 = shuffle16<0, 4, 1, 5>(z01.first, z01.second);
    const V high01 = shuffle16<2, 6, 3, 7>(z01.first, z01.second);
    const V low23 = shuffle16<0, 4, 1, 5>(z23.first, z23.second);
    const V high23 = shuffle16<2, 6, 3, 7>(z23.first, z23.second);
    store<V>(out, shuffle16<0, 1, 4, 5>(low01, low23));
    store<V>(out + lanes_v<V>, shuffle16<2, 3, 6, 7>(low01, low23));
    store<V>(out + 2 * lanes_v<V>, shuffle16<0, 1, 4, 5>(high01, high23));
    store<V>(out + 3 * lanes_v<V>, shuffle16<2, 3, 6, 7>(high01, high23));
}

// double: the words of each block joined in pairs, two vectors.
PATRAC_FN void fill_bits(const PhiloxRoundKeys& keys, BlockWalk& walk, Purpose purpose, double* out) {
    using V = Vec<double>;
    const auto words = philox4x32_10(walk.next(purpose), keys);
    store<V>(out, bitcast<V>(joined(words.x0, words.x1)));
    store<V>(out + lanes_v<V>, bitcast<V>(joined(words.x2, words.x3)));
}

PATRAC_FN void bits_to_normals(double* out) {
    using V = Vec<double>;
    const NormalPair<V> z = box_muller(unit_double<V>(bitcast<Words>(load<V>(out))),
                                       turn_double<V>(bitcast<Words>(load<V>(out + lanes_v<V>))));
    store<V>(out, shuffle16<0, 2>(z.first, z.second));
    store<V>(out + lanes_v<V>, shuffle16<1, 3>(z.first, z.second));
}

// Number of values that fill_steps writes for `steps` steps of `dim` coordinates: each step starts a new block, and the
// last group is written whole.
template <class T>
constexpr std::int64_t noise_size(std::int64_t steps, std::int64_t dim) {
    constexpr std::int64_t per_block = normals_per_block<T>, blocks = group_blocks<T>;
    const std::int64_t all = steps * ((dim + per_block - 1) / per_block);
    return (all + blocks - 1) / blocks * blocks * per_block;
}

// The normals of coordinates 0..dim-1 at `steps` consecutive steps. Step s starts at out[s * row], row = dim rounded up
// to whole blocks; out holds noise_size values.
template <class T>
void fill_steps(const PhiloxRoundKeys& keys, Purpose purpose, std::uint64_t first_step, std::int64_t steps,
                std::int64_t dim, T* out) {
    constexpr std::int64_t per_block = normals_per_block<T>;
    BlockWalk walk(LaneOrder::transposed, first_step,
                   static_cast<std::uint64_t>(std::max<std::int64_t>(1, (dim + per_block - 1) / per_block)));
    const std::int64_t size = noise_size<T>(steps, dim);
    constexpr std::int64_t group = group_blocks<T> * per_block, chunk = 32 * group;  // both passes in L1
    for (std::int64_t first = 0; first < size; first += chunk) {
        const std::int64_t end = std::min(size, first + chunk);
        for (std::int64_t i = first; i < end; i += group) fill_bits(keys, walk, purpose, out + i);
        for (std::int64_t i = first; i < end; i += group) bits_to_normals(out + i);
    }
}

struct UniformValue {  // in (0, 1]
    static PATRAC_FN Vec<double> of(const PhiloxBlock<Words>& words) {
        return unit_double<Vec<double>>(joined(words.x0, words.x1));
    }
};
struct NormalValue {
    static PATRAC_FN Vec<double> of(const PhiloxBlock<Words>& words) {
        return box_muller(unit_double<Vec<double>>(joined(words.x0, words.x1)),
                          turn_double<Vec<double>>(joined(words.x2, words.x3)))
            .first;
    }
};

// Values of one step, drawn one after the other, one from each block.
template <class Value>
class ValueStream {
public:
    ValueStream(const PhiloxRoundKeys& keys, Purpose purpose, std::uint64_t step)
        : keys_(keys), purpose_(purpose), walk_(LaneOrder::natural, step, max_blocks) {}

    double next() {
        if (used_ == lanes) {
            store<Vec<double>>(values_, Value::of(philox4x32_10(walk_.next(purpose_), keys_)));
            used_ = 0;
        }
        return values_[used_++];
    }

private:
    static constexpr int lanes = lanes_v<Vec<double>>;
    static constexpr std::uint64_t max_blocks = std::uint64_t{1} << 40;
    const PhiloxRoundKeys& keys_;  // outlives the stream
    Purpose purpose_;
    BlockWalk walk_;
    int used_ = lanes;
    double values_[lanes];
};
using UniformStream = ValueStream<UniformValue>;
using NormalStream = ValueStream<NormalValue>;

// The noise of a chain, drawn for several steps at once: every value is a function of its counter, so the batch changes
// none of them.
template <class T>
class StepNoise {
public:
    StepNoise(PhiloxKey key, std::int64_t dim)
        : keys_(key),
          dim_(dim),
          row_((dim + normals_per_block<T> - 1) / normals_per_block<T> * normals_per_block<T>),
          normals_(noise_size<T>(batch(dim), dim) + lanes_v<Vec<T>>) {}

    // Standard normals (K,) of `step`, readable to the end of the last whole vector. Steps must increase from call to
    // call.
    const T* normals(std::int64_t step) {
        if (step >= end_) refill(step);
        return normals_.data() + (step - first_) * row_;
    }

    // Log of the acceptance uniform of the step that normals() was last called for.
    double log_uniform(std::int64_t step) const { return log_uniforms_[step - first_]; }

    const PhiloxRoundKeys& keys() const { return keys_; }

private:
    // Enough steps to fill all lanes several times, at most what log_uniforms_ holds, and then as many as the last
    // group of blocks has room for.
    static std::int64_t batch(std::int64_t dim) {
        constexpr std::int64_t per_block = normals_per_block<T>;
        const std::int64_t steps = std::clamp<std::int64_t>(512 / dim, 1, max_steps);
        return std::min(noise_size<T>(steps, dim) / ((dim + per_block - 1) / per_block * per_block), max_steps);
    }

    [[gnu::noinline]] void refill(std::int64_t step) {
        first_ = step;
        end_ = step + batch(dim_);
        fill_steps(keys_, Purpose::proposal, static_cast<std::uint64_t>(step), end_ - first_, dim_, normals_.data());
        using V = Vec<double>;
        BlockWalk walk(LaneOrder::natural, static_cast<std::uint64_t>(step), 1);
        for (std::int64_t i = 0; i < end_ - first_; i += lanes_v<V>) {
            const auto words = philox4x32_10(walk.next(Purpose::acceptance), keys_);
            store<V>(log_uniforms_ + i, log_unit(unit_double<V>(joined(words.x0, words.x1))));
        }
    }

    static constexpr std::int64_t max_steps = 32;
    PhiloxRoundKeys keys_;
    std::int64_t dim_;
    std::int64_t row_;
    std::int64_t first_ = 0;
    std::int64_t end_ = 0;
    AlignedArray<T> normals_;
    double log_uniforms_[max_steps];
};

}  // namespace patrac::PATRAC_LEVEL
