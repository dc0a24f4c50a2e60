// .npy files.
#include "src/problem/npy.hpp"

#include <sstream>

#include "src/problem/dtype.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace faltung;

namespace {

NpyArray read(const std::string& bytes) {
  std::istringstream in(bytes);
  return read_npy(in, static_cast<std::int64_t>(bytes.size()), "fuzz.npy");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parses(Status::bad_file, [&] {
    const NpyArray a = read(std::string(text_of(data, size)));
    std::int64_t bytes = size_of(a.dtype);
    for (const std::int64_t axis : a.shape) bytes *= axis;
    require(bytes == static_cast<std::int64_t>(a.data.size()), "data and shape differ");
    const std::string written = npy_header(a.dtype, a.shape) +
                                std::string(reinterpret_cast<const char*>(a.data.data()), a.data.size());
    const NpyArray b = read(written);
    require(a.dtype == b.dtype && a.shape == b.shape && a.data == b.data, "another array after a round trip");
  });
  return 0;
}
