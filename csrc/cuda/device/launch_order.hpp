// The launches that run chains, once for every device: which stage, over which grid of blocks, in which order.
//
// A stage is what one block does in a launch. It has
//   max_threads, min_blocks      threads of a block at most, and blocks that a multiprocessor should hold at least
//   sizes_cache                  whether shared memory takes no more of a multiprocessor's memory than its blocks need
//   run(block, work, at, shared) the work of the block at place `at` of the grid; `shared` is its shared memory
// A launcher is a device's way to launch one, and has
//   warps(threads)                                    warps of a block of so many threads
//   launch(stage, work, grid, threads, shared_bytes)  runs the stage's blocks, after those of earlier launches
//   repeat(count, f)                                  what f() launches, count times
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/chain/chain.hpp"
#include "cuda/wide/slabs.hpp"

namespace patrac::PATRAC_LEVEL {

// Blocks of a launch along each axis, and the place of one.
struct LaunchGrid {
    int x = 1, y = 1, z = 1;
};

// Calls f with how tiles compute this activation. tanh of float32 in shared memory is compiled in; elsewhere the choice
// among activations costs next to nothing beside the activation itself, and a kernel less to compile.
template <class T, bool in_shared, class F>
void visit_tile_activation(Activation activation, const F& f) {
    if constexpr (std::is_same_v<T, float> && in_shared)
        if (activation == Activation::tanh) return f(std::type_identity<TanhActivation>{});
    f(std::type_identity<AnyActivation>{});
}

// A chain of one block, all steps of the launch. The workspace in shared memory and the one in the device's are
// compiled apart, so that each is addressed as what it is.
template <class T, class Zeta, template <class, class> class Target, bool in_shared, bool samples_variance>
struct ChainStage {
    static constexpr int max_threads = 256, min_blocks = 2;
    static constexpr bool sizes_cache = in_shared;

    PATRAC_DEVICE void run(const ThreadBlock& block, const ChainLaunch<T>& work, LaunchGrid at, void* shared) const {
        T* workspace = static_cast<T*>(shared);
        if constexpr (!in_shared) workspace = work.workspace + static_cast<std::int64_t>(at.x) * work.layout.size;
        ChainBlock<T, Zeta, Target, samples_variance>(block, work, at.x, workspace).run();
    }
};

// The steps of `chains` chains, a block of `threads` threads each.
template <class T, class Launcher>
void launch_chains(const ChainLaunch<T>& work, int chains, int threads, Launcher& launcher) {
    const auto launch = [&](auto in_shared, auto samples_variance) {
        visit_tile_activation<T, in_shared()>(work.plan.activation, [&](auto activation) {
            using Zeta = typename decltype(activation)::type;
            const std::int64_t bytes = in_shared() ? work.layout.size * static_cast<std::int64_t>(sizeof(T)) : 0;
            const LaunchGrid grid{.x = chains};
            if (work.collapse.n_groups > 0)
                launcher.launch(ChainStage<T, Zeta, CollapsedTarget, in_shared(), samples_variance()>{}, work, grid,
                                threads, bytes);
            else
                launcher.launch(ChainStage<T, Zeta, TileTarget, in_shared(), samples_variance()>{}, work, grid, threads,
                                bytes);
        });
    };
    const auto in = [&](auto in_shared) {
        if (work.noise.count > 0)
            launch(in_shared, std::true_type{});
        else
            launch(in_shared, std::false_type{});
    };
    if (work.workspace)
        in(std::false_type{});
    else
        in(std::true_type{});
}

// The stages of a step that blocks share, see slabs.hpp. Grids are (blocks of a chain, chains, columns of a wide
// layer).
struct SlabStage {
    static constexpr int max_threads = reduce_items, min_blocks = 1;
    static constexpr bool sizes_cache = false;
};

struct AdvanceStage : SlabStage {
    bool takes, proposes;

    AdvanceStage(bool takes_, bool proposes_) : takes(takes_), proposes(proposes_) {}

    template <class T>
    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<T>& work, LaunchGrid at, void*) const {
        advance(block, work, at.y, at.x, takes, proposes);
    }
};

// Where a slab's activations are, and its parameters: each is addressed as what it is.
enum class SlabPlace : std::uint8_t { all_shared, parameters_apart, device_memory };

template <class Zeta, SlabPlace place>
struct EvaluateStage : SlabStage {
    static constexpr int max_threads = 256, min_blocks = 2;

    template <class T>
    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<T>& work, LaunchGrid at, void* shared) const {
        T* workspace = static_cast<T*>(shared);
        if constexpr (place == SlabPlace::device_memory)
            workspace = work.slab_workspace + (static_cast<std::int64_t>(at.y) * work.n_slabs + at.x) * work.slab.size;
        evaluate_slab<T, Zeta, place == SlabPlace::all_shared>(block, work, at.y, at.x, workspace);
    }
};

template <class Inputs>
struct WideForwardStage : SlabStage {
    static constexpr int max_threads = 256, min_blocks = 2;

    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<float>& work, LaunchGrid at, void* shared) const {
        forward_slabs<Inputs>(block, work, at.y, at.x, at.z * wide_columns, static_cast<std::uint32_t*>(shared));
    }
};

