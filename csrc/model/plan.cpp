// Builds the plan from a network and its Bayesian masks.
#include "model/plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace patrac {
namespace {

using Flags = std::vector<bool>;

std::vector<std::int32_t> positions_where(const Flags& flags) {
    std::vector<std::int32_t> positions;
    for (std::size_t i = 0; i < flags.size(); ++i)
        if (flags[i]) positions.push_back(static_cast<std::int32_t>(i));
    return positions;
}

// Appends theta -> packed, lengthening the last span where both sides are adjacent.
void append_span(std::vector<Span>& spans, std::int64_t theta, std::int64_t packed) {
    if (!spans.empty()) {
        Span& last = spans.back();
        if (last.theta + last.length == theta && last.packed + last.length == packed) {
            ++last.length;
            return;
        }
    }
    spans.push_back({theta, packed, 1});
}

// A node varies if one of its own parameters is Bayesian or if it reads a varying node through any weight that is
// Bayesian or not zero.
Flags varying_nodes(const Layer& layer, const Flags& below) {
    Flags varies(static_cast<std::size_t>(layer.n_out), false);
    for (std::int64_t i = 0; i < layer.n_out; ++i) {
        bool reached = layer.bias_mask[static_cast<std::size_t>(i)] != 0;
        for (std::int64_t j = 0; j < layer.n_in && !reached; ++j) {
            const auto at = static_cast<std::size_t>(i * layer.n_in + j);
            const bool reads_varying = below[static_cast<std::size_t>(j)] && layer.weights[at] != 0.0;
            reached = layer.weight_mask[at] != 0 || reads_varying;
        }
        varies[static_cast<std::size_t>(i)] = reached;
    }
    return varies;
}

// The order of theta within a layer: Bayesian weights row by row, then Bayesian biases (docs/method.md, section 3).
struct ThetaIndex {
    std::vector<std::int64_t> weight;  // -1 where fixed
    std::vector<std::int64_t> bias;

