// Buffers on the device for the draws of a run, and their copies to the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/run/device.hpp"
#include "schedule/run_config.hpp"

namespace patrac::PATRAC_LEVEL {

// Two buffers in turn, so that one is copied out while the launch of the next piece writes to the other. Where theta
// stays on the device the first buffer holds the whole run, and the numbers beside theta alone are copied.
template <class T>
class DrawBuffers {
public:
    // The draws of one launch.
    struct Piece {
        int buffer;
        std::int64_t first, draws;  // of each chain: the first one's place in the run, and how many
        std::int64_t place;         // of the first one in the buffer
    };

    DrawBuffers(Device& device, const RunConfig& config, std::int64_t dim, bool theta_stays)
        : chains_(config.chains),
          draws_(config.draws),
          dim_(dim),
          n_variances_(config.variance.count()),
          theta_stays_(theta_stays) {
        constexpr std::int64_t max_bytes = std::int64_t{256} << 20;
        const std::int64_t each = chains_ * dim_ * static_cast<std::int64_t>(sizeof(T));
        room_ = theta_stays_ ? draws_ : std::clamp<std::int64_t>(max_bytes / each, 1, draws_);
        for (int b = 0; b < (theta_stays_ ? 1 : 2); ++b) {
            Buffer& buffer = buffers_[b];
            buffer.theta = theta_stays_ ? theta_of_run(device) : DeviceVector<T>(device, chains_ * room_ * dim_);
            for (auto* numbers :
                 {&buffer.log_likelihood, &buffer.log_prior, &buffer.acceptance_rate, &buffer.step_size})
                *numbers = DeviceVector<double>(device, chains_ * room_);
            buffer.variance = DeviceVector<double>(device, chains_ * room_ * n_variances_);
        }
    }

    // Draws of each chain that a piece has room for.
    std::int64_t room() const { return room_; }

    Piece piece(int turn, std::int64_t first, std::int64_t draws) const {
        return {theta_stays_ ? 0 : turn % 2, first, draws, theta_stays_ ? first : 0};
    }

    // Lets a launch write the draws of a piece.
    template <class Launch>
    void receive(const Piece& piece, Launch& launch) const {
        const Buffer& buffer = buffers_[piece.buffer];
        launch.draws = room_;
        launch.out_theta = buffer.theta.data() + piece.place * dim_;
        launch.out_log_likelihood = buffer.log_likelihood.data() + piece.place;
        launch.out_log_prior = buffer.log_prior.data() + piece.place;
        launch.out_acceptance_rate = buffer.acceptance_rate.data() + piece.place;
        launch.out_step_size = buffer.step_size.data() + piece.place;
        launch.out_variance = buffer.variance.data() + piece.place * n_variances_;
    }

    void copy_out(Device& device, const Piece& piece, const RunBuffers<T>& out) const {
        if (piece.draws == 0) return;
        const auto copy = [&](auto* to, const auto& array, std::int64_t width) {
            const std::size_t row = sizeof(*to) * static_cast<std::size_t>(width);
            device.download_beside(to + piece.first * width, row * static_cast<std::size_t>(draws_),
                                   array.data() + piece.place * width, row * static_cast<std::size_t>(room_),
                                   row * static_cast<std::size_t>(piece.draws), static_cast<std::size_t>(chains_));
        };
        const Buffer& buffer = buffers_[piece.buffer];
        if (!theta_stays_) copy(out.theta, buffer.theta, dim_);
        copy(out.log_likelihood, buffer.log_likelihood, 1);
        copy(out.log_prior, buffer.log_prior, 1);
        copy(out.acceptance_rate, buffer.acceptance_rate, 1);
        copy(out.step_size, buffer.step_size, 1);
        if (n_variances_ > 0) copy(out.variance, buffer.variance, n_variances_);
        for (std::int64_t c = 0; c < chains_; ++c)
            for (std::int64_t d = c * draws_ + piece.first; d < c * draws_ + piece.first + piece.draws; ++d)
                // The log prior is not finite where theta is not.
                if (!std::isfinite(out.log_likelihood[d] + out.log_prior[d]))
                    throw std::runtime_error("chain " + std::to_string(c) +
                                             ": theta or its log-likelihood is not finite in a draw" +
                                             (std::is_same_v<T, float> ? "; use dtype=\"float64\"" : ""));
    }

    // (chains, draws, K) of a run whose theta stays on the device.
    DeviceVector<T> take_theta() { return std::move(buffers_[0].theta); }

private:
    struct Buffer {
        DeviceVector<T> theta;  // (chains, room, K)
        DeviceVector<double> log_likelihood, log_prior, acceptance_rate, step_size;
        DeviceVector<double> variance;  // (chains, room, q)
    };

    DeviceVector<T> theta_of_run(Device& device) const {
        const double bytes = static_cast<double>(chains_) * static_cast<double>(draws_) * static_cast<double>(dim_) *
                             static_cast<double>(sizeof(T));
        constexpr double max_bytes = 0x1p62;  // that a std::int64_t counts safely
        std::string reason = "more than any device has";
        try {
            if (bytes < max_bytes) return DeviceVector<T>(device, chains_ * draws_ * dim_);
        } catch (const std::exception& error) {
            reason = error.what();
        }
        throw std::runtime_error(
            "keep_on_device: the draws take " + std::to_string(static_cast<std::int64_t>(bytes / 0x1p20)) +
            " MiB, which the device has not left; ask for fewer draws, or leave them on the host (" + reason + ")");
    }

    std::int64_t chains_, draws_, dim_, n_variances_, room_;
    bool theta_stays_;
    Buffer buffers_[2];
};

}  // namespace patrac::PATRAC_LEVEL
