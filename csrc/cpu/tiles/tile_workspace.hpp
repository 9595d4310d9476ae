// The arrays of one tile during an evaluation, and the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/half_vector.hpp"
#include "cpu/tiles/layer_parameters.hpp"
#include "cpu/tiles/pack.hpp"
#include "cpu/tiles/packed.hpp"
#include "model/collapse.hpp"
#include "model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// The values of a layer at the rows of a tile, (rows, stride), for one tile after the other or for each of several.
template <class T>
class TileValues {
public:
    TileValues() = default;
    TileValues(std::int64_t size, std::int64_t tiles) : all_(size * tiles), at_(all_.data()), size_(size) {}

    void bind(std::int64_t tile) { at_ = all_.data() + tile * size_; }
    // Of the bound tile, before bind() the first.
    T* data() { return at_; }
    const T* data() const { return at_; }
    std::int64_t size() const { return size_; }
    const T& operator[](std::int64_t i) const { return at_[i]; }

private:
    AlignedArray<T> all_;
    T* at_ = nullptr;
    std::int64_t size_ = 0;
};

// The arrays that a dense gradient multiplies.
template <class T>
struct DenseGradientWork {
    std::vector<const T*> rows;     // in value, once it holds dl/d(pre-activation)
    std::vector<const T*> sources;  // of the bound tile, or ones
    std::size_t total = 0;          // its place in Totals
};

template <class T>
struct LayerWork {
    LayerParameters<T> weights;  // (rows, sources)
    LayerParameters<T> biases;   // (rows,)
    // (rows, stride): activations, f in the output layer. The reverse pass turns them, each layer in its place,
    // into dl/d(pre-activation): the activations are no longer needed, and the memory is in the cache.
    TileValues<T> value;
    TileValues<T> pre;  // (rows, stride): before the activation, where its derivative needs it
    std::vector<DenseGradientWork<T>> gradient;
    // Of the bound tile:
    Sources<T> groups[2] = {};    // values of the layer below that vary, then the tile's constants
    std::vector<const T*> start;  // (rows,): the offset of each row, or zeros

    explicit LayerWork(const PlanLayer& layer)
        : weights(layer.weights, layer.weight_spans), biases(layer.biases, layer.bias_spans) {}
};

template <class T>
struct TileWorkspace {
    const Plan& plan;              // outlives the workspace, as does collapse
    const CollapsePlan* collapse;  // of a collapsed output layer, or null
    std::int64_t stride;
    const T* row_weights;  // (n_tiles, stride) in place of the tiles' own, or null; it outlives the workspace too
    bool values_by_tile;   // whether the hidden layers have values for each tile, which stay when another is bound
    AlignedArray<T> zeros, ones;
    std::vector<LayerWork<T>> layers;
    // Of the bound tile:
    const T* tile = nullptr;
    const T* weight = nullptr;  // (stride,)
    std::int64_t n_rows = 0, n_vectors = 0;
    bool ends_in_half = false;
    std::vector<const T*> features;  // (P,) of a collapsed output layer

