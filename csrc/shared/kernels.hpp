// The proposal coefficients and acceptance ratios of pCN and pCNL (docs/method.md, section 6).
#pragma once

#include <cmath>

#include "lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// v = u + (drift C g(u) + noise w - shrink u), w ~ N(0, C). The factor of u is written 1 - shrink, since in float32 the
// factor itself would be rounded next to 1 and small steps would not keep the prior: shrink (2 - shrink) = noise^2.
struct Proposal {
    double shrink, drift, noise;
};

PATRAC_FN Proposal pcn_proposal(double beta) {
    return {beta * beta / (1.0 + std::sqrt(1.0 - beta * beta)), 0.0, beta};
}

PATRAC_FN Proposal pcnl_proposal(double delta) {
    const double scale = 1.0 / (2.0 + delta);
    return {2.0 * delta * scale, 2.0 * delta * scale, std::sqrt(8.0 * delta) * scale};
}

// rho(u, v) - rho(v, u) with rho(u, v) = -l(u) - <v - u, g(u)>/2 - delta/4 <u + v, g(u)> + delta/4 |C^(1/2) g(u)|^2.
// The paper prints <u - v, g(u)>; that sign breaks detailed balance (tests/test_kernels.py keeps both).
struct PcnlMove {
    double log_likelihood_difference;  // l(v) - l(u)
    double difference_dot_sum;         // <v - u, g(u) + g(v)>
    double sum_dot_difference;         // <u + v, g(v) - g(u)>
    double g_dot_cg_difference;        // |C^(1/2) g(v)|^2 - |C^(1/2) g(u)|^2
};

PATRAC_FN double pcnl_log_acceptance(const PcnlMove& move, double delta) {
    return move.log_likelihood_difference - 0.5 * move.difference_dot_sum +
           0.25 * delta * (move.sum_dot_difference - move.g_dot_cg_difference);
}

}  // namespace patrac::PATRAC_LEVEL
