// What a network is run on from the command line: sizes, inputs from files or drawn, results.
#ifndef FALTUNG_TOOLS_NETWORK_DATA_HPP_
#define FALTUNG_TOOLS_NETWORK_DATA_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "faltung/network.hpp"
#include "src/problem/npy.hpp"

namespace faltung::tools {

struct NamedArray {
  std::string name, file;
  NpyArray array;
};
// `texts`: NAME=FILE.npy.
std::vector<NamedArray> read_arrays(const std::vector<std::string>& texts);

// Of every input: what `texts` (NAME=1x3x224x224) says, else where its sizes are open those of its array.
// Throws Error(bad_problem) for a name that is none, and with all inputs that lack a size.
std::vector<std::vector<std::int64_t>> network_sizes(const std::vector<NetworkTensor>& inputs,
                                                     const std::vector<std::string>& texts,
                                                     const std::vector<NamedArray>& arrays);

// Elements of tensors, one buffer each on the host and on the device.
class NetworkBuffers {
 public:
  NetworkBuffers(const std::vector<NetworkTensor>& tensors, const std::string& device);
  // Normally distributed floats; whole numbers are 0 and 1.
  void draw(std::uint64_t seed);
  // Of f32.
  void read(const std::vector<NamedArray>& arrays);
  // `texts`: NAME=FILE.npy.
  void write(const std::vector<std::string>& texts) const;

  // From the host to the device and back.
  void upload();
  void download();

  const std::vector<NetworkTensor>& tensors() const { return tensors_; }
  const std::byte* data(std::size_t i) const { return data_[i].data(); }
  std::vector<double> numbers(std::size_t i) const;
  // The device's addresses, and the host's.
  std::vector<const void*> reads() const { return {there_.begin(), there_.end()}; }
  const std::vector<void*>& writes() const { return there_; }
  std::vector<const void*> host_reads() const;
  MemoryPool& pool() { return pool_; }

 private:
  std::size_t find(const std::string& option, const std::string& name) const;
  std::vector<NetworkTensor> tensors_;
  std::vector<std::vector<std::byte>> data_;
  MemoryPool pool_;
  std::vector<void*> there_;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_NETWORK_DATA_HPP_
