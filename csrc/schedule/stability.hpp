// The rule by which a warm-up ends early: step size and log-likelihood are stationary, within each chain and across
// chains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared/adaptation.hpp"

namespace patrac {

inline LogLikelihoodBatch joined(const std::vector<LogLikelihoodBatch>& batches, std::size_t first, std::size_t end) {
    LogLikelihoodBatch all;
    for (std::size_t i = first; i < end; ++i) all.add(batches[i]);
    return all;
}
inline LogLikelihoodBatch second_half(const std::vector<LogLikelihoodBatch>& batches) {
    return joined(batches, batches.size() / 2, batches.size());
}

// Whether the chains' warm-up may end, from the second half of each chain's batches, cut in two. Stable:
// - R-hat of the log-likelihood over the halves of all chains (Gelman & Rubin 1992; one chain is judged by its own
//   halves) is at most 1.1, which takes some five independent values a half;
// - no chain's mean log step size differs between its halves by more than 0.2;
// - no two chains' step sizes differ by more than a factor of 3: a chain elsewhere needs far smaller steps.
bool is_stable(const std::vector<const std::vector<LogLikelihoodBatch>*>& chains);

}  // namespace patrac
