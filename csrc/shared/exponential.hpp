// The exponential and what is built on it: exp, tanh, sigmoid, for scalars and vectors, with no call into libm.
//
// Errors are the largest measured over the levels x86-64-v2, v3 and v4, in units in the last place of the true result,
// on millions of random arguments of every scale: float / double. tests/test_elementary.py holds them.
#pragma once

#include "shared/lanes.hpp"
#include "shared/tanh_table.hpp"

namespace patrac::PATRAC_LEVEL {

// x = n ln 2 + r with |r| <= ln 2 / 2 (a little more by rounding). n is an integer; the low bits of to_bits(shifted)
// hold n + Bias. x is head + tail, or head where tail is NoTail. ln 2 is split in two so that n times the head is
// exact: 15 bits (float), 42 bits (double).
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

// e^r - 1 for |r| <= ln 2 / 2 as r + r^2 q(r). Minimax q: float degree 4, relative error of e^r - 1 below 1.5e-8;
// double degree 9, below 2.0e-17.
template <class V>
PATRAC_FN V expm1_reduced(V r) {
    using enum Rounding;
    V q;
    if constexpr (is_float_v<V>)
        q = polynomial<fused>(r, 0x1.fffffep-2f, 0x1.5554acp-3f, 0x1.555716p-5f, 0x1.122a78p-7f, 0x1.6b7878p-10f);
    else
        q = polynomial<fused>(r, 0x1.0000000000005p-1, 0x1.555555555553ep-3, 0x1.55555555520cfp-5, 0x1.1111111117c96p-7,
                              0x1.6c16c17f4809cp-10, 0x1.a01a017bf4041p-13, 0x1.a019a64248b4ep-16,
                              0x1.71de778c13315p-19, 0x1.28a2fd9f68bf9p-22, 0x1.ae87c7107dd09p-26);
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

// e^x; 1.04 / 1.04 ulp. Overflow gives infinity, underflow the right subnormal or 0, NaN gives NaN.
template <class V>
PATRAC_FN V exp(V x) {
    using T = scalar_t<V>;
    const V lowest = broadcast<V>(is_float_v<V> ? T(-104) : T(-746));
    const V highest = broadcast<V>(is_float_v<V> ? T(89) : T(710));
    return exp_sum(minimum(highest, maximum(lowest, x)), NoTail{});
}

// tanh x; 2.5 / 2.7 ulp. From x = n (ln 2)/2 + r, |r| <= (ln 2)/4. With s = 2^n and t = tanh r,
// e^2x = s (1 + t) / (1 - t), so
//   tanh x = (t (s + 1) + (s - 1)) / (t (s - 1) + (s + 1)).
// t = r (1 + z W(z)), z = r^2, W near-minimax: float degree 2, relative error of t below 2.1e-10; double degree 5,
// 6.6e-18. One constant suffices for (ln 2)/2: what its rounding and that of n (ln 2)/2 add to r is damped by the
// slope 1 - tanh^2 x. Beyond the bound s + 1 and s - 1 round to the same number and the quotient is exactly +-1; it is
// never larger, and exactly odd. -0 and subnormals are kept (hence 1 - s: -0 in, -0 out), NaN gives NaN.
template <class V>
PATRAC_FN V tanh_by_exponent(V x) {
    using T = scalar_t<V>;
    using enum Rounding;
    constexpr int bias = is_float_v<V> ? 127 : 1023;
    const V bound = broadcast<V>(is_float_v<V> ? T(10) : T(20));
    const V one = broadcast<V>(1);
    const V y = minimum(bound, maximum(-bound, x));
    const V shift = broadcast<V>(round_shift<V> + T(bias));
    const V shifted = fma(y, broadcast<V>(T(0x1.71547652b82fep+1)), shift);
    const V r = fma(shifted - shift, broadcast<V>(T(-0x1.62e42fefa39efp-2)), y);
    const V s = from_bits<V>(to_bits(shifted) << fraction_bits<V>);  // low bits: n + bias
    const V z = r * r;
    V w;
    if constexpr (is_float_v<V>)
        w = polynomial<fused>(z, -0x1.55555p-2f, 0x1.110716p-3f, -0x1.b05fb4p-5f);
    else
        w = polynomial<fused>(z, -0x1.5555555555549p-2, 0x1.11111110fa785p-3, -0x1.ba1ba14bee678p-5,
                              0x1.664ee2ab70537p-6, -0x1.2241d9701f811p-7, 0x1.c466ed24ec9a6p-9);
    const V t = r * fma(z, w, one);
    const V sum = s + one, difference = one - s;
    return fma(t, sum, -difference) / fma(t, -difference, sum);
}

// By whichever way the level has.
template <class V>
PATRAC_FN V tanh(V x) {
    if constexpr (is_float_v<V> && has_tanh_table)
        return tanh_by_table(x);
    else
        return tanh_by_exponent(x);
}

// 1 / (1 + e^-x); 2.4 / 2.4 ulp. From e^-|x| so that neither tail overflows; the left tail keeps its subnormals.
template <class V>
PATRAC_FN V sigmoid(V x) {
    const V e = exp(-abs(x));
    const V one = broadcast<V>(1);
    return select(x < broadcast<V>(0), e, one) / (one + e);
}

}  // namespace patrac::PATRAC_LEVEL
