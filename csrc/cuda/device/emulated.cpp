// A device whose blocks are host threads: the device functions as tests run them where there is no GPU.
#define PATRAC_LEVEL emulated
#define PATRAC_VECTOR_BYTES 16
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include "cuda/device/emulated.hpp"
#include "cuda/run/resident_inputs.hpp"
#include "cuda/run/resident_model.hpp"

namespace patrac {
namespace emulated {
namespace {

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

    void launch(const ChainLaunch<float>& work, int blocks, int) override { run_chains(work, blocks); }
    void launch(const ChainLaunch<double>& work, int blocks, int) override { run_chains(work, blocks); }
    void launch(const SlabLaunch<float>& work, int chains, int) override { run_steps(work, chains); }
    void launch(const SlabLaunch<double>& work, int chains, int) override { run_steps(work, chains); }
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

    // Calls body(block) on the threads of a block.
    template <class Body>
    void run_block(const Body& body) {
        HostBlock host(threads_);
        std::vector<std::thread> helpers;
        for (int thread = 1; thread < threads_; ++thread)
            helpers.emplace_back([&, thread] { body(ThreadBlock{thread, threads_, &host}); });
        body(ThreadBlock{0, threads_, &host});
        for (std::thread& helper : helpers) helper.join();
    }

    template <class T>
    void run_chains(const ChainLaunch<T>& work, int blocks) {
        for (int chain = 0; chain < blocks; ++chain) {
            DeviceArray<T> shared(*this, work.workspace ? 0 : work.layout.size);
            // What is in shared memory before must not matter.
            std::fill_n(shared.data(), shared.size(), std::numeric_limits<T>::quiet_NaN());
            T* const workspace =
                work.workspace ? work.workspace + std::int64_t{chain} * work.layout.size : shared.data();
            run_block([&](const ThreadBlock& block) {
                const bool tanh = work.plan.activation == Activation::tanh;
                if (work.collapse.n_groups > 0)
                    tanh ? ChainBlock<T, TanhActivation, CollapsedTarget>(block, work, chain, workspace).run()
                         : ChainBlock<T, AnyActivation, CollapsedTarget>(block, work, chain, workspace).run();
                else
                    tanh ? ChainBlock<T, TanhActivation, PlainTarget>(block, work, chain, workspace).run()
                         : ChainBlock<T, AnyActivation, PlainTarget>(block, work, chain, workspace).run();
            });
        }
    }

    // The launches of slab_steps.cu, one block after the other.
    template <class T>
    void run_steps(const SlabLaunch<T>& work, int chains) {
        for (int chain = 0; chain < chains; ++chain) {
            const auto advance_all = [&](bool takes, bool proposes) {
                for (int part = 0; part < work.advance_blocks; ++part)
                    run_block([&](const ThreadBlock& block) { advance(block, work, chain, part, takes, proposes); });
            };
            std::vector<double> sums(reduce_items + reduction_values);
            for (std::int64_t step = 0; step < work.steps; ++step) {
                advance_all(step > 0, true);
                if constexpr (std::is_same_v<T, float>)
                    if (work.first_layer) run_wide(work, chain, true);
                for (int slab = 0; slab < work.n_slabs; ++slab) run_slab(work, chain, slab);
                if constexpr (std::is_same_v<T, float>)
                    if (work.first_layer && work.kernel != KernelKind::pcn) run_wide(work, chain, false);
                for (int part = 0; part < work.reduce_blocks; ++part)
                    run_block([&](const ThreadBlock& block) { reduce(block, work, chain, part, sums.data()); });
                run_block([&](const ThreadBlock& block) { decide(block, work, chain, sums.data()); });
            }
            advance_all(true, false);
        }
    }

    void run_wide(const SlabLaunch<float>& work, int chain, bool forward) {
        work.plan.wide.bytes ? run_wide_with<ByteInputs>(work, chain, forward)
                             : run_wide_with<FloatInputs>(work, chain, forward);
    }
    template <class Inputs>
    void run_wide_with(const SlabLaunch<float>& work, int chain, bool forward) {
        alignas(8) std::uint32_t words[wide_words];
        const int rows_of_block = threads_ * Inputs::tiles * 16;
        const int end = forward ? work.plan.n_rows : work.plan.wide.features + 1;
        for (int part = 0; part * rows_of_block < end; ++part)
            for (int n = 0; n < work.plan.layers[0].n_rows; n += wide_columns)
                for (int split = 0; split < (forward ? 1 : work.n_splits); ++split)
                    run_block([&](const ThreadBlock& block) {
                        forward ? forward_slabs<Inputs>(block, work, chain, part, n, words)
                                : gradient_slabs<Inputs>(block, work, chain, part, split, n, words);
                    });
    }

    template <class T>
    void run_slab(const SlabLaunch<T>& work, int chain, int slab) {
        DeviceArray<T> shared(*this, work.slab_workspace ? 0 : work.slab.size);
        std::fill_n(shared.data(), shared.size(), std::numeric_limits<T>::quiet_NaN());
        T* const workspace = work.slab_workspace
                                 ? work.slab_workspace + (std::int64_t{chain} * work.n_slabs + slab) * work.slab.size
                                 : shared.data();
        run_block([&](const ThreadBlock& block) {
            const auto evaluate = [&]<class Zeta>() {
                work.slab.packed < 0 ? evaluate_slab<T, Zeta, false>(block, work, chain, slab, workspace)
                                     : evaluate_slab<T, Zeta, true>(block, work, chain, slab, workspace);
            };
            work.plan.activation == Activation::tanh ? evaluate.template operator()<TanhActivation>()
                                                     : evaluate.template operator()<AnyActivation>();
        });
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

#define PATRAC_INSTANTIATE(T)                                                        \
    template std::unique_ptr<DeviceModel<T>> make_model<T>(const DataSets<T>&, int); \
    template void normals<T>(int, std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace emulated
}  // namespace patrac
