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

// rho(u, v) = -l(u) - <v - u, g(u)>/2 - delta/4 <u + v, g(u)> + delta/4 |C^(1/2) g(u)|^2.
// The paper prints <u - v, g(u)>; that sign breaks detailed balance (tests/test_kernels.py keeps both).
PATRAC_FN double pcnl_rho(double log_likelihood, double difference_dot_g, double sum_dot_g, double g_dot_cg,
                          double delta) {
    return -log_likelihood - 0.5 * difference_dot_g - 0.25 * delta * sum_dot_g + 0.25 * delta * g_dot_cg;
}

}  // namespace patrac::PATRAC_LEVEL
