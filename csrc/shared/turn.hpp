// Sine and cosine of a fraction of a turn, for the noise: the same bits on every level and device.
//
// Errors are the largest measured over the levels x86-64-v2, v3 and v4, in units in the last place of the true result,
// on millions of random arguments of every scale: float / double. tests/test_elementary.py holds them.
#pragma once

#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

template <class V>
struct SineCosine {
    V sine;
    V cosine;
};

// sin 2 pi t and cos 2 pi t for t in [0, 1); each 1.7 / 1.7 ulp. t = n/4 + r with |r| <= 1/8 exactly, n = 0..4; then
// with z = r^2 sin 2 pi r = r (2 pi + z S(z)), 2 pi in two parts, and cos 2 pi r = 1 + z C(z), near-minimax on z <=
// 1/64: float degrees 2 and 3, relative errors 5.1e-9 and 5.2e-10; double 5 and 6, 3.7e-18 and 4e-19. Rounds every
// operation by itself.
template <class V>
PATRAC_FN SineCosine<V> sincos_turn(V t) {
    using T = scalar_t<V>;
    using enum Rounding;
    const V shift = broadcast<V>(round_shift<V>);
    const V shifted = product(broadcast<V>(4), t) + shift;
    const V r = t - product(broadcast<V>(T(0.25)), shifted - shift);
    const V z = product(r, r);
    V s, c, two_pi_tail, two_pi_head;
    if constexpr (is_float_v<V>) {
        two_pi_head = broadcast<V>(0x1.921fb6p+2f);
        two_pi_tail = broadcast<V>(-0x1.777a5cp-23f);
        s = polynomial<twice>(z, -0x1.4abbc4p+5f, 0x1.4661dep+6f, -0x1.2e15bep+6f);
        c = polynomial<twice>(z, -0x1.3bd3ccp+4f, 0x1.03c1b8p+6f, -0x1.55b7cep+6f, 0x1.d684c6p+5f);
    } else {
        two_pi_head = broadcast<V>(0x1.921fb54442d18p+2);
        two_pi_tail = broadcast<V>(0x1.1a62633145c07p-52);
        s = polynomial<twice>(z, -0x1.4abbce625be46p+5, 0x1.466bc67758c59p+6, -0x1.32d2cce31d8fp+6, 0x1.5078300578cdp+5,
                              -0x1.e3009220f16efp+3, 0x1.e3fcdbd741e65p+1);
        c = polynomial<twice>(z, -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5a67p+6, -0x1.55d3c7e3c325bp+6,
                              0x1.e1f5067b90ca1p+5, -0x1.a6d1e7297db1fp+4, 0x1.f9c89ce7dd475p+2, -0x1.b1675010a230dp+0);
    }
    const V sine = mul_add<twice>(r, two_pi_head, product(r, mul_add<twice>(z, s, two_pi_tail)));
    const V cosine = mul_add<twice>(z, c, broadcast<V>(1));
    // Quadrant n: odd ones exchange the two; sine is negated for n = 2, 3, cosine for n = 1, 2.
    const bits_t<V> n = to_bits(shifted);
    const bits_t<V> one = broadcast_bits<V>(1), two = broadcast_bits<V>(2), none = broadcast_bits<V>(0);
    const auto even = (n & one) == none;
    const bits_t<V> sine_sign = (n & two) << (width_bits<V> - 2);
    const bits_t<V> cosine_sign = ((n + one) & two) << (width_bits<V> - 2);
    return {from_bits<V>(to_bits(select(even, sine, cosine)) ^ sine_sign),
            from_bits<V>(to_bits(select(even, cosine, sine)) ^ cosine_sign)};
}

}  // namespace patrac::PATRAC_LEVEL
