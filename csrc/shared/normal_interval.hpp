// The logarithm of the probability that a normal variate lies between two bounds, with its derivatives, and of the
// density where they are equal: the terms of censored values, accurate in both tails (docs/method.md, section 5).
//
// tests/test_censored.py holds the errors, against values of many digits.
#pragma once

#include "shared/exponential.hpp"
#include "shared/logarithm.hpp"

namespace patrac::PATRAC_LEVEL {

// phi(t) / Q(t), the standard normal density over its upper tail, for t >= 0: 1.5 / 1.5 ulp. It is t + c(t), c a ratio
// of polynomials with positive coefficients, which does not cancel, fitted so that the relative error of t + c is near-
// minimax on [0, infinity): float degrees 4/5, 1.6e-9; double 9/10, 1.2e-17. Beyond the bound c does not count.
template <class V>
PATRAC_FN V normal_hazard(V t) {
    using T = scalar_t<V>;
    using enum Rounding;
    const V s = minimum(broadcast<V>(is_float_v<V> ? T(1e4) : T(3e8)), t);
    V p, q;
    if constexpr (is_float_v<V>) {
        p = polynomial<fused>(s, 0x1.988454p-1f, 0x1.0c338cp-1f, 0x1.6aa916p-3f, 0x1.0c4778p-5f, 0x1.744506p-9f);
        q = polynomial<fused>(s, 1.0f, 0x1.1ca908p+0f, 0x1.2ef79cp-1f, 0x1.75f894p-3f, 0x1.0c5342p-5f, 0x1.744268p-9f);
    } else {
        p = polynomial<fused>(s, 0x1.9884533d43650p-1, 0x1.0286902a1b2ddp+0, 0x1.4d43a1caa1081p-1, 0x1.16a2cb5f89d2cp-2,
                              0x1.4881df2fc0d0cp-4, 0x1.19458c4b5bc6ap-6, 0x1.5d0a0d00a5b71p-9, 0x1.2f38cd14ad133p-12,
                              0x1.50ce0a4278a23p-16, 0x1.716ae234874c1p-21);
        q = polynomial<fused>(s, 1.0, 0x1.b89a93233f722p+0, 0x1.76881da9b9ec4p+0, 0x1.97a39a7819a3cp-1,
                              0x1.380c5179e6617p-2, 0x1.5dd42ee9f9fadp-4, 0x1.22ae022ba3f37p-6, 0x1.624d45149af0ap-9,
                              0x1.30aa37f92eaecp-12, 0x1.50ce0a42324ddp-16, 0x1.716ae2348debfp-21);
    }
    return t + p / q;
}

// log of the integral of the standard normal density over [u, v], `slope` its derivative by a shift of the density to
// the right, and `log_scale` by the logarithm of the square of its scale, which changes u and v in proportion.
template <class V>
struct IntervalTerm {
    V value, slope, log_scale;
};

// u <= v, either of which may be infinite; `width` is v - u, which a caller knows better where it is small. Where it is
// zero, `value` is log phi(u), and `log_scale` is that of the density of f + sigma u: it includes -1/2 for the factor
// 1/sigma.
//
// By symmetry the midpoint z is not negative. With h half the width and x = z h, phi(v) = phi(u) e^(-2x).
//   h <= 1/2, x <= 1/2: phi(z) 2h S, S = sum over k of He_2k(z) h^(2k) / (2k + 1)!, each term of which follows from two
//                       before it: He_(k+1)(z) h^(k+1) = x He_k h^k - k h^2 He_(k-1) h^(k-1).
//   u >= 0:             phi(u) (1 / hazard(u) - e^(-2x) / hazard(v)), the exponential at most 0.61.
//   u < 0:              1 - phi(u) (1 / hazard(-u) + e^(-2x) / hazard(v)), which is at least 0.34.
template <class V>
PATRAC_FN IntervalTerm<V> normal_interval(V u, V v, V width) {
    using T = scalar_t<V>;
    using enum Rounding;
    constexpr T half_log_2_pi = T(0.9189385332046727418);
    const V zero = broadcast<V>(0), one = broadcast<V>(1), half = broadcast<V>(T(0.5));
    // Where one bound is infinite, all products below are finite and e^(-2x) is 0. NaN stays NaN.
    const V far = broadcast<V>(T(1e15));
    u = minimum(far, maximum(-far, u));
    v = minimum(far, maximum(-far, v));
    width = minimum(far, width);
    const auto flips = u + v < zero;
    const V near_end = select(flips, -v, u), far_end = select(flips, -u, v);
    const V z = half * (near_end + far_end), twice_x = z * width;

    // A narrow interval.
    const V h = minimum(half, half * width), x = half * minimum(one, twice_x);
    const V square = h * h, x_square = x * x;
    constexpr int terms = is_float_v<V> ? 5 : 11;
    V before = one, now = x, sum = one, cosh_x = one, sinhc_x = one, power = one;
    T factorial = 1;
    for (int k = 1; k < terms; ++k) {
        before = fma(x, now, -(broadcast<V>(T(2 * k - 1)) * square * before));  // He_2k h^2k
        now = fma(x, before, -(broadcast<V>(T(2 * k)) * square * now));         // He_(2k+1) h^(2k+1)
        power = power * x_square;
        factorial *= T(2 * k);
        cosh_x = fma(power, broadcast<V>(T(1) / factorial), cosh_x);
        factorial *= T(2 * k + 1);
        sinhc_x = fma(power, broadcast<V>(T(1) / factorial), sinhc_x);
        sum = fma(before, broadcast<V>(T(1) / factorial), sum);
    }
    const V weight = exp(-half * square) / sum;
    const auto is_narrow = (half * width <= half) & (twice_x <= one);

    // Any other.
    const auto inside = near_end < zero;
    const V e = exp(-twice_x);
    const V phi = broadcast<V>(T(0.3989422804014326779)) * exp(-half * near_end * near_end);
    const V of_near = one / normal_hazard(abs(near_end)), of_far = e / normal_hazard(far_end);
    const V inner = one - phi * (of_near + of_far);
    const V outer = maximum(broadcast<V>(T(1e-30)), of_near - of_far);  // positive but where it is not used
    const V scale = select(inside, phi / inner, one / outer);

    const V probability = select(is_narrow, select(width > zero, width * sum, one), select(inside, inner, outer));
    const V from = select(is_narrow, z, near_end);
    const V exponent = fma(-half * from, from, broadcast<V>(-half_log_2_pi));
    const V value = select(is_narrow, exponent, select(inside, zero, exponent)) + log(probability);
    const V slope = select(is_narrow, z * weight * sinhc_x, (one - e) * scale);
    const V log_scale = select(is_narrow, z * slope - weight * cosh_x, (near_end - far_end * e) * scale);
    return {value, select(flips, -slope, slope), half * log_scale};
}

}  // namespace patrac::PATRAC_LEVEL
