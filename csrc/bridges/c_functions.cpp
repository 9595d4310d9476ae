// The functions of the C interface: no exception leaves them.
#include "bridges/c_functions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace patrac {
namespace {

bool all_finite(const double* values, std::size_t count) {
    return std::all_of(values, values + count, [](double value) { return std::isfinite(value); });
}

extern "C" int evaluate_batched(std::size_t batch, std::size_t n, const double* x, double* grad, double* logp,
                                void* ctx) noexcept {
    if (!x || !logp || !ctx) return PATRAC_NULL_POINTER;
    const CContext& context = *static_cast<const CContext*>(ctx);
    if (n != static_cast<std::size_t>(context.density->dim())) return PATRAC_WRONG_SIZE;
    try {
        context.density->evaluate_wide(x, static_cast<std::int64_t>(batch), logp, grad, context.threads);
    } catch (...) {
        return PATRAC_FAILED;
    }
    for (std::size_t b = 0; b < batch; ++b) {
        if (std::isfinite(logp[b]) && (!grad || all_finite(grad + b * n, n))) continue;
        return context.density->holds(x + b * n) ? PATRAC_DENSITY_NOT_FINITE : PATRAC_POINT_NOT_FINITE;
    }
    return PATRAC_OK;
}

extern "C" int evaluate_single(std::size_t n, const double* x, double* grad, double* logp, void* ctx) noexcept {
    return evaluate_batched(1, n, x, grad, logp, ctx);
}

}  // namespace

const patrac_density_function density_function = &evaluate_single;
const patrac_density_batched density_batched = &evaluate_batched;

}  // namespace patrac
