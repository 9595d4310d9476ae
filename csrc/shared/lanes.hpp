// Lanes: one spelling of arithmetic for a scalar and for a vector of scalars, at the instruction-set level being compiled.
//
// The including file defines two macros first:
//   PATRAC_LEVEL         the namespace of this level (x86_64_v2, x86_64_v3, ...); every template below lives in it, so that
//                        the linker can never hand the copy compiled for a wider level to a narrower one.
//   PATRAC_VECTOR_BYTES  16, 32 or 64: bytes in one vector register of the level.
// Functions take a type V, which is float, double, Vec<float> or Vec<double>; CUDA device code uses the scalars alone.
// Comparisons of vectors give a vector of integers (0 or -1 a lane), those of scalars a bool; `select` takes either.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if (defined(__SSE2__) || defined(__AVX__)) && !defined(__CUDA_ARCH__)
#include <immintrin.h>
#endif

#if !defined(PATRAC_LEVEL) || !defined(PATRAC_VECTOR_BYTES)
#error "define PATRAC_LEVEL and PATRAC_VECTOR_BYTES before including lanes.hpp"
#endif

#if defined(__CUDACC__)
#define PATRAC_FN __host__ __device__ __forceinline__
#else
#define PATRAC_FN inline __attribute__((always_inline))
#endif

