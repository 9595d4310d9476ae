// The log density that other libraries call: of a compiled model, in their coordinates, from any of their threads.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "cpu/levels/model.hpp"
#include "schedule/workspace_pool.hpp"
#include "shared/names.hpp"

namespace patrac {

// Of theta (K,): l, or l plus the normalised log prior. Of theta_h (K_h,), see model/collapse.hpp: the log marginal
// likelihood log p(y | theta_h), or that plus the normalised log prior of theta_h.
enum class DensityKind : std::uint8_t { likelihood, posterior, collapsed, collapsed_posterior };

inline constexpr Named<DensityKind> density_kinds[] = {
    {DensityKind::likelihood, "likelihood"},
    {DensityKind::posterior, "posterior"},
    {DensityKind::collapsed, "collapsed"},
    {DensityKind::collapsed_posterior, "collapsed_posterior"},
};
static_assert(in_order(density_kinds) && is_whole<DensityKind, std::size(density_kinds)>);

constexpr bool is_collapsed(DensityKind kind) {
    return kind == DensityKind::collapsed || kind == DensityKind::collapsed_posterior;
}
constexpr bool has_prior(DensityKind kind) {
    return kind == DensityKind::posterior || kind == DensityKind::collapsed_posterior;
}

struct DensitySpec {
    DensityKind kind = DensityKind::likelihood;
    bool whitened = false;               // points are z, theta = C^(1/2) z
    bool log_variance = false;           // points end in the logarithms of the q variances; not collapsed
    std::vector<double> prior_variance;  // (K,), C; empty where the density needs none

    // Of a likelihood whose noise variances are sampled; empty otherwise.
    std::vector<double> variance;  // (q,), where the density stands; with `log_variance` only q is read
    double reference = 0.0;        // the compiled variance of all outputs, from which l is rescaled; 0: it is not
    double terms = 0.0;            // weighted number of terms of l
    double shape = 0.0;            // of the inverse-gamma prior of the variances
    std::vector<double> rate;      // (q,)
};

// A density as callers see it who know no type but double.
class WideDensity {
public:
    virtual ~WideDensity() = default;

    virtual std::int64_t dim() const = 0;
    // As Density::evaluate(), for points and gradient in float64, which are rounded to the density's type and back.
    virtual void evaluate_wide(const double* points, std::int64_t batch, double* values, double* gradient,
                               std::int64_t threads) const = 0;
    // Whether all entries of a point (D,) are finite in the density's type.
    virtual bool holds(const double* point) const = 0;
};

// Calls from several threads at the same time do not wait for each other.
template <class T>
class Density final : public WideDensity {
public:
    Density(std::shared_ptr<const Model<T>> model, DensitySpec spec);

    std::int64_t dim() const override { return dim_; }  // D: K or K_h, plus q with the logarithms of the variances
    std::int64_t n_variances() const { return static_cast<std::int64_t>(spec_.variance.size()); }
    std::int64_t full_dim() const { return model_->dim(); }  // K
    bool collapses() const { return is_collapsed(spec_.kind); }

    // points (batch, D) -> values (batch,) and, unless null, gradient (batch, D). `variance` (batch, q): those of each
    // point in place of the specification's, unless null. `threads` share the points, or the rows of a single point.
    // A point that is not finite has the value NaN, and one whose variance is 0 or infinite in float64 -infinity; the
    // gradient of both is NaN.
    void evaluate(const T* points, std::int64_t batch, double* values, T* gradient, std::int64_t threads,
                  const double* variance = nullptr) const;
    void evaluate_wide(const double* points, std::int64_t batch, double* values, double* gradient,
                       std::int64_t threads) const override;
    bool holds(const double* point) const override;

    // Of a collapsed density: finite points (batch, K_h) -> theta (batch, K), whose output weights are drawn from their
    // law given theta_h by standard normals (batch, K - K_h).
    void complete(const T* points, std::int64_t batch, const T* normals, T* theta, std::int64_t threads) const;

private:
    struct Workspace {
        std::vector<T> theta;          // (K,) or (K_h,)
        std::vector<double> variance;  // (q,)
        std::vector<double> slope;     // (q,), dl / d log variance
        std::vector<T> point;          // (D,), of a point in float64
        std::vector<T> gradient;       // (D,)
        std::unique_ptr<CollapsedDensity<T>> collapsed;
    };

    typename WorkspacePool<Workspace>::Lease workspace() const;
    const T* theta_of(const T* point, Workspace& work) const;
    double evaluate_one(const T* point, T* gradient, std::int64_t threads, const double* variance,
                        Workspace& work) const;
    double log_likelihood(const T* theta, T* gradient, std::int64_t threads, bool with_slope, Workspace& work) const;
    double add_prior(const T* point, const T* theta, T* gradient) const;
    double add_variance_prior(const T* log_variance, T* gradient, const Workspace& work) const;

    std::shared_ptr<const Model<T>> model_;
    DensitySpec spec_;
    std::int64_t theta_dim_, dim_;
    std::vector<double> deviation_, precision_;  // of theta or theta_h, C^(1/2) and 1 / C; empty where not needed
    double prior_constant_ = 0.0;                // of the log prior of theta
    double variance_constant_ = 0.0;             // of the log prior of the variances
    mutable WorkspacePool<Workspace> pool_;
};

}  // namespace patrac
