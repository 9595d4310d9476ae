// The exponential and what is built on it: exp, tanh, sigmoid, for scalars and vectors, with no call into libm.
//
// Each comment gives the largest error measured, in units in the last place of the result, over the levels x86-64-v2 and v3.
#pragma once

#include "lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// x = n ln 2 + r with |r| <= ln 2 / 2 (a little more by rounding). n is an integer; the low bits of to_bits(shifted) hold
// n + Bias. x is head + tail, or head where tail is NoTail. ln 2 is split in two so that n times the head is exact: 15 bits (float), 42 bits (double).
template <class V>
struct ReducedExponent {
    V r;
    V shifted;
};

struct NoTail {};

template <int Bias, class V, class Tail>
PATRAC_FN ReducedExponent<V> reduce_exponent(V head, Tail tail) {
    using T = scalar_t<V>;
    constexpr bool has_tail = std::is_same_v<Tail, V>;
    constexpr T ln2_head = is_float_v<V> ? T(0x1.62e4p-1) : T(0x1.62e42fefa38p-1);
    constexpr T ln2_tail = is_float_v<V> ? T(0x1.7f7d1cp-20) : T(0x1.ef35793c7673p-45);
    const V shift = broadcast<V>(round_shift<V> + T(Bias));
    V sum = head;
    if constexpr (has_tail) sum = head + tail;
    const V shifted = fma(sum, broadcast<V>(T(0x1.71547652b82fep+0)), shift);
    const V n = shifted - shift;
    const V r = fma(n, broadcast<V>(-ln2_head), head);
    if constexpr (has_tail)
        return {r + fma(n, broadcast<V>(-ln2_tail), tail), shifted};
    else
        return {fma(n, broadcast<V>(-ln2_tail), r), shifted};
}

// e^r - 1 for |r| <= ln 2 / 2 as r + r^2 q(r). Minimax q: float degree 4, relative error of e^r - 1 below 1.5e-8; double
// degree 9, below 2.0e-17.
template <class V>
PATRAC_FN V expm1_reduced(V r) {
    using enum Rounding;
    V q;
    if constexpr (is_float_v<V>)
        q = polynomial<fused>(r, 0x1.fffffep-2f, 0x1.5554acp-3f, 0x1.555716p-5f, 0x1.122a78p-7f, 0x1.6b7878p-10f);
    else
        q = polynomial<fused>(r, 0x1.0000000000005p-1, 0x1.555555555553ep-3, 0x1.55555555520cfp-5, 0x1.1111111117c96p-7,
                              0x1.6c16c17f4809cp-10, 0x1.a01a017bf4041p-13, 0x1.a019a64248b4ep-16, 0x1.71de778c13315p-19,
                              0x1.28a2fd9f68bf9p-22, 0x1.ae87c7107dd09p-26);
    return fma(r * r, q, r);
}

// exp(head + tail), |tail| small beside 1: the tail carries what rounding took from the head (see erf.hpp).
// The scale 2^n is applied as two factors, so that results reach infinity and the subnormals with one rounding.
template <class V, class Tail>
PATRAC_FN V exp_sum(V head, Tail tail) {
    constexpr int bias = is_float_v<V> ? 127 : 1023;
    const auto [r, shifted] = reduce_exponent<2 * bias>(head, tail);
    const bits_t<V> doubled = to_bits(shifted);  // low bits: n + 2 bias, never negative
    const bits_t<V> half = doubled >> 1;         // low bits: floor(n / 2) + bias
    const V p = broadcast<V>(1) + expm1_reduced(r);
    return (p * from_bits<V>(half << fraction_bits<V>)) * from_bits<V>((doubled - half) << fraction_bits<V>);
}

// e^x. Overflow gives infinity, underflow the right subnormal or 0, NaN gives NaN.
template <class V>
PATRAC_FN V exp(V x) {
    using T = scalar_t<V>;
    const V lowest = broadcast<V>(is_float_v<V> ? T(-104) : T(-746));
    const V highest = broadcast<V>(is_float_v<V> ? T(89) : T(710));
    return exp_sum(minimum(highest, maximum(lowest, x)), NoTail{});
}

// tanh x as e / (e + 2) with e = e^(2|x|) - 1. Where e + 2 rounds to e the quotient is exactly 1; it never exceeds 1.
// -0 and subnormals are kept, NaN gives NaN.
template <class V>
PATRAC_FN V tanh_by_exp(V x) {
    using T = scalar_t<V>;
    constexpr int bias = is_float_v<V> ? 127 : 1023;
    const V y = minimum(broadcast<V>(is_float_v<V> ? T(20) : T(40)), abs(x) + abs(x));
    const auto [r, shifted] = reduce_exponent<bias>(y, NoTail{});
    const V scale = from_bits<V>(to_bits(shifted) << fraction_bits<V>);
    const V e = fma(scale, expm1_reduced(r), scale - broadcast<V>(1));
    return with_sign_of(e / (e + broadcast<V>(2)), x);
}

template <class V>
PATRAC_FN V tanh_rational(V x) {
    using enum Rounding;
    const V bound = broadcast<V>(9.25f), one = broadcast<V>(1);
    const V y = minimum(bound, maximum(-bound, x));
    const V z = y * y;
    const V p = y * polynomial<fused>(z, 1.0f, 0x1.e76b9p-6f, 0x1.dd124ep-14f);
    const V q = polynomial<fused>(z, 1.0f, 0x1.cf302cp-4f, 0x1.3ba1fep-10f, 0x1.47135p-20f);
    return minimum(one, maximum(-one, (p * q) / fma(p * broadcast<V>(0.25f), p, q * q)));
}

template <class V>
PATRAC_FN V tanh(V x) {
    return tanh_by_exp(x);
}

// 1 / (1 + e^-x), from e^-|x| so that neither tail overflows; the left tail keeps its subnormals.
template <class V>
PATRAC_FN V sigmoid(V x) {
    const V e = exp(-abs(x));
    const V one = broadcast<V>(1);
    return select(x < broadcast<V>(0), e, one) / (one + e);
}

}  // namespace patrac::PATRAC_LEVEL
