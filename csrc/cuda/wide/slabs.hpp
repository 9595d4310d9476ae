// The step of a chain whose evaluation many blocks share, a slab of row tiles each (twin of cpu/tiles/evaluator.hpp).
//
// Few chains on many rows would leave most of a device idle if each were one block. Here a step is a few short
// launches, all of whose state stays in the device's memory:
//   advance   v of the next proposal, coordinates over the grid
//   (forward)  the sums of a wide first layer over its inputs, on the matrix units: wide_layer.hpp
//   evaluate  l and its gradient over the tiles of one slab, a block for each slab
//   (gradient) that of a wide first layer
//   reduce    the slabs' gradients added in order, with the sums of the log ratio, coordinates over the grid
//   decide    accepts or rejects, and records the step for the schedule: one block a chain
//   advance   the proposal becomes the state; in the same pass over the coordinates, the next proposal
// How many slabs there are depends on the data alone and every sum has a fixed order, so draws do not depend on how
// many multiprocessors there are.
#pragma once

#include "cuda/chain/moves.hpp"
#include "cuda/model/tile.hpp"
#include "cuda/wide/wide_layer.hpp"

namespace patrac::PATRAC_LEVEL {

// A chain between the launches of a step.
struct SlabState {
    std::int64_t step;     // the next one
    std::int64_t kept;     // draws of the present piece
    std::int64_t keep_at;  // the place of the draw that this step gives, -1 for none
    double step_size;      // of the last proposal
    double squares;        // theta' C^-1 theta
    double rescale;        // of g, where the last step was followed by a draw of the noise variance, else 1
    std::int32_t moved;
};

// What a slab's block works on: offsets in elements of T in shared memory, where that is large enough. Parameters too
// large to lie there beside the activations are read from the device's memory.
struct SlabWorkspace {
    int sums = 0;     // reduction_values doubles
    int packed = -1;  // -1: in the device's memory
    int ones, value, pre;
    int size;
    bool is_shared;

