// Standard normals and uniforms from Philox words by Box-Muller, with IEEE operations only.
//
// float32: one block gives the normals of coordinates 4b .. 4b+3; float64: 2b, 2b+1. No fused operation is used, so
// every level and every device gives the same bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "shared/elementary.hpp"
#include "shared/lanes.hpp"
#include "shared/philox.hpp"

namespace patrac::PATRAC_LEVEL {

// Normals that one block of Philox gives.
template <class T>
inline constexpr std::int64_t normals_per_block = std::is_same_v<T, float> ? 4 : 2;

template <class V>
struct NormalPair {
    V first, second;
};

// (-2 log u)^(1/2) (cos, sin)(2 pi t), u in (0, 1], t in [0, 1).
template <class V>
PATRAC_FN NormalPair<V> box_muller(V u, V t) {
    using T = scalar_t<V>;
    const V radius = sqrt(log_unit(u) * broadcast<V>(T(-2)));
    const auto angle = sincos_turn(t);
    return {radius * angle.cosine, radius * angle.sine};
}

// Signed integers to floating point, rounded to nearest.
template <class V>
PATRAC_FN V convert(int_t<V> x) {
    if constexpr (lanes_v<V> == 1)
        return static_cast<V>(x);
    else
        return __builtin_convertvector(x, V);
}

// 32-bit words to float32. 31 bits for u keep the tail to 6.66 sigma; a rounding to 1 gives the normal 0.
template <class V>
PATRAC_FN V unit_float(int_t<V> word) {
    return (convert<V>((word >> 1) & 0x7FFFFFFF) + broadcast<V>(0.5f)) * broadcast<V>(0x1p-31f);
}
template <class V>
PATRAC_FN V turn_float(int_t<V> word) {
    return convert<V>((word >> 8) & 0x00FFFFFF) * broadcast<V>(0x1p-24f);
}

// Two 32-bit words in the low halves of 64-bit lanes as one word of 64 bits.
template <class W>
PATRAC_FN W joined(W high, W low) {
    return (high << 32) | (low & 0xFFFFFFFFu);
}

// 64-bit words to float64: the upper 52 bits placed in the mantissa of [1, 2), exact.
template <class V, class W>
PATRAC_FN V turn_double(W word) {
    return bitcast<V>((word >> 12) | 0x3FF0000000000000u) - broadcast<V>(1.0);
}
template <class V, class W>
PATRAC_FN V unit_double(W word) {
    return turn_double<V>(word) + broadcast<V>(0x1p-53);
}

}  // namespace patrac::PATRAC_LEVEL
