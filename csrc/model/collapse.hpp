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
    // The largest prior variance over noise variance at which the moments of float32 features may be summed in float32.
    // M = I + S^(1/2) Phi'W Phi S^(1/2) / variance has no eigenvalue below 1, however small the noise variance is, but
    // its largest entries grow with S / variance. Sums in float32 leave errors of about 1e-9 of these; once they come
    // near 1, M is indefinite, or the mean of the output weights wrong in every direction of which the data say little.
    // Rounded features and residuals do no harm: M is then that of features nearby. Whether a sum is in float64 depends
    // on the two variances alone, so the density at a point does not depend on the chain's path.
    double narrow_ratio = 0.0;
    // The same for noise with a variance of each row: the largest entry of M to which one tile of float32 features may
    // add in float32, if there is no other.
    double narrow_entry = 0.0;

    std::int64_t size() const { return static_cast<std::int64_t>(features.size()); }
};

// The positions in theta of theta_h (K_h,), in order: all of theta but the Bayesian weights and biases of the outputs
// 0 .. n_outputs - 1 of the last layer. Where those are all of its outputs, theta_h is theta[0 .. K_h).
std::vector<std::int64_t> hidden_entries(const Plan& plan, std::int64_t n_outputs);

struct CollapsePlan {
    std::vector<std::int64_t> hidden;   // (K_h,), see hidden_entries()
    std::vector<std::int32_t> sources;  // of the output layer that Bayesian weights read; one past the last is the 1
    std::vector<CollapsedGroup> groups;
    // Whether the noise of each row and output has a variance of its own, an output of the network; then each output is
    // a group, and what is divided by a noise variance is a sum weighted with the inverse variances.
    bool by_row = false;

    CollapsePlan() = default;
    CollapsePlan(CollapsePlan&&) noexcept;
    ~CollapsePlan();

    // prior_variance (K,), variance (c,) of the noise of the outputs whose weights are integrated out, which are the
    // first, `weight` the sum of the row weights. `apart`: each output is a group of its own, because their variances
    // will not stay equal.
    static CollapsePlan make(const Plan& plan, const double* prior_variance, const std::vector<double>& variance,
                             double weight, bool apart = false);

    std::int64_t hidden_dim() const { return static_cast<std::int64_t>(hidden.size()); }
    // Whether theta_h is theta[0 .. K_h).
    bool hidden_is_first() const { return hidden.empty() || hidden.back() == hidden_dim() - 1; }
    std::int64_t n_features() const { return static_cast<std::int64_t>(sources.size()); }
};

}  // namespace patrac
