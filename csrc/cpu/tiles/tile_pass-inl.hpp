// The passes over tiles that tile_pass.hpp declares. What is called from every kind of chain is kept out of line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/outer_product.hpp"
#include "cpu/tiles/tile_pass.hpp"
#include "schedule/interruption.hpp"
#include "shared/activation.hpp"

namespace patrac::PATRAC_LEVEL {

// Initial values and last steps of the two contractions, see contract().
template <class T>
struct ForwardEnds {
    struct Node {
        T bias;
        const T* offset;

        template <class W>
        PATRAC_FN W start(std::int64_t row) const {
            return broadcast<W>(bias) + load<W>(offset + row);
        }
        template <class W>
        PATRAC_FN W result(std::int64_t, W z) const {
            return z;
        }
    };
    const T* bias;
    const T* const* offset;

    PATRAC_FN Node at(std::int64_t o) const { return {bias[o], offset[o]}; }
};

// The activations, beside the pre-activations where the derivative needs them.
template <class T, class Zeta>
struct Activated {
    static constexpr bool acts = true;
    T* pre;
    std::int64_t stride;

    template <class W>
    PATRAC_FN void keep(std::int64_t node, std::int64_t row, W z) const {
        if constexpr (!Zeta::from_value) store<W>(pre + node * stride + row, z);
    }
    template <class W>
    PATRAC_FN W value(W z) const {
        return Zeta::value(z);
    }
};

// dl/d(activation), multiplied by the activation's derivative where that is a function of its value.
template <class T, class Zeta, class Starts>
struct ReverseEnds {
    struct Node {
        const T* value;
        typename Starts::Node from;

        template <class W>
        PATRAC_FN W start(std::int64_t row) const {
            return from.template at<W>(row);
        }
        template <class W>
        PATRAC_FN W result(std::int64_t row, W sum) const {
            return sum * Zeta::derivative(load<W>(value + row));
        }
    };
    const T* value;
    std::int64_t stride;
    Starts starts;

    PATRAC_FN Node at(std::int64_t node) const { return {value + node * stride, starts.of(node)}; }
};
template <class Starts>
struct PlainReverseEnds {
    struct Node {
        typename Starts::Node from;

        template <class W>
        PATRAC_FN W start(std::int64_t row) const {
            return from.template at<W>(row);
        }
        template <class W>
        PATRAC_FN W result(std::int64_t, W sum) const {
            return sum;
        }
    };
    Starts starts;

    PATRAC_FN Node at(std::int64_t node) const { return {starts.of(node)}; }
};

// What the sums of a reverse pass start from: zeros, or a row of values for each node.
struct ZeroStarts {
    struct Node {
        template <class W>
        PATRAC_FN W at(std::int64_t) const {
            return W{};
        }
    };
    PATRAC_FN Node of(std::int64_t) const { return {}; }
};
template <class T>
struct RowStarts {
    struct Node {
        const T* values;

        template <class W>
        PATRAC_FN W at(std::int64_t row) const {
            return load<W>(values + row);
        }
    };
    const T* const* rows;

