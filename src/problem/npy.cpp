#include "src/problem/npy.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "src/problem/cursor.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/problem.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr i64 kLongestHeader = 1 << 16;
constexpr std::size_t kMostAxes = 32;

[[noreturn]] void bad(const std::string& file, const std::string& message) {
  throw Error(Status::bad_file, file + ": " + message);
}

std::string shape_text(const std::vector<i64>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

const char* descriptor(DType dtype) {
  constexpr const char* kDescriptors[] = {"<f4", "<f2", "<V2"};
  return kDescriptors[static_cast<int>(dtype)];
}

// The header: a Python dictionary of three known keys.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const std::string& file) : text_(text), rest_(text), file_(file) {}

  void read(NpyArray& array) {
    expect('{');
    while (!take('}')) {
      const std::string key = quoted_word();
      expect(':');
      if (key == "descr" && !descr_) {
        descr_ = quoted_word();
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = truth();
      } else if (key == "shape" && !shape_) {
        shape_ = tuple();
      } else {
        damaged("has the key " + quote(key) + " unexpectedly");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    blanks();
    if (!rest_.empty()) damaged("does not end after its dictionary");
    if (!descr_ || !fortran_ || !shape_) damaged("lacks descr, fortran_order or shape");
    array.dtype = dtype();
    if (*fortran_ && shape_->size() > 1) {
      bad(file_, "is in Fortran order; save numpy.ascontiguousarray(a) instead");
    }
    array.shape = *shape_;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    bad(file_, "its header " + what + "; it must be as numpy.save writes it");
  }

  void blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    blanks();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) damaged("has no '" + std::string(1, c) + "' at " + quote(rest_.substr(0, 20)));
  }

  std::string quoted_word() {
    const char mark = take('\'') ? '\'' : '"';
    if (mark == '"') expect('"');
    const std::size_t end = rest_.find(mark);
    if (end == std::string_view::npos) damaged("has a word that does not end");
    const std::string word(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return word;
  }

  bool truth() {
    blanks();
    for (const std::string_view word : {"True", "False"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    damaged("has a fortran_order that is neither True nor False");
  }

  std::vector<i64> tuple() {
    std::vector<i64> out;
    expect('(');
    while (!take(')')) {
      blanks();
      i64 value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc() || value < 0) damaged("has a shape that is no tuple of sizes");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      out.push_back(value);
      if (out.size() > kMostAxes) damaged("has a shape of more than 32 axes");
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  DType dtype() const {
    const std::string& d = *descr_;
    if (d == "<f4") return DType::f32;
    if (d == "<f2") return DType::f16;
    if (d == "<V2" || d == "|V2" || d == "<u2") return DType::bf16;
    const std::string wanted = "; faltung reads <f4 (f32), <f2 (f16) and <V2 (bf16)";
    if (d == "<f8") bad(file_, "holds float64 (<f8); save a.astype(numpy.float32) instead");
    if (d.starts_with('>')) bad(file_, "holds big-endian " + printable(d) + wanted);
    bad(file_, "holds " + quote(d) + wanted);
  }

  std::string_view text_, rest_;
  const std::string& file_;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<i64>> shape_;
};

std::string read_bytes(std::istream& in, i64 count, const std::string& file) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  if (!in.read(bytes.data(), count)) bad(file, "is truncated or cannot be read");
  return bytes;
}

i64 little_endian(std::string_view bytes) {
  i64 value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

}  // namespace

NpyArray read_npy(std::istream& in, i64 size, const std::string& file) {
  if (size < 10) bad(file, "is no .npy file: it has " + std::to_string(size) + " bytes");
  const std::string start = read_bytes(in, 8, file);
  if (!start.starts_with(kMagic)) bad(file, "is no .npy file: it does not start with \\x93NUMPY");
  const int major = static_cast<unsigned char>(start[6]), minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    bad(file, "is of .npy format " + std::to_string(major) + "." + std::to_string(minor) +
                  "; faltung reads 1.0, 2.0 and 3.0");
  }
  const i64 digits = major == 1 ? 2 : 4;
  if (size < 8 + digits) bad(file, "is truncated in its header");
  const i64 length = little_endian(read_bytes(in, digits, file));
  const i64 offset = 8 + digits + length;
  if (length > kLongestHeader)
    bad(file, "has a header of " + std::to_string(length) + " bytes; 2^16 is the most");
  if (size < offset) bad(file, "is truncated in its header");
  NpyArray array;
  const std::string header = read_bytes(in, length, file);
  NpyHeader(header, file).read(array);

  i64 bytes = size_of(array.dtype);
  for (const i64 axis : array.shape) {
    if (__builtin_mul_overflow(bytes, axis, &bytes)) {
      bad(file, "its shape " + shape_text(array.shape) + " has more elements than memory can hold");
    }
  }
  if (size - offset != bytes) {
    bad(file, std::string(size - offset < bytes ? "is truncated" : "is longer than its header says") +
                  ": shape " + shape_text(array.shape) + " of " + name(array.dtype) + " takes " +
                  std::to_string(bytes) + " bytes, " + std::to_string(size - offset) + " are there");
  }
  array.data.resize(static_cast<std::size_t>(bytes));
  if (!in.read(reinterpret_cast<char*>(array.data.data()), bytes)) bad(file, "cannot be read to its end");
  return array;
}

NpyArray read_npy(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) bad(path, "cannot be opened; give a .npy file");  // a pipe would be waited for
  std::ifstream in(path, std::ios::binary);
  if (!in) bad(path, "cannot be opened; give a .npy file");
  return read_npy(in, static_cast<i64>(size), path);
}

std::string npy_header(DType dtype, const std::vector<i64>& shape) {
  std::string header = std::string("{'descr': '") + descriptor(dtype) +
                       "', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  // The data starts at a multiple of 64, for whoever maps the file.
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  const std::size_t n = header.size();
  return std::string(kMagic) + '\x01' + '\0' + static_cast<char>(n & 0xff) + static_cast<char>(n >> 8) +
         header;
}

void write_npy(const std::string& path, DType dtype, const std::vector<i64>& shape, const void* data) {
  i64 bytes = size_of(dtype);
  for (const i64 axis : shape) bytes *= axis;
  namespace fs = std::filesystem;
  std::error_code error;
  // What is there already and is no file of its own, such as /dev/null or a link, is written to as it is.
  const bool in_place = fs::is_symlink(fs::symlink_status(path, error)) ||
                        (fs::exists(path, error) && !fs::is_regular_file(path, error));
  const std::string unfinished = in_place ? path : path + ".unfinished";
  std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
  const std::string header = npy_header(dtype, shape);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(static_cast<const char*>(data), bytes);
  out.close();
  if (out && !in_place) fs::rename(unfinished, path, error);
  if (!out || error) {
    if (!in_place) fs::remove(unfinished, error);
    bad(path, "cannot be written; " + std::to_string(header.size() + static_cast<std::size_t>(bytes)) +
                  " bytes are needed");
  }
}

void check_npy(const NpyArray& array, const std::string& file, const std::string& tensor, DType dtype,
               const std::vector<i64>& shape) {
  if (array.dtype == dtype && array.shape == shape) return;
  bad(file, std::string("holds ") + name(array.dtype) + " of shape " + shape_text(array.shape) + "; " +
                tensor + " must be " + name(dtype) + " of shape " + shape_text(shape));
}

}  // namespace faltung
