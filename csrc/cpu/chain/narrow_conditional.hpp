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
        // M = L D L', in which a pivot waits for those before through one division each; the roots of D are taken side
        // by side at the end. Row i of `upper` becomes row i of D L'.
        double upper[P][P], lower[P][P], reciprocal[P];
        const double* const gram = moments.gram.data();
        const auto each = [](int first, int end, const auto& f) __attribute__((always_inline)) {
            unrolled<P>([&](int i) __attribute__((always_inline)) {
                if (i >= first && i < end) f(i);
            });
        };
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            const double scale = precision * deviation[i];
            each(i, P, [&](int j) __attribute__((always_inline)) {
                upper[i][j] = fma(scale * deviation[j], gram[i * P + j], i == j ? 1.0 : 0.0);
            });
        });
        unrolled<P>([&](int k) __attribute__((always_inline)) {
            reciprocal[k] = 1.0 / upper[k][k];
            each(k + 1, P, [&](int i) __attribute__((always_inline)) {
                lower[i][k] = upper[k][i] * reciprocal[k];
                each(i, P, [&](int j) __attribute__((always_inline)) {
                    upper[i][j] = fma(-lower[i][k], upper[k][j], upper[i][j]);
                });
            });
        });
        // W = D^(-1/2) L^-1. A root of what is not positive is NaN, and so are then alpha and the marginal.
        double w[P][P];
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            each(0, i, [&](int j) __attribute__((always_inline)) {
                double sum = lower[i][j];
                each(j + 1, i, [&](int k) __attribute__((always_inline)) { sum = fma(lower[i][k], w[k][j], sum); });
                w[i][j] = -sum;
            });
        });
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            w[i][i] = std::sqrt(reciprocal[i]);
            each(0, i, [&](int j) __attribute__((always_inline)) { w[i][j] *= w[i][i]; });
            each(0, i + 1, [&](int j) __attribute__((always_inline)) { factor.row(i)[j] = w[i][j]; });
        });
        double y[P], squares = 0.0, pivots[2] = {1.0, 1.0};
        unrolled<P>([&](int i) __attribute__((always_inline)) {
            y[i] = 0.0;
            each(0, i + 1, [&](int j) __attribute__((always_inline)) {
                y[i] = fma(w[i][j], precision * deviation[j] * moments.cross[j], y[i]);
            });
            pivots[i / 4] *= upper[i][i];  // four at most, as in factorise()
        });
        unrolled<P>([&](int j) __attribute__((always_inline)) {
            double sum = 0.0;
            each(j, P, [&](int i) __attribute__((always_inline)) { sum = fma(w[i][j], y[i], sum); });
            alpha[j] = sum;
            squares = fma(sum, sum, squares);
            each(j, P, [&](int k) __attribute__((always_inline)) {
                double entry = 0.0;
                each(k, P, [&](int i) __attribute__((always_inline)) { entry = fma(w[i][j], w[i][k], entry); });
                inverse[j][k] = entry;
                inverse[k][j] = entry;
            });
        });
        marginal = -0.5 * (squares + std::log(pivots[0]));
        if constexpr (P > 4) marginal -= 0.5 * std::log(pivots[1]);
    }
};

}  // namespace patrac::PATRAC_LEVEL
