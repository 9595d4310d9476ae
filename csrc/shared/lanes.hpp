// Lanes: one spelling of arithmetic for scalars and vectors (see lane_types.hpp), at the level being compiled.
#pragma once

#include <utility>

#include "shared/lane_types.hpp"

// PATRAC_X86(op, arguments): the intrinsic `op` on whole registers of this level. It takes the element type from the V
// in scope and must be the last statement of a function. Where it is not defined plain C++ gives the same values.
#if !defined(__CUDACC__) && defined(__SSE2__)
#include <immintrin.h>
#define PATRAC_X86_PREFIX(prefix, op, ...)         \
    if constexpr (is_float_v<V>)                   \
        return V(prefix##_##op##_ps(__VA_ARGS__)); \
    else                                           \
        return V(prefix##_##op##_pd(__VA_ARGS__))
#if PATRAC_VECTOR_BYTES == 16
#define PATRAC_X86(...) PATRAC_X86_PREFIX(_mm, __VA_ARGS__)
#elif PATRAC_VECTOR_BYTES == 32 && defined(__AVX__)
#define PATRAC_X86(...) PATRAC_X86_PREFIX(_mm256, __VA_ARGS__)
#elif PATRAC_VECTOR_BYTES == 64 && defined(__AVX512F__)
// The plain 512-bit intrinsics draw a false -Wmaybe-uninitialized from GCC 12; a full mask gives the same instruction.
#define PATRAC_X86(op, ...) PATRAC_X86_PREFIX(_mm512_maskz, op, is_float_v<V> ? 0xffff : 0xff, __VA_ARGS__)
#endif
#elif !defined(__CUDACC__) && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace patrac::PATRAC_LEVEL {

// True where fma() below is one fused instruction. Only functions that may differ between levels by rounding use it.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
inline constexpr bool has_fma = true;
#else
inline constexpr bool has_fma = false;
#endif

// a where the mask holds, else b; both are evaluated.
template <class Mask, class V>
PATRAC_FN V select(Mask mask, V a, V b) {
    return mask ? a : b;
}

// Where either operand is NaN these return b: minimum(bound, x) propagates a NaN in x, minimum(x, bound) replaces it.
template <class V>
PATRAC_FN V minimum(V a, V b) {
#if defined(PATRAC_X86)
    if constexpr (lanes_v<V> == 1)
        return a < b ? a : b;
    else
        PATRAC_X86(min, a, b);
#else
    return select(a < b, a, b);
#endif
}
template <class V>
PATRAC_FN V maximum(V a, V b) {
#if defined(PATRAC_X86)
    if constexpr (lanes_v<V> == 1)
        return a > b ? a : b;
    else
        PATRAC_X86(max, a, b);
#else
    return select(a > b, a, b);
#endif
}

#if !defined(__CUDACC__)
// Lanes of a and b by index, b's counting on from a's. GCC before 12 has the operation under another name.
template <int... Index, class V>
PATRAC_FN V shuffle(V a, V b, std::integer_sequence<int, Index...>) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, Index...);
#else
    return __builtin_shuffle(a, b, decltype(a < b){Index...});
#endif
}
#endif

// Adding 1.5 * 2^(precision - 1) leaves no bit for a fraction, so the sum is rounded to an integer, ties to even, and
// its low bits hold that integer in two's complement. Valid for |x| < 2^(precision - 3), with no value-changing
// optimisation.
template <class V>
inline constexpr scalar_t<V> round_shift = is_float_v<V> ? scalar_t<V>(0x1.8p23) : scalar_t<V>(0x1.8p52);