// Along z: stretches of rows, then columns.
template <class Inputs>
struct WideGradientStage : SlabStage {
    static constexpr int max_threads = 256, min_blocks = 2;

    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<float>& work, LaunchGrid at, void* shared) const {
        gradient_slabs<Inputs>(block, work, at.y, at.x, at.z % work.n_splits, at.z / work.n_splits * wide_columns,
                               static_cast<std::uint32_t*>(shared));
    }
};

struct ReduceStage : SlabStage {
    template <class T>
    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<T>& work, LaunchGrid at, void* shared) const {
        reduce(block, work, at.y, at.x, static_cast<double*>(shared));
    }
};

struct DecideStage : SlabStage {
    template <class T>
    PATRAC_DEVICE void run(const ThreadBlock& block, const SlabLaunch<T>& work, LaunchGrid at, void* shared) const {
        decide(block, work, at.y, static_cast<double*>(shared));
    }
};

// The launches of steps whose evaluations blocks share, `chains` chains at once; blocks that evaluate have `threads`
// threads.
template <class T, class Launcher>
class SlabOrder {
public:
    SlabOrder(const SlabLaunch<T>& work, int chains, int threads, Launcher& launcher)
        : work_(work), chains_(chains), threads_(threads), launcher_(launcher) {}

    // All steps of the launch. A step may take less than the host needs to launch its stages, so a batch of steps is
    // what a launcher may record once.
    void run() {
        constexpr std::int64_t batch = 16;
        const std::int64_t batches = work_.steps / batch;
        if (batches < 2) return steps(work_.steps);
        launcher_.repeat(batches, [this] { steps(batch); });
        if (work_.steps % batch > 0) steps(work_.steps % batch);
    }

private:
    void steps(std::int64_t count) {
        for (std::int64_t step = 0; step < count; ++step) {
            const bool is_wide = work_.first_layer != nullptr;
            launch(AdvanceStage(step > 0, true), work_.advance_blocks, 0);
            if (is_wide) forward_wide();
            evaluate();
            if (is_wide && uses_gradient(work_.kernel)) gradient_wide();
            launch(ReduceStage{}, work_.reduce_blocks, (reduce_items + reduction_values) * sizeof(double));
            launch(DecideStage{}, 1, reduction_values * sizeof(double));
        }
        launch(AdvanceStage(true, false), work_.advance_blocks, 0);
    }

    template <class Stage>
    void launch(const Stage& stage, int blocks_of_chain, std::size_t shared_bytes) {
        launcher_.launch(stage, work_, {.x = blocks_of_chain, .y = chains_}, reduce_items,
                         static_cast<std::int64_t>(shared_bytes));
    }

    void evaluate() {
        if (work_.slab_workspace)
            evaluate_in<SlabPlace::device_memory>();
        else if (work_.slab.packed < 0)
            evaluate_in<SlabPlace::parameters_apart>();
        else
            evaluate_in<SlabPlace::all_shared>();
    }
    template <SlabPlace place>
    void evaluate_in() {
        constexpr bool in_shared = place != SlabPlace::device_memory;
        visit_tile_activation<T, in_shared>(work_.plan.activation, [&](auto activation) {
            const std::int64_t bytes = in_shared ? work_.slab.size * static_cast<std::int64_t>(sizeof(T)) : 0;
            launcher_.launch(EvaluateStage<typename decltype(activation)::type, place>{}, work_,
                             {.x = work_.n_slabs, .y = chains_}, threads_, bytes);
        });
    }

    // Of a wide first layer, which float32 alone has.
    void forward_wide() {
        visit_wide_inputs<ExactParts>([&](auto inputs) {
            using Inputs = typename decltype(inputs)::type;
            launch_wide<Inputs>(WideForwardStage<Inputs>{}, work_.plan.n_rows, 1);
        });
    }
    void gradient_wide() {
        const auto launch = [&](auto inputs) {
            using Inputs = typename decltype(inputs)::type;
            launch_wide<Inputs>(WideGradientStage<Inputs>{}, work_.plan.wide.features + 1, work_.n_splits);
        };
        if (work_.coarse_gradient)
            visit_wide_inputs<RoundedPart>(launch);
        else
            visit_wide_inputs<ExactParts>(launch);
    }
    template <class Parts, class F>
    void visit_wide_inputs(const F& f) {
        if constexpr (std::is_same_v<T, float>) {
            if (work_.plan.wide.bytes)
                f(std::type_identity<ByteInputs<Parts>>{});
            else
                f(std::type_identity<FloatInputs<Parts>>{});
        }
    }
    // As many rows for each warp as the inputs say, up to row `end`.
    template <class Inputs, class Stage>
    void launch_wide(const Stage& stage, int end, int splits) {
        constexpr int threads = Stage::max_threads;
        const int rows = launcher_.warps(threads) * Inputs::tiles * 16;
        const int columns = (work_.plan.layers[0].n_rows + wide_columns - 1) / wide_columns;
        launcher_.launch(stage, work_, {.x = (end + rows - 1) / rows, .y = chains_, .z = columns * splits}, threads,
                         wide_words<typename Inputs::Parts> * static_cast<std::int64_t>(sizeof(std::uint32_t)));
    }

    const SlabLaunch<T>& work_;
    int chains_, threads_;
    Launcher& launcher_;
};

}  // namespace patrac::PATRAC_LEVEL
