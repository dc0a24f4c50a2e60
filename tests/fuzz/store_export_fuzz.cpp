// An exported store, as import reads it.
#include "src/store/record.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace faltung;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parses(Status::bad_file, [&] {
    const std::vector<Record> records = decode_export(text_of(data, size), [](const std::string& what) {
      require(what.find('\n') == std::string::npos, "a warning of several lines: " + what);
    });
    const std::string text = encode_export(records);
    const std::vector<Record> back =
        decode_export(text, [](const std::string& what) { require(false, what); });
    require(back.size() == records.size(), "records are lost in a round trip");
    require(encode_export(back) == text, "other bytes for the same records");
  });
  return 0;
}
