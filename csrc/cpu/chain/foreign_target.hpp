// The target (cpu/chain/concepts.hpp) of a log-likelihood that is given as a function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/chain/chain.hpp"
#include "cpu/chain/state.hpp"
#include "cpu/chain/target.hpp"
#include "model/foreign_density.hpp"
#include "schedule/rendezvous.hpp"

namespace patrac::PATRAC_LEVEL {

class ForeignTarget : public PlainTarget<double> {
public:
    // `together` is null unless one call evaluates all chains, of which this is the `chain`th; both outlive the target.
    ForeignTarget(const ForeignDensity& density, Rendezvous* together, std::int64_t chain)
        : PlainTarget<double>(density.dim, 0.0, {}),
          density_(&density),
          together_(together),
          chain_(chain),
          unused_(density.dim) {}

    // What advances chains together, or null.
    Rendezvous* together() const { return together_; }

    // The function writes its gradient in any case; a kernel without gradients reads zeros in the state.
    void evaluate(State<double, Nothing>& state, bool gradient) {
        double* const slope = gradient ? state.gradient.data() : unused_.data();
        if (together_) {
            state.log_likelihood = together_->evaluate(chain_, state.theta.data(), slope);
            return;
        }
        const int code = density_->one(static_cast<std::size_t>(this->dim_), state.theta.data(), slope,
                                       &state.log_likelihood, density_->context);
        require_success(code);
    }

    static void require_success(int code) {
        if (code != 0)
            throw std::runtime_error("log_likelihood_and_grad: the function returned the error code " +
                                     std::to_string(code));
    }

    // No noise variance is sampled, so neither is called.
    void sum_of_squares(const State<double, Nothing>&, const double*, double*) const {}
    void set_variance(State<double, Nothing>&, const std::vector<double>&, bool) const {}

private:
    const ForeignDensity* density_;
    Rendezvous* together_;
    std::int64_t chain_;
    AlignedArray<double> unused_;  // (K,), a gradient that nobody reads
};

// Runs one chain for each row of buffers.init; returns as Model::sample does.
inline bool sample_foreign(const ForeignDensity& density, const RunConfig& config, const RunBuffers<double>& buffers,
                           const Monitor& monitor) {
    std::int64_t chain = 0;
    if (!density.batched)
        return run_targets<double>([&] { return ForeignTarget(density, nullptr, chain++); }, config, buffers, monitor);
    Rendezvous together(config.chains, density.dim, buffers.init,
                        [&](const double* x, double* gradient, double* value) {
                            ForeignTarget::require_success(density.batched(static_cast<std::size_t>(config.chains),
                                                                           static_cast<std::size_t>(density.dim), x,
                                                                           gradient, value, density.context));
                        });
    return run_targets<double>([&] { return ForeignTarget(density, &together, chain++); }, config, buffers, monitor);
}

}  // namespace patrac::PATRAC_LEVEL
