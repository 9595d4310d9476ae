// The prior of one chain: independent normal parameters, whose variances may have sampled scales.
//
// With sampled scales (Neal 1996) the parameters of group g have variance scale_g C_i, C the variances of the run, and
// a priori scale_g is inverse-gamma. Given theta the scales are then independent of each other and of the data,
//   scale_g | theta ~ IG(shape + K_g / 2, rate + sum_{i in g} theta_i^2 / (2 C_i)),
// so a draw leaves l and g at theta as they are; what was computed from the variances changes.
//
// With many parameters in a group a scale hardly moves given them, and they hardly move given it. Interweaving (Yu and
// Meng 2011) adds a move along the other coordinates: given the whitened z = theta / sqrt(scale_g C), a random walk of
// log scale_g takes the parameters with it, accepted by l and the prior of the scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "cpu/chain/inverse_gamma.hpp"
#include "cpu/tiles/aligned_array.hpp"
#include "cpu/tiles/wide.hpp"
#include "schedule/checkpoint.hpp"
#include "schedule/run_config.hpp"

namespace patrac::PATRAC_LEVEL {

class ChainPrior {
public:
    // variance (dim,) and the configuration outlive the prior.
    ChainPrior(const SampledScales& config, const double* variance, std::int64_t dim)
        : config_(config),
          base_(variance),
          variance_(dim),
          precision_(dim),
          scales_(config.sampled() ? static_cast<std::size_t>(config.groups) : 0, 1.0),
          sums_(scales_.size()),
          counts_(scales_.size()),
          walks_(scales_.size()) {
        std::copy_n(variance, dim, variance_.data());
        for (std::int64_t i = 0; i < dim; ++i) {
            precision_[i] = 1.0 / variance_[i];
            base_constant_ -= 0.5 * std::log(2.0 * std::numbers::pi * variance_[i]);
        }
        log_constant_ = base_constant_;
        for (const std::int32_t group : config.group) ++counts_[static_cast<std::size_t>(group)];
    }

    const double* variance() const { return variance_.data(); }  // (dim,), scale_g C_i
    const std::vector<double>& scales() const { return scales_; }

    // log N(theta; 0, scale C), normalised.
    template <class T>
    double log_density(const AlignedArray<T>& theta) const {
        using D = Vec<double>;
        D sum = {};
        for (std::int64_t i = 0; i < theta.size(); i += lanes_v<D>) {
            const D x = load_wide(theta.data() + i);
            sum = fma(x * x, load<D>(precision_.data() + i), sum);
        }
        return log_constant_ - 0.5 * reduce_add(sum);
    }

    // Draws all scales given theta (dim,); every (keys, draw) has noise of its own.
    template <class T>
    void draw_scales(const PhiloxRoundKeys& keys, std::uint64_t draw, const AlignedArray<T>& theta) {
        std::fill(sums_.begin(), sums_.end(), 0.0);
        for (std::int64_t i = 0; i < theta.size(); ++i) {
            const double x = static_cast<double>(theta[i]);
            sums_[group_of(i)] += x * x / base_[i];
        }
        InverseGammaStream draws(keys, Purpose::scale_normal, Purpose::scale_uniform, draw);
        previous_ = scales_;
        for (std::size_t g = 0; g < scales_.size(); ++g)
            scales_[g] =
                draws.next(config_.shape + 0.5 * static_cast<double>(counts_[g]), config_.rate + 0.5 * sums_[g]);
        follow_scales();
    }

    // Undoes the last draw.
    void restore_scales() {
        scales_ = previous_;
        follow_scales();
    }

    // Proposes to multiply the scale of a group drawn at random by exp(e) and its parameters by exp(e / 2), e ~
    // N(0, deviation^2). Writes the new theta (dim,) to `moved` and returns the log of the acceptance ratio but for
    // that of l. Takes one value from each stream.
    template <class T>
    double propose_rescaling(NormalStream& normal, UniformStream& uniform, const AlignedArray<T>& theta,
                             AlignedArray<T>& moved) {
        const auto count = static_cast<double>(scales_.size());
        rescaled_ = std::min(scales_.size() - 1, static_cast<std::size_t>(uniform.next() * count));
        const double step = walks_[rescaled_].deviation * normal.next();
        const double from = scales_[rescaled_], factor = std::exp(0.5 * step);
        proposed_ = from * std::exp(step);
        for (std::int64_t i = 0; i < theta.size(); ++i)
            moved[i] = group_of(i) == rescaled_ ? static_cast<T>(factor * static_cast<double>(theta[i])) : theta[i];
        // The density of log scale_g; that of z stays.
        return -config_.shape * step - config_.rate * (1.0 / proposed_ - 1.0 / from);
    }

    // Ends the move. While `adapting`, its deviation follows the acceptance probability.
    void end_rescaling(bool accepted, double acceptance_probability, bool adapting) {
        Walk& walk = walks_[rescaled_];
        if (adapting) {
            const double gain = std::pow(1.0 + static_cast<double>(walk.tries++), -walk_decay);
            walk.deviation =
                std::min(widest_walk, walk.deviation * std::exp(gain * (acceptance_probability - walk_target)));
        }
        if (!accepted) return;
        scales_[rescaled_] = proposed_;
        follow_scales();
    }

    void exchange(Checkpoint& state) {
        state.exchange_array(scales_.data(), std::ssize(scales_));
        state.exchange_array(walks_.data(), std::ssize(walks_));
        if (state.reads() && config_.sampled()) follow_scales();
    }

private:
    // The random walk of one log scale: the target is the best acceptance rate in one dimension (Gelman, Roberts and
    // Gilks 1996), the decay that of a Robbins-Monro sequence. Wider walks would leave the range of the type.
    static constexpr double walk_target = 0.44, walk_decay = 0.6, widest_walk = 5.0;
    struct Walk {
        double deviation = 0.5;
        std::int64_t tries = 0;
    };

    void follow_scales() {
        log_constant_ = base_constant_;
        for (std::size_t g = 0; g < scales_.size(); ++g)
            log_constant_ -= 0.5 * static_cast<double>(counts_[g]) * std::log(scales_[g]);
        for (std::int64_t i = 0; i < variance_.size(); ++i) {
            variance_[i] = scales_[group_of(i)] * base_[i];
            precision_[i] = 1.0 / variance_[i];
        }
    }

    std::size_t group_of(std::int64_t i) const {
        return static_cast<std::size_t>(config_.group[static_cast<std::size_t>(i)]);
    }

    const SampledScales& config_;
    const double* base_;  // (dim,), C
    AlignedArray<double> variance_, precision_;
    double base_constant_ = 0.0, log_constant_ = 0.0;  // of the log density, at scales of 1 and at the present ones
    std::vector<double> scales_, previous_, sums_;     // (G,)
    std::vector<std::int64_t> counts_;                 // (G,), K_g
    std::vector<Walk> walks_;                          // (G,)
    std::size_t rescaled_ = 0;                         // the group whose scale is to move
    double proposed_ = 0.0;                            // its scale after the move
};

}  // namespace patrac::PATRAC_LEVEL
