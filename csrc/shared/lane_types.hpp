// Lane types: a scalar, or a vector of scalars in one register of the instruction-set level, and the bits of both.
//
// The including file defines two macros first:
//   PATRAC_LEVEL         the namespace of this level (v2, v3, ...); every template below lives in it, so that the
//                        linker can never hand the copy compiled for a wider level to a narrower one.
//   PATRAC_VECTOR_BYTES  16, 32 or 64: bytes in one vector register of the level.
// Functions take a type V, which is float, double, Vec<float> or Vec<double>; CUDA device code uses the scalars alone.
// Comparisons of vectors give a vector of integers (0 or -1 a lane), those of scalars a bool; `select` takes either.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if !defined(PATRAC_LEVEL) || !defined(PATRAC_VECTOR_BYTES)
#error "define PATRAC_LEVEL and PATRAC_VECTOR_BYTES before including a header of csrc/shared"
#endif

#if defined(__CUDACC__)
#define PATRAC_FN __host__ __device__ __forceinline__
#else
#define PATRAC_FN inline __attribute__((always_inline))
#endif

namespace patrac::PATRAC_LEVEL {

// What a V is made of: `scalar` its element, `integer` and `bits` the signed and unsigned integer (or vector of them)
// of the same width, `count` its number of lanes.
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

#define PATRAC_DEFINE_VECTOR(SCALAR, INTEGER, BITS)                                \
    template <>                                                                    \
    struct VectorOf<SCALAR> {                                                      \
        typedef SCALAR type __attribute__((vector_size(PATRAC_VECTOR_BYTES)));     \
        typedef INTEGER integer __attribute__((vector_size(PATRAC_VECTOR_BYTES))); \
        typedef BITS bits __attribute__((vector_size(PATRAC_VECTOR_BYTES)));       \
    };                                                                             \
    template <>                                                                    \
    struct LaneTraits<VectorOf<SCALAR>::type> {                                    \
        using scalar = SCALAR;                                                     \
        using integer = VectorOf<SCALAR>::integer;                                 \
        using bits = VectorOf<SCALAR>::bits;                                       \
        static constexpr int count = PATRAC_VECTOR_BYTES / int(sizeof(SCALAR));    \
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
    if constexpr (lanes_v<V> == 1) {
        return *source;
    } else {
        V result;
        std::memcpy(&result, source, sizeof(V));
        return result;
    }
}
template <class V>
PATRAC_FN void store(scalar_t<V>* target, V value) {
    if constexpr (lanes_v<V> == 1)
        *target = value;
    else
        std::memcpy(target, &value, sizeof(V));
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

}  // namespace patrac::PATRAC_LEVEL
