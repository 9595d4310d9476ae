// Standard normals in bulk: one Philox block a lane, coordinates stored in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../shared/normal.hpp"

namespace patrac::PATRAC_LEVEL {

// The counters of word_lanes consecutive blocks.
PATRAC_FN PhiloxBlock<Words> consecutive_blocks(std::uint64_t first, Purpose purpose, std::uint64_t step) {
    Words block = {};
    for (int lane = 0; lane < word_lanes; ++lane) block[lane] = first + static_cast<std::uint64_t>(lane);
    return philox_counter(block, purpose, step);
}

// Coordinates of one group: as many as fill the lanes once. float: two Words of blocks, four normals each.
template <class T>
inline constexpr std::int64_t normal_group = std::is_same_v<T, float> ? 8 * word_lanes : 2 * word_lanes;

// The low halves of two vectors of words, first a's then b's, as 32-bit lanes.
template <int... Lane>
PATRAC_FN int_t<Vec<float>> low_halves(Words a, Words b, std::integer_sequence<int, Lane...>) {
    return __builtin_shufflevector(int_t<Vec<float>>(a), int_t<Vec<float>>(b), (2 * Lane)...);
}

PATRAC_FN void fill_group(PhiloxKey key, std::uint64_t group, Purpose purpose, std::uint64_t step, float* out) {
    using V = Vec<float>;
    constexpr auto lanes = std::make_integer_sequence<int, lanes_v<V>>{};
    const std::uint64_t first = group * 2 * word_lanes;
    const auto a = philox4x32_10(consecutive_blocks(first, purpose, step), key);
    const auto b = philox4x32_10(consecutive_blocks(first + word_lanes, purpose, step), key);
    const NormalPair<V> z01 =
        box_muller(unit_float<V>(low_halves(a.x0, b.x0, lanes)), turn_float<V>(low_halves(a.x1, b.x1, lanes)));
    const NormalPair<V> z23 =
        box_muller(unit_float<V>(low_halves(a.x2, b.x2, lanes)), turn_float<V>(low_halves(a.x3, b.x3, lanes)));
    for (int block = 0; block < lanes_v<V>; ++block) {
        out[4 * block] = z01.first[block];
        out[4 * block + 1] = z01.second[block];
        out[4 * block + 2] = z23.first[block];
        out[4 * block + 3] = z23.second[block];
    }
}

PATRAC_FN void fill_group(PhiloxKey key, std::uint64_t group, Purpose purpose, std::uint64_t step, double* out) {
    using V = Vec<double>;
    const auto words = philox4x32_10(consecutive_blocks(group * word_lanes, purpose, step), key);
    const NormalPair<V> z = box_muller(unit_double<V>(words.x0, words.x1), turn_double<V>(words.x2, words.x3));
    for (int block = 0; block < lanes_v<V>; ++block) {
        out[2 * block] = z.first[block];
        out[2 * block + 1] = z.second[block];
    }
}

// out[0..count): the normals of coordinates 0..count-1 at `step`.
template <class T>
void fill_normals(PhiloxKey key, Purpose purpose, std::uint64_t step, T* out, std::int64_t count) {
    constexpr std::int64_t width = normal_group<T>;
    const std::int64_t whole = count / width;
    for (std::int64_t group = 0; group < whole; ++group)
        fill_group(key, static_cast<std::uint64_t>(group), purpose, step, out + group * width);
    if (const std::int64_t rest = count - whole * width; rest > 0) {
        T last[width];
        fill_group(key, static_cast<std::uint64_t>(whole), purpose, step, last);
        std::copy(last, last + rest, out + whole * width);
    }
}

}  // namespace patrac::PATRAC_LEVEL
