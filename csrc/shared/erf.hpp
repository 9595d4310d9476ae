// The error function, with exp(-x^2) from the same pass: the exact GELU and its derivative need both.
//
// Errors are the largest measured over the levels x86-64-v2, v3 and v4, in units in the last place of the true result,
// on millions of random arguments of every scale: float / double. tests/test_elementary.py holds them.
#pragma once

#include "shared/exponential.hpp"

namespace patrac::PATRAC_LEVEL {

// |x| <= 1: erf a = a + a P(a^2), P near-minimax of degree 6 (float, relative error 1.5e-9) or 11 (double, 1.4e-17).
template <class V>
PATRAC_FN V erf_small(V a) {
    using enum Rounding;
    const V z = a * a;
    V p;
    if constexpr (is_float_v<V>)
        p = polynomial<fused>(z, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2cfp-4f, -0x1.b7f852p-6f, 0x1.53ff2ap-8f,
                              -0x1.a3c4dp-11f, 0x1.48dd6ep-14f);
    else
        p = polynomial<fused>(z, 0x1.06eba8214db68p-3, -0x1.812746b0379b1p-2, 0x1.ce2f21a040822p-4,
                              -0x1.b82ce311eb536p-6, 0x1.565bccf78b3bdp-8, -0x1.c02db007d48aep-11,
                              0x1.f9a2b62a13e4fp-14, -0x1.f4ca0eb8be4eep-17, 0x1.b97d9a1804866p-20,
                              -0x1.5bfa777733804p-23, 0x1.d6c8b030897ebp-27, -0x1.aac5deb8f7c8cp-31);
    return fma(a, p, a);
}

// exp(a^2) erfc(a) as a ratio of polynomials fitted so that the error of erf = 1 - exp(-a^2) ratio is near-minimax on
// [1, 6]: float degrees 2/2 on [1, 4], 1.2e-8; double 5/6 on [1, 6], 1.5e-18. Beyond, the ratio is finite and exp(-a^2)
// too small to count.
template <class V>
PATRAC_FN V erfc_scaled(V a) {
    using enum Rounding;
    if constexpr (is_float_v<V>) {
        return polynomial<fused>(a, 0x1.fcb3e2p-1f, 0x1.a6839cp-2f, 0x1.b8e71ep-9f) /
               polynomial<fused>(a, 1.0f, 0x1.8186f6p+0f, 0x1.94c2c2p-1f);
    } else {
        const V p = polynomial<fused>(a, 0x1.fffffc4930d25p-1, 0x1.63cfdae85d132p+0, 0x1.e5b896a7b8e3p-1,
                                      0x1.7e0d296361518p-2, 0x1.58d7dbe2f0f83p-4, 0x1.23db9b38d631fp-7);
        const V q = polynomial<fused>(a, 1.0, 0x1.42569e2af8b98p+1, 0x1.6526a0fb051cdp+1, 0x1.c1694af9d3012p+0,
                                      0x1.56a80a70e73aep-1, 0x1.3199eb9763302p-3, 0x1.02a78079c7efcp-6);
        return p / q;
    }
}

// erf x, 1.3 / 1.4 ulp, and exp(-x^2), 1.1 / 1.1 ulp, in `gaussian`. The square is taken as head^2 + (a - head)(a +
// head), head^2 exact: rounding x^2 alone would cost exp(-x^2) about x^2 / 2 ulp. -0 and subnormals are kept,
// erf(+-infinity) = +-1, NaN gives NaN in both.
template <class V>
PATRAC_FN V erf_with_gaussian(V x, V& gaussian) {
    using T = scalar_t<V>;
    constexpr std::uint64_t dropped = is_float_v<V> ? 12 : 27;
    const V one = broadcast<V>(1);
    const V a = minimum(broadcast<V>(is_float_v<V> ? T(10.25) : T(27.5)), abs(x));  // exp(-a^2) is 0 there
    const V head = from_bits<V>((to_bits(a) >> dropped) << dropped);
    gaussian = exp_sum(-(head * head), (head - a) * (head + a));
    const V large = one - gaussian * erfc_scaled(a);
    return with_sign_of(select(a < one, erf_small(a), large), x);
}

template <class V>
PATRAC_FN V erf(V x) {
    V gaussian;
    return erf_with_gaussian(x, gaussian);
}

}  // namespace patrac::PATRAC_LEVEL
