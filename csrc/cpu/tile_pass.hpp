// Forward, likelihood and reverse of one tile after the other, back to back while its activations are in L1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "../model/collapse.hpp"
#include "packed.hpp"
#include "contraction.hpp"
#include "layer_parameters.hpp"
#include "likelihood.hpp"
#include "pack.hpp"
#include "totals.hpp"

namespace patrac::PATRAC_LEVEL {

// Weights and the workspace of one tile. One pass serves one thread at a time. What passes over a tile is kept out of
// line: it is large, and called from every kind of chain.
template <class T>
class TilePass {
public:
    using V = Vec<T>;

    // With `collapse`, moments() and evaluate_collapsed() serve too; plan, layout and collapse outlive the pass.
    TilePass(const Plan& plan, const TileLayout& layout, const CollapsePlan* collapse = nullptr)
        : plan_(plan), stride_(layout.stride), zeros_(stride_), ones_(stride_), collapse_(collapse) {
        std::fill_n(ones_.data(), stride_, T(1));
        with_activation(plan.activation, [this](auto zeta) { keeps_pre_ = !decltype(zeta)::from_value; });
        layers_.reserve(plan.layers.size());
        std::size_t n_blocks = 0;
        for (std::size_t l = 0; l < plan.layers.size(); ++l) {
            const PlanLayer& layer = plan.layers[l];
            LayerWork& work = layers_.emplace_back(layer);
            work.value = AlignedArray<T>(layer.n_rows() * stride_);
            if (keeps_pre_ && l + 1 < plan.layers.size()) work.pre = AlignedArray<T>(layer.n_rows() * stride_);
            work.groups[0] = {l > 0 ? layers_[l - 1].value.data() : zeros_.data(), layer.n_varying(), stride_};
            for (const GradientBlock& block : layer.gradient) {
                BlockWork& columns = work.gradient.emplace_back();
                for (const std::int32_t row : block.rows) columns.rows.push_back(work.value.data() + row * stride_);
                columns.sources.assign(block.sources.size(), ones_.data());
                columns.total = n_blocks++;
            }
            work.start.assign(layer.rows.size(), zeros_.data());
        }
        if (!collapse) return;
        features_.assign(collapse->sources.size(), ones_.data());
        weighted_ = AlignedArray<T>(collapse->n_features() * stride_);
        for (std::int64_t f = 0; f < collapse->n_features(); ++f)
            weighted_rows_.push_back(weighted_.data() + f * stride_);
        for (std::int64_t c = 0; c < plan.n_outputs; ++c)
            output_rows_.push_back(layers_.back().value.data() + c * stride_);
    }
    // The workspace points into its own arrays, which moving leaves where they are.
    TilePass(TilePass&&) noexcept = default;

    // theta (K,) must stay as it is while tiles are passed over.
    void set_theta(const T* theta) {
        for (LayerWork& work : layers_) {
            work.weights.set_theta(theta);
            work.biases.set_theta(theta);
        }
    }
    // Only the output layer's part of theta has changed.
    void set_output_theta(const T* theta) {
        layers_.back().weights.set_theta(theta);
        layers_.back().biases.set_theta(theta);
    }

    // Sums over tiles first_tile .. end_tile - 1 into totals, overwriting them.
    [[gnu::noinline]] void evaluate(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                    std::int64_t first_tile, std::int64_t end_tile, bool gradient, Totals& totals) {
        with_activation(plan_.activation, [&](auto zeta) {
            using Zeta = decltype(zeta);
            totals.log_likelihood = 0.0;
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                bind(data, t);
                forward<Zeta>();
                totals.log_likelihood += likelihood_of_tile(data, likelihood);
                if (gradient) reverse<Zeta>(t == first_tile, totals);
            }
        });
    }

