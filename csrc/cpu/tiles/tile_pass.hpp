// Forward, likelihood and reverse of one tile after the other, back to back while its activations are in L1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/last_hidden.hpp"
#include "cpu/tiles/likelihood.hpp"
#include "cpu/tiles/outer_product.hpp"
#include "cpu/tiles/pack.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/tile_workspace.hpp"
#include "cpu/tiles/totals.hpp"
#include "cpu/tiles/wide_outer.hpp"
#include "model/collapse.hpp"

namespace patrac::PATRAC_LEVEL {

// Weights and the workspace of one tile. One pass serves one thread at a time. What passes over a tile is kept out of
// line: it is large, and called from every kind of chain.
template <class T>
class TilePass {
public:
    using V = Vec<T>;

    // With `collapse`, moments() and evaluate_collapsed() serve too; plan, layout and collapse outlive the pass.
    TilePass(const Plan& plan, const TileLayout& layout, const CollapsePlan* collapse = nullptr)
        : work_(plan, layout.stride, collapse), last_hidden_(plan, layout.stride) {
        for (const PlanLayer& layer : plan.layers)
            for (const GradientBlock& block : layer.gradient) {
                const auto n_rows = std::ssize(block.rows), n_sources = std::ssize(block.sources);
                if (WideOuter<T>::serves(n_rows, n_sources))
                    wide_outer_.reserve(std::min(n_rows, n_sources), layout.stride);
            }
        if (!collapse) return;
        weighted_ = AlignedArray<T>(collapse->n_features() * layout.stride);
        for (std::int64_t f = 0; f < collapse->n_features(); ++f)
            weighted_rows_.push_back(weighted_.data() + f * layout.stride);
        for (std::int64_t c = 0; c < plan.n_outputs; ++c)
            output_rows_.push_back(work_.layers.back().value.data() + c * layout.stride);
    }
    // The pass points into its own arrays, which moving leaves where they are.
    TilePass(TilePass&&) noexcept = default;

    // theta (K,) must stay as it is while tiles are passed over.
    void set_theta(const T* theta) {
        for (LayerWork<T>& work : work_.layers) {
            work.weights.set_theta(theta);
            work.biases.set_theta(theta);
        }
    }
    // Only the output layer's part of theta has changed.
    void set_output_theta(const T* theta) {
        work_.layers.back().weights.set_theta(theta);
        work_.layers.back().biases.set_theta(theta);
    }

    // Sums over tiles first_tile .. end_tile - 1 into totals, overwriting them.
    [[gnu::noinline]] void evaluate(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                    std::int64_t first_tile, std::int64_t end_tile, bool gradient, Totals& totals) {
        visit(work_.plan.activation, [&](auto zeta) {
            using Zeta = decltype(zeta);
            totals.log_likelihood = 0.0;
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                work_.bind(data, t);
                // With or without gradient, so that l is the same.
                forward<Zeta>(0, work_.layers.size() - (last_hidden_.serves() ? 2 : 0));
                if (last_hidden_.serves()) last_hidden_.forward(work_);
                totals.log_likelihood += likelihood_of_tile(data, likelihood);
                if (gradient) reverse<Zeta>(t == first_tile, totals);
            }
        });
    }

