// Sums over lanes of as many vectors as there are lanes, gathered in one vector.
#pragma once

#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

#if !defined(__CUDA_ARCH__)
// In each `Scope` lanes, the chunks of `Grain` lanes of a and then those of b, neighbours added.
template <int Scope, int Grain, class V, int... Lane>
PATRAC_FN V add_neighbours(V a, V b, std::integer_sequence<int, Lane...>) {
    constexpr int n = sizeof...(Lane), half = Scope / 2;
    constexpr auto even = [](int lane) {
        const int within = lane % half, start = lane / Scope * Scope + (lane % Scope < half ? 0 : n);
        return start + within / Grain * 2 * Grain + within % Grain;
    };
    return shuffle(a, b, std::integer_sequence<int, even(Lane)...>{}) +
           shuffle(a, b, std::integer_sequence<int, (even(Lane) + Grain)...>{});
}

// Vectors x[0] .. x[N - 1]: lane i of each group of N lanes holds what the group's lanes contribute to the sum of x[i],
// once N exceeds the lanes in 16 bytes spread over the vector: whole instructions work within 16 bytes or on 16 bytes.
template <int N, class V>
PATRAC_FN V lane_sums_of(const V* x) {
    constexpr int n = lanes_v<V>, sixteen_bytes = 16 / int(sizeof(scalar_t<V>));
    if constexpr (N == 1) {
        return *x;
    } else {
        constexpr bool within = N <= sixteen_bytes;
        return add_neighbours<within ? sixteen_bytes : n, within ? 1 : sixteen_bytes>(
            lane_sums_of<N / 2>(x), lane_sums_of<N / 2>(x + N / 2), std::make_integer_sequence<int, n>{});
    }
}

// Lane i is the sum over lanes of x[i], as many of them as there are lanes.
template <class V>
PATRAC_FN V lane_sums(const V* x) {
    return lane_sums_of<lanes_v<V>>(x);
}
#endif

}  // namespace patrac::PATRAC_LEVEL
