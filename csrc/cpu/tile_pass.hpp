// Forward, likelihood and reverse of one tile after the other, back to back while its activations are in L1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "packed.hpp"
#include "contraction.hpp"
#include "likelihood.hpp"
#include "pack.hpp"

namespace patrac::PATRAC_LEVEL {

// The likelihood with its constants in the engine's terms.
template <class T>
struct LikelihoodTerms {
    LikelihoodKind kind;
    std::vector<T> precision;  // (m,), Gaussian
    double constant = 0.0;     // what the tiles leave out of the normalised log-likelihood
};

// Log-likelihood and gradient summed over a range of tiles, in float64.
struct Totals {
    double log_likelihood = 0.0;
    std::vector<AlignedArray<double>> blocks;  // the plan's gradient blocks, layer by layer

    explicit Totals(const Plan& plan) {
        for (const PlanLayer& layer : plan.layers)
            for (const GradientBlock& block : layer.gradient)
                blocks.emplace_back(std::ssize(block.rows) * std::ssize(block.sources));
    }

    void add(const Totals& other, bool gradient) {
        log_likelihood += other.log_likelihood;
        if (!gradient) return;
        for (std::size_t b = 0; b < blocks.size(); ++b)
            for (std::int64_t i = 0; i < blocks[b].size(); ++i) blocks[b][i] += other.blocks[b][i];
    }

    // To theta's order.
    template <class T>
    void gather(const Plan& plan, T* gradient) const {
        auto total = blocks.begin();
        for (const PlanLayer& layer : plan.layers)
            for (const GradientBlock& block : layer.gradient) {
                const double* const from = (total++)->data();
                for (const Run& run : block.runs) narrow(from + run.packed, run.length, gradient + run.theta);
            }
    }
};

// Parameters of one layer: the plan's array with the Bayesian entries copied in, or theta itself where it is the array.
template <class T>
class LayerParameters {
public:
    LayerParameters(const std::vector<double>& fixed, const std::vector<Run>& runs)
        : runs_(&runs), packed_(std::ssize(fixed)) {
        std::transform(fixed.begin(), fixed.end(), packed_.data(), [](double x) { return static_cast<T>(x); });
        in_place_ = runs.size() == 1 && runs.front().length == packed_.size();
        values_ = packed_.data();
    }
    void set_theta(const T* theta) {
        if (in_place_) {
            values_ = theta + runs_->front().theta;
            return;
        }
        for (const Run& run : *runs_) std::copy_n(theta + run.theta, run.length, packed_.data() + run.packed);
    }
    const T* data() const { return values_; }

private:
    const std::vector<Run>* runs_;
    AlignedArray<T> packed_;
    bool in_place_;
    const T* values_;
};

// Weights and the workspace of one tile. One pass serves one thread at a time.
template <class T>
class TilePass {
public:
    using V = Vec<T>;

    TilePass(const Plan& plan, const TileLayout& layout)
        : plan_(plan), stride_(layout.stride), zeros_(stride_), ones_(stride_) {
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

    // Sums over tiles first_tile .. end_tile - 1 into totals, overwriting them.
    void evaluate(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, std::int64_t first_tile,
                  std::int64_t end_tile, bool gradient, Totals& totals) {
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

    // f (n, m) row-major at the rows of `data`.
    void predict(const PackedData<T>& data, T* f) {
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
            for (std::size_t b = 0; b < work.gradient.size(); ++b) {
                const std::vector<std::int32_t>& sources = layer.gradient[b].sources;
                for (std::size_t j = 0; j < sources.size(); ++j) {
                    const std::int64_t s = sources[j], constant = s - layer.n_varying();
                    if (s == layer.n_sources()) continue;
                    work.gradient[b].sources[j] =
                        constant < 0 ? work.groups[0].base + s * stride_ : constants.base + constant * constants.step;
                }
            }
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

    template <class Zeta>
    struct ReverseEnds {
        struct Node {
            const T* argument;  // of Zeta::derivative

            PATRAC_FN V start(std::int64_t) const { return V{}; }
            PATRAC_FN V result(std::int64_t row, V sum) const {
                return sum * Zeta::derivative(load<V>(argument + row));
            }
        };
        const T* argument;
        std::int64_t stride;

        PATRAC_FN Node at(std::int64_t node) const { return {argument + node * stride}; }
        static constexpr bool finishes = false;
    };

    template <class Zeta>
    void forward() {
        for (std::size_t l = 0; l < layers_.size(); ++l) {
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

    // From the output layer down: the gradient of a layer, then dl/d(pre-activation) below. `first` starts the sums.
    template <class Zeta>
    void reverse(bool first, Totals& totals) {
        for (std::size_t l = layers_.size(); l-- > 0;) {
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
            contract(transposed, ReverseEnds<Zeta>{(Zeta::from_value ? below.value : below.pre).data(), stride_});
        }
    }

    const Plan& plan_;  // outlives the pass
    std::int64_t stride_;
    bool keeps_pre_ = false;
    AlignedArray<T> zeros_, ones_;
    std::vector<LayerWork> layers_;
    const T* tile_ = nullptr;  // the bound tile
    std::int64_t n_rows_ = 0, n_vectors_ = 0;
};

}  // namespace patrac::PATRAC_LEVEL
