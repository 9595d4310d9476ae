// Folds the constants of the data: runs the fixed part of the network once, in float64, and fills the tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "packed.hpp"
#include "../patrac.hpp"
#include "../shared/activation.hpp"
#include "contraction.hpp"

namespace patrac::PATRAC_LEVEL {

// Calls f with the activation's type.
template <class F>
PATRAC_FN auto with_activation(Activation activation, F&& f) {
    switch (activation) {
        case Activation::relu: return f(Relu{});
        case Activation::gelu: return f(Gelu{});
        case Activation::silu: return f(Silu{});
        case Activation::sigmoid: return f(Sigmoid{});
        case Activation::tanh: break;
    }
    return f(Tanh{});
}

// Input `column` of row `row`.
template <class T>
PATRAC_FN T input_of(const DataView<T>& data, std::int64_t row, std::int64_t column) {
    const std::int64_t at = row * data.row_step + column * data.column_step;
    return data.byte_inputs ? static_cast<T>(data.byte_inputs[at]) : data.inputs[at];
}

// Dense affine maps over constant nodes: out = bias + weights * below, float64, node-major.
struct FixedMap {
    std::vector<std::int32_t> nodes;  // which nodes of the layer the rows of `weights` are
    std::vector<double> weights;      // (nodes, n_in); zero where the weight is Bayesian or its source varies
    std::vector<double> biases;       // (nodes,)
    std::int64_t n_in = 0;

    // See contract(). `Zeta` is void where there is no activation.
    template <class Zeta>
    struct Ends {
        using V = Vec<double>;
        struct Node {
            double bias;

            template <class W>
            PATRAC_FN W start(std::int64_t) const {
                return broadcast<W>(bias);
            }
            template <class W>
            PATRAC_FN W result(std::int64_t, W z) const {
                return z;
            }
        };
        const double* bias;

        PATRAC_FN Node at(std::int64_t o) const { return {bias[o]}; }
        static constexpr bool finishes = !std::is_void_v<Zeta>;
        PATRAC_FN V finish(V z) const {
            if constexpr (finishes)
                return Zeta::value(z);
            else
                return z;
        }
    };

    void apply(const double* below, double* out, std::int64_t stride, std::int64_t n_vectors,
               std::optional<Activation> activation) const {
        const Sources<double> sources{below, n_in, stride};
        const Contraction<double> affine{
            static_cast<std::int64_t>(nodes.size()), weights.data(), n_in, 1, &sources, 1, out, stride, n_vectors};
        if (!activation) return contract(affine, Ends<void>{biases.data()});
        with_activation(*activation, [&](auto zeta) { contract(affine, Ends<decltype(zeta)>{biases.data()}); });
    }
};

// The fixed part of a model: what the plan declared constant, and the companion network of Sep.
class Packer {
public:
    Packer(const Plan& plan, const Network& network, const std::optional<Network>& companion) : plan_(plan) {
        std::vector<bool> below_varies(static_cast<std::size_t>(plan.n_inputs), false);
        for (std::size_t l = 0; l < plan.layers.size(); ++l) {
            const PlanLayer& planned = plan.layers[l];
            const Layer& layer = network.layers[l];
            std::vector<bool> is_row(static_cast<std::size_t>(layer.n_out), false);
            for (const std::int32_t node : planned.rows) is_row[static_cast<std::size_t>(node)] = true;
            FixedMap offset =
                fixed_map(layer, below_varies, [&](std::int64_t i) { return is_row[static_cast<std::size_t>(i)]; });
            keep_rows(offset, planned);
            offsets_.push_back(std::move(offset));
            constants_.push_back(
                fixed_map(layer, below_varies, [&](std::int64_t i) { return !is_row[static_cast<std::size_t>(i)]; }));
            // The plan's rows are the varying nodes, save in the output layer, which nothing reads.
            below_varies = is_row;
        }
        if (!companion) return;
        companion_activation_ = companion->activation;
        for (const Layer& layer : companion->layers) {
            const std::vector<bool> none(static_cast<std::size_t>(layer.n_in), false);
            companion_.push_back(fixed_map(layer, none, [](std::int64_t) { return true; }));
        }
    }

    // Fills all tiles; `likelihood` says how targets are laid out, and is not read when data.targets is null.
    template <class T>
    void fill(const DataView<T>& data, LikelihoodKind likelihood, PackedData<T>& packed) const {
        if (PackedData<T>::can_stay(plan_, data)) {
            packed.inputs = data.inputs;
            packed.owner = data.owner;
            packed.input_step = data.column_step;
            packed.last_inputs = AlignedArray<T>(plan_.n_inputs * packed.layout.stride);
        }
        Workspace work(*this, padded(packed.layout.stride));
        for (std::int64_t t = 0; t < packed.n_tiles; ++t) fill_tile(data, likelihood, packed, t, work);
    }

private:
    // Buffers of one tile in float64, reused over tiles.
    struct Workspace {
        std::int64_t stride;
        AlignedArray<double> below, above, offset, companion_below, companion_above;

        Workspace(const Packer& packer, std::int64_t rows) : stride(rows) {
            std::int64_t widest = packer.plan_.n_inputs;
            for (std::size_t l = 0; l < packer.constants_.size(); ++l)
                widest = std::max({widest, packer.constants_[l].n_in, packer.offsets_[l].n_in, packer.plan_.n_outputs});
            std::int64_t companion_widest = packer.plan_.n_inputs;
            for (const FixedMap& map : packer.companion_)
                companion_widest = std::max(companion_widest, static_cast<std::int64_t>(map.nodes.size()));
            std::int64_t most_offsets = 1;
            for (const FixedMap& map : packer.offsets_)
                most_offsets = std::max(most_offsets, static_cast<std::int64_t>(map.nodes.size()));
            below = AlignedArray<double>(widest * rows);
            above = AlignedArray<double>(widest * rows);
            offset = AlignedArray<double>(most_offsets * rows);
            if (packer.companion_.empty()) return;
            companion_below = AlignedArray<double>(companion_widest * rows);
            companion_above = AlignedArray<double>(companion_widest * rows);
        }
    };

