// The log density in the coordinates of other libraries.
#include "bridges/density.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "schedule/threads.hpp"

namespace patrac {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
bool is_finite(const T* values, std::int64_t count) {
    return std::all_of(values, values + count, [](T value) { return std::isfinite(value); });
}

}  // namespace

template <class T>
Density<T>::Density(std::shared_ptr<const Model<T>> model, DensitySpec spec)
    : model_(std::move(model)),
      spec_(std::move(spec)),
      theta_dim_(is_collapsed(spec_.kind) ? std::ssize(model_->hidden_entries()) : model_->dim()),
      dim_(theta_dim_ + (spec_.log_variance ? n_variances() : 0)) {
    if (!spec_.prior_variance.empty())
        for (std::int64_t i = 0; i < theta_dim_; ++i) {
            const std::int64_t entry =
                is_collapsed(spec_.kind) ? model_->hidden_entries()[static_cast<std::size_t>(i)] : i;
            const double variance = spec_.prior_variance[static_cast<std::size_t>(entry)];
            deviation_.push_back(std::sqrt(variance));
            precision_.push_back(1.0 / variance);
            // z has the density N(0, I).
            prior_constant_ -= 0.5 * std::log(2.0 * std::numbers::pi * (spec_.whitened ? 1.0 : variance));
        }
    for (const double rate : spec_.rate) variance_constant_ += spec_.shape * std::log(rate) - std::lgamma(spec_.shape);
}

template <class T>
typename WorkspacePool<typename Density<T>::Workspace>::Lease Density<T>::workspace() const {
    return pool_.take([this] {
        auto work = std::make_unique<Workspace>();
        const auto dim = static_cast<std::size_t>(dim_);
        if (spec_.whitened) work->theta.resize(static_cast<std::size_t>(theta_dim_));
        work->variance = spec_.variance;
        work->slope.resize(spec_.variance.size());
        work->point.resize(dim);
        work->gradient.resize(dim);
        if (is_collapsed(spec_.kind))
            work->collapsed = model_->collapsed_density(spec_.prior_variance.data(),
                                                        spec_.variance.empty() ? nullptr : spec_.variance.data());
        return work;
    });
}

template <class T>
void Density<T>::evaluate(const T* points, std::int64_t batch, double* values, T* gradient, std::int64_t threads,
                          const double* variance) const {
    const auto one = [&](std::int64_t b, std::int64_t each) {
        const auto work = workspace();
        values[b] = evaluate_one(points + b * dim_, gradient ? gradient + b * dim_ : nullptr, each,
                                 variance ? variance + b * n_variances() : nullptr, *work);
    };
    if (batch == 1) return one(0, threads);
    parallel_for(batch, threads, [&](std::int64_t b, std::int64_t) { one(b, 1); });
}

template <class T>
void Density<T>::evaluate_wide(const double* points, std::int64_t batch, double* values, double* gradient,
                               std::int64_t threads) const {
    const auto one = [&](std::int64_t b, std::int64_t each) {
        const auto lease = workspace();
        Workspace& work = *lease;
        const double* const point = points + b * dim_;
        for (std::int64_t i = 0; i < dim_; ++i) work.point[static_cast<std::size_t>(i)] = static_cast<T>(point[i]);
        T* const slope = gradient ? work.gradient.data() : nullptr;
        values[b] = evaluate_one(work.point.data(), slope, each, nullptr, work);
        if (gradient) std::copy(work.gradient.begin(), work.gradient.end(), gradient + b * dim_);
    };
    if (batch == 1) return one(0, threads);
    parallel_for(batch, threads, [&](std::int64_t b, std::int64_t) { one(b, 1); });
}

template <class T>
bool Density<T>::holds(const double* point) const {
    return std::all_of(point, point + dim_, [](double value) { return std::isfinite(static_cast<T>(value)); });
}

template <class T>
void Density<T>::complete(const T* points, std::int64_t batch, const T* normals, T* theta, std::int64_t threads) const {
    const std::int64_t full = full_dim(), drawn = full - theta_dim_;
    parallel_for(batch, threads, [&](std::int64_t b, std::int64_t) {
        const auto lease = workspace();
        Workspace& work = *lease;
        work.collapsed->complete(theta_of(points + b * dim_, work), normals + b * drawn, theta + b * full);
    });
}

// theta, or theta_h, at a point: the point itself, or in the workspace.
template <class T>
const T* Density<T>::theta_of(const T* point, Workspace& work) const {
    if (!spec_.whitened) return point;
    for (std::size_t i = 0; i < work.theta.size(); ++i)
        work.theta[i] = static_cast<T>(static_cast<double>(point[i]) * deviation_[i]);
    return work.theta.data();
}

