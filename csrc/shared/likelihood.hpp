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

enum class LikelihoodKind : std::uint8_t {
    gaussian,
    categorical,
    bernoulli,
    student_t,
    heteroscedastic_gaussian,
    poisson,
    negative_binomial,
    censored_gaussian
};

// Which numbers of a row's target the m outputs are compared with.
enum class TargetLayout : std::uint8_t {
    label,      // (1,): the label of a class, with all outputs
    by_output,  // (m,): number c with output c
    by_pair,    // (m / 2,): number c with outputs c and m / 2 + c
    shifted,    // (2m,): number c with the sum of output c and number m + c
    bounds      // (2m,): numbers c and m + c, the lower and the upper bound, with output c
};

// A likelihood but for its formulas.
struct LikelihoodTraits {
    LikelihoodKind value;
    std::string_view name;
    TargetLayout targets;
    std::array<std::string_view, 2> parameters = {};  // their names; empty beyond the last
};

inline constexpr LikelihoodTraits likelihoods[] = {
    {LikelihoodKind::gaussian, "gaussian", TargetLayout::by_output, {"variance"}},
    {LikelihoodKind::categorical, "categorical", TargetLayout::label},
    {LikelihoodKind::bernoulli, "bernoulli", TargetLayout::by_output},
    {LikelihoodKind::student_t, "student_t", TargetLayout::by_output, {"df", "scale"}},
    {LikelihoodKind::heteroscedastic_gaussian, "heteroscedastic_gaussian", TargetLayout::by_pair, {"constant", "beta"}},
    {LikelihoodKind::poisson, "poisson", TargetLayout::shifted, {"constant"}},
    {LikelihoodKind::negative_binomial, "negative_binomial", TargetLayout::shifted, {"constant", "dispersion"}},
    {LikelihoodKind::censored_gaussian, "censored_gaussian", TargetLayout::bounds, {"scale", "known"}},
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
    // Of the parameter "constant": what each output contributes to a row of weight 1, on average over the rows.
    double sum_of_constants() const;
    // Of Gaussian noise, (m,); empty where the noise is not Gaussian.
    std::vector<double> noise_variance() const;
};

// Numbers that each row's target takes.
constexpr std::int64_t targets_per_row(LikelihoodKind kind, std::int64_t n_outputs) {
    switch (traits_of(kind).targets) {
        case TargetLayout::label: return 1;
        case TargetLayout::by_output: return n_outputs;
        case TargetLayout::by_pair: return n_outputs / 2;
        case TargetLayout::shifted:
        case TargetLayout::bounds: return 2 * n_outputs;
    }
    __builtin_unreachable();
}

// The first outputs are those whose Bayesian weights can be integrated out, if l is quadratic in any outputs given the
// others: their number.
constexpr std::int64_t collapsed_outputs(LikelihoodKind kind, std::int64_t n_outputs) {
    return traits_of(kind).targets == TargetLayout::by_pair ? n_outputs / 2 : n_outputs;
}

}  // namespace patrac

// Sources that do not depend on a level see the names alone.
#if defined(PATRAC_LEVEL)

#include "shared/elementary.hpp"
#include "shared/host_device.hpp"
#include "shared/lanes.hpp"
#include "shared/normal_interval.hpp"