    PATRAC_FN Node of(std::int64_t node) const { return {rows[node]}; }
};

template <class T>
TilePass<T>::TilePass(const Plan& plan, const TileLayout& layout, const CollapsePlan* collapse, std::int64_t held_tiles,
                      const T* row_weights)
    : work_(plan, layout.stride, collapse, held_tiles, row_weights), last_hidden_(plan, layout.stride, collapse) {
    for (const PlanLayer& layer : plan.layers)
        for (const DenseGradient& dense : layer.gradient) {
            const auto n_rows = std::ssize(dense.rows), n_sources = std::ssize(dense.sources);
            if (WideOuter<T>::supports(n_rows, n_sources))
                wide_outer_.reserve(std::min(n_rows, n_sources), layout.stride);
        }
    if (!collapse) return;
    if (collapse->by_row) {
        by_row_ = RowVariances<T>(plan, *collapse, layout.stride, work_.zeros.data());
        return;
    }
    weighted_ = AlignedArray<T>(collapse->n_features() * layout.stride);
    for (std::int64_t f = 0; f < collapse->n_features(); ++f)
        weighted_rows_.push_back(weighted_.data() + f * layout.stride);
    for (std::int64_t c = 0; c < plan.n_outputs; ++c)
        output_rows_.push_back(work_.layers.back().value.data() + c * layout.stride);
}

// Binds a tile. The present call may be interrupted before every 64th after the first.
template <class T>
void TilePass<T>::begin_tile(const PackedData<T>& data, std::int64_t t, std::int64_t first_tile) {
    if (const std::int64_t done = t - first_tile; done > 0 && done % 64 == 0) Interruption::check();
    work_.bind(data, t);
}

template <class T>
template <class Zeta>
[[gnu::noinline]] void TilePass<T>::forward(std::size_t first_layer, std::size_t end_layer) {
    for (std::size_t l = first_layer; l < end_layer; ++l) {
        const PlanLayer& layer = work_.plan.layers[l];
        LayerWork<T>& work = work_.layers[l];
        const Contraction<T> affine{
            layer.n_rows(), work.weights.data(), layer.n_sources(), 1, work.groups, 2, work.value.data(),
            work_.stride,   work_.n_vectors,     work_.ends_in_half};
        const ForwardEnds<T> ends{work.biases.data(), work.start.data()};
        if (l + 1 == work_.layers.size())
            contract(affine, ends);
        else
            contract(affine, ends, Activated<T, Zeta>{work.pre.data(), work_.stride});
    }
}

template <class T>
PATRAC_FN void TilePass<T>::clear_tail_of_outputs() {
    if (!work_.ends_in_half) return;
    T* const tail = work_.layers.back().value.data() + work_.n_vectors * lanes_v<V> - lanes_v<HalfVec<T>>;
    for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
        store<HalfVec<T>>(tail + c * work_.stride, load<HalfVec<T>>(tail + c * work_.stride - lanes_v<HalfVec<T>>));
}

template <class T>
double TilePass<T>::likelihood_of_tile(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood) {
    T* const f = work_.layers.back().value.data();
    clear_tail_of_outputs();
    const OutputTile<T> output{
        f, work_.tile + data.layout.targets, work_.weight, work_.plan.n_outputs, work_.stride, work_.n_vectors};
    return visit(likelihood.kind,
                 [&](auto kind) { return likelihood_of<decltype(kind)>(output, likelihood.parameters.data()); });
}

template <class T>
void TilePass<T>::residuals_of_tile(const PackedData<T>& data) {
    T* const f = work_.layers.back().value.data();
    const T* const target = work_.tile + data.layout.targets;
    const T* const weight = work_.weight;
    for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
        for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
            const std::int64_t at = c * work_.stride + row;
            store<V>(f + at, load<V>(weight + row) * (load<V>(target + at) - load<V>(f + at)));
        }
}

template <class T>
void TilePass<T>::weight_features() {
    const T* const weight = work_.weight;
    for (std::size_t f = 0; f < work_.features.size(); ++f)
        for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>)
            store<V>(weighted_.data() + static_cast<std::int64_t>(f) * work_.stride + row,
                     load<V>(weight + row) * load<V>(work_.features[f] + row));
}

// A Gram matrix (count, count) on and above its diagonal, in stripes; a stripe's entries below it are a small part.
template <class X, class V>
void accumulate_upper(const X* const* rows, const X* const* columns, std::int64_t count, std::int64_t tile_rows,
                      bool first, double* gram) {
    constexpr std::int64_t stripe = 12;
    for (std::int64_t i = 0; i < count; i += stripe)
        accumulate_outer<X, V>(rows + i, std::min(stripe, count - i), columns + i, count - i, tile_rows,
                               {gram + i * count + i, count, 1, first});
}

