// When a warm-up may end: step size and log-likelihood stand still, within each chain and across chains.
#pragma once

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

// Whether the chains' warm-up may end, from the second half of each chain's blocks, cut in two. Stable:
// - R-hat of the log-likelihood over the halves of all chains (Gelman & Rubin 1992; one chain is judged by its own
//   halves) is at most 1.1, which takes some five independent values a half;
// - no chain's mean log step size differs between its halves by more than 0.2;
// - no two chains' step sizes differ by more than a factor of 3: a chain that needs far smaller steps is elsewhere.
bool is_stable(const std::vector<const std::vector<Block>*>& chains);

}  // namespace patrac
