// The CUDA device: memory, streams, and launches.
#define PATRAC_LEVEL cuda
#define PATRAC_VECTOR_BYTES 16
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "cuda/device/chain_steps.hpp"
#include "cuda/device/cuda_check.hpp"
#include "cuda/device/cuda_device.hpp"
#include "cuda/device/slab_steps.hpp"
#include "cuda/run/resident_inputs.hpp"
#include "cuda/run/resident_model.hpp"

namespace patrac {
namespace cuda {
namespace {

template <class T>
__global__ void write_normals_of(const NormalsLaunch<T> work) {
    write_normals(ThreadBlock(), work.key, work.purpose, work.step, static_cast<int>(work.count), work.out);
}

template <class Work>
__global__ void set_up(const Work work) {
    work.run(std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, std::int64_t{gridDim.x} * blockDim.x);
}

// Makes a device the calling thread's current one, to which its allocations and launches go, and restores the caller's
// choice at the end of the scope.
class ChosenDevice {
public:
    explicit ChosenDevice(int index) {
        check(cudaGetDevice(&before_), "finding the current device");
        if (before_ != index) check(cudaSetDevice(index), "choosing the device");
        changed_ = before_ != index;
    }
    ChosenDevice(const ChosenDevice&) = delete;
    ChosenDevice& operator=(const ChosenDevice&) = delete;
    ~ChosenDevice() {
        if (changed_) cudaSetDevice(before_);
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

int current_device() {
    int index = 0;
    check(cudaGetDevice(&index), "finding the current device");
    return index;
}

class CudaDevice final : public Device {
public:
    explicit CudaDevice(int index) : index_(index) {
        const ChosenDevice chosen(index_);
        check(cudaGetDeviceProperties(&properties_, index_), "asking for its properties");
        check(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), "making a stream");
        if (const cudaError_t error = cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking);
            error != cudaSuccess) {
            cudaStreamDestroy(compute_);
            check(error, "making a stream");
        }
    }
    ~CudaDevice() override {
        cudaStreamDestroy(compute_);
        cudaStreamDestroy(copies_);
    }

    DeviceStatus status() const override {
        DeviceStatus status;
        status.usable = true;
        status.name = properties_.name;
        status.multiprocessors = properties_.multiProcessorCount;
        status.memory_bytes = static_cast<std::int64_t>(properties_.totalGlobalMem);
        status.shared_bytes = static_cast<int>(properties_.sharedMemPerBlockOptin);
        return status;
    }

    DevicePlace place() const override { return {.kind = DevicePlace::cuda, .index = index_}; }
    bool reads(const DevicePlace& memory) const override {
        return memory.kind == DevicePlace::cuda && memory.index == index_;
    }

    // Enough threads that each has a tile of sums or two, see contract().
    int block_threads(std::int64_t nodes, std::int64_t rows) const override {
        const std::int64_t wanted = (nodes + 7) / 8 * ((rows + 3) / 4);
        int threads = warp_size;
        while (threads < 256 && threads < wanted) threads *= 2;
        return threads;
    }

    void* allocate(std::size_t bytes) override {
        const ChosenDevice chosen(index_);
        void* memory = nullptr;
        check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 16)), "allocating memory");
        if (const cudaError_t error = cudaMemsetAsync(memory, 0, bytes, compute_); error != cudaSuccess) {
            cudaFree(memory);
            check(error, "clearing memory");
        }
        return memory;
    }
    void release(void* memory) override { cudaFree(memory); }
    void upload(void* to, const void* from, std::size_t bytes) override {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, compute_), "copying to the device");
        wait();
    }
    void download(void* to, const void* from, std::size_t bytes) override {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, compute_), "copying from the device");
        wait();
    }
    void download_beside(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height) override {
        constexpr const char* what = "copying draws from the device";
        // A copy in two dimensions has rows that are less than 2 GiB apart.
        if (std::max(to_pitch, from_pitch) <= properties_.memPitch) {
            check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, cudaMemcpyDeviceToHost, copies_),
                  what);
        } else {
            for (std::size_t i = 0; i < height; ++i)
                check(cudaMemcpyAsync(static_cast<char*>(to) + i * to_pitch,
                                      static_cast<const char*>(from) + i * from_pitch, width, cudaMemcpyDeviceToHost,
                                      copies_),
                      what);
        }
        check(cudaStreamSynchronize(copies_), what);
    }
    void wait() override { check(cudaStreamSynchronize(compute_), "a kernel"); }

    void launch(const ChainLaunch<float>& work, int chains, int threads) override { run(work, chains, threads); }
    void launch(const ChainLaunch<double>& work, int chains, int threads) override { run(work, chains, threads); }
    void launch(const SlabLaunch<float>& work, int chains, int threads) override { run(work, chains, threads); }
    void launch(const SlabLaunch<double>& work, int chains, int threads) override { run(work, chains, threads); }
    void launch(const NormalsLaunch<float>& work, int, int threads) override { write(work, threads); }
    void launch(const NormalsLaunch<double>& work, int, int threads) override { write(work, threads); }
    void launch(const SetupWork& work) override {
        const ChosenDevice chosen(index_);
        std::visit(
            [this](const auto& items) {
                constexpr int threads = 256;
                const auto blocks = static_cast<unsigned>(workers_of(items.items()) / threads);
                set_up<<<blocks, threads, 0, compute_>>>(items);
            },
            work);
        check(cudaGetLastError(), "laying out the inputs");
    }

