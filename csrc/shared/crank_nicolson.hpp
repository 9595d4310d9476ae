// The moves of pCN, pCNL and mGrad and the sums of their acceptance ratio, for vectors of coordinates (CPU) and for
// single coordinates (device); docs/method.md, section 6.
//
// The three kernels are one family. With a shrink 0 < s <= 1 for each coordinate of prior variance C,
//   v = u + s (C g(u) - u) + (C s (2 - s))^(1/2) w, w standard normal (pCN: g = 0),
// whose reverse density gives the log ratio
//   l(v) - l(u) - <v - u, g(u) + g(v)>/2 + sum_i r (g(v) - g(u)) (u + v - C (g(u) + g(v)))/2, r = s/(2 - s).
// The move is added to u: in float32 a factor 1 - s of u would be rounded next to 1, and small steps would not keep C.
//
// pCNL: the paper prints <u - v, g(u)>; that sign breaks detailed balance (tests/test_kernels.py keeps both).
//
// Persistence. In whitened coordinates x = u / C^(1/2), G = C^(1/2) g, with c = 1 - s and k = (s/(2-s))^(1/2), the move
// is one half of an exactly invertible map of (u, p): v as above with the noise p in place of w, and
//   p' = c (p + k G(u)) - (s (2-s))^(1/2) x + k G(v),
// whose density ratio is the move's own. So p may keep a share a of itself, p <- a c p + (1 - a^2 c^2)^(1/2) w, if its
// sign changes after a rejection: a guided walk, as in generalised Hamiltonian Monte Carlo (Horowitz 1991) on the
// prior-preserving splitting (Ottobre, Pillai, Pinski & Stuart 2016). Rejections then cost more than they did; the
// accept threshold persists too, which bunches them (Neal 2020, arXiv:2001.11950). a = 0 is the kernel of the
// textbooks.
#pragma once

#include <cmath>

#include "shared/kernels.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

template <class R>
PATRAC_FN R pcn_shrink(R beta) {
    return beta * beta / (R(1) + sqrt(R(1) - beta * beta));
}

template <class R>
PATRAC_FN R pcnl_shrink(R delta) {
    return R(2) * delta / (R(2) + delta);
}

// Titsias & Papaspiliopoulos (2018) with A = (1/C + 2/delta)^-1 = C s.
template <class R>
PATRAC_FN R mgrad_shrink(R delta, R variance) {
    return delta / (delta + R(2) * variance);
}

// s of a coordinate. Kernels of other families have none: NaN, at which no step is accepted.
template <class R>
PATRAC_FN R shrink_of(KernelKind kernel, R step_size, R variance) {
    switch (kernel) {
        case KernelKind::pcn: return pcn_shrink(step_size);
        // A coordinate's own factor may take delta above 2, where a state would overshoot its mean.
        case KernelKind::pcnl: return pcnl_shrink(step_size < R(2) ? step_size : R(2));
        case KernelKind::mgrad: return mgrad_shrink(step_size, variance);
        case KernelKind::elliptical_slice:
        case KernelKind::exact: break;
    }
    return R(__builtin_nan(""));
}

// What multiplies what in a move of one coordinate. `persistence` is a.
template <class R>
struct MoveCoefficients {
    R variance, persistence, shrink;  // C, a, s

    PATRAC_FN MoveCoefficients(KernelKind kernel, R step_size, R variance_, R persistence_)
        : variance(variance_), persistence(persistence_), shrink(shrink_of(kernel, step_size, variance_)) {}

    PATRAC_FN R drift() const { return variance * shrink; }                          // C s
    PATRAC_FN R noise() const { return sqrt(variance * shrink * (R(2) - shrink)); }  // (C s (2 - s))^(1/2)
    PATRAC_FN R ratio() const { return shrink / (R(2) - shrink); }                   // r
    PATRAC_FN R ratio_variance() const { return ratio() * variance; }                // r C
    // With persistence:
    PATRAC_FN R turned() const { return R(1) - shrink; }                            // c
    PATRAC_FN R kept() const { return persistence * turned(); }                     // a c
    PATRAC_FN R fresh() const { return sqrt(R(1) - kept() * kept()); }              // (1 - a^2 c^2)^(1/2)
    PATRAC_FN R pull() const { return sqrt(shrink * (R(2) - shrink) / variance); }  // (s (2 - s) / C)^(1/2)
    PATRAC_FN R push() const { return sqrt(ratio() * variance); }                   // k C^(1/2)
};

// v from u, g(u) and the noise.
template <class V>
PATRAC_FN V proposal(V u, V gradient, V noise_value, V shrink, V drift, V noise) {
    return u + (fma(drift, gradient, noise * noise_value) - shrink * u);
}

// The two sums of the log ratio beside l, in float64: twice the part that they give is bend - along.
template <class D>
struct LogRatioSums {
    D along = {}, bend = {};

    PATRAC_FN void add(D u, D v, D gradient_u, D gradient_v, D ratio, D ratio_variance) {
        const D both = gradient_v + gradient_u;
        const D pull = ratio * (v + u) - ratio_variance * both;
        along = fma(v - u, both, along);
        bend = fma(gradient_v - gradient_u, pull, bend);
    }
};

// p after new noise w.
template <class V>
PATRAC_FN V refreshed_momentum(V momentum, V w, V kept, V fresh) {
    return fma(kept, momentum, fresh * w);
}

// p' after an accepted move; after a rejection it is -p.
template <class V>
PATRAC_FN V turned_momentum(V momentum, V u, V gradient_u, V gradient_v, V turned, V pull, V push) {
    const V at = turned * fma(push, gradient_u, momentum) - pull * u;
    return fma(push, gradient_v, at);
}

// Whether a finite proposal is accepted, without persistence.
PATRAC_FN bool below_uniform(double log_ratio, double log_uniform) {
    return (log_ratio >= 0.0) | (log_uniform < log_ratio);
}

// The same with persistence: moves the threshold t, uniform in (-1, 1), on by about a twentieth of its range and
// accepts if |t| < ratio; t is then t / ratio, which keeps (state, t) uniform under the density.
PATRAC_FN bool below_threshold(double log_ratio, double log_uniform, double& threshold) {
    threshold += 0.1 * (0.95 + 0.1 * std::exp(log_uniform));
    if (threshold > 1.0) threshold -= 2.0;
    const double ratio = std::exp(log_ratio);
    if (!(abs(threshold) < ratio)) return false;
    threshold /= ratio;
    return true;
}

// The log ratio of a step as the adaptation records it.
PATRAC_FN double recorded_ratio(bool finite, double log_ratio) {
    return finite ? log_ratio : -__builtin_inf();
}

}  // namespace patrac::PATRAC_LEVEL