    // Sums over tiles first_tile .. end_tile - 1 into moments, overwriting them; theta's output weights are zero.
    [[gnu::noinline]] void moments(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile,
                                   Moments& moments) {
        visit(work_.plan.activation, [&](auto zeta) {
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                work_.bind(data, t);
                forward<decltype(zeta)>(0, work_.layers.size());
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
        visit(work_.plan.activation, [&](auto zeta) {
            using Zeta = decltype(zeta);
            totals.log_likelihood = 0.0;
            for (std::int64_t t = first_tile; t < end_tile; ++t) {
                work_.bind(data, t);
                forward<Zeta>(hidden_done ? work_.layers.size() - 1 : 0, work_.layers.size());
                totals.log_likelihood += likelihood_of_tile(data, likelihood);
                if (!reverse_weights) continue;
                if (!hidden_done) weight_features(data);
                reverse_collapsed<Zeta>(reverse_weights, n_read);
                reverse<Zeta>(t == first_tile, totals, work_.layers.size() - 1);
            }
        });
    }

    // f (n, m) row-major at the rows of `data`.
    [[gnu::noinline]] void predict(const PackedData<T>& data, T* f) {
        visit(work_.plan.activation, [&](auto zeta) {
            for (std::int64_t t = 0; t < data.n_tiles; ++t) {
                work_.bind(data, t);
                forward<decltype(zeta)>(0, work_.layers.size());
                T* const target = f + t * work_.stride * work_.plan.n_outputs;
                for (std::int64_t r = 0; r < data.rows_in_tile(t); ++r)
                    for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
                        target[r * work_.plan.n_outputs + c] = work_.layers.back().value[c * work_.stride + r];
            }
        });
    }

private:
    // What the two contractions start from and how they end, see contract().
    template <class Zeta, bool IsOutput>
    struct ForwardEnds {
        struct Node {
            T bias;
            const T* offset;
            T* pre;

            template <class W>
            PATRAC_FN W start(std::int64_t row) const {
                return broadcast<W>(bias) + load<W>(offset + row);
            }
            template <class W>
            PATRAC_FN W result(std::int64_t row, W z) const {
                if constexpr (!IsOutput && !Zeta::from_value) store<W>(pre + row, z);
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
            return {bias[o], offset[o], row};
        }
        static constexpr bool finishes = !IsOutput;
        PATRAC_FN V finish(V z) const { return Zeta::value(z); }
    };

    // dl/d(activation), times the activation's derivative where that costs nothing but its value.
    template <class Zeta>
    struct ReverseEnds {
        struct Node {
            const T* value;

            template <class W>
            PATRAC_FN W start(std::int64_t) const {
                return W{};
            }
            template <class W>
            PATRAC_FN W result(std::int64_t row, W sum) const {
                return sum * Zeta::derivative(load<W>(value + row));
            }
        };
        const T* value;
        std::int64_t stride;

        PATRAC_FN Node at(std::int64_t node) const { return {value + node * stride}; }
        static constexpr bool finishes = false;
    };
    struct PlainReverseEnds {
        struct Node {
            template <class W>
            PATRAC_FN W start(std::int64_t) const {
                return W{};
            }
            template <class W>
            PATRAC_FN W result(std::int64_t, W sum) const {
                return sum;
            }
        };
        PATRAC_FN Node at(std::int64_t) const { return {}; }
        static constexpr bool finishes = false;
    };

    // Turns the activations of a layer, from node `first` on, into dl/d(pre-activation); `transposed` gives
    // dl/d(activation) in their place.
    template <class Zeta>
    void reverse_into(LayerWork<T>& below, const Contraction<T>& transposed, std::int64_t first) {
        if constexpr (Zeta::from_value) {
            contract(transposed, ReverseEnds<Zeta>{below.value.data() + first * work_.stride, work_.stride});
        } else {
            contract(transposed, PlainReverseEnds{});
            for (std::int64_t node = first; node < first + transposed.count; ++node)
                for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
                    T* const slope = below.value.data() + node * work_.stride + row;
                    const V argument = load<V>(below.pre.data() + node * work_.stride + row);
                    store<V>(slope, load<V>(slope) * Zeta::derivative(argument));
                }
        }
    }

    template <class Zeta>
    [[gnu::noinline]] void forward(std::size_t first_layer, std::size_t end_layer) {
        for (std::size_t l = first_layer; l < end_layer; ++l) {
            const PlanLayer& layer = work_.plan.layers[l];
            LayerWork<T>& work = work_.layers[l];
            const Contraction<T> affine{
                layer.n_rows(), work.weights.data(), layer.n_sources(), 1, work.groups, 2, work.value.data(),
                work_.stride,   work_.n_vectors,     work_.ends_in_half};
            const auto run = [&](auto is_output) {
                contract(affine, ForwardEnds<std::conditional_t<is_output(), Tanh, Zeta>, is_output()>{
                                     work.biases.data(), work.start.data(), work.pre.data(), work_.stride});
            };
            if (l + 1 == work_.layers.size())
                run(std::true_type{});
            else
                run(std::false_type{});
        }
    }

    // Turns f of the tile into dl/df.
    double likelihood_of_tile(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood) {
        T* const f = work_.layers.back().value.data();
        if (work_.ends_in_half) {  // sums over lanes come next: no infinity of another evaluation may be in them
            T* const tail = f + work_.n_vectors * lanes_v<V> - lanes_v<HalfVec<T>>;
            for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
                store<HalfVec<T>>(tail + c * work_.stride,
                                  load<HalfVec<T>>(tail + c * work_.stride - lanes_v<HalfVec<T>>));
        }
        const OutputTile<T> output{f,
                                   work_.tile + data.layout.targets,
                                   work_.tile + data.layout.row_weights,
                                   work_.plan.n_outputs,
                                   work_.stride,
                                   work_.n_vectors};
        return visit(likelihood.kind, [&](auto kind) {
            return likelihood_of<decltype(kind)>(output, likelihood.parameters.data());
        });
    }

    // Turns f of the tile, o here, into W (y - o).
    void residuals_of_tile(const PackedData<T>& data) {
        T* const f = work_.layers.back().value.data();
        const T* const target = work_.tile + data.layout.targets;
        const T* const weight = work_.tile + data.layout.row_weights;
        for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
            for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
                const std::int64_t at = c * work_.stride + row;
                store<V>(f + at, load<V>(weight + row) * (load<V>(target + at) - load<V>(f + at)));
            }
    }

    void weight_features(const PackedData<T>& data) {
        const T* const weight = work_.tile + data.layout.row_weights;
        for (std::size_t f = 0; f < work_.features.size(); ++f)
            for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>)
                store<V>(weighted_.data() + static_cast<std::int64_t>(f) * work_.stride + row,
                         load<V>(weight + row) * load<V>(work_.features[f] + row));
    }

