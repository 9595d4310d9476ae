// A device whose blocks are host threads: the device functions as tests run them where there is no GPU.
#define PATRAC_LEVEL emulated
#define PATRAC_VECTOR_BYTES 16
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device/emulated.hpp"
#include "cuda/device/launch_order.hpp"
#include "cuda/run/resident_inputs.hpp"
#include "cuda/run/resident_model.hpp"

namespace patrac {
namespace emulated {
namespace {

std::atomic<std::int64_t> barriers_passed = 0;

class EmulatedDevice final : public Device {
public:
    explicit EmulatedDevice(int threads) : threads_(threads) {}

    DeviceStatus status() const override {
        DeviceStatus status;
        status.usable = true;
        status.name = "emulated";
        status.multiprocessors = 1;
        status.shared_bytes = 96 * 1024;  // little, so that tests meet both places of a workspace
        return status;
    }
    DevicePlace place() const override { return {.kind = DevicePlace::host, .index = 0}; }
    bool reads(const DevicePlace& memory) const override { return memory.kind == DevicePlace::emulated; }
    int block_threads(std::int64_t, std::int64_t) const override { return threads_; }

    void* allocate(std::size_t bytes) override {
        return std::memset(::operator new(bytes, line), 0, bytes);  // no more, so that a sanitizer sees what is beyond
    }
    void release(void* memory) override { ::operator delete(memory, line); }
    void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void download_beside(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height) override {
        for (std::size_t i = 0; i < height; ++i)
            std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width);
    }
    void wait() override {}

    void launch(const ChainLaunch<float>& work, int chains, int) override { run(work, chains); }
    void launch(const ChainLaunch<double>& work, int chains, int) override { run(work, chains); }
    void launch(const SlabLaunch<float>& work, int chains, int) override { run(work, chains); }
    void launch(const SlabLaunch<double>& work, int chains, int) override { run(work, chains); }
    void launch(const NormalsLaunch<float>& work, int, int) override { run_normals(work); }
    void launch(const NormalsLaunch<double>& work, int, int) override { run_normals(work); }
    void launch(const SetupWork& work) override {
        std::visit(
            [this](const auto& items) {
                const std::int64_t workers = workers_of(items.items());
                run_block([&](const ThreadBlock& block) {
                    for (std::int64_t worker = block.thread; worker < workers; worker += block.threads)
                        items.run(worker, workers);
                });
            },
            work);
    }

private:
    static constexpr std::align_val_t line{64};

    // Calls body(block) on the threads of a block: of all or, where one cannot start, of none, since the others would
    // wait for it.
    template <class Body>
    void run_block(const Body& body) {
        enum Gate : int { closed, open, given_up };
        HostBlock host(threads_);
        std::atomic<int> gate{closed};
        std::vector<std::thread> helpers;
        const auto let = [&](Gate how) {
            gate = how;
            gate.notify_all();
        };
        const auto join = [&] {
            for (std::thread& helper : helpers) helper.join();
        };
        try {
            for (int thread = 1; thread < threads_; ++thread)
                helpers.emplace_back([&, thread] {
                    gate.wait(closed);
                    if (gate == open) body(ThreadBlock{thread, threads_, &host});
                });
        } catch (const std::exception& failure) {
            let(given_up);
            join();
            if (dynamic_cast<const std::bad_alloc*>(&failure)) throw;
            throw std::runtime_error("device: a block of " + std::to_string(threads_) +
                                     " host threads was asked for, and the system has no thread left");
        }
        let(open);
        body(ThreadBlock{0, threads_, &host});
        join();
        barriers_passed += host.barriers;
    }

    // Runs the blocks of a launch one after the other.
    class Launcher {
    public:
        explicit Launcher(EmulatedDevice& device) : device_(device) {}

        int warps(int) const { return device_.threads_; }  // one host thread plays a warp, see warp_size

        template <class Stage, class Work>
        void launch(const Stage& stage, const Work& work, LaunchGrid grid, int, std::int64_t shared_bytes) {
            for (int z = 0; z < grid.z; ++z)
                for (int y = 0; y < grid.y; ++y)
                    for (int x = 0; x < grid.x; ++x) {
                        DeviceVector<std::uint8_t> shared(device_, shared_bytes);
                        // Results must not depend on what shared memory held before: all bits set are NaN.
                        std::fill_n(shared.data(), shared_bytes, std::uint8_t{0xff});
                        device_.run_block([&](const ThreadBlock& block) {
                            stage.run(block, work, LaunchGrid{x, y, z}, shared.data());
                        });
                    }
        }

        template <class F>
        void repeat(std::int64_t count, const F& f) const {
            for (std::int64_t i = 0; i < count; ++i) f();
        }

    private:
        EmulatedDevice& device_;
    };

    template <class T>
    void run(const ChainLaunch<T>& work, int chains) {
        Launcher launcher(*this);
        launch_chains(work, chains, threads_, launcher);
    }
    template <class T>
    void run(const SlabLaunch<T>& work, int chains) {
        Launcher launcher(*this);
        SlabOrder<T, Launcher>(work, chains, threads_, launcher).run();
    }
    template <class T>
    void run_normals(const NormalsLaunch<T>& work) {
        run_block([&](const ThreadBlock& block) {
            write_normals(block, work.key, work.purpose, work.step, static_cast<int>(work.count), work.out);
        });
    }

    int threads_;
};

}  // namespace

template <class T>
std::unique_ptr<DeviceModel<T>> make_model(const DataSets<T>& data_sets, int threads) {
    return std::make_unique<ResidentModel<T>>(std::make_shared<EmulatedDevice>(threads), data_sets);
}

template <class T>
void normals(int threads, std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
             std::int64_t count) {
    EmulatedDevice device(threads);
    normals_on(device, seed, chain, step, purpose, out, count);
}

std::shared_ptr<const DeviceInputs> take_inputs(InputSource source, bool copy) {
    source.place = {.kind = DevicePlace::emulated, .index = 0};
    return std::make_shared<ResidentInputs>(std::make_shared<EmulatedDevice>(1), std::move(source), copy);
}

DeviceStatus status(int threads) {
    return EmulatedDevice(threads).status();
}

std::int64_t barriers() {
    return barriers_passed;
}

#define PATRAC_INSTANTIATE(T)                                                        \
    template std::unique_ptr<DeviceModel<T>> make_model<T>(const DataSets<T>&, int); \
    template void normals<T>(int, std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace emulated
}  // namespace patrac
