// The likelihoods: their names, how their targets are laid out and, where a level is being compiled, their terms and
// the derivatives by the outputs, for vectors of rows (CPU) and for single rows (device); docs/method.md, section 5.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <string_view>
#include <vector>

#include "shared/names.hpp"

namespace patrac {

enum class LikelihoodKind : std::uint8_t { gaussian, categorical, bernoulli, student_t };

// A likelihood but for its formulas.
struct LikelihoodTraits {
    LikelihoodKind value;
    std::string_view name;
    bool takes_labels;                                // one class label for each row, or else a target for each output
    std::array<std::string_view, 2> parameters = {};  // their names; empty beyond the last
};

inline constexpr LikelihoodTraits likelihoods[] = {
    {LikelihoodKind::gaussian, "gaussian", false, {"variance"}},
    {LikelihoodKind::categorical, "categorical", true},
    {LikelihoodKind::bernoulli, "bernoulli", false},
    {LikelihoodKind::student_t, "student_t", false, {"df", "scale"}},
};
static_assert(in_order(likelihoods) && is_whole<LikelihoodKind, std::size(likelihoods)>);

constexpr const LikelihoodTraits& traits_of(LikelihoodKind kind) {
    return likelihoods[static_cast<std::size_t>(kind)];
}

// A likelihood with its parameters.
struct Likelihood {
    LikelihoodKind kind = LikelihoodKind::gaussian;
    std::vector<std::vector<double>> parameters;  // in the order of LikelihoodTraits, each (m,)

    // Throws std::invalid_argument where there is none of that name.
    const std::vector<double>& parameter(std::string_view name) const;
    // Of Gaussian noise, (m,); empty where the noise is not Gaussian.
    std::vector<double> noise_variance() const;
};

// Numbers that each row's target takes.
constexpr std::int64_t targets_per_row(LikelihoodKind kind, std::int64_t n_outputs) {
    return traits_of(kind).takes_labels ? 1 : n_outputs;
}

}  // namespace patrac

// Sources that do not depend on a level see the names alone.
#if defined(PATRAC_LEVEL)

#include "shared/elementary.hpp"
#include "shared/host_device.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// A likelihood is a type with
//   by_output      whether l is a sum over outputs, each with a target of its own, or one term of all outputs
//   parameters(l)  the numbers (any, m) that the terms read beside targets and row weights, of the Likelihood l
//   constant(l)    what the terms leave out of a row of weight 1
// and, where `by_output`, Output<V>: one output's term and its derivative; else of_row().

// weight l and weight dl/df of one output.
template <class V>
struct OutputTerm {
    V value, slope;
};

// l = -(y - f)^2 / (2 variance); one parameter: 1 / variance.
struct Gaussian {
    static constexpr bool by_output = true;

    static std::vector<double> parameters(const Likelihood& likelihood) {
        std::vector<double> precision;
        for (const double variance : likelihood.parameter("variance")) precision.push_back(1.0 / variance);
        return precision;
    }
    static double constant(const Likelihood& likelihood) {
        double sum = 0.0;
        for (const double variance : likelihood.parameter("variance"))
            sum -= 0.5 * std::log(2.0 * std::numbers::pi * variance);
        return sum;
    }

    template <class V>
    struct Output {
        V precision;

        // Output c of m.
        PATRAC_FN Output(const scalar_t<V>* parameters, std::int64_t, std::int64_t c)
            : precision(broadcast<V>(parameters[c])) {}
        PATRAC_FN OutputTerm<V> term(V f, V target, V weight) const {
            const V residual = target - f;
            const V slope = weight * precision * residual;
            return {broadcast<V>(scalar_t<V>(-0.5)) * residual * slope, slope};
        }
    };
};

// l = -log(1 + exp(s f)), s = 1 - 2y, y in {0, 1}: the form that does not cancel for y = 1.
struct Bernoulli {
    static constexpr bool by_output = true;

    static std::vector<double> parameters(const Likelihood&) { return {}; }
    static double constant(const Likelihood&) { return 0.0; }

