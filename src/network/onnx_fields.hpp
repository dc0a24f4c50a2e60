// The fields of a protobuf message, each asked for by the kind of value that it must hold. protozero checks
// every length against the end of its message; what it only asserts, the kind, is checked here.
#ifndef FALTUNG_SRC_NETWORK_ONNX_FIELDS_HPP_
#define FALTUNG_SRC_NETWORK_ONNX_FIELDS_HPP_

#include <bit>
#include <cstdint>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung::network {

class Fields {
 public:
  explicit Fields(std::string_view bytes) : reader_(bytes.data(), bytes.size()) {}

  // Moves to the next field; what was not taken is skipped.
  bool next() {
    if (pending_) reader_.skip();
    pending_ = reader_.next();
    return pending_;
  }
  std::uint32_t id() const { return reader_.tag(); }

  std::int64_t integer() {
    take(protozero::pbf_wire_type::varint);
    return reader_.get_int64();
  }
  float number() {
    take(protozero::pbf_wire_type::fixed32);
    return reader_.get_float();
  }
  std::string_view bytes() {
    take(protozero::pbf_wire_type::length_delimited);
    const protozero::data_view view = reader_.get_view();
    return {view.data(), view.size()};
  }
  // A repeated field comes one at a time or packed.
  void append(std::vector<std::int64_t>& to) {
    if (reader_.wire_type() == protozero::pbf_wire_type::varint) return to.push_back(integer());
    take(protozero::pbf_wire_type::length_delimited);
    for (const std::int64_t v : reader_.get_packed_int64()) to.push_back(v);
  }
  void append(std::vector<float>& to) {
    if (reader_.wire_type() == protozero::pbf_wire_type::fixed32) return to.push_back(number());
    take(protozero::pbf_wire_type::length_delimited);
    for (const float v : reader_.get_packed_float()) to.push_back(v);
  }
  void append(std::vector<double>& to) {
    if (reader_.wire_type() == protozero::pbf_wire_type::fixed64) {
      take(protozero::pbf_wire_type::fixed64);
      return to.push_back(reader_.get_double());
    }
    take(protozero::pbf_wire_type::length_delimited);
    for (const double v : reader_.get_packed_double()) to.push_back(v);
  }

 private:
  void take(protozero::pbf_wire_type type) {
    if (reader_.wire_type() != type)
      throw Error(Status::bad_file, "field " + std::to_string(id()) + " is of another kind than ONNX has it");
    pending_ = false;
  }

  protozero::pbf_reader reader_;
  bool pending_ = false;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ONNX_FIELDS_HPP_
