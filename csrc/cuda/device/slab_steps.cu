// The kernels of a step whose evaluation blocks share, and their graph.
#define PATRAC_LEVEL cuda
#define PATRAC_VECTOR_BYTES 16
#include "cuda/device/slab_steps.hpp"

#include <type_traits>
#include <utility>

#include "cuda/device/cuda_check.hpp"

namespace patrac::cuda {
namespace {

static_assert(sizeof(SlabLaunch<float>) <= 4096);  // of kernel arguments

extern __shared__ __align__(16) double shared_memory[];

// Grids are (blocks of a chain, chains).
PATRAC_DEVICE int chain_of_block() {
    return static_cast<int>(blockIdx.y);
}
PATRAC_DEVICE int part_of_block() {
    return static_cast<int>(blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(reduce_items)
    advance_coordinates(const __grid_constant__ SlabLaunch<T> work, bool takes, bool proposes) {
    advance(ThreadBlock(), work, chain_of_block(), part_of_block(), takes, proposes);
}

// Where a slab's activations are, and its parameters: each is addressed as what it is.
enum class Place : std::uint8_t { all_shared, parameters_apart, device_memory };

template <class T, class Zeta, Place place>
__global__ void __launch_bounds__(256, 2) evaluate_slabs(const __grid_constant__ SlabLaunch<T> work) {
    T* workspace = reinterpret_cast<T*>(shared_memory);
    if constexpr (place == Place::device_memory)
        workspace = work.slab_workspace +
                    (static_cast<std::int64_t>(chain_of_block()) * work.n_slabs + part_of_block()) * work.slab.size;
    evaluate_slab<T, Zeta, place == Place::all_shared>(ThreadBlock(), work, chain_of_block(), part_of_block(),
                                                       workspace);
}

// Grids of a wide first layer are (parts, chains, columns) and (parts, chains, splits and columns).
inline constexpr int wide_threads = 256;

template <class Inputs>
__global__ void __launch_bounds__(wide_threads, 2) forward_wide(const __grid_constant__ SlabLaunch<float> work) {
    __shared__ alignas(8) std::uint32_t words[wide_words];
    forward_slabs<Inputs>(ThreadBlock(), work, chain_of_block(), part_of_block(),
                          static_cast<int>(blockIdx.z) * wide_columns, words);
}
template <class Inputs>
__global__ void __launch_bounds__(wide_threads, 2) gradient_wide(const __grid_constant__ SlabLaunch<float> work) {
    __shared__ alignas(8) std::uint32_t words[wide_words];
    const int split = static_cast<int>(blockIdx.z) % work.n_splits,
              columns = static_cast<int>(blockIdx.z) / work.n_splits;
    gradient_slabs<Inputs>(ThreadBlock(), work, chain_of_block(), part_of_block(), split, columns * wide_columns,
                           words);
}

template <class T>
__global__ void __launch_bounds__(reduce_items) reduce_gradients(const __grid_constant__ SlabLaunch<T> work) {
    __shared__ double sums[reduce_items + reduction_values];
    reduce(ThreadBlock(), work, chain_of_block(), part_of_block(), sums);
}

template <class T>
__global__ void __launch_bounds__(reduce_items) decide_steps(const __grid_constant__ SlabLaunch<T> work) {
    __shared__ double sums[reduction_values];
    decide(ThreadBlock(), work, chain_of_block(), sums);
}

template <class T>
struct Launches {
    const SlabLaunch<T>& work;
    int n_chains, threads, shared_limit;
    cudaStream_t stream;

    void steps(std::int64_t count) const {
        for (std::int64_t step = 0; step < count; ++step) {
            advance_coordinates<<<chains(work.advance_blocks), reduce_items, 0, stream>>>(work, step > 0, true);
            if (work.first_layer) wide(true);
            evaluate();
            if (work.first_layer && work.kernel != KernelKind::pcn) wide(false);
            reduce_gradients<<<chains(work.reduce_blocks), reduce_items, 0, stream>>>(work);
            decide_steps<<<chains(1), reduce_items, 0, stream>>>(work);
        }
        advance_coordinates<<<chains(work.advance_blocks), reduce_items, 0, stream>>>(work, true, false);
        check(cudaGetLastError(), "launching a kernel");
    }

private:
    dim3 chains(int blocks) const { return {static_cast<unsigned>(blocks), static_cast<unsigned>(n_chains)}; }
    void wide(bool forward) const {
        if constexpr (std::is_same_v<T, float>)
            work.plan.wide.bytes ? wide_with<ByteInputs>(forward) : wide_with<FloatInputs>(forward);
    }
    template <class Inputs>
    void wide_with(bool forward) const {
        constexpr int rows_of_block = wide_threads / warp_size * Inputs::tiles * 16;
        const int end = forward ? work.plan.n_rows : work.plan.wide.features + 1;
        dim3 grid = chains((end + rows_of_block - 1) / rows_of_block);
        grid.z = static_cast<unsigned>((work.plan.layers[0].n_rows + wide_columns - 1) / wide_columns);
        if (forward) {
            forward_wide<Inputs><<<grid, wide_threads, 0, stream>>>(work);
        } else {
            grid.z *= static_cast<unsigned>(work.n_splits);
            gradient_wide<Inputs><<<grid, wide_threads, 0, stream>>>(work);
        }
    }
    void evaluate() const {
        if (work.plan.activation == Activation::tanh)
            evaluate_with<TanhActivation>();
        else
            evaluate_with<AnyActivation>();
    }
    template <class Zeta>
    void evaluate_with() const {
        if (work.slab_workspace)
            evaluate_in<Zeta, Place::device_memory>(0);
        else if (work.slab.packed < 0)
            evaluate_in<Zeta, Place::parameters_apart>(work.slab.size * static_cast<int>(sizeof(T)));
        else
            evaluate_in<Zeta, Place::all_shared>(work.slab.size * static_cast<int>(sizeof(T)));
    }
    template <class Zeta, Place place>
    void evaluate_in(int shared_bytes) const {
        const auto kernel = evaluate_slabs<T, Zeta, place>;
        // See CudaDevice::run_with().
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_limit),
              "asking for shared memory");
        kernel<<<chains(work.n_slabs), threads, static_cast<std::size_t>(shared_bytes), stream>>>(work);
    }
};

}  // namespace

SlabSteps::~SlabSteps() {
    if (graph_) cudaGraphExecDestroy(graph_);
}

template <class T>
void SlabSteps::launch(const SlabLaunch<T>& work, int chains, int threads, int shared_limit, cudaStream_t stream) {
    const Launches<T> launches{work, chains, threads, shared_limit, stream};
    constexpr std::int64_t batch = 16;
    const std::int64_t batches = work.steps / batch;
    if (batches > 1) {
        if (graph_) {
            check(cudaStreamSynchronize(stream), "a kernel");
            cudaGraphExecDestroy(std::exchange(graph_, nullptr));
        }
        cudaGraph_t recorded = nullptr;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording steps");
        try {
            launches.steps(batch);
        } catch (...) {
            cudaStreamEndCapture(stream, &recorded);
            if (recorded) cudaGraphDestroy(recorded);
            cudaGetLastError();  // so that the next launch does not see it again
            throw;
        }
        check(cudaStreamEndCapture(stream, &recorded), "recording steps");
        const cudaError_t error = cudaGraphInstantiate(&graph_, recorded, 0);
        cudaGraphDestroy(recorded);
        check(error, "recording steps");
        for (std::int64_t b = 0; b < batches; ++b) check(cudaGraphLaunch(graph_, stream), "launching steps");
        if (work.steps % batch > 0) launches.steps(work.steps % batch);
    } else {
        launches.steps(work.steps);
    }
}

template void SlabSteps::launch<float>(const SlabLaunch<float>&, int, int, int, cudaStream_t);
template void SlabSteps::launch<double>(const SlabLaunch<double>&, int, int, int, cudaStream_t);

}  // namespace patrac::cuda
