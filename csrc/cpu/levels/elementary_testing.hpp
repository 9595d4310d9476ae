// Elementary functions by name over arrays, so that tests in Python can reach the code of each level.
#pragma once

#include <cstddef>

#include "shared/elementary.hpp"

namespace patrac::PATRAC_LEVEL {

// Calls use(f), f(x) function `id` (elementary_names.hpp) of a scalar or a vector; "gauss" is the exp(-x^2) that
// erf_with_gaussian gives.
template <class Use>
void with_elementary(int id, const Use& use) {
    switch (id) {
        case 0: return use([](auto x) { return exp(x); });
        case 1: return use([](auto x) { return log(x); });
        case 2: return use([](auto x) { return log1p(x); });
        case 3: return use([](auto x) { return softplus(x); });
        case 4: return use([](auto x) { return tanh(x); });
        case 5: return use([](auto x) { return sigmoid(x); });
        case 6: return use([](auto x) { return erf(x); });
        case 7:
            return use([](auto x) {
                auto gaussian = x;
                erf_with_gaussian(x, gaussian);
                return gaussian;
            });
        case 8: return use([](auto x) { return log_unit(x); });
        case 9: return use([](auto x) { return sincos_turn(x).sine; });
        case 10: return use([](auto x) { return sincos_turn(x).cosine; });
        default: return use([](auto x) { return sqrt(x); });
    }
}

// y[i] = f(x[i]) for i < n; x and y may be the same array. Whole vectors first, then the tail by the scalar code, whose
// bits must equal those of a vector lane.
template <class T>
void apply_elementary(int id, const T* x, T* y, std::size_t n) {
    constexpr std::size_t width = lanes_v<Vec<T>>;
    with_elementary(id, [&](const auto& f) {
        std::size_t i = 0;
        for (; i + width <= n; i += width) store<Vec<T>>(y + i, f(load<Vec<T>>(x + i)));
        for (; i < n; ++i) y[i] = f(x[i]);
    });
}

}  // namespace patrac::PATRAC_LEVEL