    ThetaIndex(const Layer& layer, std::int64_t& next)
        : weight(layer.weight_mask.size(), -1), bias(layer.bias_mask.size(), -1) {
        for (std::size_t at = 0; at < weight.size(); ++at)
            if (layer.weight_mask[at]) weight[at] = next++;
        for (std::size_t i = 0; i < bias.size(); ++i)
            if (layer.bias_mask[i]) bias[i] = next++;
    }
};

// Adds the dense gradient of these rows and sources, unless it is empty; entry(row, source) is an index of theta or -1.
template <class Entry>
void add_dense_gradient(std::vector<DenseGradient>& gradients, std::vector<std::int32_t> rows,
                        std::vector<std::int32_t> sources, const Entry& entry) {
    if (rows.empty() || sources.empty()) return;
    DenseGradient dense;
    std::int64_t at = 0;
    for (const std::int32_t row : rows)
        for (const std::int32_t source : sources) {
            if (const std::int64_t theta = entry(row, source); theta >= 0) append_span(dense.spans, theta, at);
            ++at;
        }
    dense.rows = std::move(rows);
    dense.sources = std::move(sources);
    gradients.push_back(std::move(dense));
}

PlanLayer plan_layer(const Layer& layer, const Flags& below, const Flags& rows, bool force_offset,
                     std::int64_t& next_theta) {
    PlanLayer plan;
    plan.rows = positions_where(rows);
    plan.varying_sources = positions_where(below);

    Flags constant_source(static_cast<std::size_t>(layer.n_in), false);
    for (std::int64_t i = 0; i < layer.n_out; ++i)
        for (std::int64_t j = 0; j < layer.n_in; ++j)
            if (layer.weight_mask[static_cast<std::size_t>(i * layer.n_in + j)] && !below[static_cast<std::size_t>(j)])
                constant_source[static_cast<std::size_t>(j)] = true;
    plan.constant_sources = positions_where(constant_source);

    std::vector<std::int32_t> sources = plan.varying_sources;
    sources.insert(sources.end(), plan.constant_sources.begin(), plan.constant_sources.end());

    const ThetaIndex theta(layer, next_theta);
    const auto n_sources = static_cast<std::int64_t>(sources.size());
    plan.weights.assign(static_cast<std::size_t>(plan.n_rows() * n_sources), 0.0);
    plan.biases.assign(static_cast<std::size_t>(plan.n_rows()), 0.0);
    Flags row_in_block(static_cast<std::size_t>(plan.n_rows()), false);
    Flags source_in_block(static_cast<std::size_t>(n_sources), false);

    for (std::int64_t r = 0; r < plan.n_rows(); ++r) {
        const std::int64_t node = plan.rows[static_cast<std::size_t>(r)];
        for (std::int64_t s = 0; s < n_sources; ++s) {
            const std::int64_t source = sources[static_cast<std::size_t>(s)];
            const auto at = static_cast<std::size_t>(node * layer.n_in + source);
            const std::int64_t packed = r * n_sources + s;
            if (theta.weight[at] >= 0) {
                append_span(plan.weight_spans, theta.weight[at], packed);
                row_in_block[static_cast<std::size_t>(r)] = true;
                source_in_block[static_cast<std::size_t>(s)] = true;
            } else if (s < plan.n_varying()) {
                plan.weights[static_cast<std::size_t>(packed)] = layer.weights[at];
            }
        }
        const auto bias_at = static_cast<std::size_t>(node);
        if (theta.bias[bias_at] >= 0)
            append_span(plan.bias_spans, theta.bias[bias_at], r);
        else
            plan.biases[static_cast<std::size_t>(r)] = layer.biases[bias_at];

        bool has_offset = force_offset;
        for (std::int64_t j = 0; j < layer.n_in && !has_offset; ++j) {
            const auto at = static_cast<std::size_t>(node * layer.n_in + j);
            has_offset = !below[static_cast<std::size_t>(j)] && theta.weight[at] < 0 && layer.weights[at] != 0.0;
        }
        if (has_offset) plan.offset_rows.push_back(static_cast<std::int32_t>(r));
    }

    // theta's index of the entry at (row, source) of the layer, -1 where fixed.
    const auto entry = [&](std::int32_t row, std::int32_t source) {
        const std::int64_t node = plan.rows[static_cast<std::size_t>(row)];
        if (source == n_sources) return theta.bias[static_cast<std::size_t>(node)];
        return theta.weight[static_cast<std::size_t>(node * layer.n_in + sources[static_cast<std::size_t>(source)])];
    };
    std::vector<std::int32_t> weight_rows = positions_where(row_in_block), bias_rows;
    for (std::int32_t r = 0; r < plan.n_rows(); ++r)
        if (entry(r, static_cast<std::int32_t>(n_sources)) >= 0) bias_rows.push_back(r);
    std::vector<std::int32_t> weight_sources = positions_where(source_in_block);
    const std::vector<std::int32_t> bias_source{static_cast<std::int32_t>(n_sources)};
    // One dense gradient costs a small layer less than two; in a wide one it would break up the spans of theta.
    constexpr std::size_t wide = 8;
    if (weight_rows == bias_rows && weight_sources.size() < wide) {
        weight_sources.push_back(bias_source.front());
        add_dense_gradient(plan.gradient, std::move(weight_rows), std::move(weight_sources), entry);
    } else {
        add_dense_gradient(plan.gradient, std::move(weight_rows), std::move(weight_sources), entry);
        add_dense_gradient(plan.gradient, std::move(bias_rows), bias_source, entry);
    }
    return plan;
}

}  // namespace

Plan::Plan(Plan&&) noexcept = default;
Plan::~Plan() = default;

Plan Plan::make(const Network& network, bool has_companion) {
    Plan plan;
    plan.activation = network.activation;
    plan.n_inputs = network.n_inputs();
    plan.n_outputs = network.n_outputs();
    Flags below(static_cast<std::size_t>(network.n_inputs()), false);
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
        const Layer& layer = network.layers[l];
        const bool is_output = l + 1 == network.layers.size();
        Flags varies = varying_nodes(layer, below);
        // The likelihood reads every output, so the output layer evaluates its constant nodes too.
        const Flags rows = is_output ? Flags(varies.size(), true) : varies;
        plan.layers.push_back(plan_layer(layer, below, rows, is_output && has_companion, plan.dim));
        below = std::move(varies);
    }
    return plan;
}

std::vector<LayerReport> Plan::report(const Network& network) const {
    std::vector<LayerReport> reports;
    Flags below(static_cast<std::size_t>(n_inputs), false);
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const PlanLayer& layer = layers[l];
        const Layer& source = network.layers[l];
        below = varying_nodes(source, below);
        LayerReport report;
        report.nodes = source.n_out;
        report.varying = std::count(below.begin(), below.end(), true);
        report.varying_sources = layer.n_varying();
        report.constant_sources = layer.n_constant();
        report.offsets = static_cast<std::int64_t>(layer.offset_rows.size());
        report.bayesian = std::count(source.weight_mask.begin(), source.weight_mask.end(), std::uint8_t{1}) +
                          std::count(source.bias_mask.begin(), source.bias_mask.end(), std::uint8_t{1});
        for (const DenseGradient& dense : layer.gradient)
            report.gradient_block +=
                std::ssize(dense.rows) * (std::ssize(dense.sources) - (dense.sources.back() == layer.n_sources()));
        reports.push_back(report);
    }
    return reports;
}

}  // namespace patrac