private:
    CudaLauncher launcher() { return {compute_, properties_, graph_}; }

    template <class T>
    void run(const ChainLaunch<T>& work, int chains, int threads) {
        const ChosenDevice chosen(index_);
        CudaLauncher own = launcher();
        launch_chain_steps(work, chains, threads, own);
    }
    template <class T>
    void run(const SlabLaunch<T>& work, int chains, int threads) {
        const ChosenDevice chosen(index_);
        CudaLauncher own = launcher();
        launch_slab_steps(work, chains, threads, own);
    }
    template <class T>
    void write(const NormalsLaunch<T>& work, int threads) {
        const ChosenDevice chosen(index_);
        write_normals_of<<<1, threads, 0, compute_>>>(work);
        check(cudaGetLastError(), "launching a kernel");
    }

    int index_;
    cudaDeviceProp properties_{};
    cudaStream_t compute_ = nullptr, copies_ = nullptr;
    CudaGraph graph_;  // of the last steps, which may still run
};

}  // namespace

DeviceStatus status() {
    DeviceStatus status;
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        status.reason = "no NVIDIA driver is installed";
        return status;
    }
    if (const cudaError_t error = cudaGetDeviceCount(&count); error == cudaErrorInsufficientDriver) {
        status.reason = "the NVIDIA driver supports CUDA " + std::to_string(driver / 1000) + "." +
                        std::to_string(driver % 1000 / 10) + ", and this build needs " +
                        std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10) +
                        "; update the driver";
        return status;
    } else if (error != cudaSuccess || count == 0) {
        status.reason = error == cudaSuccess || error == cudaErrorNoDevice
                            ? "no CUDA device is visible"
                            : std::string("CUDA could not start: ") + cudaGetErrorString(error);
        cudaGetLastError();
        return status;
    }
    try {
        return CudaDevice(current_device()).status();
    } catch (const std::runtime_error& error) {
        status.reason = error.what();
        return status;
    }
}

std::shared_ptr<const DeviceInputs> take_inputs(InputSource source, bool copy, std::uintptr_t stream) {
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, source.matrix.data), "finding the device of the inputs");
    if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged)
        throw std::invalid_argument("X: its memory is not that of a CUDA device; bring it to the host");
    source.place = {.kind = DevicePlace::cuda, .index = found.device};
    auto device = std::make_shared<CudaDevice>(found.device);
    if (stream != 0) {
        const ChosenDevice chosen(found.device);
        check(stream == all_streams ? cudaDeviceSynchronize()
                                    : cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream)),
              "waiting for the inputs");
    }
    return std::make_shared<ResidentInputs>(std::move(device), std::move(source), copy);
}

// Where the inputs are, if some are on a device.
template <class T>
int device_of(const DataSets<T>& data_sets) {
    std::optional<int> found;
    for (std::size_t d = 0; d < data_sets.size(); ++d) {
        const DevicePlace& place = data_sets[d]->inputs.place;
        if (place.kind != DevicePlace::cuda) continue;
        if (found && *found != place.index)
            throw std::invalid_argument(
                "posts: the inputs of data set " + std::to_string(d) + " are on cuda:" + std::to_string(place.index) +
                ", those of one before on cuda:" + std::to_string(*found) + "; those of one run must be on one device");
        found = place.index;
    }
    return found ? *found : current_device();
}

template <class T>
std::unique_ptr<DeviceModel<T>> make_model(const DataSets<T>& data_sets) {
    return std::make_unique<ResidentModel<T>>(std::make_shared<CudaDevice>(device_of(data_sets)), data_sets);
}

template <class T>
void normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out, std::int64_t count) {
    CudaDevice device(current_device());
    normals_on(device, seed, chain, step, purpose, out, count);
}

#define PATRAC_INSTANTIATE(T)                                                   \
    template std::unique_ptr<DeviceModel<T>> make_model<T>(const DataSets<T>&); \
    template void normals<T>(std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace cuda
}  // namespace patrac
