// A compiled model as its callers see it, whatever level it was compiled for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/layer_report.hpp"
#include "schedule/run_config.hpp"

namespace patrac {

// The log marginal likelihood of theta_h, see model/collapse.hpp, with a workspace for one thread.
template <class T>
class CollapsedDensity {
public:
    virtual ~CollapsedDensity() = default;

    // Its value at theta_h (K_h,) and, unless null, its gradient (K_h,).
    virtual double evaluate(const T* theta_hidden, T* gradient) = 0;
    // theta (K,): theta_h, and output weights drawn from their law given it by standard normals (K - K_h,).
    virtual void complete(const T* theta_hidden, const T* normals, T* theta) = 0;
};

template <class T>
class Model {
public:
    virtual ~Model() = default;

    virtual std::int64_t dim() const = 0;
    virtual std::int64_t n_inputs() const = 0;
    virtual std::int64_t n_outputs() const = 0;
    virtual std::vector<LayerReport> layer_reports() const = 0;
    virtual std::int64_t tile_rows() const = 0;
    virtual std::int64_t cached_bytes() const = 0;
    virtual std::string level() const = 0;

    // theta (batch, K) -> log_likelihood (batch,) and, unless null, gradient (batch, K). `variance` (batch, m): of the
    // noise of a Gaussian likelihood, in place of the model's own, unless null.
    virtual void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient, std::int64_t threads,
                          const double* variance = nullptr) const = 0;
    // dl / d log variance (m,) at theta (K,) and variances (m,) as above, of a likelihood whose noise has them.
    virtual void variance_slope(const T* theta, const double* variance, double* slope) const = 0;
    // f (batch, n, m) at new inputs (n, d).
    virtual void predict(const T* theta, std::int64_t batch, const T* inputs, std::int64_t n_rows, T* f,
                         std::int64_t threads) const = 0;
    // As evaluate(), for the log marginal likelihood of theta_h: theta (batch, K_h), prior_variance (K,). Gaussian
    // noise, with a variance of each row or of all.
    virtual void evaluate_collapsed(const T* theta, std::int64_t batch, const double* prior_variance,
                                    double* log_likelihood, T* gradient) const = 0;
    // What evaluate_collapsed() evaluates, for many calls. `variance` (m,) of the noise takes the place of the model's
    // own, unless null. The model must outlive it.
    virtual std::unique_ptr<CollapsedDensity<T>> collapsed_density(const double* prior_variance,
                                                                   const double* variance) const = 0;
    // The positions in theta of theta_h, (K_h,), see model/collapse.hpp.
    virtual const std::vector<std::int64_t>& hidden_entries() const = 0;
    // Log of the acceptance ratio of the move from -> to, both (K,), or (K_h,) if `collapse`, before the minimum with
    // 0; for tests of a kernel. step_factor (K,) as in RunBuffers, or null.
    virtual double log_acceptance(const T* from, const T* to, const double* prior_variance, KernelKind kernel,
                                  double step_size, bool collapse, const double* step_factor) const = 0;
    // Returns false when the monitor ended the run early.
    virtual bool sample(const RunConfig& config, const RunBuffers<T>& buffers, const Monitor& monitor) const = 0;
};

}  // namespace patrac
