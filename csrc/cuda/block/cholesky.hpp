// A block factorises a small symmetric matrix in float64 (twin of cpu/chain/cholesky.hpp, in the form L D L').
#pragma once

#include "cuda/block/thread_block.hpp"

namespace patrac::PATRAC_LEVEL {

// A = L D L' of A (n, n), of which the upper triangle is read, in place: D on the diagonal, below it those of L^-1,
// whose diagonal is one. Elimination carries the identity along: row k of L^-1 fills the columns before k, which the
// elimination of A is done with. A is positive definite only if all of D is positive. Ends without
// a barrier.
PATRAC_DEVICE void factorise(const ThreadBlock& block, double* a, int n) {
#pragma unroll 1
    for (int k = 0; k + 1 < n; ++k) {
        block.sync();
        const double* const row = a + k * n;
        const double inverse = 1.0 / row[k];
        for (int item = block.thread; item < (n - k - 1) * n; item += block.threads) {
            const int i = k + 1 + item / n, j = item % n;
            if (j > k && j < i) continue;
            const double factor = -row[i] * inverse;
            a[i * n + j] = j == k ? factor : fma(factor, row[j], a[i * n + j]);
        }
    }
}

// Entry (i, j) of L^-1, j <= i.
PATRAC_DEVICE double inverse_factor(const double* a, int n, int i, int j) {
    return i == j ? 1.0 : a[i * n + j];
}

// y_i of y = D^-1 L^-1 x, and of y = (L^-1)' x.
PATRAC_DEVICE double solved_forward(const double* a, int n, const double* x, int i) {
    double sum = x[i];
    for (int j = 0; j < i; ++j) sum = fma(a[i * n + j], x[j], sum);
    return sum / a[i * n + i];
}
PATRAC_DEVICE double solved_backward(const double* a, int n, const double* x, int i) {
    double sum = x[i];
    for (int l = i + 1; l < n; ++l) sum = fma(a[l * n + i], x[l], sum);
    return sum;
}

// Entry (i, j) of A^-1 = (L^-1)' D^-1 L^-1.
PATRAC_DEVICE double inverse_entry(const double* a, int n, int i, int j) {
    double sum = 0.0;
    for (int l = i > j ? i : j; l < n; ++l)
        sum = fma(inverse_factor(a, n, l, i) * inverse_factor(a, n, l, j), 1.0 / a[l * n + l], sum);
    return sum;
}

}  // namespace patrac::PATRAC_LEVEL