    static std::int64_t padded(std::int64_t rows) {
        constexpr std::int64_t lanes = lanes_v<Vec<double>>;
        return (rows + lanes - 1) / lanes * lanes;
    }

    template <class Keep>
    static FixedMap fixed_map(const Layer& layer, const std::vector<bool>& below_varies, const Keep& keep) {
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
    static void keep_rows(FixedMap& map, const PlanLayer& planned) {
        FixedMap kept;
        kept.n_in = map.n_in;
        for (const std::int32_t r : planned.offset_rows) {
            kept.nodes.push_back(planned.rows[static_cast<std::size_t>(r)]);
            kept.biases.push_back(0.0);
            const auto first = map.weights.begin() + r * map.n_in;
            kept.weights.insert(kept.weights.end(), first, first + map.n_in);
        }
        map = std::move(kept);
    }

    template <class T>
    void fill_tile(const DataView<T>& data, LikelihoodKind likelihood, PackedData<T>& packed, std::int64_t t,
                   Workspace& work) const {
        const std::int64_t first = t * packed.layout.stride;
        const std::int64_t rows = packed.rows_in_tile(t);
        const std::int64_t filled = packed.vectors_in_tile(t) * packed.lanes;  // real rows and the padding
        const std::int64_t vectors = padded(filled) / lanes_v<Vec<double>>;
        // Padding repeats the last row, so it is finite whenever the data's rows are.
        const auto source_row = [&](std::int64_t r) { return first + std::min(r, rows - 1); };
        T* const tile = packed.tile(t);
        const std::int64_t stride = packed.layout.stride;

        for (std::int64_t r = 0; r < padded(filled); ++r)
            for (std::int64_t j = 0; j < plan_.n_inputs; ++j)
                work.below[j * work.stride + r] = static_cast<double>(input_of(data, source_row(r), j));
        const double* companion_output = run_companion(work, vectors);

        for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
            const PlanLayer& layer = plan_.layers[l];
            const bool is_output = l + 1 == plan_.layers.size();
            const bool stay = l == 0 && packed.inputs;
            T* const constants = stay ? packed.last_inputs.data() : tile + packed.layout.constants[l];
            const bool elsewhere = (l == 0 && packed.inputs_elsewhere) || (stay && t + 1 < packed.n_tiles);
            const std::int64_t n_constant = elsewhere ? 0 : layer.n_constant();
            for (std::int64_t s = 0; s < n_constant; ++s) {
                const double* value =
                    work.below.data() + layer.constant_sources[static_cast<std::size_t>(s)] * work.stride;
                std::transform(value, value + filled, constants + s * stride,
                               [](double x) { return static_cast<T>(x); });
            }
            offsets_[l].apply(work.below.data(), work.offset.data(), work.stride, vectors, std::nullopt);
            T* const offsets = tile + packed.layout.offsets[l];
            for (std::size_t o = 0; o < layer.offset_rows.size(); ++o) {
                const std::int64_t node = offsets_[l].nodes[o];
                for (std::int64_t r = 0; r < filled; ++r) {
                    double value = work.offset[static_cast<std::int64_t>(o) * work.stride + r];
                    if (is_output && companion_output) value += companion_output[node * work.stride + r];
                    offsets[static_cast<std::int64_t>(o) * stride + r] = static_cast<T>(value);
                }
            }
            if (is_output) break;
            // Constant nodes to their places; a varying node's place is read with weight zero, so it must be finite.
            constants_[l].apply(work.below.data(), work.above.data(), work.stride, vectors, plan_.activation);
            std::fill_n(work.below.data(), work.below.size(), 0.0);
            for (std::size_t c = 0; c < constants_[l].nodes.size(); ++c)
                std::copy_n(work.above.data() + static_cast<std::int64_t>(c) * work.stride, filled,
                            work.below.data() + constants_[l].nodes[c] * work.stride);
        }

        if (!data.targets) return;
        const std::int64_t n_targets = targets_per_row(likelihood, plan_.n_outputs);
        for (std::int64_t c = 0; c < n_targets; ++c)
            for (std::int64_t r = 0; r < filled; ++r)
                tile[packed.layout.targets + c * stride + r] =
                    static_cast<T>(data.targets[source_row(r) * n_targets + c]);
        for (std::int64_t r = 0; r < rows; ++r)
            tile[packed.layout.row_weights + r] = static_cast<T>(data.row_weights[first + r]);
    }

    // The companion's output (m, stride) at the inputs in work.below, or null.
    const double* run_companion(Workspace& work, std::int64_t vectors) const {
        if (companion_.empty()) return nullptr;
        std::copy_n(work.below.data(), plan_.n_inputs * work.stride, work.companion_below.data());
        for (std::size_t l = 0; l < companion_.size(); ++l) {
            const bool is_output = l + 1 == companion_.size();
            companion_[l].apply(work.companion_below.data(), work.companion_above.data(), work.stride, vectors,
                                is_output ? std::nullopt : std::optional(companion_activation_));
            std::swap(work.companion_below, work.companion_above);
        }
        return work.companion_below.data();
    }

    const Plan& plan_;                 // outlives the packer
    std::vector<FixedMap> offsets_;    // by layer: the rows with an offset
    std::vector<FixedMap> constants_;  // by layer: the constant nodes
    std::vector<FixedMap> companion_;
    Activation companion_activation_ = Activation::tanh;
};

}  // namespace patrac::PATRAC_LEVEL