template <class T>
void TilePass<T>::moments_of_tile(const PackedData<T>& data, bool first, Moments& moments) {
    residuals_of_tile(data);
    const std::int64_t n_features = work_.collapse->n_features();
    accumulate_outer<T>(output_rows_.data(), work_.plan.n_outputs, work_.features.data(), n_features, work_.n_rows,
                        {moments.cross.data(), n_features, 1, first});
    accumulate_upper<T, OuterVec<T>>(work_.features.data(), weighted_rows_.data(), n_features, work_.n_rows, first,
                                     moments.gram.data());
}

// Products of float32 values are exact in float64, so the Gram matrix is that of the features up to the rounding of
// float64. The root of the weights on either side keeps it symmetric.
template <class T>
[[gnu::noinline]] void TilePass<T>::wide_moments_of_tile(const PackedData<T>& data, bool first, Moments& moments) {
    using D = Vec<double>;
    const std::int64_t n_features = work_.collapse->n_features(), n_outputs = work_.plan.n_outputs;
    if (wide_rows_.empty()) {
        wide_ = AlignedArray<double>((n_features + n_outputs) * work_.stride);
        for (std::int64_t i = 0; i < n_features + n_outputs; ++i) wide_rows_.push_back(wide_.data() + i * work_.stride);
    }
    const T* const f = work_.layers.back().value.data();
    const T* const target = work_.tile + data.layout.targets;
    const T* const weight = work_.weight;
    for (std::int64_t row = 0; row < work_.n_rows; row += lanes_v<D>) {
        const D root = sqrt(load_wide(weight + row));
        double* to = wide_.data() + row;
        for (const T* const feature : work_.features) {
            store<D>(to, root * load_wide(feature + row));
            to += work_.stride;
        }
        for (std::int64_t c = 0; c < n_outputs; ++c) {
            const std::int64_t at = c * work_.stride + row;
            store<D>(to, root * (load_wide(target + at) - load_wide(f + at)));
            to += work_.stride;
        }
    }
    accumulate_outer<double, D>(wide_rows_.data() + n_features, n_outputs, wide_rows_.data(), n_features, work_.n_rows,
                                {moments.cross.data(), n_features, 1, first});
    accumulate_upper<double, D>(wide_rows_.data(), wide_rows_.data(), n_features, work_.n_rows, first,
                                moments.gram.data());
}

template <class T>
template <class Zeta, class Starts>
void TilePass<T>::reverse_into(LayerWork<T>& below, const Contraction<T>& transposed, std::int64_t first,
                               const Starts& starts) {
    if constexpr (Zeta::from_value) {
        contract(transposed,
                 ReverseEnds<T, Zeta, Starts>{below.value.data() + first * work_.stride, work_.stride, starts});
    } else {
        contract(transposed, PlainReverseEnds<Starts>{starts});
        for (std::int64_t node = first; node < first + transposed.count; ++node)
            for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
                T* const slope = below.value.data() + node * work_.stride + row;
                const V argument = load<V>(below.pre.data() + node * work_.stride + row);
                store<V>(slope, load<V>(slope) * Zeta::derivative(argument));
            }
    }
}

template <class T>
template <class Zeta>
void TilePass<T>::reverse_read(const T* weights, std::int64_t n_read) {
    if (n_read == 0) return;
    LayerWork<T>& below = work_.layers[work_.layers.size() - 2];
    const std::int64_t n_features = work_.collapse->n_features(), row = work_.plan.n_outputs + n_features;
    const Sources<T> sources[2] = {{work_.layers.back().value.data(), work_.plan.n_outputs, work_.stride},
                                   {weighted_.data(), n_features, work_.stride}};
    const Contraction<T> transposed{
        n_read, weights, row, 1, sources, 2, below.value.data(), work_.stride, work_.n_vectors, work_.ends_in_half};
    reverse_into<Zeta>(below, transposed, 0, ZeroStarts{});
}

