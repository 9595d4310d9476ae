// Compares the chains of a warm-up.
#include "schedule/stability.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace patrac {
namespace {

constexpr double largest_rhat = 1.1, largest_step_change = 0.2, largest_step_ratio = 3.0;
constexpr double largest_nested_excess = 0.02;  // of the square of R-hat, which is then 1.01, as usual for R-hat
constexpr double errors_by_chance = 2.0;

bool superchains_are_stable(const BatchesOfChains& chains, std::int64_t superchains) {
    const std::size_t groups = static_cast<std::size_t>(superchains), of_each = chains.size() / groups;
    if (of_each < 2 || chains.size() % groups != 0)
        throw std::invalid_argument("superchains: they must divide the chains into groups of at least two");
    double within = 0.0, smallest = std::numeric_limits<double>::infinity(), largest = -smallest, drift = 0.0;
    LogLikelihoodBatch means;
    for (std::size_t c = 0; c < chains.size(); c += of_each) {
        LogLikelihoodBatch halfway, now;  // over the chains of the superchain
        for (std::size_t i = c; i < c + of_each; ++i) {
            const std::vector<LogLikelihoodBatch>& batches = *chains[i];
            const std::size_t n = batches.size(), start = n / 2, middle = start + (n - start) / 2;
            if (n < 4) return false;
            halfway.add(batches[start - 1].mean, joined(batches, start, middle).log_step);
            now.add(batches.back().mean, joined(batches, middle, n).log_step);
        }
        if (!(std::abs(halfway.log_step - now.log_step) <= largest_step_change)) return false;
        smallest = std::min(smallest, now.log_step);
        largest = std::max(largest, now.log_step);
        drift += (now.mean - halfway.mean) / static_cast<double>(groups);
        for (const LogLikelihoodBatch& values : {halfway, now}) {
            within += values.squares / static_cast<double>(values.count - 1);
            means.add(values.mean, 0.0);
        }
    }
    if (!(largest - smallest <= std::log(largest_step_ratio))) return false;
    within /= static_cast<double>(means.count);
    const double between = means.squares / static_cast<double>(means.count - 1), m = static_cast<double>(of_each);
    const double by_chance = errors_by_chance * std::sqrt(2.0 / static_cast<double>(groups - 1));
    const double error = std::sqrt(2.0 * within / static_cast<double>(chains.size()));  // of the drift
    return between / within <= 1.0 / m + std::min(largest_nested_excess, by_chance / m) &&
           std::abs(drift) <= errors_by_chance * error;
}

}  // namespace

double shared_log_step(const BatchesOfChains& chains) {
    double sum = 0.0;
    for (const std::vector<LogLikelihoodBatch>* batches : chains) sum += second_half(*batches).log_step;
    return sum / static_cast<double>(chains.size());
}

bool is_stable(const BatchesOfChains& chains, std::int64_t superchains) {
    if (superchains > 0) return superchains_are_stable(chains, superchains);
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
