// A record of the store; and any text as a record's payload and key.
#include "src/store/record.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace faltung;

namespace {

void round_trip(const Record& r) {
  const std::string text = encode_record(r);
  const Record back = decode_record(text);
  require(back.kind == r.kind && back.key == r.key && back.payload == r.payload,
          "another record after a round trip");
  require(encode_record(back) == text, "other bytes for the same record");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(text_of(data, size));
  parses(Status::bad_file, [&] { round_trip(decode_record(text)); });
  // What is no UTF-8 is refused as the caller's defect.
  parses(Status::internal, [&] { round_trip({"kind", text.substr(0, size / 2), text, 0}); });
  return 0;
}