#if defined(__CUDA_ARCH__)
PATRAC_FN float scalar_fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
PATRAC_FN double scalar_fma(double a, double b, double c) {
    return __fma_rn(a, b, c);
}
PATRAC_FN float scalar_sqrt(float x) {
    return __fsqrt_rn(x);
}
PATRAC_FN double scalar_sqrt(double x) {
    return __dsqrt_rn(x);
}
#else
PATRAC_FN float scalar_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
PATRAC_FN double scalar_fma(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
#if defined(PATRAC_X86)  // the builtin would also call libm, to set errno, unless -fno-math-errno is given
PATRAC_FN float scalar_sqrt(float x) {
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}
PATRAC_FN double scalar_sqrt(double x) {
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
}
#else
PATRAC_FN float scalar_sqrt(float x) {
    return __builtin_sqrtf(x);
}
PATRAC_FN double scalar_sqrt(double x) {
    return __builtin_sqrt(x);
}
#endif
#endif

// a * b + c: one rounding where has_fma, two elsewhere, so levels may differ in the last place. Noise never calls it.
template <class V>
PATRAC_FN V fma(V a, V b, V c) {
    if constexpr (!has_fma) {
        return a * b + c;
    } else if constexpr (lanes_v<V> == 1) {
        return scalar_fma(a, b, c);
    } else {
#if defined(PATRAC_X86) && defined(__FMA__)
        PATRAC_X86(fmadd, a, b, c);
#elif defined(__aarch64__) && PATRAC_VECTOR_BYTES == 16
        if constexpr (is_float_v<V>)
            return V(vfmaq_f32(c, a, b));
        else
            return V(vfmaq_f64(c, a, b));
#else
        V result = c;
        for (int lane = 0; lane < lanes_v<V>; ++lane) result[lane] = scalar_fma(a[lane], b[lane], c[lane]);
        return result;
#endif
    }
}

// c - a * b, with one rounding where fma() has one.
template <class V>
PATRAC_FN V fnma(V a, V b, V c) {
    if constexpr (!has_fma) {
        return c - a * b;
    } else if constexpr (lanes_v<V> == 1) {
        return scalar_fma(-a, b, c);
    } else {
#if defined(PATRAC_X86) && defined(__FMA__)
        PATRAC_X86(fnmadd, a, b, c);
#elif defined(__aarch64__) && PATRAC_VECTOR_BYTES == 16
        if constexpr (is_float_v<V>)
            return V(vfmsq_f32(c, a, b));
        else
            return V(vfmsq_f64(c, a, b));
#else
        return fma(-a, b, c);
#endif
    }
}

// Correctly rounded square root, so the same on every level; NaN below zero, -0 kept.
template <class V>
PATRAC_FN V sqrt(V x) {
    if constexpr (lanes_v<V> == 1) {
        return scalar_sqrt(x);
    } else {
#if defined(PATRAC_X86)
        PATRAC_X86(sqrt, x);
#elif defined(__aarch64__) && PATRAC_VECTOR_BYTES == 16
        if constexpr (is_float_v<V>)
            return V(vsqrtq_f32(x));
        else
            return V(vsqrtq_f64(x));
#else
        V result = x;
        for (int lane = 0; lane < lanes_v<V>; ++lane) result[lane] = scalar_sqrt(x[lane]);
        return result;
#endif
    }
}

// a * b rounded by itself: nvcc contracts a plain product that meets a sum unless told not to, and noise must not
// depend on a compiler's flag.
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

// c0 + c1 x + c2 x^2 + ..., by Estrin's scheme: neighbours are paired, then pairs with x^2, then fours with x^4. The
// chain of dependent operations is a third as long as Horner's, which is what limits a loop over rows.
template <Rounding R, class V, class... Coefficients>
PATRAC_FN V polynomial(V x, Coefficients... coefficients) {
    constexpr int n = sizeof...(Coefficients);
    V term[n] = {broadcast<V>(scalar_t<V>(coefficients))...};
    V power = x;
    for (int left = n; left > 1; left = (left + 1) / 2) {
        for (int i = 0; i < left / 2; ++i) term[i] = mul_add<R>(term[2 * i + 1], power, term[2 * i]);
        if (left % 2 == 1) term[left / 2] = term[left - 1];
        power = product(power, power);
    }
    return term[0];
}

#if !defined(__CUDACC__)
// f(0) .. f(N - 1), written out. Where a loop indexes an array of accumulators, even one that the compiler unrolls
// later, the array can end up in memory. A lambda whose parameter is an int is instantiated once, which compiles in two
// thirds of the time; one whose parameter is `auto` is given std::integral_constant, for use in template arguments.
template <int N, class F>
PATRAC_FN void unrolled(const F& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        if constexpr (requires { &F::operator(); })
            (f(I), ...);
        else
            (f(std::integral_constant<int, I>{}), ...);
    }(std::make_integer_sequence<int, N>{});
}

// A vector of half the lanes.
template <class V>
struct HalfOf {
    typedef std::remove_cvref_t<decltype(V{}[0])> type __attribute__((vector_size(sizeof(V) / 2)));
};
template <class V>
using Half = typename HalfOf<V>::type;

// The lower (0) or upper (1) half of the lanes, and two vectors side by side. Through memory, which is slow, where the
// compiler has no operation for it.
#if __has_builtin(__builtin_shufflevector)
template <int Part, class V, int... L>
PATRAC_FN Half<V> half_of(V x, std::integer_sequence<int, L...>) {
    return __builtin_shufflevector(x, x, (L + Part * int(sizeof...(L)))...);
}
template <class V, class H, int... L>
PATRAC_FN V concatenated(H a, H b, std::integer_sequence<int, L...>) {
    return __builtin_shufflevector(a, b, L...);
}
#else
template <int Part, class V, int... L>
PATRAC_FN Half<V> half_of(V x, std::integer_sequence<int, L...>) {
    Half<V> parts[2];
    __builtin_memcpy(parts, &x, sizeof(x));
    return parts[Part];
}
template <class V, class H, int... L>
PATRAC_FN V concatenated(H a, H b, std::integer_sequence<int, L...>) {
    const H parts[2] = {a, b};
    V x;
    __builtin_memcpy(&x, parts, sizeof(x));
    return x;
}
#endif
template <int Part, class V>
PATRAC_FN Half<V> half_of(V x) {
    return half_of<Part>(x, std::make_integer_sequence<int, sizeof(V) / sizeof(x[0]) / 2>{});
}
template <class V>
PATRAC_FN V concatenated(Half<V> a, Half<V> b) {
    return concatenated<V>(a, b, std::make_integer_sequence<int, sizeof(V) / sizeof(a[0])>{});
}

// The sum of the two halves of a vector.
template <class V>
PATRAC_FN auto folded(V x) {
    return half_of<0>(x) + half_of<1>(x);
}

// Sum over lanes in a fixed order (halves added pairwise), the same for a given lane count on every processor.
template <class V>
PATRAC_FN auto reduce_add(V x) {
    if constexpr (std::is_arithmetic_v<V>)
        return x;
    else if constexpr (sizeof(V) == 2 * sizeof(x[0]))
        return x[0] + x[1];
    else
        return reduce_add(folded(x));
}
#endif

}  // namespace patrac::PATRAC_LEVEL