namespace patrac::PATRAC_LEVEL {

// A likelihood is a type with
//   kind           its enumerator, from which its TargetLayout follows
//   parameters(l)  the numbers (any, m) that the terms read beside targets and row weights, of the Likelihood l
//   constant(l)    what the terms leave out of a row of weight 1
// and, for labels, of_row(); else Output<V>, whose term() is that of one target and its derivatives. Where a draw of a
// sampled scale reads each row, it has, for the host,
//   ScaleOfOutput  of an output c, whose scale is the parameter "scale" of l:
//     logs               how often a row of weight 1 has -log scale in l
//     parameter(square)  the entry c of parameters(l) at a squared scale, on which no other entry depends
//     slope(f, target, step, square)  dl / d log square of a row of weight 1; numbers of the target lie `step` apart
//     draw(rows, ..)     a draw of the square given the rows
//     is_mixture         whether the noise is normal given a precision of each row; draw(rows, .., keep) then calls
//                        keep(precision) for row after row, the precision relative to the square's and 0 where the
//                        row has no weight

template <class Kind>
inline constexpr TargetLayout targets_of = traits_of(Kind::kind).targets;

// The number of terms of a row's l.
template <class Kind, class Index>
PATRAC_FN Index terms_of_row(Index n_outputs) {
    return targets_of<Kind> == TargetLayout::by_pair ? n_outputs / 2 : n_outputs;
}

// weight l and weight dl/df of one output.
template <class V>
struct OutputTerm {
    V value, slope;
};

// The same of the two outputs of a target.
template <class V>
struct PairTerm {
    V value, slope, second_slope;
};

// weight l of the rows of one target; weight dl/df takes the place of its outputs f. If there are two outputs, or two
// numbers of the target, they lie `step` apart.
template <class Kind, class V, class Index>
PATRAC_FN V of_target(const typename Kind::template Output<V>& output, scalar_t<V>* f, const scalar_t<V>* target,
                      Index step, V weight) {
    if constexpr (targets_of<Kind> == TargetLayout::by_pair) {
        const PairTerm<V> term = output.term(load<V>(f), load<V>(f + step), load<V>(target), weight);
        store<V>(f, term.slope);
        store<V>(f + step, term.second_slope);
        return term.value;
    } else if constexpr (targets_of<Kind> == TargetLayout::bounds) {
        const OutputTerm<V> term = output.term(load<V>(f), load<V>(target), load<V>(target + step), weight);
        store<V>(f, term.slope);
        return term.value;
    } else {
        V predictor = load<V>(f);
        if constexpr (targets_of<Kind> == TargetLayout::shifted) predictor = predictor + load<V>(target + step);
        const OutputTerm<V> term = output.term(predictor, load<V>(target), weight);
        store<V>(f, term.slope);
        return term.value;
    }
}

// l = -(y - f)^2 / (2 variance); one parameter: 1 / variance.
struct Gaussian {
    static constexpr LikelihoodKind kind = LikelihoodKind::gaussian;

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
    static constexpr LikelihoodKind kind = LikelihoodKind::bernoulli;

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
    static constexpr LikelihoodKind kind = LikelihoodKind::student_t;

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

    struct ScaleOfOutput {
        static constexpr double logs = 1.0;
        static constexpr bool is_mixture = true;
        double df;

        ScaleOfOutput(const Likelihood& likelihood, std::size_t c) : df(likelihood.parameter("df")[c]) {}
        double parameter(double square) const { return 1.0 / (df * square); }
        template <class T>
        double slope(T f, const T* target, std::int64_t, double square) const {
            const auto residual = static_cast<double>(*target - f);
            return 0.5 * ((df + 1.0) * residual * residual / (df * square + residual * residual) - 1.0);
        }
        // The noise is a mixture of Gaussian noise (docs/method.md, section 6): draws the precision of each row, gamma
        // of shape w (df + 1) / 2 and rate (df + r^2 / square) / 2, then the square given all of them. `terms` is the
        // sum of the row weights, `shape` and `rate` are those of the prior.
        template <class Rows, class Streams, class... Keep>
        double draw(const Rows& rows, double square, double terms, double shape, double rate, Streams& streams,
                    const Keep&... keep) const {
            const double precision = 1.0 / square;
            double squares = 0.0;
            rows.each([&](double w, auto f, const auto* target, std::int64_t) {
                const auto e = static_cast<double>(*target - f);
                if (!(w > 0.0)) return (keep(0.0), ...);
                const double variance = streams.rows.next(0.5 * w * (df + 1.0), 0.5 * (df + e * e * precision));
                squares += e * e / variance;
                (keep(1.0 / variance), ...);
            });
            return streams.values.next(shape + 0.5 * terms, rate + 0.5 * squares);
        }
    };

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

// l = -(u^2 + s) / 2, u = (y - f) e^(-s/2), for the outputs f, the mean, and s, the logarithm of the variance. u is
// squared after the exponential: e^-s alone would be infinite from half as small an s. Two parameters: the rest of l,
// and beta, with which training multiplies dl/df by the variance^beta; of a density it is zero.
struct HeteroscedasticGaussian {
    static constexpr LikelihoodKind kind = LikelihoodKind::heteroscedastic_gaussian;

    static std::vector<double> parameters(const Likelihood& likelihood) { return likelihood.parameter("beta"); }
    static double constant(const Likelihood& likelihood) { return likelihood.sum_of_constants(); }

