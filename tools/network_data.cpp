#include "tools/network_data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "src/problem/dtype.hpp"
#include "src/problem/npy.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

struct Assignment {
  std::string name, value;
};
Assignment split_assignment(const std::string& option, const std::string& text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0)
    throw Error(Status::bad_problem, fmt::format("{} {}: it must be NAME=VALUE", option, text));
  return {text.substr(0, at), text.substr(at + 1)};
}

std::size_t find_tensor(const std::vector<NetworkTensor>& tensors, const std::string& option,
                        const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NetworkTensor::name);
  if (found != tensors.end()) return static_cast<std::size_t>(found - tensors.begin());
  std::vector<std::string> names;
  for (const NetworkTensor& tensor : tensors) names.push_back(tensor.name);
  throw Error(Status::bad_problem,
              fmt::format("{} {}: there is no such tensor; there are {}", option, name, join_or(names)));
}

// A drawn number as an element; of those that are whole numbers or truths whether it is positive.
void store(Element element, float value, std::byte* to) {
  const std::uint16_t half = element == Element::f16 ? float_to_f16(value) : float_to_bf16(value);
  if (element == Element::f32)
    std::memcpy(to, &value, sizeof value);
  else if (element == Element::f16 || element == Element::bf16)
    std::memcpy(to, &half, sizeof half);
  else
    *to = value > 0 ? std::byte{1} : std::byte{0};
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double number(Element element, const std::byte* from) {
  switch (element) {
    case Element::f32:
      return load<float>(from);
    case Element::f16:
      return f16_to_float(load<std::uint16_t>(from));
    case Element::bf16:
      return bf16_to_float(load<std::uint16_t>(from));
    case Element::i32:
      return load<std::int32_t>(from);
    case Element::i64:
      return static_cast<double>(load<std::int64_t>(from));
    case Element::boolean:
      return load<bool>(from);
  }
  return 0;
}

std::int64_t elements(const NetworkTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.sizes) count *= size;
  return count;
}

}  // namespace

std::vector<NamedArray> read_arrays(const std::vector<std::string>& texts) {
  std::vector<NamedArray> arrays;
  for (const std::string& text : texts) {
    const Assignment a = split_assignment("--input", text);
    arrays.push_back({a.name, a.value, read_npy(a.value)});
  }
  return arrays;
}

std::vector<std::vector<std::int64_t>> network_sizes(const std::vector<NetworkTensor>& inputs,
                                                     const std::vector<std::string>& texts,
                                                     const std::vector<NamedArray>& arrays) {
  const auto is_open = [](std::int64_t size) { return size < 0; };
  std::vector<std::vector<std::int64_t>> sizes;
  for (const NetworkTensor& input : inputs) sizes.push_back(input.sizes);
  for (const NamedArray& array : arrays) {
    std::vector<std::int64_t>& to = sizes[find_tensor(inputs, "--input", array.name)];
    if (std::ranges::any_of(to, is_open)) to = array.array.shape;
  }
  for (const std::string& text : texts) {
    const Assignment a = split_assignment("--size", text);
    std::vector<std::int64_t>& to = sizes[find_tensor(inputs, "--size", a.name)];
    if (a.value.empty() || a.value.find_first_not_of("0123456789x") != std::string::npos)
      throw Error(Status::bad_problem,
                  fmt::format("--size {}: sizes are numbers with x between them, as 1x3x640x640", text));
    to.clear();
    for (const std::string& number : split(a.value, 'x'))
      to.push_back(parse_count("--size " + a.name, number, 1));
  }
  std::string open;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (std::ranges::none_of(sizes[i], is_open)) continue;
    std::vector<std::string> shown;
    for (const std::int64_t size : sizes[i]) shown.push_back(is_open(size) ? "?" : std::to_string(size));
    open += fmt::format(" --size {}={}", inputs[i].name, fmt::join(shown, "x"));
  }
  if (!open.empty())
    throw Error(Status::bad_problem,
                "sizes of inputs are open; give a number for each ?:" + open + ", or the input as a file");
  return sizes;
}

NetworkBuffers::NetworkBuffers(const std::vector<NetworkTensor>& tensors, const std::string& device)
    : tensors_(tensors), pool_(device) {
  for (const NetworkTensor& tensor : tensors_) {
    data_.emplace_back(static_cast<std::size_t>(elements(tensor)) * bytes(tensor.element));
    there_.push_back(pool_.allocate(std::max<std::size_t>(1, data_.back().size())));
  }
}

void NetworkBuffers::upload() {
  for (std::size_t i = 0; i < data_.size(); ++i) pool_.copy_in(there_[i], data_[i].data(), data_[i].size());
}

void NetworkBuffers::download() {
  for (std::size_t i = 0; i < data_.size(); ++i) pool_.copy_out(data_[i].data(), there_[i], data_[i].size());
}

void NetworkBuffers::draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::size_t size = bytes(tensors_[i].element);
    for (std::size_t at = 0; at < data_[i].size(); at += size) {
      store(tensors_[i].element, normal(random), &data_[i][at]);
    }
  }
}

std::size_t NetworkBuffers::find(const std::string& option, const std::string& name) const {
  const std::size_t i = find_tensor(tensors_, option, name);
  if (tensors_[i].element != Element::f32)
    throw Error(Status::unsupported, fmt::format("{} {}: only tensors of f32 are files", option, name));
  return i;
}

void NetworkBuffers::read(const std::vector<NamedArray>& arrays) {
  for (const NamedArray& a : arrays) {
    const std::size_t i = find("--input", a.name);
    check_npy(a.array, a.file, a.name, DType::f32, tensors_[i].sizes);
    data_[i] = a.array.data;
  }
}

void NetworkBuffers::write(const std::vector<std::string>& texts) const {
  std::vector<OutputFile> files;
  for (const std::string& text : texts)
    files.push_back({"--output " + text, split_assignment("--output", text).value});
  check_apart(files);
  for (const std::string& text : texts) {
    const Assignment a = split_assignment("--output", text);
    const std::size_t i = find("--output", a.name);
    write_npy(a.value, DType::f32, tensors_[i].sizes, data_[i].data());
  }
}

std::vector<double> NetworkBuffers::numbers(std::size_t i) const {
  std::vector<double> all;
  const std::size_t size = bytes(tensors_[i].element);
  for (std::size_t at = 0; at < data_[i].size(); at += size)
    all.push_back(number(tensors_[i].element, &data_[i][at]));
  return all;
}

std::vector<const void*> NetworkBuffers::host_reads() const {
  std::vector<const void*> all;
  for (const auto& bytes : data_) all.push_back(bytes.data());
  return all;
}

}  // namespace faltung::tools
