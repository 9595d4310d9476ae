// Elementary functions by name over arrays, so that tests in Python can reach the code of each level.
#pragma once

#include <cstddef>

#include "../shared/elementary.hpp"

namespace patrac::PATRAC_LEVEL {

// Function `id` at x; "gauss" is the exp(-x^2) that erf_with_gaussian gives.
template <class V>
PATRAC_FN V elementary_at(int id, V x) {
    V gaussian;
    switch (id) {
        case 0: return exp(x);
        case 1: return log(x);
        case 2: return log1p(x);
        case 3: return softplus(x);
        case 4: return tanh(x);
        case 5: return sigmoid(x);
        case 6: return erf(x);
        case 7: erf_with_gaussian(x, gaussian); return gaussian;
        case 8: return log_unit(x);
        case 9: return sincos_turn(x).sine;
        case 10: return sincos_turn(x).cosine;
        default: return sqrt(x);
    }
}

// y[i] = f(x[i]) for i < n; x and y may be the same array. Whole vectors first, then the tail by the scalar code, whose
// bits must equal those of a vector lane.
template <class T>
void apply_elementary(int id, const T* x, T* y, std::size_t n) {
    constexpr std::size_t width = lanes_v<Vec<T>>;
    std::size_t i = 0;
    for (; i + width <= n; i += width) store<Vec<T>>(y + i, elementary_at<Vec<T>>(id, load<Vec<T>>(x + i)));
    for (; i < n; ++i) y[i] = elementary_at<T>(id, x[i]);
}

}  // namespace patrac::PATRAC_LEVEL