template <class T>
template <class Zeta>
void TilePass<T>::reverse_unread(const T* weights, std::int64_t n_read) {
    const std::int64_t count = work_.plan.layers.back().n_varying() - n_read;
    if (count == 0) return;
    LayerWork<T>& below = work_.layers[work_.layers.size() - 2];
    const std::int64_t row = work_.plan.n_outputs + work_.collapse->n_features();
    const Sources<T> source{work_.layers.back().value.data(), work_.plan.n_outputs, work_.stride};
    const Contraction<T> transposed{count,
                                    weights + n_read * row,
                                    row,
                                    1,
                                    &source,
                                    1,
                                    below.value.data() + n_read * work_.stride,
                                    work_.stride,
                                    work_.n_vectors,
                                    work_.ends_in_half};
    reverse_into<Zeta>(below, transposed, n_read, ZeroStarts{});
}

template <class T>
void TilePass<T>::add_gradient(std::size_t l, bool first, Totals& totals) {
    for (const DenseGradientWork<T>& dense : work_.layers[l].gradient) {
        const auto rows = std::ssize(dense.rows), columns = std::ssize(dense.sources);
        const OuterTarget target{totals.dense[dense.total].data(), columns, 1, first};
        if (WideOuter<T>::supports(rows, columns))
            wide_outer_.accumulate(dense.rows.data(), rows, dense.sources.data(), columns, work_.n_rows, target);
        else
            accumulate_outer<T>(dense.rows.data(), rows, dense.sources.data(), columns, work_.n_rows, target);
    }
}

template <class T>
template <class Zeta>
void TilePass<T>::reverse(bool first, Totals& totals, std::size_t top) {
    for (std::size_t l = top; l-- > 0;) {
        add_gradient(l, first, totals);
        const PlanLayer& layer = work_.plan.layers[l];
        if (layer.n_varying() == 0) return;
        const LayerWork<T>& work = work_.layers[l];
        LayerWork<T>& below = work_.layers[l - 1];
        const Sources<T> delta{work.value.data(), layer.n_rows(), work_.stride};
        const Contraction<T> transposed{
            layer.n_varying(), work.weights.data(), 1, layer.n_sources(), &delta, 1, below.value.data(), work_.stride,
            work_.n_vectors,   work_.ends_in_half};
        reverse_into<Zeta>(below, transposed, 0, ZeroStarts{});
    }
}

template <class T>
template <class Zeta>
[[gnu::noinline]] void TilePass<T>::reverse(bool first, Totals& totals) {
    std::size_t top = work_.layers.size();
    if (last_hidden_.applies()) {
        add_gradient(top - 1, first, totals);
        last_hidden_.reverse_kept(work_);
        add_gradient(top - 2, first, totals);
        last_hidden_.reverse_below(work_);
        top -= 2;
    }
    reverse<Zeta>(first, totals, top);
}

template <class T>
[[gnu::noinline]] void TilePass<T>::evaluate(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                             std::int64_t first_tile, std::int64_t end_tile, bool gradient,
                                             Totals& totals) {
    visit(work_.plan.activation, [&](auto zeta) {
        using Zeta = decltype(zeta);
        totals.log_likelihood = 0.0;
        for (std::int64_t t = first_tile; t < end_tile; ++t) {
            begin_tile(data, t, first_tile);
            // With or without gradient, so that l is the same.
            forward<Zeta>(0, work_.layers.size() - (last_hidden_.applies() ? 2 : 0));
            if (last_hidden_.applies()) last_hidden_.forward(work_);
            totals.log_likelihood += likelihood_of_tile(data, likelihood);
            if (gradient) reverse<Zeta>(t == first_tile, totals);
        }
    });
}

template <class T>
[[gnu::noinline]] void TilePass<T>::moments(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile,
                                            bool wide, T* saved, Moments& moments) {
    visit(work_.plan.activation, [&](auto zeta) {
        for (std::int64_t t = first_tile; t < end_tile; ++t) {
            begin_tile(data, t, first_tile);
            forward<decltype(zeta)>(0, work_.layers.size() - (saved ? 2 : 0));
            if (saved) {
                last_hidden_.forward(work_);
                last_hidden_.save(work_, saved + t * saved_size());
            }
            weight_features();
            if (wide && !std::is_same_v<T, double>)
                wide_moments_of_tile(data, t == first_tile, moments);
            else
                moments_of_tile(data, t == first_tile, moments);
        }
    });
}