    void moments_of_tile(const PackedData<T>& data, bool first, Moments& moments) {
        residuals_of_tile(data);
        weight_features(data);
        const std::int64_t n_features = work_.collapse->n_features();
        accumulate_outer<T>(output_rows_.data(), work_.plan.n_outputs, work_.features.data(), n_features, work_.n_rows,
                            {moments.cross.data(), n_features, 1, first});
        // On and above the diagonal, in stripes: what a stripe has below it is a small part.
        constexpr std::int64_t stripe = 12;
        for (std::int64_t i = 0; i < n_features; i += stripe)
            accumulate_outer<T>(work_.features.data() + i, std::min(stripe, n_features - i), weighted_rows_.data() + i,
                                n_features - i, work_.n_rows,
                                {moments.gram.data() + i * n_features + i, n_features, 1, first});
    }

    // dl/d(pre-activation) below a collapsed output layer, whose value holds dl/df at the conditional mean.
    template <class Zeta>
    void reverse_collapsed(const T* weights, std::int64_t n_read) {
        LayerWork<T>& below = work_.layers[work_.layers.size() - 2];
        const std::int64_t n_varying = work_.plan.layers.back().n_varying(), n_features = work_.collapse->n_features();
        const Sources<T> sources[2] = {{work_.layers.back().value.data(), work_.plan.n_outputs, work_.stride},
                                       {weighted_.data(), n_features, work_.stride}};
        const std::int64_t row = work_.plan.n_outputs + n_features;
        Contraction<T> transposed{
            n_read, weights, row, 1, sources, 2, below.value.data(), work_.stride, work_.n_vectors, work_.ends_in_half};
        if (n_read > 0) reverse_into<Zeta>(below, transposed, 0);
        transposed.count = n_varying - n_read;
        transposed.weights += n_read * row;
        transposed.n_groups = 1;
        transposed.out += n_read * work_.stride;
        if (transposed.count > 0) reverse_into<Zeta>(below, transposed, n_read);
    }

    // From the output layer down: the gradient of a layer, then dl/d(pre-activation) below. `first` starts the sums.
    template <class Zeta>
    [[gnu::noinline]] void reverse(bool first, Totals& totals) {
        std::size_t top = work_.layers.size();
        if (last_hidden_.serves()) {
            add_gradient(top - 1, first, totals);
            last_hidden_.reverse_kept(work_);
            add_gradient(top - 2, first, totals);
            last_hidden_.reverse_below(work_);
            top -= 2;
        }
        reverse<Zeta>(first, totals, top);
    }
    // From layer top - 1 down.
    template <class Zeta>
    void reverse(bool first, Totals& totals, std::size_t top) {
        for (std::size_t l = top; l-- > 0;) {
            add_gradient(l, first, totals);
            const PlanLayer& layer = work_.plan.layers[l];
            if (layer.n_varying() == 0) return;
            const LayerWork<T>& work = work_.layers[l];
            LayerWork<T>& below = work_.layers[l - 1];
            const Sources<T> delta{work.value.data(), layer.n_rows(), work_.stride};
            const Contraction<T> transposed{layer.n_varying(),
                                            work.weights.data(),
                                            1,
                                            layer.n_sources(),
                                            &delta,
                                            1,
                                            below.value.data(),
                                            work_.stride,
                                            work_.n_vectors,
                                            work_.ends_in_half};
            reverse_into<Zeta>(below, transposed, 0);
        }
    }

    void add_gradient(std::size_t l, bool first, Totals& totals) {
        for (const BlockWork<T>& block : work_.layers[l].gradient) {
            const auto rows = std::ssize(block.rows), columns = std::ssize(block.sources);
            const OuterTarget target{totals.blocks[block.total].data(), columns, 1, first};
            if (WideOuter<T>::serves(rows, columns))
                wide_outer_.accumulate(block.rows.data(), rows, block.sources.data(), columns, work_.n_rows, target);
            else
                accumulate_outer<T>(block.rows.data(), rows, block.sources.data(), columns, work_.n_rows, target);
        }
    }

    TileWorkspace<T> work_;
    LastHidden<T> last_hidden_;
    WideOuter<T> wide_outer_;
    // Of a collapsed output layer:
    AlignedArray<T> weighted_;  // (P, stride): features times row weights
    std::vector<const T*> weighted_rows_, output_rows_;
};

}  // namespace patrac::PATRAC_LEVEL
