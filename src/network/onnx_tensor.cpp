#include "src/network/onnx_tensor.hpp"

#include <fmt/core.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "src/network/onnx_fields.hpp"

namespace faltung::network {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "ONNX's raw data is little-endian");

struct External {
  std::string location;
  std::int64_t offset = 0;
  std::optional<std::int64_t> length;
};

struct Parts {
  std::string name;
  Shape shape;
  std::int64_t type = 0;
  std::optional<std::string_view> raw;
  std::vector<std::int64_t> integers;
  std::vector<float> floats;
  std::vector<double> doubles;
  bool is_external = false;
  External external;
};

std::int64_t parse_number(std::string_view what, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw Error(Status::bad_file,
                fmt::format("the {} {} of external data is no number", what, in_quotes(text)));
  return value;
}

void read_external(std::string_view message, External& external) {
  std::string_view key, value;
  for (Fields f(message); f.next();) {
    if (f.id() == 1)
      key = f.bytes();
    else if (f.id() == 2)
      value = f.bytes();
  }
  if (key == "location") external.location = value;
  if (key == "offset") external.offset = parse_number("offset", value);
  if (key == "length") external.length = parse_number("length", value);
}

Parts read_parts(std::string_view message) {
  Parts p;
  for (Fields f(message); f.next();) {
    switch (f.id()) {
      case 1:
        f.append(p.shape);
        break;
      case 2:
        p.type = f.integer();
        break;
      case 4:
        f.append(p.floats);
        break;
      case 5:
        f.append(p.integers);
        break;  // int32_data, which holds every narrow type
      case 7:
        f.append(p.integers);
        break;  // int64_data
      case 11:
        f.append(p.integers);
        break;  // uint64_data
      case 8:
        p.name = f.bytes();
        break;
      case 9:
        p.raw = f.bytes();
        break;
      case 10:
        f.append(p.doubles);
        break;
      case 13:
        read_external(f.bytes(), p.external);
        break;
      case 14:
        p.is_external = f.integer() == 1;
        break;
      default:
        break;
    }
  }
  return p;
}

// Elements that the file has as numbers, in memory of their own.
template <class T>
Constant own(Type type, Shape shape, const std::vector<T>& numbers) {
  const std::size_t size = size_of(type);
  const auto bytes = std::make_shared<std::vector<std::byte>>(numbers.size() * size);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint64_t bits = 0;  // the low bytes of a narrower integer, and of a 16-bit float, are its own
    std::memcpy(&bits, &numbers[i], sizeof(T));
    std::memcpy(bytes->data() + i * size, &bits, size);
  }
  return {type, std::move(shape), bytes, bytes->data()};
}

void require_count(std::size_t there, std::int64_t wanted, const char* unit, const Parts& p) {
  if (there == static_cast<std::size_t>(wanted)) return;
  throw Error(Status::bad_file, fmt::format("tensor {} has shape {}, which takes {} {}, and the file has {}",
                                            in_quotes(p.name), to_string(p.shape), wanted, unit, there));
}

}  // namespace

MappedFile& TensorSource::external_file(const std::string& location) {
  if (const auto found = external_.find(location); found != external_.end()) return found->second;
  const auto refuse = [&](const char* why) -> Error {
    return Error(Status::bad_file,
                 fmt::format("a tensor's data lies in {}, {}; it must be a file in the model's folder",
                             in_quotes(location), why));
  };
  if (folder_.empty()) throw refuse("and the model was not read from a file");
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute())
    throw refuse("which is no relative path");
  // Links are followed before it is asked where the file lies.
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error) throw refuse("and the model's folder cannot be found");
  const fs::path file = fs::canonical(folder / relative, error);
  if (error) throw refuse("which does not exist");
  const auto [at, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  if (at != folder.end() || rest == file.end()) throw refuse("which lies outside of the model's folder");
  return external_.emplace(location, map_file(file)).first->second;
}

NamedTensor TensorSource::read(std::string_view message) {
  const Parts p = read_parts(message);
  const Type type = type_of_number(p.type);
  std::int64_t count;
  try {
    count = elements(p.shape);
  } catch (const Error& error) {
    throw Error(Status::bad_file, fmt::format("tensor {}: {}", in_quotes(p.name), error.what()));
  }
  const std::size_t size = size_of(type);
  NamedTensor tensor{p.name, {type, p.shape, nullptr, nullptr}};
  // Nothing computes with texts and with types that came later; the operators that would are refused by name.
  if (size == 0) return tensor;
  const std::int64_t bytes = count * static_cast<std::int64_t>(size);
  if (p.is_external) {
    const MappedFile& file = external_file(p.external.location);
    const auto there = static_cast<std::int64_t>(file.bytes.size());
    if (p.external.length) require_count(static_cast<std::size_t>(*p.external.length), bytes, "bytes", p);
    if (p.external.offset > there || bytes > there - p.external.offset) {
      throw Error(Status::bad_file,
                  fmt::format("tensor {} is {} bytes from {} on in {}, which has {}", in_quotes(p.name),
                              bytes, p.external.offset, in_quotes(p.external.location), there));
    }
    tensor.constant.owner = file.owner;
    tensor.constant.data = file.bytes.data() + p.external.offset;
  } else if (p.raw) {
    require_count(p.raw->size(), bytes, "bytes", p);
    tensor.constant.owner = owner_;
    tensor.constant.data = reinterpret_cast<const std::byte*>(p.raw->data());
  } else if (type == Type::f32) {
    require_count(p.floats.size(), count, "elements", p);
    tensor.constant = own(type, p.shape, p.floats);
  } else if (type == Type::f64) {
    require_count(p.doubles.size(), count, "elements", p);
    tensor.constant = own(type, p.shape, p.doubles);
  } else {
    require_count(p.integers.size(), count, "elements", p);
    tensor.constant = own(type, p.shape, p.integers);
  }
  return tensor;
}

}  // namespace faltung::network
