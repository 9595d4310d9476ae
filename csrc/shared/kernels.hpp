// The step of each Crank-Nicolson kernel and the two sums of its acceptance ratio (docs/method.md, section 6).
#pragma once

#include <cstdint>

namespace patrac {

enum class KernelKind : std::uint8_t { pcn, pcnl, mgrad, elliptical_slice, exact };

}  // namespace patrac

// What does not depend on a level reads the names alone.
#if defined(PATRAC_LEVEL)

#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// pCN, pCNL and mGrad are one family. With a shrink 0 < s <= 1 for each coordinate of prior variance C,
//   v = u + s (C g(u) - u) + (C s (2 - s))^(1/2) w, w standard normal (pCN: g = 0),
// whose reverse density gives the log ratio
//   l(v) - l(u) - <v - u, g(u) + g(v)>/2 + sum_i r (g(v) - g(u)) (u + v - C (g(u) + g(v)))/2, r = s/(2 - s).
// The move is added to u: in float32 a factor 1 - s of u would be rounded next to 1, and small steps would not keep C.
//
// pCNL: the paper prints <u - v, g(u)>; that sign breaks detailed balance (tests/test_kernels.py keeps both).

template <class T>
PATRAC_FN T pcn_shrink(T beta) {
    return beta * beta / (T(1) + sqrt(T(1) - beta * beta));
}

template <class T>
PATRAC_FN T pcnl_shrink(T delta) {
    return T(2) * delta / (T(2) + delta);
}

// Titsias & Papaspiliopoulos (2018) with A = (1/C + 2/delta)^-1 = C s.
template <class T>
PATRAC_FN T mgrad_shrink(T delta, T variance) {
    return delta / (delta + T(2) * variance);
}

}  // namespace patrac::PATRAC_LEVEL

#endif
