// Log-likelihood of a tile and its derivative by the outputs, in the terms of shared/likelihood.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/tiles/wide.hpp"
#include "shared/likelihood.hpp"
#include "shared/noise_variance.hpp"

namespace patrac::PATRAC_LEVEL {

// The likelihood with its constants in the engine's terms.
template <class T>
struct LikelihoodTerms {
    LikelihoodKind kind;
    Likelihood given;            // with its parameters
    std::vector<T> parameters;   // (any, m), see shared/likelihood.hpp
    double constant = 0.0;       // what the tiles leave out of the normalised log-likelihood
    double terms = 0.0;          // where the noise has a variance: outputs times the sum of row weights
    double unit_constant = 0.0;  // of noise whose scale is drawn from rows: the constant at scales of 1

    // `weight` is the sum of the row weights.
    LikelihoodTerms(const Likelihood& likelihood, double weight)
        : kind(likelihood.kind),
          given(likelihood),
          terms(weight * static_cast<double>(likelihood.noise_variance().size())) {
        visit(kind, [&](auto own) {
            for (const double value : own.parameters(likelihood)) parameters.push_back(static_cast<T>(value));
            constant = weight * own.constant(likelihood);
        });
        if (!draws_by_row()) return;
        unit_constant = constant;
        const std::vector<double>& scale = given.parameter("scale");
        terms = weight * static_cast<double>(scale.size());
        of_scales([&](const auto& own, std::size_t c) {
            unit_constant += terms / static_cast<double>(scale.size()) * own.logs * std::log(scale[c]);
        });
    }

    bool has_variance() const { return kind == LikelihoodKind::gaussian || draws_by_row(); }
    bool draws_by_row() const {
        return visit(kind, [](auto own) { return ScaledByRow<decltype(own)>; });
    }

    bool is_mixture() const {
        return visit(kind, [](auto own) { return MixedByRow<decltype(own)>; });
    }
    // Of a mixture: normal noise, given precisions of the rows in place of their weights. Else these.
    LikelihoodTerms given_precisions() const {
        if (!is_mixture()) return *this;
        std::vector<double> variance = given.parameter("scale");
        for (double& one : variance) one *= one;
        const double weight = terms / static_cast<double>(variance.size());
        return LikelihoodTerms({LikelihoodKind::gaussian, {std::move(variance)}}, weight);
    }

    // Calls f(own, c) for the ScaleOfOutput of each output, see shared/likelihood.hpp.
    template <class F>
    void of_scales(const F& f) const {
        visit(kind, [&](auto own) {
            if constexpr (ScaledByRow<decltype(own)>)
                for (std::size_t c = 0; c < given.parameter("scale").size(); ++c)
                    f(typename decltype(own)::ScaleOfOutput(given, c), c);
        });
    }

    // Gaussian: one noise variance for all outputs, or one for each. Else: the square of each output's scale.
    void set_variance(const std::vector<double>& variance) {
        const GaussianTerms each{terms / static_cast<double>(variance.size())};
        if (draws_by_row()) {
            constant = unit_constant;
            of_scales([&](const auto& own, std::size_t c) {
                constant -= 0.5 * each.terms * own.logs * std::log(variance[c]);
                parameters[c] = static_cast<T>(own.parameter(variance[c]));
            });
            return;
        }
        constant = 0.0;
        for (const double one : variance) constant += each.constant(one);
        for (std::size_t c = 0; c < parameters.size(); ++c)
            parameters[c] = static_cast<T>(1.0 / variance[variance.size() == 1 ? 0 : c]);
    }
};

// A tile's outputs f (m, stride) and targets (targets_per_row(), stride) are node-major; `weight` (stride,) is the
// factor of each row, zero in padding. The tile's derivatives weight_r dl_r/df_c take the place of f.
template <class T>
struct OutputTile {
    T* f;
    const T* target;
    const T* weight;
    std::int64_t n_outputs;
    std::int64_t stride;
    std::int64_t n_vectors;
};

// sum_r weight_r l_r without the likelihood's constant; `parameters` (any, m).
template <class Kind, class T>
double likelihood_of(const OutputTile<T>& tile, const T* parameters) {
    using V = Vec<T>;
    WideSum<T> total;
    if constexpr (targets_of<Kind> == TargetLayout::label) {
        for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
            const std::int64_t row = k * lanes_v<V>;
            total.add(Kind::template of_row<V>(tile.f + row, tile.stride, tile.n_outputs, load<V>(tile.target + row),
                                               load<V>(tile.weight + row)));
        }
    } else {
        const std::int64_t n_terms = terms_of_row<Kind>(tile.n_outputs);
        for (std::int64_t c = 0; c < n_terms; ++c) {
            const typename Kind::template Output<V> output(parameters, tile.n_outputs, c);
            for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
                const std::int64_t row = k * lanes_v<V>, at = c * tile.stride + row;
                total.add(of_target<Kind>(output, tile.f + at, tile.target + at, n_terms * tile.stride,
                                          load<V>(tile.weight + row)));
            }
        }
    }
    return total.total();
}

}  // namespace patrac::PATRAC_LEVEL
