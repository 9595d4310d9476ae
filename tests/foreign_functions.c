/* C functions for tests/test_target.py, with the signatures that pn.Target takes. */
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Log-likelihood -sum_i a_i (x_i - b_i)^2 / 2; context points to a (n,), b (n,), and factors of value and gradient,
   which are 1 but for functions that are wrong on purpose. */
int quadratic(size_t n, const double *x, double *grad, double *logp, void *context) {
    const double *a = context, *b = a + n, *factors = b + n;
    double sum = 0.0;
    for (size_t i = 0; i < n; ++i) {
        const double slope = -a[i] * (x[i] - b[i]);
        sum += 0.5 * slope * (x[i] - b[i]);
        grad[i] = factors[1] * slope;
    }
    *logp = factors[0] * sum;
    return 0;
}

int batched_quadratic(size_t batch, size_t n, const double *x, double *grad, double *logp, void *context) {
    for (size_t row = 0; row < batch; ++row) quadratic(n, x + row * n, grad + row * n, logp + row, context);
    return 0;
}

/* A flat log-likelihood that returns the error code 7 from its 50th call on; context points to the number of calls. */
int failing(size_t n, const double *x, double *grad, double *logp, void *context) {
    (void)x;
    for (size_t i = 0; i < n; ++i) grad[i] = 0.0;
    *logp = 0.0;
    return atomic_fetch_add((atomic_int *)context, 1) >= 50 ? 7 : 0;
}

/* A flat log-likelihood. From the third call on, each waits until two threads have been in it at once, or for twenty
   seconds; context points to the numbers of calls, of those that wait, and to the largest such number. */
int meeting(size_t n, const double *x, double *grad, double *logp, void *context) {
    atomic_int *calls = context, *inside = calls + 1, *most = calls + 2;
    (void)x;
    for (size_t i = 0; i < n; ++i) grad[i] = 0.0;
    *logp = 0.0;
    if (atomic_fetch_add(calls, 1) < 2) return 0;
    const int now = atomic_fetch_add(inside, 1) + 1;
    if (now > atomic_load(most)) atomic_store(most, now);
    const time_t end = time(NULL) + 20;
    while (atomic_load(most) < 2 && time(NULL) < end) continue;
    atomic_fetch_sub(inside, 1);
    return 0;
}
