// A device as the host uses it: memory, copies and launches. CUDA and the emulation implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/chain/chain.hpp"
#include "cuda/model/setup.hpp"
#include "cuda/run/device_model.hpp"
#include "cuda/wide/slabs.hpp"

namespace patrac::PATRAC_LEVEL {

class Device;

// An array in the device's memory; null if it is empty.
template <class T>
class DeviceVector {
public:
    DeviceVector() = default;
    DeviceVector(Device& device, std::int64_t size);
    DeviceVector(Device& device, const std::vector<T>& values);
    DeviceVector(DeviceVector&& other) noexcept { swap(other); }
    DeviceVector& operator=(DeviceVector&& other) noexcept {
        swap(other);
        return *this;
    }
    ~DeviceVector();

    T* data() const { return data_; }
    std::int64_t size() const { return size_; }
    std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
    void upload(const T* from);
    void upload(std::int64_t first, const std::vector<T>& values);  // from element `first` on
    void download(T* to) const;

private:
    void swap(DeviceVector& other) {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    Device* device_ = nullptr;  // outlives the array
    T* data_ = nullptr;
    std::int64_t size_ = 0;
};

// The noise of one step.
template <class T>
struct NormalsLaunch {
    PhiloxKey key;
    Purpose purpose;
    std::uint64_t step;
    std::int64_t count;
    T* out;
};

// Launches and copies are in order; launch() may return before the work is done, wait() waits for all of it, and
// download_beside() copies what an earlier launch wrote while the present one runs.
class Device {
public:
    virtual ~Device() = default;

    virtual DeviceStatus status() const = 0;
    virtual DevicePlace place() const = 0;
    virtual bool reads(const DevicePlace& memory) const = 0;
    // Threads of a block that works on `nodes` nodes at a time over `rows` rows.
    virtual int block_threads(std::int64_t nodes, std::int64_t rows) const = 0;

    virtual void* allocate(std::size_t bytes) = 0;  // zeroed
    virtual void release(void* memory) = 0;
    virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
    virtual void download(void* to, const void* from, std::size_t bytes) = 0;
    // `height` rows of `width` bytes.
    virtual void download_beside(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                 std::size_t width, std::size_t height) = 0;
    virtual void wait() = 0;

    virtual void launch(const ChainLaunch<float>& work, int blocks, int threads) = 0;
    virtual void launch(const ChainLaunch<double>& work, int blocks, int threads) = 0;
    virtual void launch(const SlabLaunch<float>& work, int chains, int threads) = 0;
    virtual void launch(const SlabLaunch<double>& work, int chains, int threads) = 0;
    virtual void launch(const NormalsLaunch<float>& work, int blocks, int threads) = 0;
    virtual void launch(const NormalsLaunch<double>& work, int blocks, int threads) = 0;
    virtual void launch(const SetupWork& work) = 0;  // by workers_of() its items
};

template <class T>
DeviceVector<T>::DeviceVector(Device& device, std::int64_t size) : device_(&device), size_(size) {
    if (size > 0) data_ = static_cast<T*>(device.allocate(static_cast<std::size_t>(bytes())));
}
template <class T>
DeviceVector<T>::DeviceVector(Device& device, const std::vector<T>& values) : DeviceVector(device, std::ssize(values)) {
    upload(values.data());
}
template <class T>
DeviceVector<T>::~DeviceVector() {
    if (data_) device_->release(data_);
}
template <class T>
void DeviceVector<T>::upload(const T* from) {
    if (size_ > 0) device_->upload(data_, from, static_cast<std::size_t>(bytes()));
}
template <class T>
void DeviceVector<T>::upload(std::int64_t first, const std::vector<T>& values) {
    device_->upload(data_ + first, values.data(), values.size() * sizeof(T));
}
template <class T>
void DeviceVector<T>::download(T* to) const {
    if (size_ > 0) device_->download(to, data_, static_cast<std::size_t>(bytes()));
}

}  // namespace patrac::PATRAC_LEVEL