    // Sums over tiles first_tile .. end_tile - 1 into moments, overwriting them; theta's output weights are zero.
    [[gnu::noinline]] void moments(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile,
                                   Moments& moments) {
        with_activation(plan_.activation, [&](auto zeta) {
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                bind(data, t);
                forward<decltype(zeta)>();
                moments_of_tile(data, t == first_tile, moments);
            }
        });
    }

    // As evaluate(), at theta with the conditional mean as its output weights, for the gradient of the log marginal
    // likelihood: through `reverse_weights` (n_varying, m + P) the varying sources of the output layer read the m
    // derivatives and, up to source n_read - 1, the P weighted features. Null: no gradient. `hidden_done`: the pass
    // holds the hidden activations of the only tile already.
    [[gnu::noinline]] void evaluate_collapsed(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                              std::int64_t first_tile, std::int64_t end_tile, const T* reverse_weights,
                                              std::int64_t n_read, bool hidden_done, Totals& totals) {
        with_activation(plan_.activation, [&](auto zeta) {
            using Zeta = decltype(zeta);
            totals.log_likelihood = 0.0;
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                bind(data, t);
                forward<Zeta>(hidden_done ? layers_.size() - 1 : 0);
                totals.log_likelihood += likelihood_of_tile(data, likelihood);
                if (!reverse_weights) continue;
                if (!hidden_done) weight_features(data);
                reverse_collapsed<Zeta>(reverse_weights, n_read);
                reverse<Zeta>(t == first_tile, totals, layers_.size() - 1);
            }
        });
    }

    // f (n, m) row-major at the rows of `data`.
    [[gnu::noinline]] void predict(const PackedData<T>& data, T* f) {
        with_activation(plan_.activation, [&](auto zeta) {
            for (std::int64_t t = 0; t < data.n_tiles; ++t) {
                bind(data, t);
                forward<decltype(zeta)>();
                T* const target = f + t * stride_ * plan_.n_outputs;
                for (std::int64_t r = 0; r < data.rows_in_tile(t); ++r)
                    for (std::int64_t c = 0; c < plan_.n_outputs; ++c)
                        target[r * plan_.n_outputs + c] = layers_.back().value[c * stride_ + r];
            }
        });
    }