    template <class V>
    struct Output {
        V exponent;
        bool is_density;

        PATRAC_FN Output(const scalar_t<V>* parameters, std::int64_t, std::int64_t c)
            : exponent(broadcast<V>(parameters[c] - scalar_t<V>(0.5))), is_density(parameters[c] == scalar_t<V>(0)) {}
        PATRAC_FN PairTerm<V> term(V f, V s, V target, V weight) const {
            const V half = broadcast<V>(scalar_t<V>(0.5));
            const V inverse_sd = exp(-half * s);
            const V u = (target - f) * inverse_sd, square = u * u, halved = half * weight;
            const V of_mean = is_density ? inverse_sd : exp(exponent * s);  // chains need no second exponential
            return {-halved * (square + s), weight * u * of_mean, halved * (square - broadcast<V>(1))};
        }
    };
};

// l = y t - (c e^t - y), c = max(y, 1), for the logarithm t of rate / c: the output shifted by offset - log c. Without
// log c the terms of large counts would cancel. One parameter: the rest of l.
struct Poisson {
    static constexpr LikelihoodKind kind = LikelihoodKind::poisson;

    static std::vector<double> parameters(const Likelihood&) { return {}; }
    static double constant(const Likelihood& likelihood) { return likelihood.sum_of_constants(); }

    template <class V>
    struct Output {
        PATRAC_FN Output(const scalar_t<V>*, std::int64_t, std::int64_t) {}
        PATRAC_FN OutputTerm<V> term(V t, V y, V weight) const {
            const V excess = maximum(y, broadcast<V>(1)) * exp(t) - y;
            return {weight * (y * t - excess), -weight * excess};
        }
    };
};

// l = y log p + r log(1 - p), p = sigmoid(z) = mu / (mu + r), r = 1 / dispersion, for z = log(mu / r): the output
// shifted by offset - log r. With e = exp(-|z|), log p = min(z, 0) - log(1 + e), which neither overflows nor cancels.
// Two parameters: the rest of l, and the dispersion.
struct NegativeBinomial {
    static constexpr LikelihoodKind kind = LikelihoodKind::negative_binomial;

    static std::vector<double> parameters(const Likelihood& likelihood) {
        std::vector<double> found;
        for (const double dispersion : likelihood.parameter("dispersion")) found.push_back(1.0 / dispersion);
        return found;
    }
    static double constant(const Likelihood& likelihood) { return likelihood.sum_of_constants(); }

    template <class V>
    struct Output {
        V r;

        PATRAC_FN Output(const scalar_t<V>* parameters, std::int64_t, std::int64_t c)
            : r(broadcast<V>(parameters[c])) {}
        PATRAC_FN OutputTerm<V> term(V z, V y, V weight) const {
            const V zero = broadcast<V>(0), one = broadcast<V>(1);
            const V above = maximum(z, zero), below = maximum(-z, zero);
            const V e = exp(-(above + below));
            const V inverse = one / (one + e);
            // 1 - p and p; the smaller of them is e / (1 + e).
            const V of_r = select(z < zero, one, e) * inverse, of_y = select(z < zero, e, one) * inverse;
            return {-weight * (y * below + r * above + (y + r) * log1p(e)), weight * (y * of_r - r * of_y)};
        }
    };
};

// l = log(Phi((upper - f) / scale) - Phi((lower - f) / scale)), or the log density where both bounds are equal, less
// log scale, which is the rest of l with the share `known` of such rows in the weight. One parameter: 1 / scale.
struct CensoredGaussian {
    static constexpr LikelihoodKind kind = LikelihoodKind::censored_gaussian;

    static std::vector<double> parameters(const Likelihood& likelihood) {
        std::vector<double> found;
        for (const double scale : likelihood.parameter("scale")) found.push_back(1.0 / scale);
        return found;
    }
    static double constant(const Likelihood& likelihood) {
        const std::vector<double>&scale = likelihood.parameter("scale"), &known = likelihood.parameter("known");
        double sum = 0.0;
        for (std::size_t c = 0; c < scale.size(); ++c) sum -= known[c] * std::log(scale[c]);
        return sum;
    }

    struct ScaleOfOutput {
        static constexpr bool is_mixture = false;
        double logs;

