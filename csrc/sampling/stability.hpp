// When a warm-up may end: step size and log-likelihood stand still, within each chain and across chains.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace patrac {

// Log-likelihood and log step size over a stretch of steps.
struct Block {
    std::int64_t count = 0;
    double mean = 0.0;      // of the log-likelihood
    double squares = 0.0;   // sum of squared distances from the mean
    double log_step = 0.0;  // mean

    // Welford's update.
    void add(double log_likelihood, double log_step_size) {
        ++count;
        const double n = static_cast<double>(count), away = log_likelihood - mean;
        mean += away / n;
        squares += away * (log_likelihood - mean);
        log_step += (log_step_size - log_step) / n;
    }
    // Chan, Golub & LeVeque (1979).
    void add(const Block& other) {
        if (other.count == 0) return;
        const double a = static_cast<double>(count), b = static_cast<double>(other.count), away = other.mean - mean;
        count += other.count;
        squares += other.squares + away * away * a * b / (a + b);
        mean += away * b / (a + b);
        log_step += (other.log_step - log_step) * b / (a + b);
    }
};

// Blocks up to the first look.
inline constexpr std::int64_t blocks_to_first_look = 8;

inline Block joined(const std::vector<Block>& blocks, std::size_t first, std::size_t end) {
    Block all;
    for (std::size_t i = first; i < end; ++i) all.add(blocks[i]);
    return all;
}
inline Block second_half(const std::vector<Block>& blocks) {
    return joined(blocks, blocks.size() / 2, blocks.size());
}

// Looks at the second half of each chain's blocks, cut in two. Stable: R-hat of the log-likelihood over the two halves
// of all chains (Gelman & Rubin 1992; one chain is judged by its own halves) is at most 1.05, which takes about ten
// independent values a half, and no chain's mean log step size differs between its halves by more than 0.2.
inline bool is_stable(const std::vector<const std::vector<Block>*>& chains) {
    constexpr double largest_rhat = 1.05, largest_step_change = 0.2;
    double within = 0.0;
    Block means;
    std::int64_t length = 0;
    for (const std::vector<Block>* blocks : chains) {
        const std::size_t n = blocks->size(), start = n / 2, middle = start + (n - start) / 2;
        if (n < 4) return false;
        const Block first = joined(*blocks, start, middle), second = joined(*blocks, middle, n);
        if (!(std::abs(first.log_step - second.log_step) <= largest_step_change)) return false;
        length = first.count;
        for (const Block& half : {first, second}) {
            within += half.squares / static_cast<double>(half.count - 1);
            means.add(half.mean, 0.0);
        }
    }
    within /= static_cast<double>(means.count);
    const double between = means.squares / static_cast<double>(means.count - 1), n = static_cast<double>(length);
    return std::sqrt((n - 1.0) / n + between / within) <= largest_rhat;
}

}  // namespace patrac