    template <class V>
    struct Output {
        PATRAC_FN Output(const scalar_t<V>*, std::int64_t, std::int64_t) {}
        PATRAC_FN OutputTerm<V> term(V f, V target, V weight) const {
            const V sign = broadcast<V>(1) - broadcast<V>(2) * target;
            return {-weight * softplus(sign * f), -weight * sign * sigmoid(sign * f)};
        }
    };
};

// l = -h log(1 + p (y - f)^2), p = 1 / (df scale^2), h = (df + 1) / 2; two parameters: p and h.
struct StudentT {
    static constexpr bool by_output = true;

    static std::vector<double> parameters(const Likelihood& likelihood) {
        const std::vector<double>&df = likelihood.parameter("df"), &scale = likelihood.parameter("scale");
        std::vector<double> found;
        for (std::size_t c = 0; c < df.size(); ++c) found.push_back(1.0 / (df[c] * scale[c] * scale[c]));
        for (const double of_output : df) found.push_back(0.5 * (of_output + 1.0));
        return found;
    }
    static double constant(const Likelihood& likelihood) {
        const std::vector<double>&df = likelihood.parameter("df"), &scale = likelihood.parameter("scale");
        double sum = 0.0;
        for (std::size_t c = 0; c < df.size(); ++c)
            sum += std::lgamma(0.5 * (df[c] + 1.0)) - std::lgamma(0.5 * df[c]) -
                   0.5 * std::log(std::numbers::pi * df[c]) - std::log(scale[c]);
        return sum;
    }

    template <class V>
    struct Output {
        V p, h;

        PATRAC_FN Output(const scalar_t<V>* parameters, std::int64_t n_outputs, std::int64_t c)
            : p(broadcast<V>(parameters[c])), h(broadcast<V>(parameters[n_outputs + c])) {}
        PATRAC_FN OutputTerm<V> term(V f, V target, V weight) const {
            const V residual = target - f;
            const V scaled = p * residual;
            const V square = scaled * residual;
            const V factor = weight * h;
            return {-factor * log1p(square), (factor + factor) * scaled / (broadcast<V>(1) + square)};
        }
    };
};

// l = f_y - log sum_c exp f_c; the target is the label as a number of type T, exact below 2^24.
struct Categorical {
    static constexpr bool by_output = false;

    static std::vector<double> parameters(const Likelihood&) { return {}; }
    static double constant(const Likelihood&) { return 0.0; }

    // weight l of the rows at f, whose outputs lie `stride` apart and become weight dl/df.
    template <class V, class Index>
    static PATRAC_FN V of_row(scalar_t<V>* f, Index stride, Index n_outputs, V label, V weight) {
        using T = scalar_t<V>;
        V top = load<V>(f);
        for (Index c = 1; c < n_outputs; ++c) top = maximum(load<V>(f + c * stride), top);
        V sum = {}, chosen = {};
        for (Index c = 0; c < n_outputs; ++c) {
            const V centred = load<V>(f + c * stride) - top;
            const V e = exp(centred);
            chosen = select(label == broadcast<V>(static_cast<T>(c)), centred, chosen);
            store<V>(f + c * stride, e);
            sum += e;
        }
        const V inverse = broadcast<V>(1) / sum;
        for (Index c = 0; c < n_outputs; ++c) {
            const V hit = select(label == broadcast<V>(static_cast<T>(c)), broadcast<V>(1), broadcast<V>(0));
            store<V>(f + c * stride, weight * (hit - load<V>(f + c * stride) * inverse));
        }
        return weight * (chosen - log(sum));
    }
};

// Calls f with the likelihood's type.
template <class F>
PATRAC_DISPATCH auto visit(LikelihoodKind likelihood, const F& f) {
    switch (likelihood) {
        case LikelihoodKind::gaussian: return f(Gaussian{});
        case LikelihoodKind::categorical: return f(Categorical{});
        case LikelihoodKind::bernoulli: return f(Bernoulli{});
        case LikelihoodKind::student_t: return f(StudentT{});
    }
    __builtin_unreachable();
}

}  // namespace patrac::PATRAC_LEVEL

#endif
