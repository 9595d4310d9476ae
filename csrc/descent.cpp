// Adam, and networks that it trains in step.
#include "descent.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "schedule/interruption.hpp"
#include "schedule/threads.hpp"

namespace patrac {

template <class T>
void adam_update(std::int64_t size, std::int64_t update, double learning_rate, const T* gradient, T* mean, T* square,
                 T* theta) {
    const double count = static_cast<double>(update);
    const T mean_share = static_cast<T>(1.0 - 0.9), square_share = static_cast<T>(1.0 - 0.999);
    const T unbiased = static_cast<T>(std::sqrt(1.0 - std::pow(0.999, count)));
    const T rate = static_cast<T>(learning_rate / (1.0 - std::pow(0.9, count)));
    for (std::int64_t i = 0; i < size; ++i) {
        mean[i] += (gradient[i] - mean[i]) * mean_share;
        square[i] += (gradient[i] * gradient[i] - square[i]) * square_share;
        theta[i] -= mean[i] / (std::sqrt(square[i]) / unbiased + static_cast<T>(1e-8)) * rate;
    }
}

template <class T>
struct Descent<T>::Network {
    std::shared_ptr<const Model<T>> trained, unseen;  // the latter may be null
    std::vector<T> theta, gradient, mean, square;     // (K,)
    std::vector<T> best;                              // (K,), theta at the lowest loss
    double best_loss = std::numeric_limits<double>::infinity();
    double unseen_loss = std::numeric_limits<double>::infinity();  // at `best`
    std::int64_t updates = 0;

    // Returns the loss before the update.
    double epoch(double l2, double learning_rate, std::int64_t threads) {
        double log_likelihood = 0.0, squares = 0.0;
        trained->evaluate(theta.data(), 1, &log_likelihood, gradient.data(), threads);
        for (const T entry : theta) squares += static_cast<double>(entry) * static_cast<double>(entry);
        const double loss = 0.5 * l2 * squares - log_likelihood;
        if (loss < best_loss) {  // false for NaN
            best_loss = loss;
            best = theta;
            if (unseen) {
                unseen->evaluate(theta.data(), 1, &log_likelihood, nullptr, threads);
                unseen_loss = -log_likelihood;
            }
        }
        for (std::size_t i = 0; i < theta.size(); ++i) gradient[i] = static_cast<T>(l2) * theta[i] - gradient[i];
        adam_update(std::ssize(theta), ++updates, learning_rate, gradient.data(), mean.data(), square.data(),
                    theta.data());
        return loss;
    }
};

template <class T>
Descent<T>::Descent(Models trained, Models unseen, const T* theta, double l2, double learning_rate)
    : dim_(trained.front()->dim()), l2_(l2), learning_rate_(learning_rate) {
    for (std::size_t k = 0; k < trained.size(); ++k) {
        Network network;
        network.trained = std::move(trained[k]);
        if (!unseen.empty()) network.unseen = std::move(unseen[k]);
        const T* const start = theta + static_cast<std::int64_t>(k) * dim_;
        network.theta.assign(start, start + dim_);
        network.best = network.theta;
        for (std::vector<T>* zeros : {&network.gradient, &network.mean, &network.square})
            zeros->assign(static_cast<std::size_t>(dim_), T(0));
        networks_.push_back(std::move(network));
    }
}

template <class T>
Descent<T>::~Descent() = default;

template <class T>
std::int64_t Descent<T>::networks() const {
    return std::ssize(networks_);
}

template <class T>
void Descent<T>::run(std::int64_t epochs, std::int64_t at_once, std::int64_t threads, double* losses, double* unseen,
                     T* best_theta) {
    parallel_for(networks(), at_once, [&](std::int64_t k, std::int64_t) {
        Network& network = networks_[static_cast<std::size_t>(k)];
        for (std::int64_t e = 0; e < epochs; ++e) {
            Interruption::check();
            const std::int64_t place = e * networks() + k;
            losses[place] = network.epoch(l2_, learning_rate_, threads);
            unseen[place] = network.unseen_loss;
            std::copy(network.best.begin(), network.best.end(), best_theta + place * dim_);
        }
    });
}

#define PATRAC_INSTANTIATE(T)                                                            \
    template void adam_update(std::int64_t, std::int64_t, double, const T*, T*, T*, T*); \
    template class Descent<T>;
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace patrac
