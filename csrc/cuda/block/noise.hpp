// Standard normals one Philox block at a time, with the bits of cpu/chain/noise.hpp.
#pragma once

#include "cuda/block/thread_block.hpp"
#include "shared/normal.hpp"

namespace patrac::PATRAC_LEVEL {

// Normals of coordinates normals_per_block * index .. of the stream `key` at `step`.
PATRAC_DEVICE void block_normals(PhiloxKey key, std::uint64_t index, Purpose purpose, std::uint64_t step,
                                 float (&normal)[4]) {
    const auto words = philox4x32_10(philox_counter<std::uint64_t>(index, purpose, step), key);
    const auto word = [](std::uint64_t x) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(x)); };
    const NormalPair<float> a = box_muller(unit_float<float>(word(words.x0)), turn_float<float>(word(words.x1)));
    const NormalPair<float> b = box_muller(unit_float<float>(word(words.x2)), turn_float<float>(word(words.x3)));
    normal[0] = a.first;
    normal[1] = a.second;
    normal[2] = b.first;
    normal[3] = b.second;
}
PATRAC_DEVICE void block_normals(PhiloxKey key, std::uint64_t index, Purpose purpose, std::uint64_t step,
                                 double (&normal)[2]) {
    const auto words = philox4x32_10(philox_counter<std::uint64_t>(index, purpose, step), key);
    const NormalPair<double> a =
        box_muller(unit_double<double>(joined(words.x0, words.x1)), turn_double<double>(joined(words.x2, words.x3)));
    normal[0] = a.first;
    normal[1] = a.second;
}

// The uniform in (0, 1] of block `index`.
PATRAC_DEVICE double uniform(PhiloxKey key, std::uint64_t index, Purpose purpose, std::uint64_t step) {
    const auto words = philox4x32_10(philox_counter<std::uint64_t>(index, purpose, step), key);
    return unit_double<double>(joined(words.x0, words.x1));
}

}  // namespace patrac::PATRAC_LEVEL