namespace patrac::PATRAC_LEVEL {

// What a V is made of: `scalar` its element, `integer` and `bits` the signed and unsigned integer (or vector of them) of the
// same width, `count` its number of lanes.
template <class V>
struct LaneTraits;
template <>
struct LaneTraits<float> {
    using scalar = float;
    using integer = std::int32_t;
    using bits = std::uint32_t;
    static constexpr int count = 1;
};
template <>
struct LaneTraits<double> {
    using scalar = double;
    using integer = std::int64_t;
    using bits = std::uint64_t;
    static constexpr int count = 1;
};

#if !defined(__CUDACC__)
template <class T>
struct VectorOf;

#define PATRAC_DEFINE_VECTOR(SCALAR, INTEGER, BITS)                              \
    template <>                                                                 \
    struct VectorOf<SCALAR> {                                                   \
        typedef SCALAR type __attribute__((vector_size(PATRAC_VECTOR_BYTES)));  \
        typedef INTEGER integer __attribute__((vector_size(PATRAC_VECTOR_BYTES))); \
        typedef BITS bits __attribute__((vector_size(PATRAC_VECTOR_BYTES)));    \
    };                                                                          \
    template <>                                                                 \
    struct LaneTraits<VectorOf<SCALAR>::type> {                                 \
        using scalar = SCALAR;                                                  \
        using integer = VectorOf<SCALAR>::integer;                              \
        using bits = VectorOf<SCALAR>::bits;                                    \
        static constexpr int count = PATRAC_VECTOR_BYTES / int(sizeof(SCALAR)); \
    };
PATRAC_DEFINE_VECTOR(float, std::int32_t, std::uint32_t)
PATRAC_DEFINE_VECTOR(double, std::int64_t, std::uint64_t)
#undef PATRAC_DEFINE_VECTOR

// The vector of T in one register of this level.
template <class T>
using Vec = typename VectorOf<T>::type;
#endif

template <class V>
using scalar_t = typename LaneTraits<V>::scalar;
template <class V>
using int_t = typename LaneTraits<V>::integer;
template <class V>
using bits_t = typename LaneTraits<V>::bits;
template <class V>
inline constexpr int lanes_v = LaneTraits<V>::count;
template <class V>
inline constexpr bool is_float_v = std::is_same_v<scalar_t<V>, float>;

// True where fma() below is one fused instruction. Only functions that may differ between levels by rounding use it.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
inline constexpr bool has_fma = true;
#else
inline constexpr bool has_fma = false;
#endif

// The same bits read as another type of the same size.
template <class To, class From>
PATRAC_FN To bitcast(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    std::memcpy(&result, &value, sizeof(To));
    return result;
}

// One scalar in every lane. The subtraction of +0 keeps every value, -0 and NaN included.
template <class V>
PATRAC_FN V broadcast(scalar_t<V> value) {
    if constexpr (lanes_v<V> == 1)
        return value;
    else
        return value - V{};
}

// The same bit pattern in every lane.
template <class V>
PATRAC_FN bits_t<V> broadcast_bits(std::uint64_t value) {
    using word = std::conditional_t<is_float_v<V>, std::uint32_t, std::uint64_t>;
    if constexpr (lanes_v<V> == 1)
        return word(value);
    else
        return word(value) - bits_t<V>{};
}

// The bit pattern of x, and the value that has a given pattern.
template <class V>
PATRAC_FN bits_t<V> to_bits(V x) {
    return bitcast<bits_t<V>>(x);
}
template <class V>
PATRAC_FN V from_bits(bits_t<V> pattern) {
    return bitcast<V>(pattern);
}

// V from `source`, which needs no alignment beyond that of its scalar; `store` is its inverse.
template <class V>
PATRAC_FN V load(const scalar_t<V>* source) {
    V result;
    std::memcpy(&result, source, sizeof(V));
    return result;
}
template <class V>
PATRAC_FN void store(scalar_t<V>* target, V value) {
    std::memcpy(target, &value, sizeof(V));
}

// The same for a pointer that is a multiple of sizeof(V) bytes.
template <class V>
PATRAC_FN V load_aligned(const scalar_t<V>* source) {
    return load<V>(static_cast<const scalar_t<V>*>(__builtin_assume_aligned(source, sizeof(V))));
}
template <class V>
PATRAC_FN void store_aligned(scalar_t<V>* target, V value) {
    store<V>(static_cast<scalar_t<V>*>(__builtin_assume_aligned(target, sizeof(V))), value);
}

// a where the mask holds, else b; both are evaluated.
template <class Mask, class V>
PATRAC_FN V select(Mask mask, V a, V b) {
    return mask ? a : b;
}

// Where either operand is NaN these give b: write minimum(bound, x) to let a NaN in x through, minimum(x, bound) to stop it.
template <class V>
PATRAC_FN V minimum(V a, V b) {
    return select(a < b, a, b);
}
template <class V>
PATRAC_FN V maximum(V a, V b) {
    return select(a > b, a, b);
}

// The number of bits in the fraction field of a lane, and in the whole lane.
template <class V>
inline constexpr int fraction_bits = is_float_v<V> ? 23 : 52;
template <class V>
inline constexpr int width_bits = is_float_v<V> ? 32 : 64;

// The sign bit of x alone.
template <class V>
PATRAC_FN bits_t<V> sign_bit(V x) {
    return to_bits(x) & broadcast_bits<V>(std::uint64_t{1} << (width_bits<V> - 1));
}

template <class V>
PATRAC_FN V abs(V x) {
    return from_bits<V>(to_bits(x) & broadcast_bits<V>((std::uint64_t{1} << (width_bits<V> - 1)) - 1));
}

// `magnitude`, which must not be negative, with the sign of `sign`.
template <class V>
PATRAC_FN V with_sign_of(V magnitude, V sign) {
    return from_bits<V>(to_bits(magnitude) | sign_bit(sign));
}

// Adding 1.5 * 2^(precision - 1) leaves no bit for a fraction, so the sum is rounded to an integer, ties to even, and its
// low bits hold that integer in two's complement. Valid for |x| < 2^(precision - 3), with no value-changing optimisation.
template <class V>
inline constexpr scalar_t<V> round_shift = is_float_v<V> ? scalar_t<V>(0x1.8p23) : scalar_t<V>(0x1.8p52);

// Nearest integer, ties to even, and the largest integer not above x; |x| < 2^21 (float), 2^50 (double). floor(-0) is +0.
template <class V>
PATRAC_FN V round_even(V x) {
    const V shift = broadcast<V>(round_shift<V>);
    return (x + shift) - shift;
}
template <class V>
PATRAC_FN V floor(V x) {
    const V nearest = round_even(x);
    return nearest - select(nearest > x, broadcast<V>(1), broadcast<V>(0));
}

#if defined(__CUDA_ARCH__)
PATRAC_FN float scalar_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
PATRAC_FN double scalar_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
PATRAC_FN float scalar_sqrt(float x) { return __fsqrt_rn(x); }
PATRAC_FN double scalar_sqrt(double x) { return __dsqrt_rn(x); }
#else
PATRAC_FN float scalar_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PATRAC_FN double scalar_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
PATRAC_FN float scalar_sqrt(float x) { return __builtin_sqrtf(x); }
PATRAC_FN double scalar_sqrt(double x) { return __builtin_sqrt(x); }
#endif

// a * b + c: one rounding where has_fma, two elsewhere, so levels may differ in the last place. Noise never calls it.
template <class V>
PATRAC_FN V fma(V a, V b, V c) {
    if constexpr (!has_fma) {
        return a * b + c;
    } else if constexpr (lanes_v<V> == 1) {
        return scalar_fma(a, b, c);
    } else {
#if defined(__FMA__) && PATRAC_VECTOR_BYTES == 16
        if constexpr (is_float_v<V>)
            return V(_mm_fmadd_ps(__m128(a), __m128(b), __m128(c)));
        else
            return V(_mm_fmadd_pd(__m128d(a), __m128d(b), __m128d(c)));
#elif defined(__FMA__) && PATRAC_VECTOR_BYTES == 32
        if constexpr (is_float_v<V>)
            return V(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
        else
            return V(_mm256_fmadd_pd(__m256d(a), __m256d(b), __m256d(c)));
#elif defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
        if constexpr (is_float_v<V>)
            return V(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
        else
            return V(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
#else
        V result = c;
        for (int lane = 0; lane < lanes_v<V>; ++lane) result[lane] = fma<scalar_t<V>>(a[lane], b[lane], c[lane]);
        return result;
#endif
    }
}

// Correctly rounded square root, so the same on every level; NaN below zero, -0 kept.
template <class V>
PATRAC_FN V sqrt(V x) {
    if constexpr (lanes_v<V> == 1) {
        return scalar_sqrt(x);
    } else {
#if defined(__SSE2__) && PATRAC_VECTOR_BYTES == 16
        if constexpr (is_float_v<V>)
            return V(_mm_sqrt_ps(__m128(x)));
        else
            return V(_mm_sqrt_pd(__m128d(x)));
#elif defined(__AVX__) && PATRAC_VECTOR_BYTES == 32
        if constexpr (is_float_v<V>)
            return V(_mm256_sqrt_ps(__m256(x)));
        else
            return V(_mm256_sqrt_pd(__m256d(x)));
#elif defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
        if constexpr (is_float_v<V>)
            return V(_mm512_sqrt_ps(__m512(x)));
        else
            return V(_mm512_sqrt_pd(__m512d(x)));
#else
        V result = x;
        for (int lane = 0; lane < lanes_v<V>; ++lane) result[lane] = sqrt<scalar_t<V>>(x[lane]);
        return result;
#endif
    }
}

// a * b rounded by itself: nvcc contracts a plain product that meets a sum unless told not to, and noise must not depend
// on a compiler's flag.
template <class V>
PATRAC_FN V product(V a, V b) {
#if defined(__CUDA_ARCH__)
    if constexpr (is_float_v<V>)
        return __fmul_rn(a, b);
    else
        return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

// How a * b + c is rounded: `fused` is fma() above, `twice` is the same bits on every level and device.
enum class Rounding { fused, twice };

template <Rounding R, class V>
PATRAC_FN V mul_add(V a, V b, V c) {
    if constexpr (R == Rounding::fused)
        return fma(a, b, c);
    else
        return product(a, b) + c;
}

// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
template <Rounding R, class V>
PATRAC_FN V polynomial(V, scalar_t<V> c0) {
    return broadcast<V>(c0);
}
template <Rounding R, class V, class... Rest>
PATRAC_FN V polynomial(V x, scalar_t<V> c0, Rest... rest) {
    return mul_add<R>(polynomial<R>(x, scalar_t<V>(rest)...), x, broadcast<V>(c0));
}

// Sum over lanes in a fixed order (halves added pairwise), the same for a given lane count on every processor.
template <class V>
PATRAC_FN scalar_t<V> reduce_add(V x) {
    if constexpr (lanes_v<V> == 1) {
        return x;
    } else {
        scalar_t<V> lane[lanes_v<V>];
        store<V>(lane, x);
        for (int width = lanes_v<V> / 2; width > 0; width /= 2)
            for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
        return lane[0];
    }
}

}  // namespace patrac::PATRAC_LEVEL
