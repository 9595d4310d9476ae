// The conditional law of the weights of one output over few features, their number known to the compiler.
#pragma once

#include <cmath>

#include "cpu/chain/cholesky.hpp"
#include "cpu/tiles/totals.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// P features: what CollapsedTarget finds in BlockedMatrix for any number. Its loops would be longer than their bodies,
// so there are none.
template <int P>
struct NarrowConditional {
    double inverse[P][P];  // M^-1, M = I + S^(1/2) Phi'W Phi S^(1/2) precision
    double marginal;       // -|alpha|^2 / 2 - log|M| / 2

    // deviation (P,) S^(1/2). Writes W, M^-1 = W'W, to `factor` and the mean over S^(1/2) to `alpha` (P,).
    PATRAC_FN NarrowConditional(const Moments& moments, const double* deviation, double precision,
                                BlockedMatrix& factor, double* alpha) {
        // M = L D L'. What turns M into D L' turns the unit matrix into L^-1 and x into L^-1 x beside it, so that all
        // of them wait for no more than one division a pivot; the roots of D are taken side by side at the end.
        double m[P][P], w[P][P], y[P], reciprocal[P];
        const double* const gram = moments.gram.data();
        const auto each = [](int first, int end, const auto& f) __attribute__((always_inline)) {
            unrolled<P>([&](int i) __attribute__((always_inline)) {
                if (i >= first && i < end) f(i);
            });
        };
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            const double scale = precision * deviation[i];
            y[i] = scale * moments.cross[i];
            each(i, P, [&](int j) __attribute__((always_inline)) {
                m[i][j] = fma(scale * deviation[j], gram[i * P + j], i == j ? 1.0 : 0.0);
            });
        });
        unrolled<P>([&](int k) __attribute__((always_inline)) {
            reciprocal[k] = 1.0 / m[k][k];
            each(k + 1, P, [&](int i) __attribute__((always_inline)) {
                const double factor_ik = -m[k][i] * reciprocal[k];
                each(i, P, [&](int j) __attribute__((always_inline)) { m[i][j] = fma(factor_ik, m[k][j], m[i][j]); });
                each(0, k, [&](int j) __attribute__((always_inline)) { w[i][j] = fma(factor_ik, w[k][j], w[i][j]); });
                w[i][k] = factor_ik;
                y[i] = fma(factor_ik, y[k], y[i]);
            });
        });
        double squares = 0.0, root_product = 1.0;
        unrolled<P>([&](int j) __attribute__((always_inline)) {
            double sum = reciprocal[j] * y[j];
            each(j + 1, P,
                 [&](int i) __attribute__((always_inline)) { sum = fma(w[i][j], reciprocal[i] * y[i], sum); });
            alpha[j] = sum;
            squares = fma(sum, sum, squares);
            each(j, P, [&](int k) __attribute__((always_inline)) {
                double entry = reciprocal[k];
                if (j < k) entry *= w[k][j];
                each(k + 1, P, [&](int i) __attribute__((always_inline)) {
                    entry = fma(reciprocal[i] * w[i][j], w[i][k], entry);
                });
                inverse[j][k] = entry;
                inverse[k][j] = entry;
            });
        });
        // A root of what is not positive is NaN, and so is then the marginal.
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            const double root = std::sqrt(reciprocal[i]);
            root_product *= root;
            each(0, i, [&](int j) __attribute__((always_inline)) { factor.row(i)[j] = root * w[i][j]; });
            factor.row(i)[i] = root;
        });
        marginal = std::log(root_product) - 0.5 * squares;
    }
};

}  // namespace patrac::PATRAC_LEVEL