        ScaleOfOutput(const Likelihood& likelihood, std::size_t c) : logs(likelihood.parameter("known")[c]) {}
        double parameter(double square) const { return 1.0 / std::sqrt(square); }
        template <class T>
        double slope(T f, const T* target, std::int64_t step, double square) const {
            return at(f, target, step, parameter(square)).log_scale;
        }
        // Slice sampling of the logarithm of the square: no latent variable, so that row weights need not be whole.
        template <class Rows, class Streams>
        double draw(const Rows& rows, double square, double terms, double shape, double rate, Streams& streams) const {
            const auto log_density = [&](double t) {
                const double inverse = std::exp(-0.5 * t);
                double sum = -(shape + 0.5 * terms * logs) * t - rate * std::exp(-t);
                rows.each([&](double w, auto f, const auto* target, std::int64_t step) {
                    sum += w * at(f, target, step, inverse).value;
                });
                return sum;
            };
            return std::exp(streams.slice(std::log(square), std::sqrt(8.0 / (terms + 2.0 * shape)), log_density));
        }

    private:
        template <class T>
        static IntervalTerm<double> at(T f, const T* target, std::int64_t step, double inverse) {
            const auto lower = static_cast<double>(target[0]), upper = static_cast<double>(target[step]);
            const auto centre = static_cast<double>(f);
            return normal_interval(inverse * (lower - centre), inverse * (upper - centre), inverse * (upper - lower));
        }
    };

    template <class V>
    struct Output {
        V inverse;

        PATRAC_FN Output(const scalar_t<V>* parameters, std::int64_t, std::int64_t c)
            : inverse(broadcast<V>(parameters[c])) {}
        PATRAC_FN OutputTerm<V> term(V f, V lower, V upper, V weight) const {
            const auto found = normal_interval(inverse * (lower - f), inverse * (upper - f), inverse * (upper - lower));
            return {weight * found.value, weight * inverse * found.slope};
        }
    };
};

// l = f_y - log sum_c exp f_c; the target is the label as a number of type T, exact below 2^24.
struct Categorical {
    static constexpr LikelihoodKind kind = LikelihoodKind::categorical;

    static std::vector<double> parameters(const Likelihood&) { return {}; }
    static double constant(const Likelihood&) { return 0.0; }

    // weight l of the rows at f, whose outputs lie `stride` apart and become weight dl/df.
    template <class V, class Index>
    static PATRAC_FN V of_row(scalar_t<V>* f, Index stride, Index n_outputs, V label, V weight) {
        using T = scalar_t<V>;
        V top = load<V>(f);
        for (Index c = 1; c < n_outputs; ++c) top = maximum(load<V>(f + c * stride), top);
        // A smaller share of the sum is 0 rather than subnormal or, a few products on, in the gradient: processors take
        // up to a hundred cycles for each operation on subnormal numbers.
        const V lowest = broadcast<V>(is_float_v<V> ? T(-60) : T(-600));
        V sum = {}, chosen = {};
        for (Index c = 0; c < n_outputs; ++c) {
            const V centred = load<V>(f + c * stride) - top;
            const V e = select(centred < lowest, broadcast<V>(0), exp(maximum(centred, lowest)));
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

// Whether a draw of the scale of the noise reads each row.
template <class Kind>
concept ScaledByRow = requires { typename Kind::ScaleOfOutput; };

// Whether the noise is normal given a precision of each row.
template <class Kind>
concept MixedByRow = ScaledByRow<Kind> && Kind::ScaleOfOutput::is_mixture;

// Calls f with the likelihood's type.
template <class F>
PATRAC_DISPATCH auto visit(LikelihoodKind likelihood, const F& f) {
    switch (likelihood) {
        case LikelihoodKind::gaussian: return f(Gaussian{});
        case LikelihoodKind::categorical: return f(Categorical{});
        case LikelihoodKind::bernoulli: return f(Bernoulli{});
        case LikelihoodKind::student_t: return f(StudentT{});
        case LikelihoodKind::heteroscedastic_gaussian: return f(HeteroscedasticGaussian{});
        case LikelihoodKind::poisson: return f(Poisson{});
        case LikelihoodKind::negative_binomial: return f(NegativeBinomial{});
        case LikelihoodKind::censored_gaussian: return f(CensoredGaussian{});
    }
    __builtin_unreachable();
}

}  // namespace patrac::PATRAC_LEVEL

#endif