template <class T>
double Density<T>::evaluate_one(const T* point, T* gradient, std::int64_t threads, const double* variance,
                                Workspace& work) const {
    const T* const log_variance = point + theta_dim_;
    const auto fail = [&](double value) {
        if (gradient) std::fill_n(gradient, dim_, static_cast<T>(nan));
        return value;
    };
    if (!is_finite(point, dim_)) return fail(nan);
    for (std::size_t c = 0; c < work.variance.size(); ++c) {
        double& own = work.variance[c];
        own = variance             ? variance[c]
              : spec_.log_variance ? std::exp(static_cast<double>(log_variance[c]))
                                   : spec_.variance[c];
        if (!std::isfinite(own) || own <= 0.0) return fail(-std::numeric_limits<double>::infinity());
    }
    const T* const theta = theta_of(point, work);
    const bool with_slope = gradient && spec_.log_variance;
    double value = work.collapsed ? work.collapsed->evaluate(theta, gradient)
                                  : log_likelihood(theta, gradient, threads, with_slope, work);
    if (with_slope) std::copy(work.slope.begin(), work.slope.end(), gradient + theta_dim_);
    if (gradient && spec_.whitened)
        for (std::int64_t i = 0; i < theta_dim_; ++i)
            gradient[i] = static_cast<T>(static_cast<double>(gradient[i]) * deviation_[static_cast<std::size_t>(i)]);
    if (has_prior(spec_.kind)) {
        value += add_prior(point, theta, gradient);
        if (spec_.log_variance) value += add_variance_prior(log_variance, gradient, work);
    }
    return value;
}

// l at theta and work.variance; with `with_slope` also its derivatives by the logarithms of the variances.
template <class T>
double Density<T>::log_likelihood(const T* theta, T* gradient, std::int64_t threads, bool with_slope,
                                  Workspace& work) const {
    double value = 0.0;
    const bool rescaled = spec_.reference > 0.0;
    model_->evaluate(theta, 1, &value, gradient, threads,
                     rescaled || work.variance.empty() ? nullptr : work.variance.data());
    if (!rescaled) {
        if (with_slope) model_->variance_slope(theta, work.variance.data(), work.slope.data());
        return value;
    }
    // Gaussian noise of one variance: l without its constant and g are proportional to 1 / variance.
    const double reference = spec_.reference, variance = work.variance.front();
    const double squares =
        -2.0 * reference * (value + 0.5 * spec_.terms * std::log(2.0 * std::numbers::pi * reference));
    const double factor = reference / variance;
    if (gradient)
        for (std::int64_t i = 0; i < theta_dim_; ++i)
            gradient[i] = static_cast<T>(static_cast<double>(gradient[i]) * factor);
    if (with_slope) work.slope.front() = 0.5 * (squares / variance - spec_.terms);
    return -0.5 * spec_.terms * std::log(2.0 * std::numbers::pi * variance) - squares / (2.0 * variance);
}

// Returns log N(theta; 0, C), or log N(z; 0, I), and adds its gradient.
template <class T>
double Density<T>::add_prior(const T* point, const T* theta, T* gradient) const {
    double quadratic = 0.0;
    for (std::int64_t i = 0; i < theta_dim_; ++i) {
        const double at = static_cast<double>(spec_.whitened ? point[i] : theta[i]);
        const double slope = spec_.whitened ? at : at * precision_[static_cast<std::size_t>(i)];
        quadratic += at * slope;
        if (gradient) gradient[i] = static_cast<T>(static_cast<double>(gradient[i]) - slope);
    }
    return prior_constant_ - 0.5 * quadratic;
}

// Returns the log density of the logarithms t of the variances, exp(t) inverse-gamma of shape a and rate b, which is
// a log b - log Gamma(a) - a t - b exp(-t), and adds its gradient.
template <class T>
double Density<T>::add_variance_prior(const T* log_variance, T* gradient, const Workspace& work) const {
    double value = variance_constant_;
    for (std::int64_t c = 0; c < n_variances(); ++c) {
        const auto at = static_cast<std::size_t>(c);
        const double pull = spec_.rate[at] / work.variance[at];
        value -= spec_.shape * static_cast<double>(log_variance[c]) + pull;
        if (gradient) {
            T& slope = gradient[theta_dim_ + c];
            slope = static_cast<T>(static_cast<double>(slope) + pull - spec_.shape);
        }
    }
    return value;
}

template class Density<float>;
template class Density<double>;

}  // namespace patrac
