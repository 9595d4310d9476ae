// Log-likelihood and gradient over all tiles, by one thread or several: sums over slabs of tiles, added in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "packed.hpp"
#include "../sampling/threads.hpp"
#include "tile_pass.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class Evaluator {
public:
    // At most `threads` threads share an evaluation, one for each slab of the data. The result does not depend on it.
    Evaluator(const Plan& plan, const PackedData<T>& data, std::int64_t threads) : plan_(&plan), data_(&data) {
        threads = std::min(threads, data.n_slabs);
        if (threads > 1) team_ = std::make_unique<Team>(threads);
        const std::int64_t members = team_ ? team_->size() : 1;
        passes_.reserve(static_cast<std::size_t>(members));
        for (std::int64_t m = 0; m < members; ++m) passes_.emplace_back(plan, data.layout);
        has_theta_.resize(static_cast<std::size_t>(members));
        // Alone, a thread adds each slab to the first as soon as it is summed.
        const std::int64_t totals = team_ ? data.n_slabs : std::min<std::int64_t>(2, data.n_slabs);
        for (std::int64_t s = 0; s < totals; ++s) totals_.emplace_back(plan);
    }

    // l(theta), and g (K,) unless null.
    double evaluate(const T* theta, const LikelihoodTerms<T>& likelihood, T* gradient) {
        std::fill(has_theta_.begin(), has_theta_.end(), false);
        const auto sum_slab = [&](std::int64_t slab, std::int64_t member, Totals& totals) {
            TilePass<T>& pass = passes_[static_cast<std::size_t>(member)];
            if (!has_theta_[static_cast<std::size_t>(member)]) pass.set_theta(theta);
            has_theta_[static_cast<std::size_t>(member)] = true;
            pass.evaluate(*data_, likelihood, data_->slab_start(slab), data_->slab_start(slab + 1), gradient != nullptr,
                          totals);
        };
        Totals& total = totals_.front();
        if (team_) {
            team_->run(data_->n_slabs, [&](std::int64_t slab, std::int64_t member) {
                sum_slab(slab, member, totals_[static_cast<std::size_t>(slab)]);
            });
            for (std::size_t s = 1; s < totals_.size(); ++s) total.add(totals_[s], gradient != nullptr);
        } else {
            sum_slab(0, 0, total);
            for (std::int64_t s = 1; s < data_->n_slabs; ++s) {
                sum_slab(s, 0, totals_.back());
                total.add(totals_.back(), gradient != nullptr);
            }
        }
        if (gradient) total.gather(*plan_, gradient);
        return likelihood.constant + total.log_likelihood;
    }

private:
    const Plan* plan_;  // both outlive the evaluator
    const PackedData<T>* data_;
    std::unique_ptr<Team> team_;
    std::vector<TilePass<T>> passes_;       // one for each member
    std::vector<unsigned char> has_theta_;  // (members,)
    std::vector<Totals> totals_;
};

}  // namespace patrac::PATRAC_LEVEL
