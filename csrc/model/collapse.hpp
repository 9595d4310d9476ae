// Which parameters of the output layer are integrated out, and which outputs share a covariance.
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan.hpp"

namespace patrac {

// Outputs whose Bayesian weights read the same features under the same prior and noise variance: they share one
// conditional covariance given the hidden parameters.
struct CollapsedGroup {
    std::vector<std::int32_t> features;            // (p,) positions in CollapsePlan::sources
    std::vector<double> prior_deviation;           // (p,) S^(1/2)
    std::vector<std::int32_t> outputs;             // of the group
    std::vector<std::vector<std::int64_t>> theta;  // for each of them (p,): where the weight is in theta

    std::int64_t size() const { return static_cast<std::int64_t>(features.size()); }
};

struct CollapsePlan {
    std::int64_t hidden_dim = 0;        // theta[0 .. hidden_dim) lies below the output layer
    std::vector<std::int32_t> sources;  // of the output layer that Bayesian weights read; one past the last is the 1
    std::vector<CollapsedGroup> groups;

    CollapsePlan() = default;
    CollapsePlan(CollapsePlan&&) noexcept;
    ~CollapsePlan();

    // prior_variance (K,), variance (m,) of the noise.
    static CollapsePlan make(const Plan& plan, const double* prior_variance, const std::vector<double>& variance);

    std::int64_t n_features() const { return static_cast<std::int64_t>(sources.size()); }
};

}  // namespace patrac
