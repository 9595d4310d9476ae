// Elementary functions by name over arrays, so that tests in Python can reach the code of each level.
#pragma once

#include <cstddef>

#include "cpu/levels/elementary_names.hpp"
#include "shared/elementary.hpp"

namespace patrac::PATRAC_LEVEL {

// Calls use(f), f(x) the function of a scalar or a vector; "gauss" is the exp(-x^2) that
// erf_with_gaussian gives.
template <class Use>
void with_elementary(Elementary function, const Use& use) {
    switch (function) {
        case Elementary::exp: return use([](auto x) { return exp(x); });
        case Elementary::log: return use([](auto x) { return log(x); });
        case Elementary::log1p: return use([](auto x) { return log1p(x); });
        case Elementary::softplus: return use([](auto x) { return softplus(x); });
        case Elementary::tanh: return use([](auto x) { return tanh(x); });
        case Elementary::sigmoid: return use([](auto x) { return sigmoid(x); });
        case Elementary::erf: return use([](auto x) { return erf(x); });
        case Elementary::gauss:
            return use([](auto x) {
                auto gaussian = x;
                erf_with_gaussian(x, gaussian);
                return gaussian;
            });
        case Elementary::log_unit: return use([](auto x) { return log_unit(x); });
        case Elementary::sin_turn: return use([](auto x) { return sincos_turn(x).sine; });
        case Elementary::cos_turn: return use([](auto x) { return sincos_turn(x).cosine; });
        case Elementary::sqrt: return use([](auto x) { return sqrt(x); });
    }
    __builtin_unreachable();
}

// y[i] = f(x[i]) for i < n; x and y may be the same array. Whole vectors first, then the tail by the scalar code, whose
// bits must equal those of a vector lane.
template <class T>
void apply_elementary(Elementary function, const T* x, T* y, std::size_t n) {
    constexpr std::size_t width = lanes_v<Vec<T>>;
    with_elementary(function, [&](const auto& f) {
        std::size_t i = 0;
        for (; i + width <= n; i += width) store<Vec<T>>(y + i, f(load<Vec<T>>(x + i)));
        for (; i < n; ++i) y[i] = f(x[i]);
    });
}

}  // namespace patrac::PATRAC_LEVEL
