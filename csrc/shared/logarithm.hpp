// The logarithm: log, log1p, softplus, and log_unit for the noise, which has the same bits on every level and device.
//
// Errors are the largest measured over the levels x86-64-v2, v3 and v4, in units in the last place of the true result,
// on millions of random arguments of every scale: float / double. tests/test_elementary.py holds them.
#pragma once

#include "shared/exponential.hpp"

namespace patrac::PATRAC_LEVEL {

// x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt 2), for positive normal x.
template <class V>
struct SplitFloat {
    V k;
    V f;
};

template <class V>
PATRAC_FN SplitFloat<V> split_float(V x) {
    using T = scalar_t<V>;
    constexpr std::uint64_t bias = is_float_v<V> ? 127 : 1023;
    constexpr std::uint64_t one = bias << fraction_bits<V>;
    constexpr std::uint64_t sqrt_half = is_float_v<V> ? std::uint64_t{0x3f3504f3} : std::uint64_t{0x3fe6a09e667f3bcd};
    const bits_t<V> x_bits = to_bits(x);
    const bits_t<V> biased = (x_bits + broadcast_bits<V>(one - sqrt_half)) >> fraction_bits<V>;
    const V m = from_bits<V>(x_bits - ((biased - broadcast_bits<V>(bias)) << fraction_bits<V>));
    // An integer below 2^fraction_bits, set as the fraction of 2^fraction_bits, is that power plus the integer.
    constexpr T anchor = is_float_v<V> ? T(0x1p23) : T(0x1p52);
    const V k = from_bits<V>(biased | to_bits(broadcast<V>(anchor))) - broadcast<V>(anchor + T(bias));
    return {k, m - broadcast<V>(1)};
}

// k ln 2 + log(1 + f) + tail. With s = f / (2 + f) and z = s^2, log(1 + f) = 2 atanh s = f - f^2/2 + s (f^2/2 + z
// P(z)), |s| <= 3 - 2 sqrt 2. Minimax P: float degree 2, relative error of the logarithm below 1.1e-9; double degree 6,
// 2e-18.
template <Rounding R, class V>
PATRAC_FN V log_of_split(V k, V f, V tail) {
    using T = scalar_t<V>;
    constexpr T ln2_head = is_float_v<V> ? T(0x1.62e4p-1) : T(0x1.62e42fefa38p-1);  // k times it is exact
    constexpr T ln2_tail = is_float_v<V> ? T(0x1.7f7d1cp-20) : T(0x1.ef35793c7673p-45);
    const V s = f / (broadcast<V>(2) + f);
    const V z = product(s, s);
    V p;
    if constexpr (is_float_v<V>)
        p = polynomial<R>(z, 0x1.55556ep-1f, 0x1.9967bcp-2f, 0x1.311b94p-2f);
    else
        p = polynomial<R>(z, 0x1.5555555555558p-1, 0x1.999999998e9c8p-2, 0x1.2492493733001p-2, 0x1.c71c598b2aec3p-3,
                          0x1.7464e2581a82bp-3, 0x1.39c160f754eb9p-3, 0x1.2de22d722101fp-3);
    const V half_square = product(product(broadcast<V>(T(0.5)), f), f);
    const V small = mul_add<R>(k, broadcast<V>(ln2_tail), tail);
    const V correction = mul_add<R>(s, mul_add<R>(z, p, half_square), small);
    return mul_add<R>(k, broadcast<V>(ln2_head), f - (half_square - correction));
}

// ln x; 0.84 / 0.83 ulp. -infinity at 0, NaN below it, infinity at infinity, subnormals included.
template <class V>
PATRAC_FN V log(V x) {
    using T = scalar_t<V>;
    constexpr T least_normal = is_float_v<V> ? T(0x1p-126) : T(0x1p-1022);
    constexpr T lift = is_float_v<V> ? T(0x1p23) : T(0x1p52);
    const V zero = broadcast<V>(0);
    const V infinity = broadcast<V>(T(__builtin_inf()));
    const auto subnormal = x < broadcast<V>(least_normal);
    const auto [k, f] = split_float(select(subnormal, x * broadcast<V>(lift), x));
    const V exponent = k - select(subnormal, broadcast<V>(T(fraction_bits<V>)), zero);
    const V finite = log_of_split<Rounding::fused>(exponent, f, zero);
    const V extended = select(x < infinity, finite, x);
    return select(x > zero, extended,
                  select(x < zero, broadcast<V>(T(__builtin_nan(""))), select(x < infinity, -infinity, x)));
}

// ln(1 + x); 0.82 / 0.84 ulp. 1 + x is rounded to u, and what the rounding lost, divided by u, is added back. -0 and
// subnormals are kept.
template <class V>
PATRAC_FN V log1p(V x) {
    using T = scalar_t<V>;
    const V one = broadcast<V>(1), zero = broadcast<V>(0);
    const V infinity = broadcast<V>(T(__builtin_inf()));
    const V u = one + x;
    const V x_seen = u - one;
    const V lost = (one - (u - x_seen)) + (x - x_seen);
    const auto [k, f] = split_float(u);
    const V finite = log_of_split<Rounding::fused>(k, f, lost / u);
    const V inside = select(abs(x) < broadcast<V>(is_float_v<V> ? T(0x1p-25) : T(0x1p-54)), x, finite);
    const V extended = select(x < infinity, inside, x);
    return select(u > zero, extended,
                  select(u < zero, broadcast<V>(T(__builtin_nan(""))), select(u < one, -infinity, x)));
}

// ln(1 + e^x); 1.7 / 1.7 ulp. The negative logarithm of 1 - sigmoid(x).
template <class V>
PATRAC_FN V softplus(V x) {
    return maximum(broadcast<V>(0), x) + log1p(exp(-abs(x)));
}

// ln u; 0.83 / 0.84 ulp, for a uniform variate u in (0, 1], u normal; 0 at 1. Rounds every operation by itself: noise
// calls it.
template <class V>
PATRAC_FN V log_unit(V u) {
    const auto [k, f] = split_float(u);
    return log_of_split<Rounding::twice>(k, f, broadcast<V>(0));
}

}  // namespace patrac::PATRAC_LEVEL
