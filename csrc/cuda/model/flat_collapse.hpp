// The collapsed output layer in flat arrays, see CollapsePlan.
#pragma once

#include <vector>

#include "model/collapse.hpp"
#include "model/plan.hpp"

namespace patrac {

// Where the arrays of a group lie in FlatCollapse::indices, and its numbers in the chain's.
struct FlatCollapseGroup {
    int size, n_outputs;
    int features;             // (size,) positions among the features
    int outputs;              // (n_outputs,)
    int theta;                // (n_outputs, size) index of theta
    int deviation;            // (size,) in FlatCollapse::deviation
    int factor;               // (size, size) in a chain's factors
    int alpha;                // (n_outputs, size) in a chain's alphas, and among the normals that a draw takes
    int output;               // the one among the network's whose noise variance the group has
    double precision;         // 1 / its noise variance, where that is fixed
    double narrow_precision;  // the largest at which sums may be in float32, see CollapsedGroup::narrow_ratio
};

struct FlatCollapse {
    int hidden_dim = 0, n_features = 0;
    int factor_size = 0, alpha_size = 0;
    std::vector<FlatCollapseGroup> groups;
    std::vector<int> sources;  // (n_features,) of the output layer; one past the last is the 1 that biases multiply
    std::vector<int> indices;
    std::vector<double> deviation;  // S^(1/2)

    // The same groups of the same features; only their numbers may differ.
    bool is_alike(const FlatCollapse& other) const {
        return groups.size() == other.groups.size() && sources == other.sources && indices == other.indices;
    }

    // As CollapsePlan::make().
    static FlatCollapse make(const Plan& plan, const double* prior_variance, const std::vector<double>& variance,
                             double weight, bool apart);
};

}  // namespace patrac
