/* The C interface of a log density with its gradient, as `Posterior.c_api` of patrac_native returns it.
 *
 * Python hands out three capsules, of which PyCapsule_GetPointer reads the pointers:
 *   .function   PATRAC_FUNCTION_CAPSULE    a patrac_density_function
 *   .batched    PATRAC_BATCHED_CAPSULE     a patrac_density_batched
 *   .context    PATRAC_CONTEXT_CAPSULE     what both take as `ctx`
 * The context keeps the compiled posterior alive: hold the capsule for as long as the functions may be called. Code that
 * cannot hold Python objects takes the addresses `.function_address`, `.batched_address` and `.context_address`.
 *
 * Any number of threads may call with the same context at the same time; none waits for another. No call needs Python's
 * global interpreter lock, reads Python objects, or throws.
 */
#ifndef PATRAC_DENSITY_H
#define PATRAC_DENSITY_H

#include <stddef.h>

#define PATRAC_FUNCTION_CAPSULE "patrac_density_function"
#define PATRAC_BATCHED_CAPSULE "patrac_density_batched"
#define PATRAC_CONTEXT_CAPSULE "patrac_density_context"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns. Above 0 a point is at fault, which a sampler may reject; below 0 the call is. */
enum {
    PATRAC_OK = 0,
    PATRAC_POINT_NOT_FINITE = 1,   /* an entry of x is NaN, infinite, or so in the posterior's dtype */
    PATRAC_DENSITY_NOT_FINITE = 2, /* the log density or its gradient is NaN or infinite */
    PATRAC_WRONG_SIZE = -1,        /* n is not the number of coordinates, `.dim` in Python; nothing is written */
    PATRAC_NULL_POINTER = -2,      /* x, logp or ctx is null; nothing is written */
    PATRAC_FAILED = -3             /* memory or threads ran out; the outputs are undefined */
};

/* x (n,) -> logp (1,) and, unless grad is null, grad (n,). Arrays must not overlap. With PATRAC_POINT_NOT_FINITE and
 * PATRAC_DENSITY_NOT_FINITE the outputs are written, NaN or infinite. A posterior of dtype float32 rounds x to float32;
 * its gradients are float32 numbers. */
typedef int (*patrac_density_function)(size_t n, const double* x, double* grad, double* logp, void* ctx);

/* The same for `batch` points: x (batch, n) -> logp (batch,) and, unless grad is null, grad (batch, n), row by row. The
 * points share as many native threads as `c_api(threads=...)` says. The return value is that of the first point which is
 * not PATRAC_OK; the outputs of the others are valid. */
typedef int (*patrac_density_batched)(size_t batch, size_t n, const double* x, double* grad, double* logp, void* ctx);

#ifdef __cplusplus
}
#endif

#endif