private:
    struct BlockWork {
        std::vector<const T*> rows;     // in value, once it holds dl/d(pre-activation)
        std::vector<const T*> sources;  // of the bound tile, or ones
        std::size_t total = 0;          // its place in Totals
    };

    struct LayerWork {
        LayerParameters<T> weights;  // (rows, sources)
        LayerParameters<T> biases;   // (rows,)
        // (rows, stride): activations, f in the output layer. The reverse pass turns them, each layer in its place,
        // into dl/d(pre-activation): by then nothing needs them, and the memory is in the cache.
        AlignedArray<T> value;
        AlignedArray<T> pre;  // (rows, stride): before the activation, where its derivative needs it
        std::vector<BlockWork> gradient;
        // Of the bound tile:
        Sources<T> groups[2] = {};    // values of the layer below that vary, then the tile's constants
        std::vector<const T*> start;  // (rows,): the offset of each row, or zeros

        explicit LayerWork(const PlanLayer& layer)
            : weights(layer.weights, layer.weight_runs), biases(layer.biases, layer.bias_runs) {}
    };

    // Points the workspace at a tile.
    void bind(const PackedData<T>& data, std::int64_t t) {
        n_rows_ = data.rows_in_tile(t);
        n_vectors_ = data.vectors_in_tile(t);
        const T* const tile = data.tile(t);
        if (tile == tile_) return;
        tile_ = tile;
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const PlanLayer& layer = plan_.layers[l];
            LayerWork& work = layers_[l];
            const TileItems<T> constants = data.constants(l, t);
            work.groups[1] = {constants.base, layer.n_constant(), constants.step};
            for (std::size_t o = 0; o < layer.offset_rows.size(); ++o)
                work.start[static_cast<std::size_t>(layer.offset_rows[o])] =
                    tile + data.layout.offsets[l] + static_cast<std::int64_t>(o) * stride_;
            const auto point_to = [&](const std::vector<std::int32_t>& sources, std::vector<const T*>& pointers) {
                for (std::size_t j = 0; j < sources.size(); ++j) {
                    const std::int64_t s = sources[j], constant = s - layer.n_varying();
                    if (s == layer.n_sources()) continue;
                    pointers[j] =
                        constant < 0 ? work.groups[0].base + s * stride_ : constants.base + constant * constants.step;
                }
            };
            for (std::size_t b = 0; b < work.gradient.size(); ++b)
                point_to(layer.gradient[b].sources, work.gradient[b].sources);
            if (collapse_ && l + 1 == layers_.size()) point_to(collapse_->sources, features_);
        }
    }

    // What the two contractions start from and how they end, see contract().
    template <class Zeta, bool IsOutput>
    struct ForwardEnds {
        struct Node {
            V bias;
            const T* offset;
            T* pre;

            PATRAC_FN V start(std::int64_t row) const { return bias + load<V>(offset + row); }
            PATRAC_FN V result(std::int64_t row, V z) const {
                if constexpr (!IsOutput && !Zeta::from_value) store<V>(pre + row, z);
                return z;
            }
        };
        const T* bias;
        const T* const* offset;
        T* pre;
        std::int64_t stride;

        PATRAC_FN Node at(std::int64_t o) const {
            T* row = nullptr;
            if constexpr (!IsOutput && !Zeta::from_value) row = pre + o * stride;
            return {broadcast<V>(bias[o]), offset[o], row};
        }
        static constexpr bool finishes = !IsOutput;
        PATRAC_FN V finish(V z) const { return Zeta::value(z); }
    };

    // dl/d(activation), times the activation's derivative where that costs nothing but its value.
    template <class Zeta>
    struct ReverseEnds {
        struct Node {
            const T* value;

            PATRAC_FN V start(std::int64_t) const { return V{}; }
            PATRAC_FN V result(std::int64_t row, V sum) const { return sum * Zeta::derivative(load<V>(value + row)); }
        };
        const T* value;
        std::int64_t stride;

        PATRAC_FN Node at(std::int64_t node) const { return {value + node * stride}; }
        static constexpr bool finishes = false;
    };
    struct PlainReverseEnds {
        struct Node {
            PATRAC_FN V start(std::int64_t) const { return V{}; }
            PATRAC_FN V result(std::int64_t, V sum) const { return sum; }
        };
        PATRAC_FN Node at(std::int64_t) const { return {}; }
        static constexpr bool finishes = false;
    };

    // Turns the activations of a layer, from node `first` on, into dl/d(pre-activation); `transposed` gives
    // dl/d(activation) in their place.
    template <class Zeta>
    void reverse_into(LayerWork& below, const Contraction<T>& transposed, std::int64_t first) {
        if constexpr (Zeta::from_value) {
            contract(transposed, ReverseEnds<Zeta>{below.value.data() + first * stride_, stride_});
        } else {
            contract(transposed, PlainReverseEnds{});
            for (std::int64_t node = first; node < first + transposed.count; ++node)
                for (std::int64_t row = 0; row < n_vectors_ * lanes_v<V>; row += lanes_v<V>) {
                    T* const slope = below.value.data() + node * stride_ + row;
                    const V argument = load<V>(below.pre.data() + node * stride_ + row);
                    store<V>(slope, load<V>(slope) * Zeta::derivative(argument));
                }
        }
    }

    template <class Zeta>
    [[gnu::noinline]] void forward(std::size_t first_layer = 0) {
        for (std::size_t l = first_layer; l < layers_.size(); ++l) {
            const PlanLayer& layer = plan_.layers[l];
            LayerWork& work = layers_[l];
            const Contraction<T> affine{
                layer.n_rows(), work.weights.data(), layer.n_sources(), 1, work.groups, 2, work.value.data(),
                stride_,        n_vectors_};
            const auto run = [&](auto is_output) {
                contract(affine, ForwardEnds<Zeta, is_output()>{work.biases.data(), work.start.data(), work.pre.data(),
                                                                stride_});
            };
            if (l + 1 == layers_.size())
                run(std::true_type{});
            else
                run(std::false_type{});
        }
    }

    // Turns f of the tile into dl/df.
    double likelihood_of_tile(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood) {
        T* const f = layers_.back().value.data();
        const OutputTile<T> output{
            f, f, tile_ + data.layout.targets, tile_ + data.layout.row_weights, plan_.n_outputs, stride_, n_vectors_};
        switch (likelihood.kind) {
            case LikelihoodKind::categorical: return categorical_tile(output);
            case LikelihoodKind::bernoulli: return bernoulli_tile(output);
            case LikelihoodKind::gaussian: break;
        }
        return gaussian_tile(output, likelihood.precision.data());
    }

    // Turns f of the tile, o here, into W (y - o).
    void residuals_of_tile(const PackedData<T>& data) {
        T* const f = layers_.back().value.data();
        const T* const target = tile_ + data.layout.targets;
        const T* const weight = tile_ + data.layout.row_weights;
        for (std::int64_t c = 0; c < plan_.n_outputs; ++c)
            for (std::int64_t row = 0; row < n_vectors_ * lanes_v<V>; row += lanes_v<V>) {
                const std::int64_t at = c * stride_ + row;
                store<V>(f + at, load<V>(weight + row) * (load<V>(target + at) - load<V>(f + at)));
            }
    }

    void weight_features(const PackedData<T>& data) {
        const T* const weight = tile_ + data.layout.row_weights;
        for (std::size_t f = 0; f < features_.size(); ++f)
            for (std::int64_t row = 0; row < n_vectors_ * lanes_v<V>; row += lanes_v<V>)
                store<V>(weighted_.data() + static_cast<std::int64_t>(f) * stride_ + row,
                         load<V>(weight + row) * load<V>(features_[f] + row));
    }

    void moments_of_tile(const PackedData<T>& data, bool first, Moments& moments) {
        residuals_of_tile(data);
        weight_features(data);
        const std::int64_t n_features = collapse_->n_features();
        accumulate_outer<T>(output_rows_.data(), plan_.n_outputs, features_.data(), n_features, n_rows_,
                            {moments.cross.data(), n_features, 1, first});
        // On and above the diagonal, in stripes: what a stripe has below it is a small part.
        constexpr std::int64_t stripe = 12;
        for (std::int64_t i = 0; i < n_features; i += stripe)
            accumulate_outer<T>(features_.data() + i, std::min(stripe, n_features - i), weighted_rows_.data() + i,
                                n_features - i, n_rows_,
                                {moments.gram.data() + i * n_features + i, n_features, 1, first});
    }

    // dl/d(pre-activation) below a collapsed output layer, whose value holds dl/df at the conditional mean.
    template <class Zeta>
    void reverse_collapsed(const T* weights, std::int64_t n_read) {
        LayerWork& below = layers_[layers_.size() - 2];
        const std::int64_t n_varying = plan_.layers.back().n_varying(), n_features = collapse_->n_features();
        const Sources<T> sources[2] = {{layers_.back().value.data(), plan_.n_outputs, stride_},
                                       {weighted_.data(), n_features, stride_}};
        const std::int64_t row = plan_.n_outputs + n_features;
        Contraction<T> transposed{n_read, weights, row, 1, sources, 2, below.value.data(), stride_, n_vectors_};
        if (n_read > 0) reverse_into<Zeta>(below, transposed, 0);
        transposed.count = n_varying - n_read;
        transposed.weights += n_read * row;
        transposed.n_groups = 1;
        transposed.out += n_read * stride_;
        if (transposed.count > 0) reverse_into<Zeta>(below, transposed, n_read);
    }

    // From the output layer, or from layer top - 1, down: the gradient of a layer, then dl/d(pre-activation) below.
    // `first` starts the sums.
    template <class Zeta>
    void reverse(bool first, Totals& totals) {
        reverse<Zeta>(first, totals, layers_.size());
    }
    template <class Zeta>
    [[gnu::noinline]] void reverse(bool first, Totals& totals, std::size_t top) {
        for (std::size_t l = top; l-- > 0;) {
            const PlanLayer& layer = plan_.layers[l];
            const LayerWork& work = layers_[l];
            for (const BlockWork& block : work.gradient) {
                const auto columns = std::ssize(block.sources);
                accumulate_outer<T>(block.rows.data(), std::ssize(block.rows), block.sources.data(), columns, n_rows_,
                                    {totals.blocks[block.total].data(), columns, 1, first});
            }
            if (layer.n_varying() == 0) return;
            LayerWork& below = layers_[l - 1];
            const Sources<T> delta{work.value.data(), layer.n_rows(), stride_};
            const Contraction<T> transposed{
                layer.n_varying(), work.weights.data(), 1, layer.n_sources(), &delta, 1, below.value.data(),
                stride_,           n_vectors_};
            reverse_into<Zeta>(below, transposed, 0);
        }
    }

    const Plan& plan_;  // outlives the pass
    std::int64_t stride_;
    bool keeps_pre_ = false;
    AlignedArray<T> zeros_, ones_;
    std::vector<LayerWork> layers_;
    // Of a collapsed output layer:
    const CollapsePlan* collapse_;
    std::vector<const T*> features_;  // (P,) of the bound tile
    AlignedArray<T> weighted_;        // (P, stride): features times row weights
    std::vector<const T*> weighted_rows_, output_rows_;
    const T* tile_ = nullptr;  // the bound tile
    std::int64_t n_rows_ = 0, n_vectors_ = 0;
};

}  // namespace patrac::PATRAC_LEVEL
