// Finds the features and the groups of a collapsed output layer.
#include "model/collapse.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace patrac {

CollapsePlan::CollapsePlan(CollapsePlan&&) noexcept = default;
CollapsePlan::~CollapsePlan() = default;

namespace {

// See CollapsedGroup::narrow_ratio and narrow_entry. On the features of networks trained on three tables (50 nodes, one
// tile of up to 264 rows) the small eigenvalues of M were wrong by 1e-9 of its largest entry and log|M| by some 1e-9
// too, so entries up to max_entry keep both errors below a hundredth. Sums over tiles are in float64 and the errors of
// tiles are independent: M's grow with the root of the number of tiles, its entries with the number itself.
constexpr double max_entry = 524288.0;
double narrow_ratio_of(Activation activation, double weight) {
    constexpr double tile_rows = 264.0;
    if (!is_bounded(activation)) return 0.0;
    return max_entry * std::sqrt(std::max(1.0, weight / tile_rows)) / weight;
}

}  // namespace

std::vector<std::int64_t> hidden_entries(const Plan& plan, std::int64_t n_outputs) {
    const PlanLayer& output = plan.layers.back();
    const auto is_drawn = [&](std::int64_t row) { return output.rows[static_cast<std::size_t>(row)] < n_outputs; };
    std::vector<bool> drawn(static_cast<std::size_t>(plan.dim));
    for (const Span& span : output.weight_spans)
        for (std::int64_t i = 0; i < span.length; ++i)
            drawn[static_cast<std::size_t>(span.theta + i)] = is_drawn((span.packed + i) / output.n_sources());
    for (const Span& span : output.bias_spans)
        for (std::int64_t i = 0; i < span.length; ++i)
            drawn[static_cast<std::size_t>(span.theta + i)] = is_drawn(span.packed + i);
    std::vector<std::int64_t> hidden;
    for (std::int64_t i = 0; i < plan.dim; ++i)
        if (!drawn[static_cast<std::size_t>(i)]) hidden.push_back(i);
    return hidden;
}

CollapsePlan CollapsePlan::make(const Plan& plan, const double* prior_variance, const std::vector<double>& variance,
                                double weight, bool apart) {
    const std::int64_t n_collapsed = std::ssize(variance);
    if (n_collapsed == 0 || n_collapsed > plan.n_outputs)
        throw std::invalid_argument("collapse: output weights can be integrated out under Gaussian noise alone");
    const PlanLayer& output = plan.layers.back();
    const std::int64_t n_sources = output.n_sources();
    // theta's index of each Bayesian weight by row and source, the bias last; -1 where fixed.
    std::vector<std::int64_t> index(static_cast<std::size_t>(output.n_rows() * (n_sources + 1)), -1);
    CollapsePlan collapse;
    collapse.hidden = hidden_entries(plan, n_collapsed);
    for (const Span& span : output.weight_spans)
        for (std::int64_t i = 0; i < span.length; ++i) {
            const std::int64_t row = (span.packed + i) / n_sources, source = (span.packed + i) % n_sources;
            index[static_cast<std::size_t>(row * (n_sources + 1) + source)] = span.theta + i;
        }
    for (const Span& span : output.bias_spans)
        for (std::int64_t i = 0; i < span.length; ++i)
            index[static_cast<std::size_t>((span.packed + i) * (n_sources + 1) + n_sources)] = span.theta + i;

    const auto at = [&](std::int64_t row, std::int64_t source) {
        if (output.rows[static_cast<std::size_t>(row)] >= n_collapsed) return std::int64_t{-1};
        return index[static_cast<std::size_t>(row * (n_sources + 1) + source)];
    };
    for (std::int64_t s = 0; s <= n_sources; ++s)
        for (std::int64_t row = 0; row < output.n_rows(); ++row)
            if (at(row, s) >= 0) {
                collapse.sources.push_back(static_cast<std::int32_t>(s));
                break;
            }

    std::vector<double> group_variance;
    for (std::int64_t row = 0; row < output.n_rows(); ++row) {
        CollapsedGroup own;
        std::vector<std::int64_t> theta;
        for (std::size_t f = 0; f < collapse.sources.size(); ++f) {
            const std::int64_t entry = at(row, collapse.sources[f]);
            if (entry < 0) continue;
            own.features.push_back(static_cast<std::int32_t>(f));
            own.prior_deviation.push_back(std::sqrt(prior_variance[entry]));
            theta.push_back(entry);
        }
        if (theta.empty()) continue;
        const double noise = variance[static_cast<std::size_t>(output.rows[static_cast<std::size_t>(row)])];
        std::size_t g = apart ? collapse.groups.size() : 0;
        while (g < collapse.groups.size() &&
               (collapse.groups[g].features != own.features ||
                collapse.groups[g].prior_deviation != own.prior_deviation || group_variance[g] != noise))
            ++g;
        if (g == collapse.groups.size()) {
            own.narrow_ratio = narrow_ratio_of(plan.activation, weight);
            own.narrow_entry = is_bounded(plan.activation) && plan.layers.size() > 1 ? max_entry : 0.0;
            collapse.groups.push_back(std::move(own));
            group_variance.push_back(noise);
        }
        collapse.groups[g].outputs.push_back(static_cast<std::int32_t>(row));
        collapse.groups[g].theta.push_back(std::move(theta));
    }
    return collapse;
}

}  // namespace patrac
