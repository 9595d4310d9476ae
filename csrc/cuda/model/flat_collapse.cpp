// Flattens the plan of a collapsed output layer.
#include "cuda/model/flat_collapse.hpp"

#include <algorithm>

namespace patrac {

FlatCollapse FlatCollapse::make(const Plan& plan, const double* prior_variance, const std::vector<double>& variance,
                                double weight, bool apart) {
    const CollapsePlan collapse = CollapsePlan::make(plan, prior_variance, variance, weight, apart);
    FlatCollapse flat;
    flat.hidden_dim = static_cast<int>(collapse.hidden_dim());
    flat.n_features = static_cast<int>(collapse.n_features());
    flat.sources.assign(collapse.sources.begin(), collapse.sources.end());
    const auto add = [&flat](const auto& values) {
        const int start = static_cast<int>(flat.indices.size());
        for (const auto value : values) flat.indices.push_back(static_cast<int>(value));
        return start;
    };
    for (const CollapsedGroup& group : collapse.groups) {
        FlatCollapseGroup out{};
        out.size = static_cast<int>(group.size());
        out.n_outputs = static_cast<int>(group.outputs.size());
        out.features = add(group.features);
        out.outputs = add(group.outputs);
        out.theta = static_cast<int>(flat.indices.size());
        for (const std::vector<std::int64_t>& theta : group.theta) add(theta);
        out.deviation = static_cast<int>(flat.deviation.size());
        flat.deviation.insert(flat.deviation.end(), group.prior_deviation.begin(), group.prior_deviation.end());
        out.factor = flat.factor_size;
        flat.factor_size += out.size * out.size;
        out.alpha = flat.alpha_size;
        flat.alpha_size += out.n_outputs * out.size;
        const auto row = static_cast<std::size_t>(group.outputs.front());
        out.output = static_cast<int>(plan.layers.back().rows[row]);
        out.precision = 1.0 / variance[static_cast<std::size_t>(out.output)];
        const double largest = *std::max_element(group.prior_deviation.begin(), group.prior_deviation.end());
        out.narrow_precision = group.narrow_ratio / (largest * largest);
        flat.groups.push_back(out);
    }
    return flat;
}

}  // namespace patrac
