// Compares the chains of a warm-up.
#include "schedule/stability.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace patrac {
namespace {

constexpr double largest_rhat = 1.1, largest_step_change = 0.2, largest_step_ratio = 3.0;

}  // namespace

bool is_stable(const std::vector<const std::vector<LogLikelihoodBatch>*>& chains) {
    double within = 0.0, smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
    LogLikelihoodBatch means;
    std::int64_t length = 0;
    for (const std::vector<LogLikelihoodBatch>* batches : chains) {
        const std::size_t n = batches->size(), start = n / 2, middle = start + (n - start) / 2;
        if (n < 4) return false;
        const LogLikelihoodBatch first = joined(*batches, start, middle), second = joined(*batches, middle, n);
        if (!(std::abs(first.log_step - second.log_step) <= largest_step_change)) return false;
        smallest = std::min(smallest, second_half(*batches).log_step);
        largest = std::max(largest, second_half(*batches).log_step);
        length = first.count;
        for (const LogLikelihoodBatch& half : {first, second}) {
            within += half.squares / static_cast<double>(half.count - 1);
            means.add(half.mean, 0.0);
        }
    }
    if (!(largest - smallest <= std::log(largest_step_ratio))) return false;
    within /= static_cast<double>(means.count);
    const double between = means.squares / static_cast<double>(means.count - 1), n = static_cast<double>(length);
    return std::sqrt((n - 1.0) / n + between / within) <= largest_rhat;
}

}  // namespace patrac
