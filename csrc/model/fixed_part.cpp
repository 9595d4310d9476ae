// Takes the fixed part out of a network and its plan.
#include "model/fixed_part.hpp"

#include <utility>

namespace patrac {
namespace {

template <class Keep>
FixedMap fixed_map(const Layer& layer, const std::vector<bool>& below_varies, const Keep& keep) {
    FixedMap map;
    map.n_in = layer.n_in;
    for (std::int64_t i = 0; i < layer.n_out; ++i) {
        if (!keep(i)) continue;
        map.nodes.push_back(static_cast<std::int32_t>(i));
        map.biases.push_back(layer.biases[static_cast<std::size_t>(i)]);
        for (std::int64_t j = 0; j < layer.n_in; ++j) {
            const auto at = static_cast<std::size_t>(i * layer.n_in + j);
            const bool fixed = !layer.weight_mask[at] && !below_varies[static_cast<std::size_t>(j)];
            map.weights.push_back(fixed ? layer.weights[at] : 0.0);
        }
    }
    return map;
}

// Only rows with an offset stay; their biases are the engine's, not the offset's.
FixedMap of_offset_rows(const FixedMap& map, const PlanLayer& planned) {
    FixedMap kept;
    kept.n_in = map.n_in;
    for (const std::int32_t r : planned.offset_rows) {
        kept.nodes.push_back(planned.rows[static_cast<std::size_t>(r)]);
        kept.biases.push_back(0.0);
        const auto first = map.weights.begin() + r * map.n_in;
        kept.weights.insert(kept.weights.end(), first, first + map.n_in);
    }
    return kept;
}

}  // namespace

FixedPart::FixedPart(FixedPart&&) noexcept = default;
FixedPart& FixedPart::operator=(FixedPart&&) noexcept = default;
FixedPart::~FixedPart() = default;

FixedPart FixedPart::make(const Plan& plan, const ModelSpec& spec) {
    FixedPart part;
    std::vector<bool> below_varies(static_cast<std::size_t>(plan.n_inputs), false);
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
        const PlanLayer& planned = plan.layers[l];
        const Layer& layer = spec.network.layers[l];
        std::vector<bool> is_row(static_cast<std::size_t>(layer.n_out), false);
        for (const std::int32_t node : planned.rows) is_row[static_cast<std::size_t>(node)] = true;
        part.offsets.push_back(of_offset_rows(
            fixed_map(layer, below_varies, [&](std::int64_t i) { return is_row[static_cast<std::size_t>(i)]; }),
            planned));
        part.constants.push_back(
            fixed_map(layer, below_varies, [&](std::int64_t i) { return !is_row[static_cast<std::size_t>(i)]; }));
        // The plan's rows are the varying nodes, save in the output layer, which nothing reads.
        below_varies = is_row;
    }
    if (!spec.companion) return part;
    part.companion_activation = spec.companion->activation;
    for (const Layer& layer : spec.companion->layers) {
        const std::vector<bool> none(static_cast<std::size_t>(layer.n_in), false);
        part.companion.push_back(fixed_map(layer, none, [](std::int64_t) { return true; }));
    }
    return part;
}

}  // namespace patrac
