// The noise variances of chains on a device, where they are drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/chain/noise_variance.hpp"
#include "cuda/run/device.hpp"
#include "schedule/run_config.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class VarianceMemory {
public:
    // Of config.chains chains; those of each data set follow those of the one before. `weights` (data sets,) are the
    // sums of the row weights.
    VarianceMemory(Device& device, const DevicePlan<T>& plan, const RunConfig& config,
                   const std::vector<double>& weights)
        : view_{} {
        const SampledVariance& sampled = config.variance;
        if (!sampled.sampled()) return;
        const std::int64_t q = sampled.count(), m = plan.n_outputs, of_set = config.chains / sampled.sets;
        std::vector<double> values, terms;
        std::vector<T> precision;
        for (std::int64_t chain = 0; chain < config.chains; ++chain) {
            const double* const initial = sampled.initial.data() + chain / of_set * q;
            values.insert(values.end(), initial, initial + q);
            for (std::int64_t c = 0; c < m; ++c) precision.push_back(static_cast<T>(1.0 / initial[q == 1 ? 0 : c]));
        }
        for (const double weight : weights) terms.push_back(weight * static_cast<double>(m) / static_cast<double>(q));
        rate_ = DeviceVector<double>(device, sampled.rate);
        terms_ = DeviceVector<double>(device, terms);
        values_ = DeviceVector<double>(device, values);
        previous_ = DeviceVector<double>(device, config.chains * q);
        squares_ = DeviceVector<double>(device, config.chains * q);
        precision_ = DeviceVector<T>(device, precision);
        completed_ = DeviceVector<T>(device, config.chains * plan.dim);
        view_ = {.count = static_cast<int>(q),
                 .n_outputs = plan.n_outputs,
                 .every = sampled.every,
                 .shape = sampled.shape,
                 .rate = rate_.data(),
                 .terms = terms_.data(),
                 .values = values_.data(),
                 .previous = previous_.data(),
                 .squares = squares_.data(),
                 .precision = precision_.data(),
                 .completed = completed_.data()};
    }

    const DeviceVariance<T>& view() const { return view_; }

private:
    DeviceVector<double> rate_, terms_, values_, previous_, squares_;
    DeviceVector<T> precision_, completed_;
    DeviceVariance<T> view_;
};

}  // namespace patrac::PATRAC_LEVEL
