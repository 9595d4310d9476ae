// The rules by which a warm-up ends early: step size and log-likelihood are stationary, within each chain and across
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

// The batches of each chain in a phase.
using BatchesOfChains = std::vector<const std::vector<LogLikelihoodBatch>*>;

// Whether the chains' warm-up may end, from the second half of each chain's batches, cut in two. Stable:
// - R-hat of the log-likelihood over the halves of all chains (Gelman & Rubin 1992; one chain is judged by its own
//   halves) is at most 1.1, which takes some five independent values a half;
// - no chain's mean log step size differs between its halves by more than 0.2;
// - no two chains' step sizes differ by more than a factor of 3: a chain elsewhere needs far smaller steps.
// With K superchains of M chains, which need not be long enough to be judged one by one, one value of each chain is
// compared, as it is now and as it was at half of the steps, so that each superchain has two means:
// - the square of the nested R-hat of the log-likelihood (Margossian et al. 2024) exceeds 1 + 1/M, its value for
//   independent chains, by at most 0.02 and by at most twice its standard deviation if a superchain's two means are
//   equal, sqrt(2 / (K - 1)) / M;
// - the mean over all chains has changed since half of the steps by at most twice its standard error, because chains
//   that all drift alike agree at any one time;
// - the step sizes are as above, as the geometric mean of each superchain.
bool is_stable(const BatchesOfChains& chains, std::int64_t superchains);

// log of the step size with which chains that were compared as superchains go on: the mean over chains.
double shared_log_step(const BatchesOfChains& chains);

}  // namespace patrac
