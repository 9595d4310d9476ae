// When a warm-up may end: step size and log-likelihood stand still, within each chain and across chains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared/adaptation.hpp"

namespace patrac {

inline LogLikelihoodBlock joined(const std::vector<LogLikelihoodBlock>& blocks, std::size_t first, std::size_t end) {
    LogLikelihoodBlock all;
    for (std::size_t i = first; i < end; ++i) all.add(blocks[i]);
    return all;
}
inline LogLikelihoodBlock second_half(const std::vector<LogLikelihoodBlock>& blocks) {
    return joined(blocks, blocks.size() / 2, blocks.size());
}

// Whether the chains' warm-up may end, from the second half of each chain's blocks, cut in two. Stable:
// - R-hat of the log-likelihood over the halves of all chains (Gelman & Rubin 1992; one chain is judged by its own
//   halves) is at most 1.1, which takes some five independent values a half;
// - no chain's mean log step size differs between its halves by more than 0.2;
// - no two chains' step sizes differ by more than a factor of 3: a chain that needs far smaller steps is elsewhere.
bool is_stable(const std::vector<const std::vector<LogLikelihoodBlock>*>& chains);

}  // namespace patrac
