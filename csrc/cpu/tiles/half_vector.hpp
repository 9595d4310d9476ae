// Half-width vectors for row remainders: on processors that execute 64-byte operations in two halves, a tail of at most
// 32 bytes costs half of one (docs/performance.md). At other levels a half vector is a whole one.
#pragma once

#include <cstdint>

#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

#if defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
// Tails in float64 are shorter and do not justify specialised code.
template <class T>
inline constexpr bool has_halves = is_float_v<T>;

template <class T>
struct HalfVectorOf;
#define PATRAC_DEFINE_HALF(SCALAR, INTEGER, BITS)                 \
    template <>                                                   \
    struct HalfVectorOf<SCALAR> {                                 \
        typedef SCALAR type __attribute__((vector_size(32)));     \
        typedef INTEGER integer __attribute__((vector_size(32))); \
        typedef BITS bits __attribute__((vector_size(32)));       \
    };                                                            \
    template <>                                                   \
    struct LaneTraits<HalfVectorOf<SCALAR>::type> {               \
        using scalar = SCALAR;                                    \
        using integer = HalfVectorOf<SCALAR>::integer;            \
        using bits = HalfVectorOf<SCALAR>::bits;                  \
        static constexpr int count = 32 / int(sizeof(SCALAR));    \
    };
PATRAC_DEFINE_HALF(float, std::int32_t, std::uint32_t)
PATRAC_DEFINE_HALF(double, std::int64_t, std::uint64_t)
#undef PATRAC_DEFINE_HALF

template <class T>
using HalfVec = typename HalfVectorOf<T>::type;

PATRAC_FN HalfVec<float> fma(HalfVec<float> a, HalfVec<float> b, HalfVec<float> c) {
    return HalfVec<float>(_mm256_fmadd_ps(a, b, c));
}
PATRAC_FN HalfVec<double> fma(HalfVec<double> a, HalfVec<double> b, HalfVec<double> c) {
    return HalfVec<double>(_mm256_fmadd_pd(a, b, c));
}
#else
template <class T>
inline constexpr bool has_halves = false;

template <class T>
using HalfVec = Vec<T>;
#endif

// Whether the values beyond the last whole vector of `count` fit in half a vector.
template <class T>
bool rest_fits_half(std::int64_t count) {
    const std::int64_t rest = count % lanes_v<Vec<T>>;
    return has_halves<T> && rest > 0 && rest <= lanes_v<HalfVec<T>>;
}

}  // namespace patrac::PATRAC_LEVEL
