/* Calls of the C interface by compiled C, for tests/test_c_interface.py. */
#include <patrac_density.h>

/* Points x (batch, n) one by one: logp (batch,), grad (batch, n). Returns the first status that is not PATRAC_OK. */
int call_singly(patrac_density_function f, void *ctx, size_t batch, size_t n, const double *x, double *grad,
                double *logp) {
    int status = PATRAC_OK;
    for (size_t point = 0; point < batch && status == PATRAC_OK; ++point)
        status = f(n, x + point * n, grad + point * n, logp + point, ctx);
    return status;
}

/* The same by one call of the batched function. */
int call_together(patrac_density_batched f, void *ctx, size_t batch, size_t n, const double *x, double *grad,
                  double *logp) {
    return f(batch, n, x, grad, logp, ctx);
}
