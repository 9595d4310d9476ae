// Training as the facade shows it: networks that descend their penalised losses by Adam on all rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/levels/model.hpp"

namespace patrac {

// Update number `update`, from 1 on, of Adam (Kingma & Ba 2015, algorithm 1) with its authors' constants. theta, mean
// and square (size,) are changed in place.
template <class T>
void adam_update(std::int64_t size, std::int64_t update, double learning_rate, const T* gradient, T* mean, T* square,
                 T* theta);

// Networks of one shape that are trained in step, each on rows of its own. The loss of network k is
// l2 / 2 * |theta_k|^2 minus the log-likelihood of its rows.
template <class T>
class Descent {
public:
    using Models = std::vector<std::shared_ptr<const Model<T>>>;

    // `trained` (networks,) are the models of the rows to train on, `unseen` (networks,) those of others to be judged
    // by, or none; theta (networks, K) is where they begin.
    Descent(Models trained, Models unseen, const T* theta, double l2, double learning_rate);
    ~Descent();

    std::int64_t networks() const;
    std::int64_t dim() const { return dim_; }

    // Runs epochs, each an evaluation and an update. Of each epoch and network, both (epochs, networks): the loss
    // before the update, and minus the log-likelihood of the unseen rows at the parameters of the lowest loss so far,
    // infinite while there is none; those parameters to `best_theta` (epochs, networks, K). `at_once` networks have
    // `threads` threads each; no result depends on either. After an exception the descent cannot go on.
    void run(std::int64_t epochs, std::int64_t at_once, std::int64_t threads, double* losses, double* unseen,
             T* best_theta);

private:
    struct Network;

    std::int64_t dim_;
    double l2_, learning_rate_;
    std::vector<Network> networks_;
};

}  // namespace patrac