    // `shared_bytes` are those of one block at most; two blocks should fit.
    template <class T>
    static SlabWorkspace of(const DevicePlan<T>& plan, std::int64_t shared_bytes) {
        SlabWorkspace work{};
        int next = reduction_values * static_cast<int>(sizeof(double) / sizeof(T));
        const auto reserve = [&next](int elements) {
            const int start = next;
            next += (elements + 3) / 4 * 4;
            return start;
        };
        work.packed = -1;
        work.ones = reserve(plan.stride);
        work.value = reserve(plan.n_value_rows * plan.stride);
        work.pre = reserve(plan.keeps_pre ? plan.n_value_rows * plan.stride : 0);
        const auto bytes = [](std::int64_t elements) { return elements * static_cast<std::int64_t>(sizeof(T)); };
        constexpr std::int64_t taken_by_the_device = 1024;  // of each block
        // Those of a wide first layer are not read by the tiles.
        if (!plan.wide.by_row && bytes(std::int64_t{next} + plan.n_packed) <= shared_bytes / 2 - taken_by_the_device)
            work.packed = reserve(plan.n_packed);
        work.size = next;
        work.is_shared = bytes(work.size) <= shared_bytes;
        return work;
    }
};

// Threads of the blocks that reduce, and sums they hold at once.
inline constexpr int reduce_items = 256;

template <class T>
struct SlabLaunch : ChainLaunch<T> {
    SlabWorkspace slab;
    int n_slabs, advance_blocks, reduce_blocks, reduce_parts;
    T* slab_workspace;            // (chains, n_slabs, slab.size), or null: in shared memory
    T* packed;                    // (chains, n_packed)
    T* proposed_gradient;         // (chains, row)
    T* slab_gradient;             // (chains, n_slabs, row)
    double* slab_log_likelihood;  // (chains, n_slabs)
    double* ratio_sums;           // (chains, reduce_blocks, 3)
    T* first_layer;               // (chains, n_tiles, nodes, stride) of a wide first layer, or null
    T* wide_sums;                 // (chains, n_splits, nodes, sums_pitch): its gradient
    int n_splits;                 // stretches of rows that it is summed over apart
    bool coarse_gradient;         // whether its factors are rounded
    SlabState* states;            // (chains,)
};

template <class T>
PATRAC_DEVICE ChainMoves<T> slab_moves(const SlabLaunch<T>& launch, int chain) {
    const std::int64_t row = static_cast<std::int64_t>(chain) * launch.row;
    return {launch,
            chain,
            launch.packed + static_cast<std::int64_t>(chain) * launch.plan.n_packed,
            launch.theta + row,
            launch.gradient + row,
            launch.proposed_gradient + row,
            launch.momentum ? launch.momentum + row : nullptr};
}

template <class T>
PATRAC_DEVICE T* first_layer_of(const SlabLaunch<T>& launch, int chain) {
    const std::int64_t size = static_cast<std::int64_t>(launch.plan.n_tiles) * launch.plan.layers[0].n_rows;
    return launch.first_layer ? launch.first_layer + chain * size * launch.plan.stride : nullptr;
}

// Part `part` of the coordinates: with `takes`, what the last step decided; with `proposes`, the next proposal.
template <class T>
PATRAC_DEVICE void advance(const ThreadBlock& block, const SlabLaunch<T>& launch, int chain, int part, bool takes,
                           bool proposes) {
    constexpr int group = ChainMoves<T>::group;
    const ChainMoves<T> moves = slab_moves(launch, chain);
    const SlabState& state = launch.states[chain];
    const double step_size = launch.chains[chain].progress.step_size;
#pragma unroll 1
    for (int b = part * block.threads + block.thread; b * group < launch.row;
         b += launch.advance_blocks * block.threads) {
        if (takes) {
#pragma unroll
            for (int i = 0; i < group; ++i) {
                const int k = b * group + i;
                if (k >= launch.dim) continue;
                moves.take(k, state.moved, state.step_size);
                if (state.rescale != 1.0)
                    moves.gradient[k] = static_cast<T>(state.rescale * static_cast<double>(moves.gradient[k]));
                if (state.keep_at >= 0) launch.out_theta[state.keep_at * launch.plan.dim + k] = moves.theta[k];
            }
        }
        if (!proposes) continue;
        if (!launch.start) {
            moves.propose(b, static_cast<std::uint64_t>(state.step), step_size);
            continue;
        }
        // To start, the state itself is proposed and taken.
        if (moves.persists()) moves.start_momentum(b);
#pragma unroll
        for (int i = 0; i < group; ++i)
            if (const int k = b * group + i; k < launch.dim) moves.proposed(k) = moves.theta[k];
    }
}

// l and the gradient of the proposal over the tiles of one slab: slab, slab + n_slabs .. `workspace` has slab.size
// elements that the block alone uses; `copies`: the parameters are among them.
template <class T, class Zeta, bool copies>
PATRAC_DEVICE void evaluate_slab(const ThreadBlock& block, const SlabLaunch<T>& launch, int chain, int slab,
                                 T* workspace) {
    const ChainMoves<T> moves = slab_moves(launch, chain);
    const DevicePlan<T>& plan = launch.plan;
    T* packed = moves.packed;
    if constexpr (copies) {
        packed = workspace + launch.slab.packed;
        for (int i = block.thread; i < plan.n_packed; i += block.threads) packed[i] = moves.packed[i];
    }
    T* const ones = workspace + launch.slab.ones;
    for (int r = block.thread; r < plan.stride; r += block.threads) ones[r] = T(1);
    block.sync();
    const TileBlock<T, Zeta> tile{block,
                                  plan,
                                  plan.tiles + moves.set * plan.tiles_step,
                                  plan.inputs + moves.set * plan.inputs_step,
                                  moves.likelihood_parameters(),
                                  packed,
                                  workspace + launch.slab.value,
                                  workspace + launch.slab.pre,
                                  ones,
                                  first_layer_of(launch, chain)};
    const std::int64_t at = static_cast<std::int64_t>(chain) * launch.n_slabs + slab;
    double sum[1] = {
        tile.evaluate(slab, launch.n_slabs, moves.uses_gradient() ? launch.slab_gradient + at * launch.row : nullptr)};
    sum_over_block(block, sum, reinterpret_cast<double*>(workspace + launch.slab.sums));
    if (block.thread == 0) launch.slab_log_likelihood[at] = sum[0];
}

// The sums that make up an entry of the gradient.
template <class T>
struct PartialSums {
    const T* first;
    std::int64_t step;
    int count;
};
template <class T>
PATRAC_DEVICE PartialSums<T> partial_sums(const SlabLaunch<T>& launch, int chain, int k) {
    const std::int64_t index = chain;
    if (const int entry = launch.first_layer ? launch.plan.wide.entry[k] : -1; entry >= 0) {
        const std::int64_t size =
            static_cast<std::int64_t>(launch.plan.layers[0].n_rows) * launch.plan.wide.sums_pitch();
        return {launch.wide_sums + index * launch.n_splits * size + entry, size, launch.n_splits};
    }
    return {launch.slab_gradient + index * launch.n_slabs * launch.row + k, launch.row, launch.n_slabs};
}

// Columns first_n .. of a wide first layer; `shared` holds wide_words of the inputs' Parts.
template <class Inputs>
PATRAC_DEVICE void forward_slabs(const ThreadBlock& block, const SlabLaunch<float>& launch, int chain, int part,
                                 int first_n, std::uint32_t* shared) {
    wide_forward<Inputs>(block, launch.plan, part, first_n,
                         launch.packed + static_cast<std::int64_t>(chain) * launch.plan.n_packed,
                         first_layer_of(launch, chain), shared);
}
template <class Inputs>
PATRAC_DEVICE void gradient_slabs(const ThreadBlock& block, const SlabLaunch<float>& launch, int chain, int part,
                                  int split, int first_n, std::uint32_t* shared) {
    const std::int64_t size = static_cast<std::int64_t>(launch.plan.layers[0].n_rows) * launch.plan.wide.sums_pitch();
    wide_gradient<Inputs>(block, launch.plan, part, split, launch.n_splits, first_n, first_layer_of(launch, chain),
                          launch.wide_sums + (static_cast<std::int64_t>(chain) * launch.n_splits + split) * size,
                          shared);
}

// The sums of the slabs' gradients in float64, for coordinates that stay with one block. reduce_parts sums lie side by
// side in each: a narrow gradient alone would not fill a block. `shared` holds reduce_items + reduction_values doubles.
template <class T>
PATRAC_DEVICE void reduce(const ThreadBlock& block, const SlabLaunch<T>& launch, int chain, int part, double* shared) {
    const ChainMoves<T> moves = slab_moves(launch, chain);
    const double step_size = launch.chains[chain].progress.step_size;
    const int parts = launch.reduce_parts, columns = reduce_items / parts;
    LogRatioSums<double> ratio;
    double squares = 0.0;  // v' C^-1 v
#pragma unroll 1
    for (int first = part * columns; first < launch.dim; first += launch.reduce_blocks * columns) {
        if (moves.uses_gradient()) {
            for (int item = block.thread; item < reduce_items; item += block.threads) {
                const int k = first + item % columns;
                double total = 0.0;
                if (k < launch.dim) {
                    const PartialSums<T> partial = partial_sums(launch, chain, k);
#pragma unroll 8
                    for (int s = item / columns; s < partial.count; s += parts)
                        total += static_cast<double>(partial.first[s * partial.step]);
                }
                shared[item] = total;
            }
            block.sync();
        }
        for (int column = block.thread; column < columns && first + column < launch.dim; column += block.threads) {
            const int k = first + column;
            if (moves.uses_gradient()) {
                double total = shared[column];
                for (int p = 1; p < parts; ++p) total += shared[p * columns + column];
                moves.proposed_gradient[k] = static_cast<T>(total);
            }
            moves.add_to_ratio(k, step_size, ratio);
            squares += moves.squared(k, moves.proposed(k));
        }
        block.sync();  // the sums are read no more
    }
    double sum[3] = {ratio.along, ratio.bend, squares};
    sum_over_block(block, sum, shared + reduce_items);
    if (block.thread != 0) return;
    double* const out = launch.ratio_sums + (static_cast<std::int64_t>(chain) * launch.reduce_blocks + part) * 3;
    for (int i = 0; i < 3; ++i) out[i] = sum[i];
}

// One noise variance of all outputs given the state, after the step whose decision is in `slabs`: l and g are
// proportional to its inverse, up to the constant of l. g follows in the next advance(). A draw at which l or g is not
// finite is refused. Called by a whole block; `shared` holds reduction_values doubles.
template <class T>
PATRAC_DEVICE void draw_variance(const ThreadBlock& block, const ChainMoves<T>& moves, DeviceChain& state,
                                 SlabState& slabs, std::int64_t step, double* shared) {
    const ChainVariance<T>& noise = moves.noise;
    if (block.thread == 0) {
        noise.squares[0] = noise.each.sum_of_squares(state.log_likelihood, noise.values[0]);
        noise.draw(moves.key, static_cast<std::uint64_t>(step));
    }
    block.sync();
    const T* const gradient = slabs.moved ? moves.proposed_gradient : moves.gradient;
    const double factor = noise.previous[0] / noise.values[0], log_likelihood = noise.log_likelihood();
    double infinite[1] = {!ChainMoves<T>::is_finite(log_likelihood) ? 1.0 : 0.0};
    for (int k = block.thread; k < moves.launch.dim; k += block.threads)
        infinite[0] +=
            !ChainMoves<T>::is_finite(static_cast<double>(static_cast<T>(factor * static_cast<double>(gradient[k]))));
    sum_over_block(block, infinite, shared);
    if (block.thread != 0) return;
    if (infinite[0] > 0.0) {
        noise.undo();
        moves.record_refusal(state);
    } else {
        slabs.rescale = factor;
        state.log_likelihood = log_likelihood;
    }
}

// The accept test of a step, and all that the chain keeps of it beside its coordinates. `shared` holds
// reduction_values doubles.
template <class T>
PATRAC_DEVICE void decide(const ThreadBlock& block, const SlabLaunch<T>& launch, int chain, double* shared) {
    double log_likelihood[1] = {0.0}, sum[3] = {0.0, 0.0, 0.0};
    for (int s = block.thread; s < launch.n_slabs; s += block.threads)
        log_likelihood[0] += launch.slab_log_likelihood[static_cast<std::int64_t>(chain) * launch.n_slabs + s];
    for (int r = block.thread; r < launch.reduce_blocks; r += block.threads)
        for (int i = 0; i < 3; ++i)
            sum[i] += launch.ratio_sums[(static_cast<std::int64_t>(chain) * launch.reduce_blocks + r) * 3 + i];
    sum_over_block(block, log_likelihood, shared);
    sum_over_block(block, sum, shared);

    const ChainMoves<T> moves = slab_moves(launch, chain);
    DeviceChain& state = launch.chains[chain];
    SlabState& slabs = launch.states[chain];
    const std::int64_t step = slabs.step;
    const bool draws = !launch.start && launch.noise.follows(step);
    double ratio = 0.0;
    bool finite = false, moved = false;
    if (block.thread == 0) {
        if (launch.start && moves.persists()) state.threshold = moves.start_threshold();
        log_likelihood[0] += moves.constant();
        ratio = log_likelihood[0] - state.log_likelihood + 0.5 * (sum[1] - sum[0]);
        finite = ChainMoves<T>::is_finite(ratio);
        moved = moves.moves(ratio, finite, static_cast<std::uint64_t>(step), state.threshold);
        slabs.moved = moved;
        slabs.rescale = 1.0;
        slabs.step_size = state.progress.step_size;
        if (moved) {
            state.log_likelihood = log_likelihood[0];
            slabs.squares = sum[2];
        }
    }
    block.sync();  // what was decided, and the step, which goes on below
    if (draws) draw_variance(block, moves, state, slabs, step, shared);
    if (block.thread != 0) return;

    moves.record(state, moved, finite, ratio, state.log_likelihood);
    slabs.keep_at = -1;
    if (launch.start) return;
    if (step == launch.first_step) slabs.kept = 0;
    ++slabs.step;
    if (!moves.keeps_draw(state)) return;
    slabs.keep_at = chain * launch.draws + slabs.kept++;
    moves.keep_numbers(state, slabs.keep_at, slabs.step_size, state.log_likelihood, slabs.squares);
}

}  // namespace patrac::PATRAC_LEVEL