    // Keeps the hidden values of `held_tiles` tiles, all of the data, or with 1 of the bound one alone.
    TileWorkspace(const Plan& plan_, std::int64_t stride_, const CollapsePlan* collapse_, std::int64_t held_tiles,
                  const T* row_weights_)
        : plan(plan_),
          collapse(collapse_),
          stride(stride_),
          row_weights(row_weights_),
          values_by_tile(held_tiles > 1),
          zeros(stride),
          ones(stride) {
        std::fill_n(ones.data(), stride, T(1));
        const bool keeps_pre = keeps_pre_activations(plan);
        layers.reserve(plan.layers.size());
        std::size_t n_gradients = 0;
        for (std::size_t l = 0; l < plan.layers.size(); ++l) {
            const PlanLayer& layer = plan.layers[l];
            LayerWork<T>& work = layers.emplace_back(layer);
            const bool is_hidden = l + 1 < plan.layers.size();
            work.value = TileValues<T>(layer.n_rows() * stride, is_hidden ? held_tiles : 1);
            if (keeps_pre && is_hidden) work.pre = TileValues<T>(layer.n_rows() * stride, held_tiles);
            work.groups[0] = {l > 0 ? layers[l - 1].value.data() : zeros.data(), layer.n_varying(), stride};
            for (const DenseGradient& dense : layer.gradient) {
                DenseGradientWork<T>& columns = work.gradient.emplace_back();
                for (const std::int32_t row : dense.rows) columns.rows.push_back(work.value.data() + row * stride);
                columns.sources.assign(dense.sources.size(), ones.data());
                columns.total = n_gradients++;
            }
            work.start.assign(layer.rows.size(), zeros.data());
        }
        if (collapse) features.assign(collapse->sources.size(), ones.data());
    }
    // Number of the hidden values of a tile.
    static std::int64_t hidden_size(const Plan& plan, std::int64_t stride) {
        std::int64_t nodes = 0;
        for (std::size_t l = 0; l + 1 < plan.layers.size(); ++l) nodes += plan.layers[l].n_rows();
        return nodes * stride * (keeps_pre_activations(plan) ? 2 : 1);
    }
    // It points into its own arrays, which moving leaves where they are.
    TileWorkspace(TileWorkspace&&) noexcept = default;

    // Points the workspace at a tile. All calls must pass the same PackedData.
    void bind(const PackedData<T>& data, std::int64_t t) {
        n_rows = data.rows_in_tile(t);
        n_vectors = data.vectors_in_tile(t);
        // Rows end in the lower half of a vector. The upper half may then hold anything, infinity included; its
        // lanes stay separate except in the likelihood's sums, which clear them.
        ends_in_half = data.n_tiles == 1 && rest_fits_half<T>(n_rows);
        if (tile == data.tile(t)) return;
        tile = data.tile(t);
        weight = row_weights ? row_weights + t * stride : tile + data.layout.row_weights;
        for (std::size_t l = 0; l < layers.size(); ++l) {
            const PlanLayer& layer = plan.layers[l];
            LayerWork<T>& work = layers[l];
            if (values_by_tile) bind_values(l, t);
            const TileItems<T> constants = data.constants(l, t);
            work.groups[1] = {constants.base, layer.n_constant(), constants.step};
            for (std::size_t o = 0; o < layer.offset_rows.size(); ++o)
                work.start[static_cast<std::size_t>(layer.offset_rows[o])] =
                    tile + data.layout.offsets[l] + static_cast<std::int64_t>(o) * stride;
            const auto point_to = [&](const std::vector<std::int32_t>& sources, std::vector<const T*>& pointers) {
                for (std::size_t j = 0; j < sources.size(); ++j) {
                    const std::int64_t s = sources[j], constant = s - layer.n_varying();
                    if (s == layer.n_sources()) continue;
                    pointers[j] =
                        constant < 0 ? work.groups[0].base + s * stride : constants.base + constant * constants.step;
                }
            };
            for (std::size_t b = 0; b < work.gradient.size(); ++b)
                point_to(layer.gradient[b].sources, work.gradient[b].sources);
            if (collapse && l + 1 == layers.size()) point_to(collapse->sources, features);
        }
    }

private:
    static bool keeps_pre_activations(const Plan& plan) {
        bool keeps = false;
        visit(plan.activation, [&](auto zeta) { keeps = !decltype(zeta)::from_value; });
        return keeps;
    }

    // The values of layer l are those of tile t from here on, and those of the layers below already.
    void bind_values(std::size_t l, std::int64_t t) {
        LayerWork<T>& work = layers[l];
        if (l > 0) work.groups[0].base = layers[l - 1].value.data();
        if (l + 1 == layers.size()) return;
        work.value.bind(t);
        if (work.pre.size() > 0) work.pre.bind(t);
        for (std::size_t b = 0; b < work.gradient.size(); ++b) {
            const std::vector<std::int32_t>& rows = plan.layers[l].gradient[b].rows;
            for (std::size_t r = 0; r < rows.size(); ++r)
                work.gradient[b].rows[r] = work.value.data() + rows[r] * stride;
        }
    }
};

}  // namespace patrac::PATRAC_LEVEL
