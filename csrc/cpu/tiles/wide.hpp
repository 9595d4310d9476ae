// Sums in float64 over lanes of float32 or float64.
#pragma once

#include <cstdint>

#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// Half a register of float32, which widens to a whole one of float64.
typedef float HalfFloats __attribute__((vector_size(PATRAC_VECTOR_BYTES / 2)));

// One instruction each, which GCC 12 makes several of for 64 bytes.
PATRAC_FN Vec<double> widened(HalfFloats x) {
#if defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
    return Vec<double>(_mm512_maskz_cvtps_pd(0xff, __m256(x)));
#else
    return __builtin_convertvector(x, Vec<double>);
#endif
}
PATRAC_FN HalfFloats narrowed(Vec<double> x) {
#if defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
    return HalfFloats(_mm512_maskz_cvtpd_ps(0xff, __m512d(x)));
#else
    return __builtin_convertvector(x, HalfFloats);
#endif
}

PATRAC_FN Vec<double> load_wide(const float* source) {
    HalfFloats half;
    __builtin_memcpy(&half, source, sizeof(half));
    return widened(half);
}
PATRAC_FN Vec<double> load_wide(const double* source) {
    return load<Vec<double>>(source);
}

// The inverse, rounding to float32.
PATRAC_FN void store_narrow(float* target, Vec<double> value) {
    const HalfFloats half = narrowed(value);
    __builtin_memcpy(target, &half, sizeof(half));
}
PATRAC_FN void store_narrow(double* target, Vec<double> value) {
    store<Vec<double>>(target, value);
}

// target[i] = source[i], rounded, for any count.
template <class T>
PATRAC_FN void narrow(const double* source, std::int64_t count, T* target) {
    std::int64_t i = 0;
    for (; i + lanes_v<Vec<double>> <= count; i += lanes_v<Vec<double>>)
        store_narrow(target + i, load<Vec<double>>(source + i));
    for (; i < count; ++i) target[i] = static_cast<T>(source[i]);
}

// Part `Part` of the lanes of a vector, in float64: of float32 there are two.
template <class T>
inline constexpr int wide_parts = sizeof(double) / sizeof(T);

template <int Part>
PATRAC_FN Vec<double> widened_part(Vec<float> x) {
    return widened(half_of<Part>(x));
}
template <int Part>
PATRAC_FN Vec<double> widened_part(Vec<double> x) {
    return x;
}

// Adds every lane of values in T into float64 lanes.
template <class T>
class WideSum {
public:
    PATRAC_FN void add(Vec<T> value) {
        if constexpr (std::is_same_v<T, double>) {
            sum_ += value;
        } else {
            sum_ += widened_part<0>(value) + widened_part<1>(value);
        }
    }
    PATRAC_FN double total() const { return reduce_add(sum_); }

private:
    Vec<double> sum_ = {};
};

}  // namespace patrac::PATRAC_LEVEL