template <class T>
[[gnu::noinline]] void TilePass<T>::evaluate_collapsed(const PackedData<T>& data, const LikelihoodTerms<T>& likelihood,
                                                       std::int64_t first_tile, std::int64_t end_tile,
                                                       const T* reverse_weights, std::int64_t n_read, bool hidden_done,
                                                       const T* saved, Totals& totals) {
    const std::size_t output = work_.layers.size() - 1;
    visit(work_.plan.activation, [&](auto zeta) {
        using Zeta = decltype(zeta);
        totals.log_likelihood = 0.0;
        for (std::int64_t t = first_tile; t < end_tile; ++t) {
            begin_tile(data, t, first_tile);
            if (saved) {
                last_hidden_.restore(work_, saved + t * saved_size());
                last_hidden_.add_collapsed(work_);
            } else {
                forward<Zeta>(hidden_done ? output : 0, output + 1);
            }
            totals.log_likelihood += likelihood_of_tile(data, likelihood);
            if (!reverse_weights) continue;
            if (data.n_tiles > 1) weight_features();  // those of a single tile are there still
            reverse_read<Zeta>(reverse_weights, n_read);
            if (saved) {
                add_gradient(output - 1, t == first_tile, totals);
                last_hidden_.reverse_below_collapsed(work_);
                reverse<Zeta>(t == first_tile, totals, output - 1);
            } else {
                reverse_unread<Zeta>(reverse_weights, n_read);
                reverse<Zeta>(t == first_tile, totals, output);
            }
        }
    });
}

template <class T>
[[gnu::noinline]] void TilePass<T>::add_squares(const PackedData<T>& data, std::int64_t first_tile,
                                                std::int64_t end_tile, double* sums) {
    for (std::int64_t t = first_tile; t < end_tile; ++t) {
        begin_tile(data, t, first_tile);
        visit(work_.plan.activation, [&](auto zeta) { forward<decltype(zeta)>(0, work_.layers.size()); });
        clear_tail_of_outputs();
        const T* const target = work_.tile + data.layout.targets;
        const T* const weight = work_.weight;
        for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c) {
            const T* const f = work_.layers.back().value.data() + c * work_.stride;
            WideSum<T> sum;
            for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
                const V residual = load<V>(target + c * work_.stride + row) - load<V>(f + row);
                sum.add(load<V>(weight + row) * residual * residual);
            }
            sums[c] += sum.total();
        }
    }
}

template <class T>
[[gnu::noinline]] void TilePass<T>::outputs(const PackedData<T>& data, std::int64_t first_tile, std::int64_t end_tile,
                                            T* out) {
    const std::int64_t size = work_.plan.n_outputs * work_.stride;
    for (std::int64_t t = first_tile; t < end_tile; ++t) {
        begin_tile(data, t, first_tile);
        visit(work_.plan.activation, [&](auto zeta) { forward<decltype(zeta)>(0, work_.layers.size()); });
        std::copy_n(work_.layers.back().value.data(), size, out + t * size);
    }
}

template <class T>
[[gnu::noinline]] void TilePass<T>::predict(const PackedData<T>& data, T* f) {
    visit(work_.plan.activation, [&](auto zeta) {
        for (std::int64_t t = 0; t < data.n_tiles; ++t) {
            begin_tile(data, t, 0);
            forward<decltype(zeta)>(0, work_.layers.size());
            T* const target = f + t * work_.stride * work_.plan.n_outputs;
            for (std::int64_t r = 0; r < data.rows_in_tile(t); ++r)
                for (std::int64_t c = 0; c < work_.plan.n_outputs; ++c)
                    target[r * work_.plan.n_outputs + c] = work_.layers.back().value[c * work_.stride + r];
        }
    });
}

}  // namespace patrac::PATRAC_LEVEL
